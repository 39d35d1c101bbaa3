"""JSON documents that we send. They quote what peers said, and peers may say bytes that are no text."""

from __future__ import annotations

from typing import Any

import orjson


def encode_document(value: Any, *, is_indented: bool = False) -> bytes:
    """`value` as JSON.

    Strings may hold surrogates, as `subjects.tokens.to_text` makes them of bytes that are no UTF-8: each such byte is
    told as U+FFFD, since JSON has no way to say it.
    """
    option = orjson.OPT_INDENT_2 if is_indented else 0
    try:
        return orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:
        return orjson.dumps(_sayable(value), option=option)


def _sayable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_sayable(key): _sayable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(one) for one in value]
    return value
