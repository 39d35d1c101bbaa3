"""The INFO message: what a server tells about itself (client protocol, "INFO fields").

Keys appear in nats-server's order, and a key whose value is empty is left out unless nats-server always sends
it. The line ends with a space before CRLF, as nats-server's does.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from tnats.records import define


@define(kw_only=True)
class ServerInfo:
    """One INFO. Attribute names are the JSON keys; `max_payload` in bytes; zero and empty mean "not said"."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 1
    git_commit: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = True
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = 0
    jetstream: bool = False
    ip: str = ""
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = attrs.field(factory=list)
    ws_connect_urls: list[str] = attrs.field(factory=list)
    ldm: bool = False
    compression: str = ""
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    xkey: str = ""
    tnats: str = ""
    """Version of tnats itself; `version` is the nats-server release whose behaviour it offers."""


_KEYS = [field.name for field in attrs.fields(ServerInfo)]
_ALWAYS = frozenset(("server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "max_payload"))
_DEFAULTS = {key: getattr(ServerInfo(), key) for key in _KEYS}
# Go's encoder escapes these inside strings, where alone they can stand in JSON without white space.
_ESCAPES = (
    (b"&", b"\\u0026"),
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def encode_info(info: ServerInfo) -> bytes:
    """The whole INFO line."""
    said = {key: value for key in _KEYS if (value := getattr(info, key)) or key in _ALWAYS}
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return b"INFO %b \r\n" % text


def parse_info(argument: bytes) -> ServerInfo | None:
    """The record of an INFO line's JSON, or None if it is not an object with fields of the right types.

    Unknown keys are ignored, and null means the default.
    """
    try:
        found = json.loads(argument)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    known: dict[str, Any] = {}
    for key, default in _DEFAULTS.items():
        value = found.get(key)
        if value is None:
            continue
        if type(value) is not type(default):
            return None
        if isinstance(value, list) and not all(isinstance(url, str) for url in value):
            return None
        known[key] = value
    return ServerInfo(**known)
