"""JSON documents that quote what peers said."""

from __future__ import annotations

import orjson
import pytest

from tnats.wire.documents import encode_document


@pytest.mark.parametrize("is_indented", [False, True])
def test_bytes_that_are_no_text(is_indented: bool) -> None:
    """A document with any string at all is encoded: what is no text is told as U+FFFD, the rest as it is."""
    odd = b"a\xffb\xe9\xa9\xed\xa0\x80".decode("utf-8", "surrogateescape")
    told = orjson.loads(encode_document({odd: [odd, (odd, "\ud800"), {"n": 1, "t": "é"}]}, is_indented=is_indented))
    ((key, (text, (same, lone), rest)),) = told.items()
    assert key == text == same == "a\ufffdb" + "\ufffd" * 5
    assert (lone, rest) == ("\ufffd", {"n": 1, "t": "é"})


def test_text_is_not_looked_at_twice() -> None:
    """An ordinary document is what orjson makes of it."""
    assert encode_document({"a": ["b", None, 1.5]}) == b'{"a":["b",null,1.5]}'
