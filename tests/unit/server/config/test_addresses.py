"""Addresses in configurations."""

from __future__ import annotations

import pytest

from tnats.server.config.addresses import split_host_port


@pytest.mark.parametrize(
    ("text", "parts"), [("h:1", ("h", "1")), (":1", ("", "1")), ("[::1]:2", ("::1", "2")), ("h:", ("h", ""))]
)
def test_address_is_split(text: str, parts: tuple[str, str]) -> None:
    """Host and port, IPv6 in brackets."""
    assert split_host_port(text) == parts


@pytest.mark.parametrize("text", ["h", "::1:2", "[::1", "[::1]2", "h]:1", ""])
def test_bad_address_is_refused(text: str) -> None:
    """What is no host and port raises ValueError."""
    with pytest.raises(ValueError, match="address"):
        split_host_port(text)
