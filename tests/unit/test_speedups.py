"""Which build of the hot modules is taken."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tnats import speedups
from tnats.errors import TnatsError

MakePackage = Callable[..., tuple[str, str]]


@pytest.fixture
def make_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePackage]:
    """Make a package of two hot modules, of which those named have something that passes for an extension."""
    folder = tmp_path / "hot_things"

    def make(*built: str) -> tuple[str, str]:
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        for leaf in ("first", "second"):
            (folder / f"{leaf}.py").write_text("")
        for leaf in built:
            (folder / f"{leaf}{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"no machine code")
        return "hot_things.first", "hot_things.second"

    monkeypatch.syspath_prepend(tmp_path)
    yield make
    for name in ("hot_things", "hot_things.first", "hot_things.second"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("built", [(), ("first",), ("second",)])
def test_one_that_was_not_compiled_makes_all_run_interpreted(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, built: tuple[str, ...]
) -> None:
    """Modules that know each other's memory layout are never mixed of both builds."""
    monkeypatch.delenv("TNATS_SPEEDUPS", raising=False)
    names = make_package(*built)
    speedups.select(*names)
    assert not any(speedups.is_compiled(sys.modules[name]) for name in names)


def test_the_choices(make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> None:
    """`off` passes extensions over, `auto` takes them, `require` names the one that is missing."""
    names = make_package("first", "second")
    monkeypatch.setenv("TNATS_SPEEDUPS", "off")
    speedups.select(*names)
    assert not any(speedups.is_compiled(sys.modules[name]) for name in names)
    for name in names:
        del sys.modules[name]
    monkeypatch.setenv("TNATS_SPEEDUPS", "auto")
    with pytest.raises(ImportError, match=r"hot_things/first"):  # it is really tried
        speedups.select(*names)
    (Path(sys.path[0]) / "hot_things" / f"second{importlib.machinery.EXTENSION_SUFFIXES[0]}").unlink()
    monkeypatch.setenv("TNATS_SPEEDUPS", "require")
    with pytest.raises(TnatsError, match=r"hot_things\.second was installed without a C compiler"):
        speedups.select(*names)
    monkeypatch.setenv("TNATS_SPEEDUPS", "perhaps")
    with pytest.raises(TnatsError, match="expected auto, require or off"):
        speedups.select(*names)
