"""Direct gets: messages as they are, with headers that say where they stand (ADR-31).

A request for one message that is at hand is answered in the call that brought it; everything else gets a task, as long
as there are not too many.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import trio

from tnats.jetstream.api import fields
from tnats.jetstream.api.json_text import DecodeError
from tnats.jetstream.api.levels import REQUIRED_LEVEL_HEADER, supports
from tnats.jetstream.api.messages import JSApiMsgGetRequest
from tnats.jetstream.api.streams import find_message
from tnats.jetstream.api.subjects import api_forms
from tnats.jetstream.consumer.effects import status_block
from tnats.jetstream.host import Host
from tnats.jetstream.ports import Bus, Client
from tnats.jetstream.room import load_for
from tnats.jetstream.stream.ports import Inbound
from tnats.limits import DIRECT_GET_SUBJECTS_MAX, DIRECT_GETS_MAX, READER_PATIENCE_NS
from tnats.notation import format_time
from tnats.runtime.api import DiskError
from tnats.storage.errors import DataDamaged, StorageError
from tnats.storage.message_log import Message
from tnats.subjects.tokens import to_bytes, to_text
from tnats.wire.headers import VERSION_LINE, get_header

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService

NOT_FOUND = status_block("404 Message Not Found")
QUEUE = b"_sys_"
"""Whoever can answer a direct get is a member; one of them does."""


class DirectGetService:
    """The direct gets of an account: who answers for which stream.

    A stream answers for itself if it allows that, and a mirror for its origin. Of those on this server the stream
    itself is asked if it is there: it knows the newest messages.
    """

    def __init__(self, host: Host, bus: Bus) -> None:
        self._host = host
        self._client = bus.client("direct gets", self._deliver)
        self._answering: dict[str, dict[str, DirectGets]] = {}
        """By the name that is asked for, then by the name of the stream that answers."""
        self._subscriptions: dict[str, list[Any]] = {}
        """By the name that is asked for."""
        self._under_way_count = 0
        """Those that have a task."""

    def close(self) -> None:
        """Answer no more."""
        self._client.close()

    def offer(self, stream: StreamService) -> None:
        """Answer what a stream's configuration allows, and nothing else."""
        config = stream.config
        names = [config.name] if config.allow_direct else []
        if config.mirror is not None and config.mirror_direct and config.mirror.external is None:
            names.append(config.mirror.name)
        self._withdraw(stream, except_for=names)
        for name in names:
            found = self._answering.setdefault(name, {})
            found.setdefault(stream.name, DirectGets(self._host, stream, self._client, self.begin))
            if name not in self._subscriptions:
                domain = self._host.options.domain
                patterns = [*api_forms(f"DIRECT.GET.{name}", domain), *api_forms(f"DIRECT.GET.{name}.>", domain)]
                self._subscriptions[name] = [self._client.subscribe(pattern, QUEUE) for pattern in patterns]

    def end(self, stream: StreamService) -> None:
        """A stream is gone."""
        self._withdraw(stream)

    def _withdraw(self, stream: StreamService, *, except_for: Sequence[str] = ()) -> None:
        """Let a stream answer for no names but these."""
        for name, found in list(self._answering.items()):
            if name in except_for or found.pop(stream.name, None) is None or found:
                continue
            del self._answering[name]
            for subscription in self._subscriptions.pop(name):
                self._client.end_subscription(subscription)

    def begin(self, work: Callable[..., Awaitable[None]], *args: Any) -> bool:
        """Start a task for a request; whether there may be another one."""
        if self._under_way_count >= DIRECT_GETS_MAX:
            return False
        self._under_way_count += 1
        self._host.spawn(self._run, work, *args)
        return True

    async def _run(self, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await work(*args)
        finally:
            self._under_way_count -= 1

    def _deliver(self, batch: list[Inbound]) -> None:
        for message in batch:
            _, _, rest = message.subject.partition(b".DIRECT.GET.")
            asked, _, last_by = rest.partition(b".")
            name = to_text(asked)
            found = self._answering.get(name)
            if found is not None:
                (found.get(name) or next(iter(found.values()))).deliver(message, last_by)


class DirectGets:
    """Answers direct gets from one stream."""

    def __init__(self, host: Host, stream: StreamService, client: Client, begin: Callable[..., bool]) -> None:
        """`begin`: `DirectGetService.begin`."""
        self._host = host
        self._stream = stream
        self._client = client
        self._begin = begin

    def deliver(self, message: Inbound, last_by: bytes) -> None:
        """A request came. `last_by`: the subject behind the stream's name, whose last message is wanted, or empty."""
        if not message.reply:
            return
        size = message.header_size
        if size and not supports(get_header(message.data[:size], REQUIRED_LEVEL_HEADER)):
            self._status(message.reply, "412 Required Api Level")
            return
        wanted = self._parse(message, last_by)
        if isinstance(wanted, str):
            self._status(message.reply, wanted)
        elif wanted.batch or wanted.multi_last:
            self._start(message.reply, self._batch, wanted)
        else:
            self._single(wanted, message.reply)

    def _parse(self, message: Inbound, last_by: bytes) -> JSApiMsgGetRequest | str:
        """What is wanted, or the status line that answers a request which says nothing sensible."""
        body = message.data[message.header_size :]
        if not body and not last_by:
            return "408 Empty Request"
        if body.isspace():
            return "408 Malformed Request"
        try:
            wanted = fields.decode(JSApiMsgGetRequest, body, strict=False)
        except DecodeError:
            return "408 Malformed Request"
        if last_by:
            if wanted != JSApiMsgGetRequest(no_hdr=wanted.no_hdr, max_bytes=wanted.max_bytes):
                return "408 Bad Request"
            return JSApiMsgGetRequest(last_by_subj=to_text(last_by), no_hdr=wanted.no_hdr)
        has_time, last, following = wanted.start_time_ns is not None, wanted.last_by_subj, wanted.next_by_subj
        if not (wanted.multi_last or wanted.seq or last or following or has_time):
            return "408 Empty Request"
        contradictions: list[object] = [
            wanted.batch < 0,
            wanted.seq and has_time,
            wanted.up_to_seq and wanted.up_to_time_ns is not None,
            wanted.multi_last and (last or following),
            last and not wanted.multi_last and (wanted.seq or following or wanted.batch or has_time),
        ]
        return "408 Bad Request" if any(contradictions) else wanted

    def _status(self, reply: bytes, line: str) -> None:
        self._client.publish(reply, b"", headers=status_block(line))

    def _single(self, wanted: JSApiMsgGetRequest, reply: bytes) -> None:
        seq = find_message(self._stream, wanted)
        try:
            message = self._stream.store.load_nowait(seq)
        except (KeyError, StorageError) as failure:
            self._fail(seq, reply, failure)
            return
        if message is None:
            self._start(reply, self._read, seq, wanted.no_hdr)
        else:
            self._send(message, reply, no_headers=wanted.no_hdr)

    def _start(self, reply: bytes, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Answer in a task of its own, `work(reply, *args)`, or that there are too many."""
        if not self._begin(work, reply, *args):
            self._status(reply, "429 Too Many Requests")

    async def _read(self, reply: bytes, seq: int, no_headers: bool) -> None:
        try:
            message = await self._stream.store.load(seq)
        except (KeyError, StorageError, DiskError) as failure:
            self._fail(seq, reply, failure)
            return
        self._send(message, reply, no_headers=no_headers)

    def _fail(self, seq: int, reply: bytes, failure: Exception) -> None:
        """What is damaged, or cannot be read now, is not absent: a reader must not take the one for the other."""
        if isinstance(failure, KeyError):
            self._client.publish(reply, b"", headers=NOT_FOUND)
        elif isinstance(failure, DataDamaged):
            self._status(reply, f"500 Message {seq} Is Damaged")
        else:
            self._host.log.error(str(failure))
            self._status(reply, f"500 Message {seq} Cannot Be Read")

    def _send(self, message: Message, reply: bytes, *, no_headers: bool, extra: bytes = b"") -> None:
        if no_headers and not extra:
            self._client.publish(reply, message.payload)
            return
        own = message.headers[len(VERSION_LINE) + 2 : -2] if message.headers and not no_headers else b""
        block = b"%b\r\n%bNats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n%b\r\n" % (
            VERSION_LINE,
            own,
            to_bytes(self._stream.name),
            message.subject,
            message.sequence,
            format_time(message.time_ns).encode(),
            extra,
        )
        self._client.publish(reply, message.payload, headers=block)

    # ------------------------------------------------------------------ batches

    async def _batch(self, reply: bytes, wanted: JSApiMsgGetRequest) -> None:
        bytes_left = wanted.max_bytes if wanted.max_bytes > 0 else self._host.options.max_payload * 64
        if wanted.multi_last:
            up_to = self._up_to(wanted)
            found = self._last_of_each(wanted, up_to)
            if isinstance(found, str):
                self._status(reply, found)
                return
            seqs, total = iter(found), len(found)
        else:
            up_to = 0
            seqs, total = self._following(wanted)
        if not total:
            self._status(reply, "404 No Results" if wanted.multi_last else "404 Message Not Found")
            return
        sent, last = 0, 0
        bus, clock = self._stream.account.bus, self._host.runtime.clock
        for seq in islice(seqs, min(wanted.batch or total, total)):
            if not self._is_there() or bus.room(reply) is None:
                break  # nothing is left, or nobody
            try:
                load = partial(self._stream.store.load, seq)
                message = await load_for(reply, load, bus, clock, clock.mono_ns() + READER_PATIENCE_NS)
            except KeyError:  # removed meanwhile
                continue
            except (StorageError, DiskError) as failure:
                if self._is_there():
                    self._fail(seq, reply, failure)
                    return
                break
            size = len(message.headers) + len(message.payload)
            if sent and size > bytes_left:
                break
            bytes_left -= size
            extra = b""
            if wanted.multi_last or not wanted.no_hdr:
                extra = b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (max(total - sent - 1, 0), last)
            self._send(message, reply, no_headers=wanted.no_hdr, extra=extra)
            sent, last = sent + 1, seq
            if not sent % 64:
                await trio.lowlevel.checkpoint()
        fields_at_end: list[tuple[str, object]] = [
            ("Nats-Num-Pending", max(total - sent, 0)),
            ("Nats-Last-Sequence", last),
        ]
        if wanted.multi_last:
            fields_at_end.append(("Nats-UpTo-Sequence", up_to))
        self._client.publish(reply, b"", headers=status_block("204 EOB", *fields_at_end))

    def _is_there(self) -> bool:
        """Whether the stream has not been deleted meanwhile."""
        return self._stream.account.streams.get(self._stream.name) is self._stream

    def _up_to(self, wanted: JSApiMsgGetRequest) -> int:
        store = self._stream.store
        if wanted.up_to_time_ns is not None:
            return store.seq_at_time(wanted.up_to_time_ns) - 1
        return wanted.up_to_seq or store.last_seq

    def _last_of_each(self, wanted: JSApiMsgGetRequest, up_to: int) -> list[int] | str:
        if not up_to:
            return []
        filters = tuple(to_bytes(subject) for subject in wanted.multi_last)
        found = [seq for seq in self._stream.store.last_per_subject(filters, up_to) if seq >= wanted.seq]
        return "413 Too Many Results" if len(found) > DIRECT_GET_SUBJECTS_MAX else found

    def _following(self, wanted: JSApiMsgGetRequest) -> tuple[Iterator[int], int]:
        """Those from the start that is wanted on, found as they are asked for, and how many there are now."""
        store = self._stream.store
        start = max(wanted.seq, 1)
        if wanted.start_time_ns is not None:
            start = store.seq_at_time(wanted.start_time_ns)
        filters = (to_bytes(wanted.next_by_subj),) if wanted.next_by_subj else ()
        return store.matching(filters, start), store.count_matching(filters, start, store.last_seq)
