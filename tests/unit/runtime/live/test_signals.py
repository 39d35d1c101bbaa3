"""Finding the server that a signal is for."""

from __future__ import annotations

import pytest

from tnats.runtime.live.signals import is_server


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/usr/bin/python3 /usr/bin/tnats serve", True),
        ("/srv/venv/bin/python3.11 /srv/venv/bin/tnats serve -c x.conf", True),
        ("python -m tnats serve", True),
        ("python -X dev -m tnats serve -js", True),
        ("sudo tnats serve --signal reload", False),
        ("timeout 20 tnats serve", False),
        ("nice /usr/bin/tnats serve", False),
        ("/usr/bin/python3 /usr/bin/tnats sub serve", False),
        ("vim tnats serve", False),
        ("", False),
    ],
)
def test_a_server_is_known_by_its_command_line(line: str, expected: bool) -> None:
    """The interpreter that runs `tnats serve` is a server; what wraps one, and other commands, are none."""
    assert is_server(line.encode().split(b" ")) is expected
