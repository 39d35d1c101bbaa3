"""CONNECT as nats-server reads it; every row was tried against nats-server 2.15.1."""

from __future__ import annotations

import pytest

from tnats.wire.connect import ConnectInfo, encode_connect, parse_connect


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        (b"{}", {}),
        (b" { } ", {}),
        (b"null", {}),
        (b'{"verbose":false}', {"verbose": False}),
        (b'{"VERBOSE":false}', {"verbose": False}),
        ('{"verboſe":false}'.encode(), {"verbose": False}),
        (b'{"verbose":null}', {}),
        (b'{"verbose":false,"verbose":true}', {"verbose": True}),
        (b'{"verbose":false,"VerBose":true}', {"verbose": True}),
        (b'{"name":"\xff\xfe"}', {"name": "\ufffd\ufffd"}),
        (b'{"name":"\\ud800"}', {"name": "\ufffd"}),
        (b'{"name":"\\ud83d\\ude00"}', {"name": "😀"}),
        (b'{"protocol":1} ', {"protocol": 1}),
        (b'{"protocol":-0}', {"protocol": 0}),
        (b'{"protocol":2}', {"protocol": 2}),
        (b'{"zz":1e999,"yy":[{"a":null}]}', {}),
        (b'{"pass":"p","user":"u","auth_token":"t"}', {"password": "p", "user": "u", "auth_token": "t"}),
        (b'{"password":"p"}', {}),
        ('{"paß":"p"}'.encode(), {}),
        (b'{"import":{"ALLOW":["a",null],"deny":null,"x":1},"export":null}', {}),
        (b'{"account":"","headers":true,"no_responders":true}', {"headers": True, "no_responders": True}),
    ],
)
def test_valid(argument: bytes, changed: dict[str, object]) -> None:
    """What is said changes the defaults (verbose, pedantic, echo on); all else is passed over."""
    options = parse_connect(argument)
    expected = ConnectInfo()
    for name, value in changed.items():
        setattr(expected, name, value)
    assert options == expected
    assert ConnectInfo().verbose
    assert ConnectInfo().pedantic
    assert ConnectInfo().echo


@pytest.mark.parametrize(
    "argument",
    [
        b"",
        b"[]",
        b"{",
        b'"x"',
        b'{"verbose":"x"}',
        b'{"verbose":0}',
        b'{"protocol":1.0}',
        b'{"protocol":1e0}',
        b'{"protocol":01}',
        b'{"protocol":true}',
        b'{"import":[]}',
        b'{"Export":"x"}',
        b'{"import":{"allow":"x"}}',
        b'{"import":{"deny":["x",1]}}',
        b'{"import":{"allow":{}}}',
        b'{"protocol":9999999999999999999999}',
        b'{"pass":5}',
        b'{"zz":[1,2,{"a":NaN}]}',
        b'{"zz":Infinity}',
        b'{"protocol":1} x',
        b'{"name":"a\tb"}',
        b'{"zz":' + b"[" * 100_000 + b"}",
    ],
)
def test_invalid(argument: bytes) -> None:
    """A message that is no JSON object, or has one field of the wrong type, is invalid as a whole."""
    assert parse_connect(argument) is None


def test_a_second_connect_builds_on_the_first() -> None:
    """Keys absent from a later CONNECT keep what an earlier one said; the earlier record is not changed."""
    first = parse_connect(b'{"verbose":false,"name":"a","user":"u"}')
    second = parse_connect(b'{"name":"b"}', first)
    assert first is not None
    assert second is not None
    assert (second.verbose, second.name, second.user) == (False, "b", "u")
    assert first.name == "a"


def test_what_a_client_writes_reads_back() -> None:
    """Encoding and parsing are inverse, and empty credentials are not sent."""
    options = ConnectInfo(verbose=False, pedantic=False, user="u", password="p", protocol=1, headers=True)
    line = encode_connect(options)
    assert line.startswith(b'CONNECT {"verbose":false,')
    assert b"jwt" not in line
    assert parse_connect(line[8:-2]) == options
