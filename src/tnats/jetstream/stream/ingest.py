"""What is published to a stream, from the broker to the leader: admitted at once, after a wait in line, or refused.

Theory of operation
-------------------
The broker hands over what one read brought (`take`). In line it waits for what is before it, for the counter totals
that judging it takes, and while too much of the stream is in memory only (`backlog`). The line moves whenever one of
these has changed; where the disk is full, all of it is refused.

*Bounds.* What is in line and what is admitted but not yet stored count together, in messages and bytes; beyond that
publishers get 429.

*The end.* Whoever is in line when the stream stops hears what any publisher to no stream hears from then on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tnats.jetstream.api import errors
from tnats.jetstream.domain import NO_RESPONDERS
from tnats.jetstream.ports import Client
from tnats.jetstream.sparse_warning import SparseWarning
from tnats.jetstream.store import content
from tnats.jetstream.stream.config import StreamConfig
from tnats.jetstream.stream.ingest_line import IngestLine
from tnats.jetstream.stream.ports import Inbound
from tnats.limits import STREAM_FULL_PAUSE_NS
from tnats.runtime.api import DiskError
from tnats.storage.errors import DataDamaged, StorageError, StoreFull
from tnats.subjects.tokens import to_bytes

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService

TOO_MANY_REQUESTS = b"NATS/1.0 429 Too Many Requests\r\n\r\n"


class Ingest:
    """See the module's text."""

    def __init__(self, stream: StreamService) -> None:
        self._host = stream.host
        self.client: Client = stream.account.bus.client(f"stream {stream.name}", partial(self.take, stream))
        """Through it the stream hears and speaks."""
        self._subscriptions: dict[str, Any] = {}
        self.is_open = False
        """The stream was started, and not stopped since: what is published is its business."""
        self._line = IngestLine()
        self._is_counting = False
        """A task reads counter totals for the first in line."""
        self.paused_until_ns = 0
        """There was no space; until then what comes is refused, and nothing is tried."""
        self._full_warning = SparseWarning(self._host.log)

    def listen(self, config: StreamConfig) -> None:
        """Take in what is published on the subjects of a configuration, and nothing else."""
        wanted = {} if config.mirror is not None else dict.fromkeys(config.subjects)
        for subject in [subject for subject in self._subscriptions if subject not in wanted]:
            self.client.end_subscription(self._subscriptions.pop(subject))
        for subject in wanted:
            if subject not in self._subscriptions:
                self._subscriptions[subject] = self.client.subscribe(to_bytes(subject))

    def stop(self, stream: StreamService) -> None:
        """Take in nothing more."""
        self.is_open = False
        self.client.close()
        self._subscriptions.clear()
        while self._line:
            self._answer_alike(stream, self._line.take(), b"", NO_RESPONDERS)

    def pause(self, stream: StreamService, error: StoreFull) -> None:
        """There was no space: refuse what comes for a moment."""
        now_ns = self._host.mono_ns()
        self.paused_until_ns = now_ns + STREAM_FULL_PAUSE_NS
        self._full_warning.tell(f"{stream.record.label} refuses publishes until there is room: {error}", now_ns)

    # ------------------------------------------------------------------ what comes

    def take(self, stream: StreamService, batch: list[Inbound]) -> None:
        """Take in what was published on the stream's subjects."""
        if not self.is_open:
            self._answer_alike(stream, batch, b"", NO_RESPONDERS)
            return
        room = self._room(stream)
        if len(batch) > room:
            self._refuse(stream, batch[room:], errors.STREAM_TOO_MANY_REQUESTS(), TOO_MANY_REQUESTS)
            batch = batch[:room]
        if not batch:
            return
        if (error := self._trouble(stream)) is not None:
            self._refuse(stream, batch, error)
        elif self._line or stream.config.allow_msg_counter or stream.backlog.is_too_long():
            self._line.put(batch)
            self.move(stream)
        else:
            stream.admit(batch)

    def _room(self, stream: StreamService) -> int:
        """How many messages may be taken in now."""
        options = self._host.options
        is_busy = self._host.store.journal.is_busy
        if is_busy or stream.pending_bytes + self._line.bytes >= options.ingest_bytes_max:
            return 0
        waiting = stream.pending_msgs + stream.waiting_answers_count + self._line.msgs
        return max(options.ingest_msgs_max - waiting, 0)

    def _trouble(self, stream: StreamService) -> errors.ApiError | None:
        """Why nothing may be taken in now."""
        if stream.trouble is not None:
            return errors.STREAM_STORE_FAILED(err=str(stream.trouble))
        if self.paused_until_ns and self._host.mono_ns() < self.paused_until_ns:
            return errors.STORAGE_RESOURCES_EXCEEDED()
        return self._host.refusal(stream.account, stream.config)

    def _refuse(
        self, stream: StreamService, batch: list[Inbound], error: errors.ApiError, headers: bytes = b""
    ) -> None:
        self._answer_alike(stream, batch, stream.leader.refusal(error), headers)

    def _answer_alike(self, stream: StreamService, batch: list[Inbound], payload: bytes, headers: bytes) -> None:
        if stream.config.no_ack:
            return
        for message in batch:
            if message.reply:
                self.client.publish(message.reply, payload, headers=headers)

    # ------------------------------------------------------------------ the line

    def move(self, stream: StreamService) -> None:
        """Admit what waits, up to where it has to go on waiting."""
        while self._line and not self._is_counting:
            if stream.backlog.is_too_long():
                stream.backlog.shorten(stream)
                if (error := self._trouble(stream)) is None:
                    return
                while self._line:
                    self._refuse(stream, self._line.take(), error)
            elif stream.config.allow_msg_counter and not self._learn_totals_nowait(stream, self._line.first):
                self._is_counting = True
                self._host.spawn(self._learn_totals, stream, self._line.first)
            else:
                stream.admit(self._line.take())

    def _learn_totals_nowait(self, stream: StreamService, batch: list[Inbound]) -> bool:
        """Read the counter totals that the leader needs for a batch; whether all could be had at once."""
        leader, store = stream.leader, stream.store
        for seq in leader.wanted_totals(batch):
            try:
                found = store.load_nowait(seq)
            except DataDamaged:
                return False
            if found is None:
                return False
            leader.learn_total(seq, content(found))
        return True

    async def _learn_totals(self, stream: StreamService, batch: list[Inbound]) -> None:
        """The same for the first batch in line, which goes on then."""
        leader, store = stream.leader, stream.store
        for seq in leader.wanted_totals(batch):
            try:
                leader.learn_total(seq, content(await store.load(seq)))
            except KeyError:
                pass  # removed meanwhile: there is another last one, or none
            except DataDamaged:
                leader.learn_total(seq, None)
            except (StorageError, DiskError) as trouble:
                if self._line:  # else the stream has stopped
                    self._refuse(stream, self._line.take(), errors.STREAM_STORE_FAILED(err=str(trouble)))
                break
        self._is_counting = False
        self.move(stream)
