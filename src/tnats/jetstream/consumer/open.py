"""Opening consumers: a new one, or one that the store has, with everything that its log says since the checkpoint.

Damage to the log costs no message. A consumer whose place is lost begins again where it began when it was made. Where
entries are lost, whatever they may have delivered awaits its acknowledgement again. Both are logged and reported by the
health check until the next start: messages come again that were acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING

from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig
from tnats.jetstream.consumer.core import start_state
from tnats.jetstream.consumer.outbox import Post
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.consumer.state import DELIVERED, RESET, ConsumerState, decode_ops
from tnats.jetstream.host import Host
from tnats.jetstream.meta.catalogue import ConsumerRecord
from tnats.jetstream.ports import Client
from tnats.jetstream.store import IndexedStore
from tnats.jetstream.stream.config import Retention, Storage
from tnats.storage.commit_log import LocalLog

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService


async def open_consumer(
    host: Host,
    stream: StreamService,
    record: ConsumerRecord,
    client: Client,
    post: Post,
    *,
    start: Callable[[], ConsumerState],
    is_new: bool,
) -> ConsumerService:
    """The service of a consumer: recovered, or from `start` if it is new or its stream is in memory.

    Raises StorageError.
    """
    if not has_log(stream, record.config):
        return ConsumerService(host, stream, record, start(), None, client, post)
    group = host.store.journal.group(record.group)
    loss = ""
    done: list[int] = []
    if is_new:
        state = start()
    elif not group.note:  # the server ended while it was made, or the note is lost
        state = start_state(record.config, stream.store, made_ns=record.created_ns)
        if host.store.health():
            loss = f"its place may be lost: it begins again at message {state.delivered_stream_seq + 1}"
    else:
        recovery = _Recovery(group.note, record.config)
        for entry in await LocalLog(group).replay():
            recovery.apply(None if entry.body is None else bytes(entry.body))
        state, done = recovery.state, recovery.done
        if recovery.is_damaged:
            count = recovery.await_lost(stream.store)
            loss = f"entries of its log are lost: {count} messages that they may have delivered come again"
    if is_new or loss or not group.note:
        await group.set_state_nowait(group.last, state.encode()).wait()
    service = ConsumerService(host, stream, record, state, group, client, post)
    if loss:
        service.loss = f"{service.label}: {loss}"
        host.log.error(service.loss)
    if stream.config.retention != Retention.LIMITS:
        service.finish_removal([seq for seq in done if stream.store.subject_of(seq) is not None])
    host.store.own(record.group, service.checkpoint)
    return service


class _Recovery:
    """The state that a consumer's log adds up to."""

    def __init__(self, note: bytes, config: ConsumerConfig) -> None:
        self.state = ConsumerState.decode(note)
        self.done: list[int] = []
        """Messages that the log was done with."""
        self.is_damaged = False
        self._config = config
        self._tracks_acks = config.ack_policy != AckPolicy.NONE
        self._known_to = (0, 0)
        """The last stream and consumer sequence delivered before entries were lost."""
        self._delivered: dict[int, None] = {}
        """What was delivered after that."""

    def apply(self, body: bytes | None) -> None:
        """The next entry; None: it is lost."""
        state = self.state
        if body is None:
            if not self.is_damaged:
                self._known_to = (state.delivered_stream_seq, state.delivered_consumer_seq)
            self.is_damaged = True
            return
        if self.is_damaged:
            for kind, seq, count, consumer_seq, _ in decode_ops(body)[1]:
                if kind == DELIVERED:
                    self._delivered.update(dict.fromkeys(range(seq, seq + count)))
                elif kind == RESET:
                    self._known_to = (seq - 1, consumer_seq)
                    self._delivered.clear()
        self.done += state.replay(body, tracks_acks=self._tracks_acks)

    def await_lost(self, store: IndexedStore) -> int:
        """Have the messages that lost entries may have delivered await their acknowledgement; how many."""
        if not self._tracks_acks:
            return 0
        state, (known_seq, consumer_seq) = self.state, self._known_to
        filters = self._config.patterns()
        delivered = takewhile(lambda seq: seq <= state.delivered_stream_seq, store.matching(filters, known_seq + 1))
        lost = [seq for seq in delivered if seq not in self._delivered and seq not in state.held]
        if lost:
            state.await_again(lost, min(consumer_seq + 1, state.delivered_consumer_seq))
        return len(lost)


def has_log(stream: StreamService, config: ConsumerConfig) -> bool:
    """Whether a consumer outlives the process: of those in memory the catalogue knows nothing either."""
    return stream.config.storage != Storage.MEMORY and not config.mem_storage
