"""Every bound of the server that is not a configuration key, each with its reason. Cross-checked at the end.

Bounds that users configure have their defaults here too, so that one file answers "how much may it hold".
Sizes are bytes and end in `_BYTES` or `_bytes_max`; times end in their unit.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
SECOND_NS = 1_000_000_000

# ------------------------------------------------------------------ edges: HTTP monitoring

HTTP_CONNECTIONS_MAX = 256
"""Monitoring connections at once; more stay in the backlog. Probes and dashboards need a handful."""

HTTP_REQUEST_HEAD_BYTES_MAX = 16 * KIB
"""Request line and headers of one request; larger ones are answered 431 and closed."""

HTTP_REQUEST_BODY_BYTES_MAX = 64 * KIB
"""No endpoint takes a body: a small one is read and dropped, a larger one ends the connection."""

HTTP_HEAD_TIMEOUT_NS = 5 * SECOND_NS
"""From the first byte of a request to its last header (nats-server's ReadHeaderTimeout)."""

HTTP_IDLE_TIMEOUT_NS = 60 * SECOND_NS
"""A kept-alive connection without a request is closed, so that forgotten ones do not use up the bound."""
