"""JetStream in the monitoring reports: /jsz, its block in /varz, and its part of the health check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from tnats.edges.query import Query
from tnats.jetstream.api.fields import to_object
from tnats.jetstream.api.levels import API_LEVEL
from tnats.jetstream.api.streams import stream_state
from tnats.jetstream.usage import NOTHING, usage_of
from tnats.notation import format_time
from tnats.records import frozen

if TYPE_CHECKING:
    from tnats.jetstream.account import AccountService
    from tnats.jetstream.service import JetStream
    from tnats.jetstream.stream.service import StreamService
    from tnats.server.node import Node

ACCOUNTS_PAGE = 1024
HEALTH_LINES_MAX = 100
"""Findings that the health check lists; the log has them all."""
UNLIMITED = 2**64 - 1
"""How nats-server reports an account without limits."""


@frozen
class HealthProblem:
    """A failed health check: HTTP status, the kind of thing, what is wrong, and what names it."""

    status: int
    kind: str
    error: str
    names: dict[str, str] = attrs.field(factory=dict)


def varz_block(node: Node, jetstream: JetStream) -> dict[str, object]:
    """`jetstream` of /varz."""
    return {"config": _config(jetstream), "stats": _stats(jetstream), "limits": _limits(node)}


def jsz(node: Node, jetstream: JetStream, query: Query) -> dict[str, object]:
    """Usage; on request accounts, streams, consumers, configurations."""
    head = {"server_id": node.server_id, "now": format_time(node.runtime.clock.wall_ns())}
    consumers, config = query.flag("consumers"), query.flag("config")
    streams = query.flag("streams") or consumers
    wants_accounts = query.flag("accounts") or streams
    offset, limit = max(0, query.integer("offset")), query.integer("limit")
    name = query.text("acc")
    services = [stream for account in jetstream.enabled_accounts.values() for stream in account.streams.values()]
    report: dict[str, Any] = _stats(jetstream) | head
    report |= {
        "config": _config(jetstream),
        "limits": _limits(node),
        "streams": len(services),
    }
    leads = query.flag("raft")  # a server on its own leads all of them
    consumer_count = sum(stream.consumer_count for stream in services)
    report |= {
        **({"streams_leader": len(services)} if leads else {}),
        "consumers": consumer_count,
        **({"consumers_leader": consumer_count} if leads else {}),
        "messages": sum(stream.store.messages for stream in services),
        "bytes": sum(stream.store.total_bytes for stream in services),
    }
    accounts = sorted(jetstream.enabled_accounts.values(), key=lambda account: account.name)
    if name:
        accounts = [account for account in accounts if account.name == name]
        wants_accounts = bool(accounts)
    if wants_accounts:
        shown = accounts[offset : offset + (limit if limit > 0 else ACCOUNTS_PAGE)]
        if shown:
            report["account_details"] = [
                _account(node, account, streams=streams, consumers=consumers, config=config) for account in shown
            ]
    report["total"] = len(jetstream.enabled_accounts)
    return report


def health(node: Node, query: Query) -> list[HealthProblem]:
    """What JetStream, which is switched on, has to say to the health check; nothing when all is well."""
    jetstream = node.jetstream
    if jetstream is None:
        return [HealthProblem(503, "JETSTREAM", "JetStream is recovering")]
    lines = jetstream.health()
    if lines and not (query.flag("js-enabled-only") and jetstream.is_ready):
        problems = [HealthProblem(503, "JETSTREAM", line) for line in lines[:HEALTH_LINES_MAX]]
        if len(lines) > HEALTH_LINES_MAX:
            problems.append(HealthProblem(503, "JETSTREAM", f"{len(lines) - HEALTH_LINES_MAX} more: see the log"))
        return problems
    problem = _missing(jetstream, query)
    return [] if problem is None or query.flag("js-enabled-only") else [problem]


def _missing(jetstream: JetStream, query: Query) -> HealthProblem | None:
    """Which of the account, stream and consumer that the query names is not there."""
    account, stream, consumer = query.text("account"), query.text("stream"), query.text("consumer")
    if not account:
        return None
    found = jetstream.enabled_accounts.get(account)
    if found is None:
        return HealthProblem(404, "ACCOUNT", f'JetStream account "{account}" not found', {"account": account})
    if not stream:
        return None
    names = {"account": account, "stream": stream}
    if stream not in found.streams:
        return HealthProblem(404, "STREAM", f'JetStream stream "{stream}" not found on account "{account}"', names)
    if consumer and consumer not in found.streams[stream].consumers:
        text = f'JetStream consumer "{consumer}" not found for stream "{stream}" on account "{account}"'
        return HealthProblem(404, "CONSUMER", text, names | {"consumer": consumer})
    return None


def _config(jetstream: JetStream) -> dict[str, object]:
    options = jetstream.options
    report: dict[str, object] = {
        "max_memory": options.max_memory,
        "max_storage": options.max_file,
        "store_dir": options.store_dir,
    }
    if options.sync_interval_ns:
        report["sync_interval"] = options.sync_interval_ns
    else:
        report["sync_always"] = True
    if options.domain:
        report["domain"] = options.domain
    report["strict"] = options.is_strict
    return report


def _limits(node: Node) -> dict[str, object]:
    given = node.options.jetstream.limits
    limits = {
        "max_request_batch": given.max_request_batch,
        "max_ack_pending": given.max_ack_pending,
        "max_ha_assets": given.max_ha_assets,
        "max_duplicate_window": given.duplicate_window_ns,
        "max_batch_inflight_per_stream": given.batch.max_inflight_per_stream,
        "max_batch_inflight_total": given.batch.max_inflight_total,
        "max_batch_size": given.batch.max_msgs,
        "max_batch_timeout": given.batch.timeout_ns,
    }
    return {key: value for key, value in limits.items() if value}


def _usage(streams: Iterable[StreamService]) -> dict[str, int]:
    used = usage_of(streams, NOTHING, is_tiered=False)
    return {
        "memory": used.memory,
        "storage": used.storage,
        "reserved_memory": used.reserved_memory,
        "reserved_storage": used.reserved_storage,
    }


def _stats(jetstream: JetStream) -> dict[str, object]:
    accounts = jetstream.enabled_accounts.values()
    total = sum(account.stats.total for account in accounts)
    failed = sum(account.stats.errors for account in accounts)
    streams = [stream for account in accounts for stream in account.streams.values()]
    return {
        **_usage(streams),
        "accounts": len(accounts),
        "ha_assets": 0,
        "api": {"level": API_LEVEL, "total": total, "errors": failed},
    }


def _account(node: Node, account: AccountService, *, streams: bool, consumers: bool, config: bool) -> dict[str, object]:
    limits = account.quotas.flat or NOTHING
    report: dict[str, object] = {
        "name": account.name,
        "id": account.name,
        **_usage(list(account.streams.values())),
        "reserved_memory": limits.max_memory if limits.max_memory >= 0 else UNLIMITED,
        "reserved_storage": limits.max_storage if limits.max_storage >= 0 else UNLIMITED,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": account.stats.total, "errors": account.stats.errors},
    }
    if streams and account.streams:
        ordered = sorted(account.streams.values(), key=lambda stream: stream.name)
        report["stream_detail"] = [_stream(node, stream, consumers=consumers, config=config) for stream in ordered]
    return report


def _stream(node: Node, stream: StreamService, *, consumers: bool, config: bool) -> dict[str, object]:
    report: dict[str, object] = {
        "name": stream.name,
        "created": format_time(stream.record.created_ns),
        "cluster": {"leader": node.name},
    }
    if config:
        report["config"] = to_object(stream.config)
    report["state"] = to_object(stream_state(stream))
    listed = stream.listed_consumers() if consumers else []
    if listed:
        infos = [consumer.info() for consumer in listed]
        report["consumer_detail"] = [to_object(info if config else attrs.evolve(info, config=None)) for info in infos]
    origins = [to_object(intake.info()) for intake in stream.intakes]
    if origins and stream.config.mirror is not None:
        report["mirror"] = origins[0]
    elif origins:
        report["sources"] = origins
    return report
