"""API levels: which server features an asset needs, and how that stands in its metadata (ADR-44).

The level is kept with the asset as `_nats.req.level`; a server below it keeps the asset offline. The server's own
version and level are added to answers only.
"""

from __future__ import annotations

from typing import Any

from tnats.jetstream.api.fields import rows_of

API_LEVEL = 5
"""The level this server offers (nats-server 2.15)."""

SERVED_VERSION = "2.15.1"
"""The nats-server release whose behaviour this server offers; clients gate features on it."""

REQUIRED_LEVEL_KEY = "_nats.req.level"
SERVER_LEVEL_KEY = "_nats.level"
SERVER_VERSION_KEY = "_nats.ver"
DURABILITY_KEY = "_nats.tnats.durability"
"""Beyond NATS, in the answers about a stream: what an acknowledgement is worth. `synced`, `interval 2m0s`, or `memory`.

Among what the server adds to metadata, where clients expect more than they know, and leave it out when they compare.
"""
REQUIRED_LEVEL_HEADER = b"Nats-Required-Api-Level"


def required_level(config: Any) -> int:
    """The lowest API level that understands every field in use of a stream or consumer configuration."""
    levels = [row.level(getattr(config, name)) for name, row in rows_of(type(config)) if row.level is not None]
    return max(levels, default=0)


def with_required_level(config: Any) -> dict[str, str]:
    """The metadata to store: the user's, without what only answers carry, and the required level."""
    answered = (SERVER_LEVEL_KEY, SERVER_VERSION_KEY, DURABILITY_KEY)
    metadata = {key: value for key, value in config.metadata.items() if key not in answered}
    metadata[REQUIRED_LEVEL_KEY] = str(required_level(config))
    return metadata


def with_server_level(metadata: dict[str, str]) -> dict[str, str]:
    """The metadata to answer with: what is stored, and this server's version and level."""
    return {**metadata, SERVER_VERSION_KEY: SERVED_VERSION, SERVER_LEVEL_KEY: str(API_LEVEL)}


def supports(header_value: bytes | None) -> bool:
    """Whether a request that carries `Nats-Required-Api-Level: header_value` may be served."""
    if not header_value:
        return True
    digits = header_value.removeprefix(b"-")
    return digits.isdigit() and len(digits) <= 18 and int(header_value) <= API_LEVEL
