"""Options and server addresses."""

from __future__ import annotations

import typing

import attrs
import pytest

from tnats.client.errors import ClientError
from tnats.client.options import ConnectOptions, Options, ServerAddress, parse_address, parse_addresses
from tnats.errors import FeatureMissing


def test_the_keywords_of_connect_are_the_options() -> None:
    """`ConnectOptions` names every field of `Options` with its type, and nothing else."""
    fields = {field.name: field.type for field in attrs.fields(attrs.resolve_types(Options))}
    assert typing.get_type_hints(ConnectOptions) == fields


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", ServerAddress("host", 4222)),
        ("host:5", ServerAddress("host", 5)),
        ("nats://host", ServerAddress("host", 4222)),
        (" nats://host:7/ ", ServerAddress("host", 7)),
        ("nats://u:p@host", ServerAddress("host", 4222, user="u", password="p")),
        ("u:p%40ss@host", ServerAddress("host", 4222, user="u", password="p@ss")),
        ("nats://s3cr3t@host", ServerAddress("host", 4222, token="s3cr3t")),
        ("nats://[::1]:9", ServerAddress("::1", 9)),
    ],
)
def test_addresses(text: str, expected: ServerAddress) -> None:
    """The forms in which people write a server's address."""
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "nats://", "host:port", "host:99999", "http://host", "nats://:4222"])
def test_what_is_no_address(text: str) -> None:
    """Each raises ClientError with the text in it."""
    with pytest.raises(ClientError, match="server address"):
        parse_address(text)


@pytest.mark.parametrize("scheme", ["tls", "ws", "wss"])
def test_schemes_not_offered_are_named(scheme: str) -> None:
    """A known scheme that is not available says so."""
    with pytest.raises(FeatureMissing, match=f"{scheme}://"):
        parse_address(f"{scheme}://host")


def test_several_addresses() -> None:
    """One text with commas, or an iterable; none at all is an error."""
    expected = [ServerAddress("a", 4222), ServerAddress("b", 1)]
    assert parse_addresses("a,b:1") == expected
    assert parse_addresses(["a", "b:1"]) == expected
    with pytest.raises(ClientError, match="no server address"):
        parse_addresses([])


def test_urls_hold_no_secrets() -> None:
    """What events and errors show of an address carries no credentials; IPv6 is bracketed."""
    address = parse_address("nats://u:secret@[::1]:9")
    assert address.url == "nats://[::1]:9"
    assert "secret" not in repr(address)


@pytest.mark.parametrize("name", ["connect_timeout_s", "reconnect_wait_min_s", "ping_interval_s", "pending_bytes_max"])
def test_limits_must_be_positive(name: str) -> None:
    """Zero and less are refused with the option's name."""
    for value in (0, -1):
        with pytest.raises(ClientError, match=name):
            Options(**{name: value})
