"""The monitoring reports of a node: /varz, /connz, /subsz, /healthz and the rest, in nats-server's fields and order.

Each is a pure function of a node's snapshots and the query. Keys that nats-server leaves out when empty are left
out here too.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs

from tnats import NATS_VERSION, __version__
from tnats.auth.users import GLOBAL_ACCOUNT
from tnats.broker.account import Account, Traffic
from tnats.broker.snapshot import ConnectionSnapshot, SubscriptionSnapshot, sublist_snapshot, subscription_snapshot
from tnats.edges.http_server import Response
from tnats.edges.monitor import Monitor, json_response
from tnats.edges.query import BadQuery, Query
from tnats.limits import SECOND_NS
from tnats.notation import format_duration, format_time
from tnats.server import translate
from tnats.subjects.tokens import is_valid_literal, subject_matches, to_bytes

if TYPE_CHECKING:
    from tnats.server.node import Node

PAGE_DEFAULT = 1024
"""Connections or subscriptions in one answer when the query names no limit."""


def make_monitor(node: Node) -> Monitor:
    """All reports of `node`, ready to be served."""
    if node.options.jetstream.enabled:
        import_module("tnats.server.jetstream_reports")  # when it is asked there may be no descriptor to read it by
    monitor = Monitor(node.options.http_base_path, f"tnats {__version__}")
    monitor.add("/varz", lambda query: varz(node, monitor.request_counts), "General")
    monitor.add("/connz", lambda query: connz(node, query), "Connections")
    monitor.add("/accountz", lambda query: accountz(node, query), "Accounts")
    monitor.add("/accstatz", lambda query: accstatz(node, query), "Account statistics")
    monitor.add("/subsz", lambda query: subsz(node, query), "Subscriptions")
    monitor.add("/subscriptionsz", lambda query: subsz(node, query), "")
    monitor.add("/routez", lambda query: _head(node) | {"num_routes": 0, "routes": []}, "Routes")
    monitor.add("/leafz", lambda query: _short_head(node) | {"leafnodes": 0, "leafs": []}, "Leaf nodes")
    monitor.add(
        "/gatewayz", lambda query: _short_head(node) | {"outbound_gateways": {}, "inbound_gateways": {}}, "Gateways"
    )
    monitor.add("/jsz", lambda query: jsz(node, query), "JetStream")
    monitor.add("/raftz", lambda query: Response(404, b"No Raft nodes registered"), "Raft groups")
    monitor.add("/healthz", lambda query: healthz(node, query), "Health probe")
    return monitor


# ------------------------------------------------------------------ server


def varz(node: Node, request_counts: dict[str, int]) -> dict[str, object]:
    """General information and counters of the server."""
    options, process = node.options, node.runtime.process
    info = node.broker.info
    counters = node.broker.snapshot()
    now_ns = node.runtime.clock.wall_ns()
    up_ns = node.runtime.clock.mono_ns() - node.started_mono_ns
    assert options.authorization is not None  # completed
    report: dict[str, object] = {
        "server_id": node.server_id,
        "server_name": node.name,
        "version": NATS_VERSION,
        "tnats": __version__,
        "proto": 1,
        "go": translate.language_version(),
        "host": info.host,
        "port": info.port,
        "auth_required": not node.broker.gatekeeper.no_auth_required,
        "connect_urls": list(info.connect_urls),
        "max_connections": node.broker.options.max_connections,
        "max_subscriptions": options.max_subscriptions,
        "ping_interval": options.ping_interval_ns,
        "ping_max": options.ping_max,
        "http_host": options.http_host,
        "http_port": node.endpoints.monitoring[1] if node.endpoints.monitoring else 0,
        "http_base_path": "" if options.http_base_path == "/" else options.http_base_path,
        "https_port": options.https_port,
        "auth_timeout": _seconds(options.authorization.timeout_ns),
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.max_pending,
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": {},
        "jetstream": jetstream_block(node),
        "tls_timeout": 2,
        "write_deadline": options.write_deadline_ns,
        "start": format_time(node.started_wall_ns),
        "now": format_time(now_ns),
        "uptime": uptime(up_ns),
        "mem": process.memory_bytes(),
        "cores": process.core_count,
        "gomaxprocs": 1,  # one reactor uses one core
        "cpu": round(100 * process.cpu_time_ns() / max(1, up_ns), 2),
        "connections": counters.connections,
        "total_connections": counters.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
        **_traffic(counters.traffic),
        "slow_consumers": counters.slow_consumers,
        "stale_connections": counters.stale_connections,
        "stalled_clients": counters.stalls,
        "subscriptions": counters.subscriptions,
        "http_req_stats": dict(sorted(request_counts.items())),
        "config_load_time": format_time(node.configured_wall_ns),
        "config_digest": options.config_digest,
        "tags": list(options.server_tags),
        "metadata": dict(options.server_metadata),
        "slow_consumer_stats": {"clients": counters.slow_consumers, "routes": 0, "gateways": 0, "leafs": 0},
        "stale_connection_stats": {"clients": counters.stale_connections, "routes": 0, "gateways": 0, "leafs": 0},
    }
    optional = ("auth_required", "connect_urls", "max_subscriptions", "tags", "metadata")
    return {key: value for key, value in report.items() if value or key not in optional}


def healthz(node: Node, query: Query) -> Response:
    """Whether this server, or one of its streams or consumers, is ready. Where there is no JetStream, none is not."""
    for flag in ("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only"):
        query.flag(flag)
    details = query.flag("details")
    account, stream, consumer = query.text("account"), query.text("stream"), query.text("consumer")
    problem = ""
    if (stream or consumer) and not account:
        problem = '"account" must not be empty when checking stream health'
    elif consumer and not stream:
        problem = '"stream" must not be empty when checking consumer health'
    if not problem and node.options.jetstream.enabled:
        return _jetstream_health(node, query)
    if not problem:
        return json_response({"status": "ok"}, compact=True)
    report: dict[str, object] = {"status": "error"}
    report |= {"errors": [{"type": "BAD_REQUEST", "error": problem}]} if details else {"error": problem}
    return json_response(report, 400, compact=True)


def _jetstream_health(node: Node, query: Query) -> Response:
    from tnats.server.jetstream_reports import health  # only where JetStream is

    problems = health(node, query)
    if not problems:
        return json_response({"status": "ok"}, compact=True)
    status, text = problems[0].status, problems[0].error
    if query.flag("details"):
        errors = [{"type": each.kind, **each.names, "error": each.error} for each in problems]
        return json_response({"status": "error", "errors": errors}, status, compact=True)
    if len(problems) > 1:
        text += f" (and {len(problems) - 1} more: ask with details=1)"
    return json_response({"status": "unavailable", "error": text}, status, compact=True)


def jetstream_block(node: Node) -> dict[str, object]:
    """`jetstream` of /varz."""
    if node.jetstream is None:
        return {}
    from tnats.server.jetstream_reports import varz_block

    return varz_block(node, node.jetstream)


def jsz(node: Node, query: Query) -> dict[str, object]:
    """JetStream of this server, or that there is none."""
    if node.jetstream is not None:
        from tnats.server.jetstream_reports import jsz as report_jetstream

        return report_jetstream(node, node.jetstream, query)
    figures = ("memory", "storage", "reserved_memory", "reserved_storage", "accounts", "ha_assets")
    report: dict[str, object] = dict.fromkeys(figures, 0)
    report |= {"api": {"level": 0, "total": 0, "errors": 0}} | _short_head(node)
    report |= {"disabled": True, "config": {"max_memory": 0, "max_storage": 0}}
    return report | dict.fromkeys(("streams", "consumers", "messages", "bytes", "total"), 0)


# ------------------------------------------------------------------ connections


def connz(node: Node, query: Query) -> dict[str, object]:
    """Open or closed connections, sorted and paged."""
    state = query.text("state").lower()
    if state not in ("", "open", "closed", "all", "any"):
        raise BadQuery(f"Error decoding state for {query.text('state')}")
    sort = query.text("sort")
    if sort and sort not in _SORTS:
        raise BadQuery(f"invalid sorting option: {sort}")
    if sort in ("stop", "reason") and state != "closed":
        raise BadQuery(f"sort by {sort} only valid on closed connections")
    detail = query.text("subs").lower() == "detail"
    subs = detail or query.flag("subs")
    auth = query.flag("auth")
    cid, user, account = query.unsigned("cid"), query.text("user"), query.text("acc")
    offset, limit = max(0, query.integer("offset")), query.integer("limit")
    limit = 1 if cid else limit if limit > 0 else PAGE_DEFAULT

    found: list[ConnectionSnapshot] = []
    if state != "closed":
        found += node.broker.connection_snapshots()
    if state in ("closed", "all", "any"):
        found += node.broker.closed
    found = [
        one
        for one in found
        if (not cid or one.cid == cid) and (not user or one.authorized_user == user) and account in ("", one.account)
    ]
    key, newest_first = _SORTS[sort or "cid"]
    found.sort(key=key, reverse=newest_first)
    page = found[offset : offset + limit]
    if subs:
        page = [one if one.stop_ns else node.broker.connection_snapshot(one.cid) for one in page]
    return _short_head(node) | {
        "num_connections": len(page),
        "total": len(found),
        "offset": offset,
        "limit": limit,
        "connections": [_connection(one, subs=subs, detail=detail, auth=auth) for one in page],
    }


_SORTS: dict[str, tuple[Callable[[ConnectionSnapshot], Any], bool]] = {
    "cid": (lambda one: one.cid, False),
    "start": (lambda one: one.start_ns, False),
    "subs": (lambda one: one.subscriptions, True),
    "pending": (lambda one: one.pending_bytes, True),
    "msgs_to": (lambda one: one.out_msgs, True),
    "msgs_from": (lambda one: one.in_msgs, True),
    "bytes_to": (lambda one: one.out_bytes, True),
    "bytes_from": (lambda one: one.in_bytes, True),
    "last": (lambda one: one.last_activity_ns, True),
    "idle": (lambda one: one.idle_ns, True),
    "uptime": (lambda one: one.uptime_ns, True),
    "stop": (lambda one: one.stop_ns, True),
    "reason": (lambda one: one.reason, False),
    "rtt": (lambda one: one.rtt_ns, True),
}
"""Sort options: key, and whether the largest comes first."""


def _connection(one: ConnectionSnapshot, *, subs: bool, detail: bool, auth: bool) -> dict[str, object]:
    report: dict[str, object] = {
        "cid": one.cid,
        "kind": one.kind,
        "type": one.type,
        "ip": one.ip,
        "port": one.port,
        "start": format_time(one.start_ns),
        "last_activity": format_time(one.last_activity_ns),
    }
    if one.stop_ns:
        report |= {"stop": format_time(one.stop_ns), "reason": one.reason}
    report |= {
        "rtt": format_duration(one.rtt_ns),
        "uptime": uptime(one.uptime_ns),
        "idle": uptime(one.idle_ns),
        "pending_bytes": one.pending_bytes,
        "in_msgs": one.in_msgs,
        "out_msgs": one.out_msgs,
        "in_bytes": one.in_bytes,
        "out_bytes": one.out_bytes,
    }
    if one.stalls:
        report["stalls"] = one.stalls
    report["subscriptions"] = one.subscriptions
    report |= {key: value for key in ("name", "lang", "version") if (value := getattr(one, key))}
    if auth and one.authorized_user:
        report["authorized_user"] = one.authorized_user
    if auth and one.account != GLOBAL_ACCOUNT:
        report["account"] = one.account
    if detail and one.subscriptions_list:
        report["subscriptions_list_detail"] = [_subscription(sub, with_account=False) for sub in one.subscriptions_list]
    elif subs and one.subscriptions_list:
        report["subscriptions_list"] = [sub.subject for sub in one.subscriptions_list]
    if auth:
        report["name_tag"] = one.account
    return report


def _subscription(sub: SubscriptionSnapshot, *, with_account: bool) -> dict[str, object]:
    report: dict[str, object] = {"account": sub.account, "account_tag": sub.account} if with_account else {}
    report["subject"] = sub.subject
    if sub.queue:
        report["qgroup"] = sub.queue
    report |= {"sid": sub.sid, "msgs": sub.msgs}
    if sub.max:
        report["max"] = sub.max
    report["cid"] = sub.cid
    return report


# ------------------------------------------------------------------ subscriptions, accounts


def subsz(node: Node, query: Query) -> dict[str, object]:
    """Figures of the subject tables, and on request the subscriptions themselves, those that match `test` if given."""
    subs = query.flag("subs")
    offset, limit = max(0, query.integer("offset")), query.integer("limit")
    limit = limit if limit > 0 else PAGE_DEFAULT
    test, name = query.text("test"), query.text("acc")
    tested = to_bytes(test)
    if test and not is_valid_literal(tested):
        raise BadQuery(f"invalid test subject, must be valid publish subject: {test}")
    accounts = [account for account in node.broker.accounts.values() if name in ("", account.name)]
    report = _short_head(node) | attrs.asdict(sublist_snapshot(accounts))
    found = [
        (subscription, client)
        for account in accounts
        if subs
        for client in account.clients.values()
        for subscription in client.subscriptions.values()
        if not test or subject_matches(subscription.subject, tested)
    ]
    report |= {"total": len(found), "offset": offset, "limit": limit}
    page = [subscription_snapshot(one, by.cid, by.account.name) for one, by in found[offset : offset + limit]]
    if page:
        report["subscriptions_list"] = [_subscription(sub, with_account=True) for sub in page]
    return report


def accountz(node: Node, query: Query) -> dict[str, object]:
    """Names of all accounts, or one of them in detail."""
    head = _short_head(node)
    name = query.text("acc")
    if not name:
        return head | {"accounts": sorted(node.broker.accounts)}
    account = node.broker.accounts.get(name)
    if account is None:
        raise BadQuery(f"Account {name} does not exist")
    return head | {
        "account_detail": {
            "account_name": account.name,
            "update_time": format_time(node.configured_wall_ns),
            "expired": False,
            "complete": True,
            "jetstream_enabled": node.jetstream is not None and name in node.jetstream.enabled_accounts,
            "leafnode_connections": 0,
            "client_connections": len(account.clients),
            "subscriptions": len(account.sublist),
            "name_tag": account.name,
            "sublist_stats": attrs.asdict(sublist_snapshot([account])),
        }
    }


def accstatz(node: Node, query: Query) -> dict[str, object]:
    """Traffic per account; accounts without connections only with `unused`."""
    unused = query.flag("unused")
    accounts = [account for account in node.broker.accounts.values() if unused or account.clients]
    return _short_head(node) | {"account_statz": [_account_figures(account) for account in accounts]}


def _account_figures(account: Account) -> dict[str, object]:
    traffic = account.traffic()
    return {
        "acc": account.name,
        "name": account.name,
        "conns": len(account.clients),
        "leafnodes": 0,
        "total_conns": len(account.clients),
        "num_subscriptions": len(account.sublist),
        "sent": _sent(traffic.out_msgs, traffic.out_bytes),
        "received": _sent(traffic.in_msgs, traffic.in_bytes),
        "slow_consumers": account.slow_consumer_count,
    }


def _sent(msgs: int, size: int) -> dict[str, object]:
    none = {"msgs": 0, "bytes": 0}
    return {"msgs": msgs, "bytes": size, "gateways": none, "routes": none, "leafs": none}


def _traffic(traffic: Traffic) -> dict[str, object]:
    """All traffic, and that of clients alone; the same thing while there are no other servers."""
    return {
        f"{way}{kind}{what}": getattr(traffic, f"{way}_{what}")
        for way in ("in", "out")
        for kind in ("_", "_client_")
        for what in ("msgs", "bytes")
    }


# ------------------------------------------------------------------ forms


def _short_head(node: Node) -> dict[str, object]:
    return {"server_id": node.server_id, "now": format_time(node.runtime.clock.wall_ns())}


def _head(node: Node) -> dict[str, object]:
    head = _short_head(node)
    return {"server_id": head["server_id"], "server_name": node.name, "now": head["now"]}


def _seconds(duration_ns: int) -> float:
    """Seconds as a number, whole where it is."""
    seconds = duration_ns / SECOND_NS
    return int(seconds) if seconds.is_integer() else seconds


def uptime(duration_ns: int) -> str:
    """A duration in whole seconds, days and years told apart: `1d2h3m4s`."""
    seconds = max(0, duration_ns) // SECOND_NS
    text = ""
    for unit, size in (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size or text:
            text += f"{seconds // size}{unit}"
            seconds %= size
    return f"{text}{seconds}s"
