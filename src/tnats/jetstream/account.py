"""JetStream in one account: its streams and consumers. An account that may not use JetStream keeps those it has from
earlier, idle: they take in nothing, and are neither listed nor served.

Changes of what exists go through here: the rules judge, the catalogue makes it durable, then it comes to life. Each
method that changes something returns what the answer needs, or the error of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from tnats.jetstream.api import errors
from tnats.jetstream.api.advisories import Advisory, consumer_action, stream_action
from tnats.jetstream.api.direct import DirectGetService
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.levels import API_LEVEL
from tnats.jetstream.api.messages import ApiStats
from tnats.jetstream.api.subjects import is_valid_name
from tnats.jetstream.consumer import rules as consumer_rules
from tnats.jetstream.consumer.config import ConsumerConfig, CreateConsumerRequest
from tnats.jetstream.consumer.core import start_state
from tnats.jetstream.consumer.dispatch import ConsumerDispatch
from tnats.jetstream.consumer.open import has_log, open_consumer
from tnats.jetstream.consumer.outbox import Post
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.consumer.state import ConsumerState
from tnats.jetstream.consumer.waiting import CONSUMER_DELETED
from tnats.jetstream.domain import DomainNames
from tnats.jetstream.host import Host
from tnats.jetstream.meta.catalogue import ConsumerRecord, StreamRecord
from tnats.jetstream.ports import Bus
from tnats.jetstream.stream import quotas, rules
from tnats.jetstream.stream.config import Retention, StreamConfig
from tnats.jetstream.stream.open import open_stream
from tnats.jetstream.stream.quotas import Quotas
from tnats.jetstream.stream.service import StreamService
from tnats.runtime.api import DiskError
from tnats.storage.errors import StorageError
from tnats.subjects.subject_set import SubjectSet
from tnats.subjects.tokens import to_bytes

if TYPE_CHECKING:
    from tnats.jetstream.backup.contents import ArchivedConsumer


class AccountService:
    """See the module's text."""

    def __init__(self, host: Host, bus: Bus, quotas: Quotas) -> None:
        self.host = host
        self.bus = bus
        self.quotas = quotas
        self.streams: dict[str, StreamService] = {}
        self._captured = SubjectSet()
        """The subjects of all streams."""
        self._captured_by: dict[str, dict[str, None]] = {}
        """The same by the name of the stream."""
        self.stats = ApiStats(level=API_LEVEL)
        self._dispatch = ConsumerDispatch(bus, host.options.domain)
        self._direct = DirectGetService(host, bus)
        self._changing = trio.Lock()
        self._post = Post(bus, host.nuid)
        domain = host.options.domain
        self._domain_names = DomainNames(bus, domain) if domain else None

    @property
    def name(self) -> str:
        return self.bus.account

    def start(self) -> None:
        """Serve what clients say to consumers; streams and consumers begin their work. No quotas, no work."""
        if not self.quotas.is_enabled:
            return
        self._dispatch.start()
        if self._domain_names is not None:
            self._domain_names.start()
        for stream in self.streams.values():
            self._start(stream)
            for consumer in stream.consumers.values():
                consumer.start()

    def _start(self, stream: StreamService) -> None:
        stream.start()
        self._direct.offer(stream)

    def change_quotas(self, quotas: Quotas) -> None:
        """Other limits, for what is asked for from now on; an account that had none begins to be served."""
        was_enabled = self.quotas.is_enabled
        self.quotas = quotas
        if not was_enabled:
            self.start()

    def stop(self) -> None:
        """Take in nothing more."""
        self._dispatch.stop()
        self._direct.close()
        if self._domain_names is not None:
            self._domain_names.close()
        self._post.close()
        for stream in self.streams.values():
            stream.stop()
            for consumer in stream.consumers.values():
                consumer.stop("409 Server Shutdown")

    def advise(self, advisories: Iterable[Advisory]) -> None:
        """Publish events, if anybody listens."""
        for advisory in advisories:
            subject = to_bytes(advisory.subject)
            if self.bus.has_interest(subject):
                self._dispatch.sender.publish(subject, advisory.encode(self.host.nuid.next(), self.host.wall_ns()))

    # ------------------------------------------------------------------ streams

    def capture(self, name: str, subjects: Iterable[str]) -> None:
        """Keep from other streams the subjects that this one takes in now, and none that it took in before."""
        for subject in self._captured_by.pop(name, ()):
            self._captured.discard(subject)
        for subject in subjects:
            self._captured.add(subject)
            self._captured_by.setdefault(name, {})[subject] = None

    def surroundings(self, without: str = "") -> rules.Surroundings:
        """What the rules must know; `without`: the stream that is being changed."""
        own = self._captured_by.get(without, {})

        def overlaps(subjects: Sequence[str]) -> bool:
            return any(found not in own for subject in subjects for found in self._captured.overlapping(subject))

        def find_stream(name: str) -> StreamConfig | None:
            stream = self.streams.get(name)
            return stream.config if stream is not None and name != without else None

        return rules.Surroundings(
            duplicate_window_ns_max=self.host.options.duplicate_window_ns_max,
            overlaps=overlaps,
            find_stream=find_stream,
        )

    def _check_quotas(self, config: StreamConfig, without: str = "") -> ApiError | None:
        others = [stream.config for name, stream in self.streams.items() if name != without]
        error = quotas.check(config, self.quotas, others)
        if error is not None or config.max_bytes <= 0:
            return error
        bound = self.host.options.bytes_max(config.storage)
        reserved = sum(max(other.max_bytes, 0) for other in others if other.storage == config.storage)
        if 0 <= bound < reserved + config.max_bytes:
            return quotas.bytes_exceeded(config.storage)
        return None

    def check_new_stream(
        self, config: StreamConfig, *, pedantic: bool = False, is_restored: bool = False
    ) -> StreamConfig | ApiError:
        """The configuration of a stream that can be made now, or why it cannot."""
        checked = rules.check_create(config, self.surroundings(), pedantic=pedantic, is_restored=is_restored)
        if isinstance(checked, ApiError):
            return checked
        return self._check_quotas(checked) or _unsupported(checked) or checked

    async def create_stream(self, config: StreamConfig, *, pedantic: bool) -> tuple[StreamService, bool] | ApiError:
        """The stream, and whether it was made just now."""
        async with self._changing:
            old = self.streams.get(config.name)
            if old is not None:
                checked = rules.check(config, self.surroundings(config.name), pedantic=pedantic)
                if isinstance(checked, ApiError):
                    return checked
                return (old, False) if rules.is_same(old.config, checked) else errors.STREAM_NAME_EXIST()
            checked = self.check_new_stream(config, pedantic=pedantic)
            if isinstance(checked, ApiError):
                return checked
            number = self.host.catalogue.next_number()
            record = StreamRecord(self.name, number, self.host.wall_ns(), checked)
            try:
                await self.host.catalogue.put_stream(record)
                stream = await open_stream(self.host, self, record)
            except (StorageError, DiskError) as failure:
                return errors.STREAM_CREATE(err=str(failure))
            self.streams[stream.name] = stream
            self._start(stream)
        self.advise([stream_action(stream.name, "create", self.host.options.domain)])
        return stream, True

    async def update_stream(self, config: StreamConfig, *, pedantic: bool) -> StreamService | ApiError:
        """The stream with its new configuration."""
        async with self._changing:
            stream = self.streams.get(config.name)
            if stream is None:
                return errors.STREAM_NOT_FOUND()
            checked = rules.check_update(stream.config, config, self.surroundings(config.name), pedantic=pedantic)
            if isinstance(checked, ApiError):
                return checked
            error = self._check_quotas(checked, stream.name) or _unsupported(checked)
            if error is not None:
                return error
            old = stream.config
            try:
                await self.host.catalogue.put_stream(attrs.evolve(stream.record, config=checked))
                await stream.reconfigure(checked)
            except (StorageError, DiskError) as failure:
                return errors.STREAM_UPDATE(err=str(failure))
        self._direct.offer(stream)
        if checked.retention != old.retention:
            stream.sweep()
        if checked.origins() != old.origins():
            self._sweep_origins(old)
        self.advise([stream_action(stream.name, "modify", self.host.options.domain)])
        return stream

    def _sweep_origins(self, config: StreamConfig) -> None:
        """Have streams let go of what they kept for one that sourced them by `config` alone."""
        for source in config.origins():
            origin = self.streams.get(source.name)
            if origin is not None:
                origin.sweep()

    async def delete_stream(self, stream: StreamService) -> ApiError | None:
        """Remove a stream and its consumers: first from the catalogue, then what they hold."""
        async with self._changing:
            if self.streams.get(stream.name) is not stream:
                return errors.STREAM_NOT_FOUND()
            try:
                await self.host.catalogue.drop_stream(stream.record.number)
            except StorageError as failure:
                return errors.STREAM_DELETE(err=str(failure))
            del self.streams[stream.name]
            self.capture(stream.name, ())
            for consumer in list(stream.consumers.values()):
                self._dispatch.remove(consumer)
                consumer.stop(CONSUMER_DELETED)
            stream.stop()
            self._sweep_origins(stream.config)
            self._direct.end(stream)
            await self._drop_data(stream)
        gone, stream.consumers = stream.consumers, {}  # they know it: no cycle is left for the collector
        self.advise([consumer_action(one.machine.identity, "delete") for one in gone.values()])
        self.advise([stream_action(stream.name, "delete", self.host.options.domain)])
        return None

    async def adopt_stream(
        self, stream: StreamService, archived: list[ArchivedConsumer], states: dict[str, ConsumerState]
    ) -> ApiError | None:
        """Make a restored stream, which nobody has seen yet, one of the account's, with its consumers. Raises
        StorageError, DiskError.
        """
        record = stream.record
        async with self._changing:
            if record.name in self.streams:
                return errors.STREAM_NAME_EXIST_RESTORE_FAILED()
            checked = self.check_new_stream(record.config, is_restored=True)
            if isinstance(checked, ApiError):
                return checked
            made = self._consumers_of(stream, archived)
            if isinstance(made, ApiError):
                return made
            await stream.checkpoint(anyway=True)
            for consumer in made:
                if has_log(stream, consumer.config):
                    group = self.host.store.journal.group(consumer.group)
                    await group.set_state_nowait(group.last, states[consumer.name].encode()).wait()
            await self.host.store.journal.flush()
            await self.host.catalogue.put_restored(record, [one for one in made if has_log(stream, one.config)])
            self.streams[record.name] = stream
            for consumer in made:
                is_new = not has_log(stream, consumer.config)
                await self.open_consumer(stream, consumer, is_new=is_new, state=states[consumer.name])
            self._start(stream)
            for service in stream.consumers.values():
                service.start()
        self.advise([stream_action(stream.name, "create", self.host.options.domain)])
        stream.sweep()
        return None

    def _consumers_of(self, stream: StreamService, archived: list[ArchivedConsumer]) -> list[ConsumerRecord] | ApiError:
        """Records of archived consumers; the rules are those of new ones."""
        made: list[ConsumerRecord] = []
        for one in archived:
            config = attrs.evolve(one.config, name=one.name)
            if config.num_replicas > stream.config.num_replicas:
                config.num_replicas = 0
            around = attrs.evolve(self._consumer_surroundings(stream, one.name), others=[done.config for done in made])
            checked: ConsumerConfig | ApiError = errors.BAD_REQUEST()
            if is_valid_name(one.name):
                checked = consumer_rules.check_create(config, around)
            if isinstance(checked, ApiError):
                return errors.STREAM_RESTORE(err=f"consumer {one.name}: {checked.description}")
            number = self.host.catalogue.next_number()
            made.append(ConsumerRecord(stream.record.number, number, one.name, self.host.wall_ns(), checked))
        return made

    async def discard_stream(self, stream: StreamService) -> None:
        """Take away a stream that nobody has seen."""
        stream.stop()
        await self._drop_data(stream)

    async def _drop_data(self, stream: StreamService) -> None:
        """Remove the log and the files of a stream, and the logs of its consumers."""
        try:
            for consumer in stream.consumers.values():
                await self._drop_log(consumer.record.group)
            await self._drop_log(stream.record.group)
        except (StorageError, DiskError) as failure:
            self.host.log.warn(f"{stream.record.label} left files behind: {failure}")

    # ------------------------------------------------------------------ consumers

    async def create_consumer(
        self, stream: StreamService, request: CreateConsumerRequest
    ) -> ConsumerService | ApiError:
        """The consumer, made or updated. Names were checked against the request's subject."""
        async with self._changing:
            if self.streams.get(stream.name) is not stream:
                return errors.STREAM_NOT_FOUND()
            config = request.config
            name = config.name or config.durable_name or self.host.nuid.next()[-8:]
            old = stream.consumers.get(name)
            checked = consumer_rules.check_create(
                config,
                self._consumer_surroundings(stream, name),
                old=old.config if old is not None else None,
                action=request.action,
                pedantic=request.pedantic,
            )
            if isinstance(checked, ApiError):
                return checked
            if old is None:
                error = self._check_consumer_quota(stream)
                if error is not None:
                    return error
            try:
                if old is None:
                    return await self._make_consumer(stream, name, checked)
                if old.config != checked:
                    filters = old.machine.filters
                    if has_log(stream, checked):
                        await self.host.catalogue.put_consumer(attrs.evolve(old.record, config=checked))
                    self._dispatch.remove(old)
                    old.reconfigure(checked)
                    self._dispatch.add(old)
                    stream.add_consumer(old)
                    if old.machine.filters != filters:
                        stream.sweep()
            except StorageError as failure:
                return errors.CONSUMER_CREATE(err=str(failure))
            return old

    def _check_consumer_quota(self, stream: StreamService) -> ApiError | None:
        """Why the account may have no further consumer on a stream, or None."""
        others: Iterable[StreamService] = self.streams.values()
        selected = self.quotas.select(stream.config.num_replicas)
        if selected is None:
            return errors.NO_LIMITS()
        limits, is_tiered = selected
        if is_tiered:
            others = [one for one in others if one.config.num_replicas == stream.config.num_replicas]
        if 0 < limits.max_consumers <= sum(one.consumer_count for one in others):
            return errors.MAXIMUM_CONSUMERS_LIMIT()
        return None

    async def _make_consumer(self, stream: StreamService, name: str, config: ConsumerConfig) -> ConsumerService:
        number = self.host.catalogue.next_number()
        record = ConsumerRecord(stream.record.number, number, name, self.host.wall_ns(), config)
        if has_log(stream, config):
            await self.host.catalogue.put_consumer(record)
        consumer = await self.open_consumer(stream, record, is_new=True)
        consumer.start()
        self.advise([consumer_action(consumer.machine.identity, "create")])
        return consumer

    async def open_consumer(
        self, stream: StreamService, record: ConsumerRecord, *, is_new: bool, state: ConsumerState | None = None
    ) -> ConsumerService:
        """Bring a consumer of the catalogue to life, not started; `state`: where a new one begins. Raises
        StorageError.
        """

        def start() -> ConsumerState:
            return state or start_state(record.config, stream.store)

        consumer = await open_consumer(
            self.host, stream, record, self._dispatch.sender, self._post, start=start, is_new=is_new
        )
        stream.add_consumer(consumer)
        self._dispatch.add(consumer)
        return consumer

    async def pause_consumer(self, consumer: ConsumerService, until_ns: int | None) -> ApiError | None:
        """Pause until a time, or go on."""
        async with self._changing:
            if consumer.stream.consumers.get(consumer.name) is not consumer:
                return errors.CONSUMER_NOT_FOUND()
            config = attrs.evolve(consumer.config, pause_until_ns=until_ns)
            try:
                if has_log(consumer.stream, config):
                    await self.host.catalogue.put_consumer(attrs.evolve(consumer.record, config=config))
            except StorageError as failure:
                return errors.CONSUMER_CREATE(err=str(failure))
            consumer.reconfigure(config)
        return None

    async def delete_consumer(self, stream: StreamService, consumer: ConsumerService) -> ApiError | None:
        """Remove a consumer."""
        async with self._changing:
            if stream.consumers.get(consumer.name) is not consumer:
                return errors.CONSUMER_NOT_FOUND()
            try:
                if has_log(stream, consumer.config):
                    await self.host.catalogue.drop_consumer(consumer.record.number)
            except StorageError as failure:
                return errors.CONSUMER_CREATE(err=str(failure))
            self._dispatch.remove(consumer)
            consumer.stop(CONSUMER_DELETED)
            stream.remove_consumer(consumer.name)
            try:
                await self._drop_log(consumer.record.group)
            except (StorageError, DiskError) as failure:
                self.host.log.warn(f"{consumer.label} left its log: {failure}")
        self.advise([consumer_action(consumer.machine.identity, "delete")])
        return None

    async def _drop_log(self, group: str) -> None:
        """Remove the log of a stream or consumer, if it has one. Raises StorageError, DiskError."""
        if self.host.store.journal.knows(group):
            await self.host.store.drop_group(group)

    def _consumer_surroundings(self, stream: StreamService, name: str) -> consumer_rules.Surroundings:
        options, selected = self.host.options, self.quotas.select(stream.config.num_replicas)
        account_max = selected[0].max_ack_pending if selected is not None else 0
        bounds = [bound for bound in (options.max_ack_pending, account_max) if bound > 0]
        others: list[ConsumerConfig] = []
        if stream.config.retention == Retention.WORKQUEUE:
            others = [one.config for one in stream.consumers.values() if one.name != name]
        current = stream.consumers.get(name)
        return consumer_rules.Surroundings(
            stream.config,
            others,
            max_ack_pending=min(bounds, default=0),
            max_batch=options.max_request_batch,
            is_bound=current is not None and current.machine.is_bound,
            others_count=len(stream.consumers) - (current is not None),
        )


def _unsupported(config: StreamConfig) -> ApiError | None:
    """What this release does not offer yet is refused by name."""
    origins = [*config.live_sources(), *([config.mirror] if config.mirror is not None else [])]
    if any(origin.external is not None and origin.consumer is not None for origin in origins):
        text = (
            "consumers set up beforehand at origins of other accounts or domains are not supported by this server yet"
        )
        return errors.STREAM_INVALID_CONFIG(err=text)
    return None
