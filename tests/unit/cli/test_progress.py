"""The progress bar."""

from __future__ import annotations

import pytest

from tnats.cli.progress import Bar, Steps, drawing


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


def test_without_a_terminal_each_tenth_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What runs for long says so on standard error, ten times at most; where a bar is drawn it says nothing."""
    progress = drawing()
    progress.disable = True
    steps = Steps(progress)
    for count in range(1, 201):
        steps(count / 200, f"{count} of 200")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [f"{count} of 200" for count in range(20, 201, 20)]
    progress.disable = False
    Steps(progress)(1, "200 of 200")
    assert capsys.readouterr().err == ""
