"""The progress bar."""

from __future__ import annotations

import pytest

from tnats.cli.progress import Bar


def test_the_bar_is_drawn_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows title and count there, and leaves standard output to the figures."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar("pub", 200) as advance:
        advance(150)
        advance(50)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "pub" in captured.err
    assert "200/200" in captured.err
