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

# ------------------------------------------------------------------ server: configuration

CONFIG_NESTING_MAX = 100
"""Brackets (and variables that hold bracketed values) inside one another in a configuration file. Real files
need about six; the bound keeps everything that walks the tree clear of the recursion limit."""

# ------------------------------------------------------------------ client

CLIENT_PENDING_BYTES_MAX = 8 * MIB
"""Outgoing bytes a client holds, connected or not, before `publish` waits: seconds of traffic across a reconnect."""

CLIENT_YIELD_BYTES = 128 * KIB
"""Outgoing bytes after which `publish` lets other tasks run: bounds the time between scheduler steps."""

CLIENT_READ_BYTES = 256 * KIB
"""The read buffer of one client connection."""

CLIENT_READS_PER_WAKE_MAX = 8
"""Reads before consumers get their turn, so that a fast server cannot fill their queues unseen."""

CLIENT_SUBSCRIPTION_PENDING_COUNT_MAX = 512 * 1024
CLIENT_SUBSCRIPTION_PENDING_BYTES_MAX = 64 * MIB
"""Default bounds of one subscription's queue, as NATS clients have them: a pause of about a second at full speed."""

CLIENT_REPLIES_PENDING_MAX = 64 * 1024
"""Replies of one `request_many` that wait to be taken; beyond it the newest are dropped."""

CLIENT_CLOSE_GRACE_NS = 2 * SECOND_NS
"""How long an orderly close waits for the server's word that everything published has arrived."""

CLIENT_SUBJECTS_CACHED_MAX = 4096
"""Publish subjects whose checked and encoded form is kept."""
