"""JetStream's place in a server: its options from the configuration, its buses from the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tnats.auth.users import GLOBAL_ACCOUNT
from tnats.broker.account import Account
from tnats.broker.broker import Broker
from tnats.broker.hot.message import Subscription
from tnats.broker.internal import InternalClient
from tnats.broker.readers import Readers, Told
from tnats.jetstream.api.levels import API_LEVEL
from tnats.jetstream.options import JetStreamOptions
from tnats.jetstream.service import JetStream
from tnats.jetstream.stream.batches import BatchLimits
from tnats.jetstream.stream.quotas import AccountLimits, Quotas
from tnats.runtime.api import Runtime
from tnats.server.config import jetstream as config
from tnats.server.config.accounts import AccountJetStreamOptions
from tnats.server.config.jetstream import DYNAMIC
from tnats.server.config.options import Options
from tnats.server.config.problems import Problem
from tnats.storage.encryption import Cipher, Encryption

if TYPE_CHECKING:
    from tnats.server.node import Node

TEMPORARY_DIRECTORY = "/tmp"


def make_jetstream(node: Node) -> JetStream:
    """JetStream of a node whose broker is made."""
    options = jetstream_options(node.runtime, node.options, node.name)

    def bus_of(name: str) -> BrokerBus:
        return BrokerBus(node.broker, node.broker.account(name))

    node.broker.update_info(api_lvl=API_LEVEL)
    return JetStream(node.runtime, options, node.log, bus_of, node.broker.run_pass)


def reload_jetstream(node: Node, options: Options) -> None:
    """Hand the options that may change to JetStream, which runs."""
    assert node.jetstream is not None
    node.jetstream.reload(jetstream_options(node.runtime, options, node.name))


def jetstream_options(runtime: Runtime, options: Options, name: str) -> JetStreamOptions:
    """What JetStream is told."""
    given = options.jetstream
    interval_ns, is_always = given.sync_interval
    return JetStreamOptions(
        store_dir=store_directory(runtime, options),
        server_name=name,
        domain=given.domain,
        sync_interval_ns=0 if is_always else interval_ns,
        encryption=Encryption(given.key, Cipher(given.cipher), given.prev_key) if given.key else None,
        max_memory=_memory_max(runtime, given.max_memory_store),
        max_file=given.max_file_store,
        is_strict=given.strict,
        duplicate_window_ns_max=given.limits.duplicate_window_ns,
        max_ack_pending=given.limits.max_ack_pending,
        max_request_batch=given.limits.max_request_batch,
        ingest_msgs_max=given.max_buffered_msgs,
        ingest_bytes_max=given.max_buffered_size,
        requests_max=given.request_queue_limit,
        info_requests_max=given.info_queue_limit,
        batch_limits=_batch_limits(given.limits.batch),
        max_payload=options.max_payload,
        accounts=account_quotas(options),
    )


def account_quotas(options: Options) -> dict[str, Quotas]:
    """What each account may have: the global one everything while it is alone, and nothing beside others."""
    if not options.accounts:
        return {GLOBAL_ACCOUNT: Quotas(AccountLimits())}
    return {GLOBAL_ACCOUNT: Quotas()} | {account.name: _quotas(account.jetstream) for account in options.accounts}


def _quotas(given: AccountJetStreamOptions | None) -> Quotas:
    if given is None or not given.enabled:
        return Quotas()
    return Quotas(
        AccountLimits(
            max_memory=given.max_memory,
            max_storage=given.max_store,
            max_streams=given.max_streams,
            max_consumers=given.max_consumers,
            max_ack_pending=given.max_ack_pending,
            memory_max_stream_bytes=given.mem_max_stream_bytes,
            storage_max_stream_bytes=given.disk_max_stream_bytes,
            max_bytes_required=given.max_bytes_required,
        )
    )


def accounts_without(node: Node, options: Options) -> list[Problem]:
    """One problem per account that has JetStream and by `options` has not: its clients would lose their streams."""
    assert node.jetstream is not None
    kept = [name for name, quotas in account_quotas(options).items() if quotas.is_enabled]
    return [
        Problem(f"config reload not supported for account '{name}': JetStream is enabled there, and would end")
        for name in node.jetstream.enabled_accounts
        if name not in kept
    ]


def _batch_limits(given: config.BatchLimitOptions) -> BatchLimits:
    built_in = BatchLimits()
    return BatchLimits(
        atomic_per_stream_max=given.max_inflight_per_stream or built_in.atomic_per_stream_max,
        atomic_max=given.max_inflight_total or built_in.atomic_max,
        fast_per_stream_max=given.max_inflight_per_stream or built_in.fast_per_stream_max,
        fast_max=given.max_inflight_total or built_in.fast_max,
        atomic_msgs_max=given.max_msgs or built_in.atomic_msgs_max,
        idle_ns_max=given.timeout_ns or built_in.idle_ns_max,
    )


def store_directory(runtime: Runtime, options: Options) -> str:
    """Where the store is; with none configured, one under the directory for temporary files."""
    configured = options.jetstream.store_dir.rstrip("/")
    temporary = runtime.process.environment.get("TMPDIR", TEMPORARY_DIRECTORY).rstrip("/")
    return configured or f"{temporary}/tnats"


def _memory_max(runtime: Runtime, configured: int) -> int:
    return runtime.process.memory_total_bytes() // 4 * 3 if configured == DYNAMIC else configured


class BrokerBus:
    """An account of the broker as JetStream sees it."""

    def __init__(self, broker: Broker, account: Account) -> None:
        self._broker = broker
        self._account = account
        self._readers = Readers(broker.exchange, account.plans)
        account.observers.append(self._readers)

    @property
    def account(self) -> str:
        return self._account.name

    def client(self, name: str, deliver: Callable[[list[Any]], None]) -> InternalClient:
        return self._broker.internal_client(self._account, name, deliver)

    def funnel(self, name: str, prefix: bytes, deliver: Callable[[bytearray], None]) -> InternalClient:
        return self._broker.internal_funnel(self._account, name, prefix, deliver)

    def has_interest(self, subject: bytes) -> bool:
        return self._account.plans.has_interest(subject)

    def room(self, subject: bytes) -> int | None:
        return self._readers.room(subject)

    def on_room(self, subject: bytes, told: Told) -> None:
        self._readers.on_room(subject, told)

    def forget_room(self, subject: bytes, told: Told) -> None:
        self._readers.forget(subject, told)

    def is_subscribed(self, subject: bytes) -> bool:
        found = self._account.sublist.match(subject)
        members = [*found.plain, *(one for queue in found.queues.values() for one in queue)]
        return any(one.subject == subject for one in members)

    def has_listener(self, subject: bytes, group: bytes) -> bool:
        found = self._account.sublist.match(subject)
        members = found.queues.get(group, ()) if group else found.plain
        return any(one.subject == subject for one in members)

    def on_interest(self, changed: Callable[[bytes], None]) -> None:
        self._account.observers.append(_InterestObserver(changed))


class _InterestObserver:
    def __init__(self, changed: Callable[[bytes], None]) -> None:
        self._changed = changed

    def on_subscribed(self, subscription: Subscription) -> None:
        self._changed(subscription.subject)

    def on_unsubscribed(self, subscription: Subscription) -> None:
        self._changed(subscription.subject)
