"""EDN: what is written is read back."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tnats.harness import edn

KEYWORDS = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | KEYWORDS.map(edn.Keyword)
)
VALUES = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYWORDS, inner, max_size=4))


def keyed(value: Any) -> Any:
    """The same with the keys of maps as keywords, as they are read."""
    if isinstance(value, dict):
        return {edn.Keyword(key): keyed(item) for key, item in value.items()}
    return [keyed(item) for item in value] if isinstance(value, list) else value


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    """Any value of the kinds that are written comes back equal and of the same kind."""
    found = edn.read(edn.write(value))
    assert found == keyed(value)
    assert isinstance(found, edn.Keyword) == isinstance(value, edn.Keyword)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No input raises anything but EdnError (RecursionError would need a text far longer than a history's line)."""
    try:
        edn.read(text)
    except edn.EdnError:
        pass
