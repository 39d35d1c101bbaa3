"""State of the broker as plain records, for /varz, /connz, /subsz and system events.

Times are integer nanoseconds: moments since the Unix epoch, durations as such. Names follow nats-server's fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tnats.broker.account import Account, Traffic
from tnats.records import frozen
from tnats.subjects.tokens import to_text

if TYPE_CHECKING:
    from tnats.broker.connection import Connection
    from tnats.broker.hot.message import Subscription

_TYPES = {"STANDARD": "nats", "WEBSOCKET": "websocket", "MQTT": "mqtt", "MQTT_WS": "mqtt", "IN_PROCESS": "nats"}


@frozen
class SubscriptionSnapshot:
    """One subscription of a client."""

    subject: str
    queue: str
    """Empty for none."""
    sid: str
    msgs: int
    max: int
    """0 for no limit."""
    cid: int
    account: str


@frozen
class ConnectionSnapshot:
    """One client connection, open or closed."""

    cid: int
    kind: str
    type: str
    ip: str
    port: int
    start_ns: int
    last_activity_ns: int
    stop_ns: int
    """0 while open."""
    reason: str
    rtt_ns: int
    uptime_ns: int
    idle_ns: int
    pending_bytes: int
    stalls: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    subscriptions: int
    name: str
    lang: str
    version: str
    authorized_user: str
    account: str
    subscriptions_list: tuple[SubscriptionSnapshot, ...] = ()
    """Filled for closed connections, and on request."""


@frozen(kw_only=True)
class SublistSnapshot:
    """Figures for /subsz, under its names. The plans are its cache; fan-out is over those that are up to date."""

    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: float = 0.0
    """What a plan answers is not looked for, and counts as no match."""
    max_fanout: int
    avg_fanout: float


@frozen
class BrokerSnapshot:
    """Counters for /varz."""

    connections: int
    total_connections: int
    subscriptions: int
    traffic: Traffic
    slow_consumers: int
    stale_connections: int
    stalls: int
    """How often a client was made to wait because another did not keep up."""
    accounts: int


def subscription_snapshot(subscription: Subscription, cid: int, account: str) -> SubscriptionSnapshot:
    return SubscriptionSnapshot(
        subject=to_text(subscription.subject),
        queue=to_text(subscription.queue or b""),
        sid=to_text(subscription.sid),
        msgs=subscription.delivered,
        max=subscription.max_msgs,
        cid=cid,
        account=account,
    )


def connection_snapshot(
    connection: Connection, *, mono_ns: int, wall_ns: int, with_subscriptions: bool
) -> ConnectionSnapshot:
    """`connection` as it is at the monotonic moment `mono_ns`, which is `wall_ns` to people."""
    options = connection.login.options
    traffic = connection.traffic()
    end_ns = connection.stopped_ns or mono_ns
    offset_ns = wall_ns - mono_ns
    subscriptions = connection.subscriptions.values()
    return ConnectionSnapshot(
        cid=connection.cid,
        kind="Client",
        type=_TYPES.get(connection.connection_type.value, "nats"),
        ip=connection.conn.peer[0],
        port=connection.conn.peer[1],
        start_ns=connection.started_ns + offset_ns,
        last_activity_ns=connection.last_in_ns + offset_ns,
        stop_ns=connection.stopped_ns + offset_ns if connection.stopped_ns else 0,
        reason=connection.reason.value if connection.reason is not None else "",
        rtt_ns=connection.rtt_ns,
        uptime_ns=end_ns - connection.started_ns,
        idle_ns=end_ns - connection.last_in_ns,
        pending_bytes=connection.outbound.pending(),
        stalls=connection.stall_count,
        in_msgs=traffic.in_msgs,
        out_msgs=traffic.out_msgs,
        in_bytes=traffic.in_bytes,
        out_bytes=traffic.out_bytes,
        subscriptions=len(subscriptions),
        name=options.name,
        lang=options.lang,
        version=options.version,
        authorized_user=connection.login.identity.name,
        account=connection.account.name,
        subscriptions_list=tuple(
            subscription_snapshot(one, connection.cid, connection.account.name)
            for one in (subscriptions if with_subscriptions else ())
        ),
    )


def sublist_snapshot(accounts: Sequence[Account]) -> SublistSnapshot:
    """Figures of these accounts together, for /subsz."""
    sublists = [account.sublist for account in accounts]
    fanouts = [fanout for account in accounts for fanout in account.plans.fanouts()]
    return SublistSnapshot(
        num_subscriptions=sum(map(len, sublists)),
        num_cache=sum(len(account.plans) for account in accounts),
        num_inserts=sum(sublist.insert_count for sublist in sublists),
        num_removes=sum(sublist.remove_count for sublist in sublists),
        num_matches=sum(sublist.match_count for sublist in sublists),
        max_fanout=max(fanouts, default=0),
        avg_fanout=sum(fanouts) / len(fanouts) if fanouts else 0.0,
    )
