"""What streams use and reserve, by account and tier, and whether that is too much for one more message.

An account with flat limits counts every replica, one with tiers counts each stream once, in the tier of its replicas
(ADR-15). What is used is measured every now and then only: a bound on many streams can be passed by what comes between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.messages import Usage
from tnats.jetstream.options import JetStreamOptions
from tnats.jetstream.ports import Log
from tnats.jetstream.sparse_warning import SparseWarning
from tnats.jetstream.stream.config import Storage, StreamConfig
from tnats.jetstream.stream.quotas import AccountLimits, Quotas, reserved_bytes, tier_name
from tnats.limits import STORES_MEASURED_NS
from tnats.records import define

if TYPE_CHECKING:
    from tnats.jetstream.account import AccountService
    from tnats.jetstream.stream.service import StreamService


def usage_of(streams: Iterable[StreamService], limits: AccountLimits, *, is_tiered: bool) -> Usage:
    """What these streams use and reserve, as reports show it."""
    usage = Usage(limits=limits)
    for stream in streams:
        config = stream.config
        size = stream.store.total_bytes * (1 if is_tiered else config.num_replicas)
        reserved = reserved_bytes(config, is_tiered)
        if config.storage == Storage.MEMORY:
            usage.memory += size
            usage.reserved_memory += reserved
        else:
            usage.storage += size
            usage.reserved_storage += reserved
        usage.streams += 1
        usage.consumers += len(stream.consumers)
    return usage


def account_usage(account: AccountService) -> tuple[Usage, dict[str, Usage]]:
    """(what an account uses in all, what each of its tiers does)."""
    quotas, streams = account.quotas, list(account.streams.values())
    if not quotas.tiers:
        return usage_of(streams, quotas.flat or AccountLimits(), is_tiered=False), {}
    by_tier: dict[str, list[StreamService]] = {name: [] for name in quotas.tiers}
    for stream in streams:
        by_tier.setdefault(tier_name(stream.config.num_replicas), []).append(stream)
    tiers = {name: usage_of(found, quotas.tiers.get(name, NOTHING), is_tiered=True) for name, found in by_tier.items()}
    return usage_of(streams, NOTHING, is_tiered=True), tiers


NOTHING = AccountLimits(0, 0, 0, 0, 0, 0, 0)
"""The limits of what has none of its own: an account with tiers as a whole, streams of a tier that is gone."""


@define(eq=False)
class UsageMeter:
    """One per server."""

    _log: Log
    _full: dict[Storage, bool] = attrs.field(factory=dict)
    _over: dict[tuple[str, str, Storage], bool] = attrs.field(factory=dict)
    _measured_until_ns: int = 0
    _full_warnings: dict[Storage, SparseWarning] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._full_warnings = {kind: SparseWarning(self._log) for kind in Storage}

    def refusal(
        self,
        account: AccountService,
        config: StreamConfig,
        accounts: Mapping[str, AccountService],
        options: JetStreamOptions,
        now_ns: int,
    ) -> ApiError | None:
        """Why a stream of `account` may take no message now; `options` has the server's bounds."""
        if now_ns >= self._measured_until_ns:
            self._measured_until_ns = now_ns + STORES_MEASURED_NS
            self._measure(accounts, options, now_ns)
        if self._full[config.storage]:
            return errors.INSUFFICIENT_RESOURCES()
        if self._over and self._over.get(_place(account.quotas, account.name, config)):
            return errors.ACCOUNT_RESOURCES_EXCEEDED()
        return None

    def _measure(self, accounts: Mapping[str, AccountService], options: JetStreamOptions, now_ns: int) -> None:
        used = dict.fromkeys(Storage, 0)
        self._over = {}
        for account in accounts.values():
            by_place: dict[tuple[str, str, Storage], int] = {}
            for stream in account.streams.values():
                config, size = stream.config, stream.store.total_bytes
                used[config.storage] += size
                if account.quotas.is_limited:
                    place = _place(account.quotas, account.name, config)
                    size *= 1 if account.quotas.tiers else config.num_replicas
                    by_place[place] = by_place.get(place, 0) + size
                    selected = account.quotas.select(config.num_replicas)
                    bound = selected[0].bytes_max(config.storage) if selected is not None else 0
                    self._over[place] = 0 <= bound <= by_place[place]
        for kind in Storage:
            bound = options.bytes_max(kind)
            self._full[kind] = 0 <= bound <= used[kind]
            if self._full[kind]:
                text = f"streams use {used[kind]} bytes of {kind.value} storage, and the server's limit is {bound}"
                self._full_warnings[kind].tell(
                    f"JetStream refuses publishes until messages are removed: {text}", now_ns
                )


def _place(quotas: Quotas, account: str, config: StreamConfig) -> tuple[str, str, Storage]:
    return account, tier_name(config.num_replicas) if quotas.tiers else "", config.storage
