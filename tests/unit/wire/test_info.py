"""INFO: order, omission, escapes, reading back."""

from __future__ import annotations

import json

import pytest

from tnats.wire.info import ServerInfo, encode_info, parse_info


def test_plain_server() -> None:
    """Nine keys always stand there, in nats-server's order; the line ends in space and CRLF."""
    info = ServerInfo(server_id="N1", server_name="n", version="2.15.1", go="-", host="0.0.0.0", port=4222)
    assert encode_info(info) == (
        b'INFO {"server_id":"N1","server_name":"n","version":"2.15.1","proto":1,"go":"-","host":"0.0.0.0",'
        b'"port":4222,"headers":true,"max_payload":0} \r\n'
    )


def test_order_of_the_optional_keys() -> None:
    """The keys that nats-server 2.15.1 sent in these situations come in its order."""
    info = ServerInfo(
        git_commit="c",
        headers=False,
        auth_required=True,
        tls_verify=True,
        tls_available=True,
        jetstream=True,
        client_id=7,
        client_ip="127.0.0.1",
        nonce="fcWmdQKwQrc98LY",
        cluster="CC",
        ldm=True,
        connect_info=True,
        remote_account="$G",
        acc_is_sys=True,
        api_lvl=5,
        xkey="X",
    )
    keys = list(json.loads(encode_info(info)[5:]))
    assert keys == [
        *("server_id", "server_name", "version", "proto", "git_commit", "go", "host", "port", "headers"),
        *("auth_required", "tls_verify", "tls_available", "max_payload", "jetstream", "client_id", "client_ip"),
        *("nonce", "cluster", "ldm", "connect_info", "remote_account", "acc_is_sys", "api_lvl", "xkey"),
    ]


def test_names_are_escaped_as_go_does() -> None:
    """Characters that matter in HTML become escapes inside strings."""
    assert b'"server_name":"a\\u003cb\\u003e\\u0026c\\u2028"' in encode_info(ServerInfo(server_name="a<b>&c\u2028"))


def test_a_name_that_is_not_utf8_can_still_be_said() -> None:
    """Undecodable bytes of a name become question marks: no client must fail on the line."""
    assert b'"server_name":"a?"' in encode_info(ServerInfo(server_name="a\udcff"))


def test_reading_back() -> None:
    """Every field comes back; unknown keys and nulls are passed over."""
    info = ServerInfo(server_id="N", max_payload=5, connect_urls=["a:1", "b:2"], ldm=True, nonce="x", headers=False)
    argument = encode_info(info)[5:]
    assert parse_info(argument) == info
    assert parse_info(b'{"server_id":"N","cluster":null,"new":[1]}') == ServerInfo(server_id="N")


@pytest.mark.parametrize(
    "argument", [b"", b"[]", b"null", b"{", b'{"port":"x"}', b'{"port":true}', b'{"connect_urls":[1]}', b'{"ldm":1}']
)
def test_what_is_no_info(argument: bytes) -> None:
    """Broken JSON and wrong types give None, never an exception."""
    assert parse_info(argument) is None
