"""What the broker needs to be told, free of configuration syntax: `tnats.server` maps its options to this record.

Fields marked `RELOADABLE` may differ in a record given to `Broker.reload`; the others are fixed when the broker is
made. Sizes are bytes, times nanoseconds.
"""

from __future__ import annotations

from typing import Any

import attrs

from tnats.limits import KIB, MIB, SECOND_NS
from tnats.records import frozen

RELOADABLE = "reloadable"
UNLIMITED = -1


def _reloadable(default: Any) -> Any:
    return attrs.field(default=default, metadata={RELOADABLE: True})


@frozen(kw_only=True)
class BrokerOptions:
    """See the module's text."""

    # Identity, as INFO tells it
    server_id: str
    """Public nkey of this start of the server."""
    server_name: str
    version: str
    git_commit: str = ""
    language_version: str = ""
    """INFO's `go`, which is always present."""
    host: str = "0.0.0.0"
    port: int = 4222
    """What INFO says of the listener: the real port, or the advertised address."""
    cluster_name: str = ""
    xkey: str = ""
    jetstream: bool = False
    domain: str = ""
    api_level: int = 0

    # Limits
    max_connections: int = _reloadable(64 * KIB)
    """Client connections; 0 refuses everybody."""
    max_subscriptions: int = UNLIMITED
    """Per connection."""
    max_subscription_tokens: int = UNLIMITED
    max_control_line: int = _reloadable(4 * KIB)
    """At most CONTROL_LINE_BYTES_MAX; more counts as that."""
    max_payload: int = _reloadable(MIB)
    """Headers count. Told to connected clients when reloaded."""
    max_pending: int = 64 * MIB
    """Bytes waiting for one client, before it is cut off as a slow consumer."""
    max_closed_connections: int = 10_000
    """Kept for /connz."""
    no_fast_producer_stall: bool = _reloadable(False)
    """Drop messages for a client that has fallen far behind, instead of making their publisher wait."""
    no_header_support: bool = False

    # Timers
    auth_timeout_ns: int = _reloadable(2 * SECOND_NS)
    ping_interval_ns: int = _reloadable(120 * SECOND_NS)
    ping_max: int = _reloadable(2)
    """Unanswered PINGs before the connection is stale."""
    write_deadline_ns: int = _reloadable(10 * SECOND_NS)
    """A client whose connection takes no byte for so long is cut off as a slow consumer."""
    write_deadline_is_total: bool = _reloadable(False)
    """Cut it off as well when it takes bytes, but not all that wait within the deadline."""


def fixed_differences(old: BrokerOptions, new: BrokerOptions) -> list[str]:
    """Names of fields that differ and are not reloadable."""
    return [
        field.name
        for field in attrs.fields(BrokerOptions)
        if not field.metadata.get(RELOADABLE) and getattr(old, field.name) != getattr(new, field.name)
    ]
