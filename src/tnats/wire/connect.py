"""The CONNECT message: who a client is and what it wants (client protocol, "CONNECT fields").

The server's reading follows Go's encoding/json, which clients have come to rely on: a key that equals a field
but for case is that field, the last of several wins, null leaves a field as it is, unknown keys are ignored, and
a value of the wrong type makes the whole message invalid.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import attrs

from tnats.records import define

_INT64_MAX = 2**63 - 1


@define(kw_only=True)
class ConnectInfo:
    """One CONNECT; the defaults are what a server assumes for absent keys. `password` is the key `pass`."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = ""
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    account: str = ""
    new_account: bool = False
    headers: bool = False
    no_responders: bool = False
    proxy_sig: str = ""
    remote_account: str = ""


_NAMES = {("pass" if field.name == "password" else field.name): field.name for field in attrs.fields(ConnectInfo)}
_TYPES = {name: type(getattr(ConnectInfo(), name)) for name in _NAMES.values()}
_SUBJECT_LISTS = frozenset(("import", "export"))
"""Keys that mean nothing here (a leaf node's permissions), but whose values must be of their type."""
_ALWAYS = frozenset(("verbose", "pedantic", "echo", "tls_required", "name", "lang", "version", "protocol"))
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its pairs in order, told apart from an array by its type."""


def parse_connect(argument: bytes, base: ConnectInfo | None = None) -> ConnectInfo | None:
    """The options of a CONNECT line's JSON, or None if it is invalid (the server closes without a word).

    `base` is what an earlier CONNECT on the same connection said: absent keys keep its values.
    """
    try:
        found = json.loads(
            argument.decode("utf-8", "replace"), object_pairs_hook=_Pairs, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        return None
    options = ConnectInfo() if base is None else attrs.evolve(base)
    if found is None:
        return options
    if not isinstance(found, _Pairs):
        return None
    for key, value in found:
        folded = _fold(key)
        name = _NAMES.get(folded)
        if value is None:
            continue
        if name is None:
            if folded in _SUBJECT_LISTS and not _is_subject_permission(value):
                return None
            continue
        if type(value) is not _TYPES[name]:
            return None
        if isinstance(value, str):
            value = _LONE_SURROGATE.sub("\ufffd", value)
        elif abs(value) > _INT64_MAX:
            return None
        setattr(options, name, value)
    return options


def _fold(key: str) -> str:
    """`key` without its case. "ſ" is the one letter outside ASCII (besides the Kelvin sign) that folds into it."""
    return key.lower().replace("ſ", "s")


def _is_subject_permission(value: object) -> bool:
    """Whether a JSON value is an object whose `allow` and `deny` are lists of strings, as far as they are there."""
    return isinstance(value, _Pairs) and all(
        subjects is None or (type(subjects) is list and all(one is None or isinstance(one, str) for one in subjects))
        for key, subjects in value
        if _fold(key) in ("allow", "deny")
    )


def encode_connect(options: ConnectInfo) -> bytes:
    """The whole CONNECT line; empty optional fields are left out."""
    said = {key: value for key, name in _NAMES.items() if (value := getattr(options, name)) or key in _ALWAYS}
    return b"CONNECT %b\r\n" % json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
