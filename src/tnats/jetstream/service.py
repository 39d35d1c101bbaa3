"""JetStream on one server: opens the store, recovers what it holds, and serves until cancelled.

    jetstream = JetStream(runtime, options, log, bus_of, run_pass)
    await nursery.start(jetstream.run)       # returns when everything is recovered and served

Ownership, from the outside in: the store with its journal, which outlives everything else; the ticker, the API and
the tasks of streams and consumers. At an orderly end nothing more is taken in, everything is checkpointed, and the
store is marked as clean. What fails then costs time at the next start and no data: the journal has it.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from tnats.errors import TnatsError
from tnats.ids import Nuid
from tnats.jetstream.account import AccountService
from tnats.jetstream.api.backups import BackupCalls
from tnats.jetstream.api.consumers import ConsumerCalls
from tnats.jetstream.api.service import ApiService
from tnats.jetstream.api.streams import StreamCalls
from tnats.jetstream.host import Host, wake
from tnats.jetstream.meta.catalogue import GROUP, Catalogue
from tnats.jetstream.options import JetStreamOptions
from tnats.jetstream.ports import Bus, Log
from tnats.jetstream.stream.batches import BatchBudget
from tnats.jetstream.stream.config import Storage
from tnats.jetstream.stream.open import open_stream
from tnats.jetstream.stream.quotas import Quotas
from tnats.limits import JETSTREAM_CLOSE_NS_MAX, JOURNAL_PART_BYTES, MIB
from tnats.notation import format_duration
from tnats.runtime.api import DiskError, Runtime
from tnats.storage.errors import StorageError
from tnats.storage.journal import JournalOptions
from tnats.storage.store import Store, StoreOptions
from tnats.storage.store_open import open_store
from tnats.subjects.draw import Draw
from tnats.timers import Timers


class JetStream:
    """See the module's text."""

    def __init__(
        self,
        runtime: Runtime,
        options: JetStreamOptions,
        log: Log,
        bus_of: Callable[[str], Bus],
        run_pass: Callable[[Callable[[], None]], None],
    ) -> None:
        """`bus_of` gives the bus of an account by name; `run_pass` calls a function, and what that published on them
        goes out at once.
        """
        self.runtime = runtime
        self.options = options
        self.log = log
        self._bus_of = bus_of
        self._run_pass = run_pass
        self.is_ready = False
        """Everything is recovered and served."""
        self.accounts: dict[str, AccountService] = {}
        """All, those that may not use JetStream among them."""
        self.unopened: list[str] = []
        """Streams that could not be brought back, with the reason; their data is left as it is."""
        self._file_bytes_max = -1
        """What `max_file` is if nothing is configured."""
        self._store: Store
        self._host: Host | None = None
        """None until the store is open."""
        self._api: ApiService | None = None
        """None until everything is recovered."""

    @property
    def store(self) -> Store:
        return self._store

    @property
    def enabled_accounts(self) -> dict[str, AccountService]:
        """Those that may use JetStream, by name."""
        return {name: account for name, account in self.accounts.items() if account.quotas.is_enabled}

    def health(self) -> list[str]:
        """Why the health check must fail, one line each."""
        if not self.is_ready:
            return ["JetStream is recovering"]
        lines = [*self._store.health(), *self.unopened]
        for account in self.accounts.values():
            for stream in account.streams.values():
                if stream.trouble is not None:
                    lines += [f"{stream.record.label}: {stream.trouble}"]
                lines += [consumer.loss for consumer in stream.consumers.values() if consumer.loss]
        return list(dict.fromkeys(lines))

    def reload(self, options: JetStreamOptions) -> None:
        """Take over the bounds of the stores and the accounts' limits, which count for what is made from now on.

        JetStream is taken from no account: its clients would lose what they stand on.
        """
        assert self._host is not None
        assert self._api is not None
        self._bound(options)
        for name, quotas in options.accounts.items():
            account = self.accounts.get(name)
            if account is None:
                self._add_account(self._host, name, quotas)
                self._serve_account(self._api, self.accounts[name])
            elif quotas.is_enabled:
                account.change_quotas(quotas)

    def _bound(self, options: JetStreamOptions) -> None:
        max_file = options.max_file if options.max_file >= 0 else self._file_bytes_max
        self.options = attrs.evolve(self.options, max_memory=options.max_memory, max_file=max_file)
        if self._host is not None:
            self._host.options = self.options

    def _add_account(self, host: Host, name: str, quotas: Quotas) -> None:
        self.accounts[name] = AccountService(host, self._bus_of(name), quotas)

    def _serve_account(self, api: ApiService, account: AccountService) -> None:
        account.start()
        api.serve(account)
        if account.streams and not account.quotas.is_enabled:
            text = f"is not enabled for account '{account.name}': its {len(account.streams)} streams are kept"
            self.log.warn(f"JetStream {text}, and not served")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises StoreLocked, StoreRefused, StorageError, DiskError at the start."""
        runtime, options = self.runtime, self.options
        self._announce()
        self._store = await open_store(
            runtime.disk,
            runtime.clock,
            runtime.chance.entropy,
            options.store_dir,
            boot_id=runtime.process.boot_id(),
            options=StoreOptions(
                journal=JournalOptions(JOURNAL_PART_BYTES, options.sync_interval_ns), encryption=options.encryption
            ),
        )
        self._store.journal.run_pass = self._run_pass
        for finding in self._store.findings:  # what streams find is told with each
            self.log.warn(f"JetStream store: {finding}")
        try:
            async with trio.open_nursery() as outer:
                outer.start_soon(self._run_store)
                try:
                    await self._serve(task_status)
                except BaseException as end:
                    if not _is_cancellation(end):
                        raise
                    with trio.CancelScope(shield=True):
                        await self._end()
                    raise
                finally:
                    self._store.stop()
        finally:
            with trio.CancelScope(shield=True):
                await self._store.close()

    def _announce(self) -> None:
        """Log where the store is and what it promises; its bounds are known only when it is open."""
        options = self.options
        interval_ns, encryption = options.sync_interval_ns, options.encryption
        self.log.info("Starting JetStream")
        self.log.info(f'  Store Directory: "{options.store_dir}"')
        durability = f"acknowledged at once, synced every {format_duration(interval_ns)}" if interval_ns else "synced"
        self.log.info(f"  Durability:      {durability}")
        self.log.info(f"  Encryption:      {'none' if encryption is None else encryption.cipher.algorithm}")

    async def _measure_disk(self) -> int:
        """Three quarters of what the store may have: what streams use already, and what is free."""
        used = sum(
            stream.store.total_bytes
            for account in self.accounts.values()
            for stream in account.streams.values()
            if stream.config.storage == Storage.FILE
        )
        return (used + await self.runtime.disk.free_bytes(self.options.store_dir)) // 4 * 3

    async def _run_store(self) -> None:
        # It outlives the cancellation, for the checkpoints of the end; `stop` ends it.
        with trio.CancelScope(shield=True):
            await self._store.run()

    async def _serve(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            host = self._host = await self._make_host(nursery)
            await self._recover(host)
            self._file_bytes_max = await self._measure_disk()
            self._bound(self.options)
            for kind, size in (("Memory: ", self.options.max_memory), ("Storage:", self.options.max_file)):
                self.log.info(f"  Max {kind}     {'unlimited' if size < 0 else f'{size // MIB:,} MiB'}")
            # A stream that could not be opened does not know yet what it has lost: the next start must ask again.
            await self._store.settle(is_accounted=not self.unopened)
            calls = (StreamCalls(host), ConsumerCalls(host), BackupCalls(host))
            handlers = {call: served for each in calls for call, served in each.handlers().items()}
            self._api = api = ApiService(host, handlers)
            nursery.start_soon(host.timers.run)
            nursery.start_soon(api.run)
            for account in self.accounts.values():
                self._serve_account(api, account)
            self.is_ready = True
            if self._store.stale_paths:
                nursery.start_soon(self._renew_files)
            task_status.started()
            try:
                await trio.Event().wait()
            finally:
                host.is_ending = True  # entries are applied until the journal has stopped

    async def _renew_files(self) -> None:
        """Bring the store under the present key: while it is served, one file at a time."""
        self.log.info(f"JetStream store: {len(self._store.stale_paths)} files are to be encrypted anew")
        try:
            await self._store.renew()
        except (StorageError, DiskError) as failure:
            self.log.error(f"JetStream store: encrypting it anew stopped: {failure}")
        left = self._store.stale_paths
        if left:
            text = "are not under the present key yet; keep the previous key until the next start: "
            self.log.warn(f"JetStream store: {len(left)} files {text}{', '.join(left[:3])}")
        else:
            self.log.info("JetStream store: all files are under the present key; the previous one is needed no more")

    async def _make_host(self, nursery: trio.Nursery) -> Host:
        catalogue = Catalogue(self._store.journal)
        await catalogue.open()
        self._store.own(GROUP, catalogue.checkpoint)
        chance = self.runtime.chance
        return Host(
            runtime=self.runtime,
            options=self.options,
            log=self.log,
            store=self._store,
            catalogue=catalogue,
            timers=Timers(self.runtime.clock, wake),
            nursery=nursery,
            budget=BatchBudget(self.options.batch_limits),
            draw=Draw(chance.rng("jetstream").getrandbits(64)),
            nuid=Nuid(chance.rng("jetstream ids")),
            accounts=self.accounts,
        )

    # ------------------------------------------------------------------ recovery

    async def _recover(self, host: Host) -> None:
        catalogue = host.catalogue
        names = dict.fromkeys([*self.options.accounts, *(one.account for one in catalogue.streams.values())])
        for name in names:
            self._add_account(host, name, self.options.accounts.get(name, Quotas()))
        by_number = {}
        for record in list(catalogue.streams.values()):
            account = self.accounts[record.account]
            try:
                stream = await open_stream(host, account, record)
            except (StorageError, DiskError) as failure:
                self.unopened.append(f"{record.label} is offline: {failure}")
                self.log.error(self.unopened[-1])
                continue
            account.streams[record.name] = by_number[record.number] = stream
            state = stream.machine.state()
            self.log.info(f"  Restored {state.messages} messages for stream '{record.account} > {record.name}'")
        for consumer in list(catalogue.consumers.values()):
            of = by_number.get(consumer.stream)
            if of is not None:
                await of.account.open_consumer(of, consumer, is_new=False)
        await self._drop_orphans(host)

    async def _drop_orphans(self, host: Host) -> None:
        """Logs of what the catalogue does not have any more: power was lost in the middle of a removal."""
        if host.catalogue.lost_count:
            self.log.error("JetStream: the catalogue has lost entries; logs that it does not name are kept")
            return
        known = {GROUP, *(one.group for one in host.catalogue.streams.values())}
        known.update(one.group for one in host.catalogue.consumers.values())
        for group in host.store.journal.groups:
            if group.name not in known:
                self.log.warn(f"JetStream: finishing the removal of {group.name}")
                await host.store.drop_group(group.name)

    # ------------------------------------------------------------------ the end

    async def _end(self) -> None:
        """Take in nothing more, bring everything to rest."""
        self.is_ready = False
        if self._api is not None:
            self._api.stop()
        for account in self.accounts.values():
            account.stop()
        clock = self.runtime.clock
        try:
            with clock.deadline(clock.mono_ns() + JETSTREAM_CLOSE_NS_MAX):
                for account in self.accounts.values():
                    for stream in account.streams.values():
                        for consumer in stream.consumers.values():
                            await consumer.checkpoint()
                        await stream.checkpoint()
                await self._store.journal.flush()
        except TnatsError as failure:
            self.log.warn(f"JetStream: the last checkpoint is incomplete: {failure}")
        self._store.stop()


def _is_cancellation(end: BaseException) -> bool:
    """Whether nothing but being cancelled has ended a task: then the state is sound, and worth a checkpoint."""
    if isinstance(end, BaseExceptionGroup):
        return all(_is_cancellation(inner) for inner in end.exceptions)
    return isinstance(end, trio.Cancelled)
