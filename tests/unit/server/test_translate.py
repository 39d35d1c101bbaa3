"""From configuration to what the broker is told."""

from __future__ import annotations

import pytest

from tnats.broker.options import UNLIMITED
from tnats.server import translate
from tnats.server.compose import settle
from tnats.server.config.load import read_options
from tnats.server.config.options import Options

LISTENING = ("127.0.0.1", 4333)


def options_of(text: str) -> Options:
    options = read_options("x.conf", read=lambda path: text, env={}) if text else Options()
    settle(options)
    return options


@pytest.mark.parametrize(
    ("advertise", "expected"),
    [
        ("", ("0.0.0.0", 4333)),
        ("nats.example", ("nats.example", 4333)),
        ("nats.example:7000", ("nats.example", 7000)),
        ("[::1]:7000", ("::1", 7000)),
        ("[::1]", ("::1", 4333)),
        ("nats.example:0", ("nats.example", 4333)),
        ("nats.example:-1", ("nats.example", 4333)),
    ],
)
def test_advertised_address(advertise: str, expected: tuple[str, int]) -> None:
    """What INFO says: the configured host with the real port, or the advertised address, whose port is optional."""
    options = options_of(f'client_advertise: "{advertise}"' if advertise else "")
    assert translate.advertised(options, LISTENING) == expected


def test_limits_keep_their_meaning() -> None:
    """0 connections refuses everybody; 0 subscriptions is nats-server's "no limit"."""
    told = translate.broker_options(options_of("max_connections: 0\nmax_subscriptions: 0"), "ID", LISTENING)
    assert (told.max_connections, told.max_subscriptions) == (0, UNLIMITED)
    told = translate.broker_options(options_of("max_connections: 7\nmax_subscriptions: 8"), "ID", LISTENING)
    assert (told.max_connections, told.max_subscriptions) == (7, 8)


def test_a_server_without_a_name_has_its_id_for_one() -> None:
    """INFO always has a name."""
    assert translate.broker_options(options_of(""), "ID", LISTENING).server_name == "ID"
    assert translate.broker_options(options_of("server_name: n"), "ID", LISTENING).server_name == "n"
