"""Direct gets: messages as they are, with headers that say where they stand (ADR-31).

A request for one message that is at hand is answered in the call that brought it; everything else gets a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from tnats.jetstream.api import fields
from tnats.jetstream.api.levels import REQUIRED_LEVEL_HEADER, supports
from tnats.jetstream.api.messages import JSApiMsgGetRequest
from tnats.jetstream.api.streams import find_message
from tnats.jetstream.api.subjects import api_forms
from tnats.jetstream.api.times import format_time
from tnats.jetstream.consumer.effects import status_block
from tnats.jetstream.host import Host
from tnats.jetstream.ports import Bus, Client
from tnats.jetstream.stream.ports import Inbound
from tnats.limits import DIRECT_GET_SUBJECTS_MAX
from tnats.runtime.api import DiskError
from tnats.storage.errors import DataDamaged, StorageError
from tnats.storage.message_log import Message
from tnats.subjects.tokens import subject_matches, to_bytes, to_text
from tnats.wire.headers import VERSION_LINE, get_header

if TYPE_CHECKING:
    from tnats.jetstream.stream.service import StreamService

PREFIX = b"$JS.API.DIRECT.GET."
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
        self._answering: dict[bytes, dict[str, DirectGets]] = {}
        """By the name that is asked for, then by the name of the stream that answers."""
        self._subscriptions: dict[bytes, list[Any]] = {}

    def close(self) -> None:
        """Answer no more."""
        self._client.close()

    def offer(self, stream: StreamService) -> None:
        """Answer what a stream's configuration allows, and nothing else."""
        config = stream.config
        names = [config.name] if config.allow_direct else []
        if config.mirror is not None and config.mirror_direct and config.mirror.external is None:
            names.append(config.mirror.name)
        for name in [to_text(name) for name, found in self._answering.items() if stream.name in found]:
            if name not in names:
                self._withdraw(name, stream)
        for name in names:
            found = self._answering.setdefault(to_bytes(name), {})
            found.setdefault(stream.name, DirectGets(self._host, stream, name, self._client))
            if to_bytes(name) not in self._subscriptions:
                domain = self._host.options.domain
                patterns = [*api_forms(f"DIRECT.GET.{name}", domain), *api_forms(f"DIRECT.GET.{name}.>", domain)]
                self._subscriptions[to_bytes(name)] = [self._client.subscribe(pattern, QUEUE) for pattern in patterns]

    def end(self, stream: StreamService) -> None:
        """A stream is gone."""
        for name in [to_text(name) for name, found in self._answering.items() if stream.name in found]:
            self._withdraw(name, stream)

    def _withdraw(self, name: str, stream: StreamService) -> None:
        found = self._answering[to_bytes(name)]
        del found[stream.name]
        if not found:
            del self._answering[to_bytes(name)]
            for subscription in self._subscriptions.pop(to_bytes(name)):
                self._client.end_subscription(subscription)

    def _deliver(self, batch: list[Inbound]) -> None:
        for message in batch:
            _, _, rest = message.subject.partition(b".DIRECT.GET.")
            name = rest.partition(b".")[0]
            found = self._answering.get(name)
            if found is not None:
                (found.get(to_text(name)) or next(iter(found.values()))).deliver(message)


class DirectGets:
    """Answers the direct gets for `name` from one stream."""

    def __init__(self, host: Host, stream: StreamService, name: str, client: Client) -> None:
        self._host = host
        self._stream = stream
        self._name = to_bytes(name)
        self._client = client

    def deliver(self, message: Inbound) -> None:
        """A request came."""
        if not message.reply:
            return
        size = message.header_size
        if size and not supports(get_header(message.data[:size], REQUIRED_LEVEL_HEADER)):
            self._status(message.reply, "412 Required Api Level")
            return
        wanted = self._parse(message)
        if isinstance(wanted, str):
            self._status(message.reply, wanted)
        elif wanted.batch or wanted.multi_last:
            self._host.spawn(self._batch, wanted, message.reply)
        else:
            self._single(wanted, message.reply)

    def _parse(self, message: Inbound) -> JSApiMsgGetRequest | str:
        body = message.data[message.header_size :]
        subject = message.subject[message.subject.index(b".DIRECT.GET.") + len(b".DIRECT.GET.") :]
        last_by = subject[len(self._name) + 1 :]
        if not body and not last_by:
            return "408 Empty Request"
        if body.isspace():
            return "408 Malformed Request"
        try:
            wanted = fields.decode(JSApiMsgGetRequest, body, strict=False)
        except fields.DecodeError:
            return "408 Malformed Request"
        if last_by:
            if wanted != JSApiMsgGetRequest(no_hdr=wanted.no_hdr):
                return "408 Bad Request"
            return JSApiMsgGetRequest(last_by_subj=to_text(last_by), no_hdr=wanted.no_hdr)
        single = bool(wanted.last_by_subj)
        if not (wanted.multi_last or wanted.seq or single or wanted.next_by_subj or wanted.start_time_ns is not None):
            return "408 Empty Request"
        if wanted.batch < 0:
            return "408 Bad Request"
        if wanted.multi_last:
            if wanted.last_by_subj or wanted.next_by_subj or (wanted.up_to_seq and wanted.up_to_time_ns is not None):
                return "408 Bad Request"
            return wanted
        if (wanted.seq and wanted.start_time_ns is not None) or (
            single and (wanted.seq or wanted.next_by_subj or wanted.batch or wanted.start_time_ns is not None)
        ):
            return "408 Bad Request"
        return wanted

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
            self._host.spawn(self._read, seq, reply, wanted.no_hdr)
        else:
            self._send(message, reply, no_headers=wanted.no_hdr)

    async def _read(self, seq: int, reply: bytes, no_headers: bool) -> None:
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

    async def _batch(self, wanted: JSApiMsgGetRequest, reply: bytes) -> None:
        bytes_left = wanted.max_bytes if wanted.max_bytes > 0 else self._host.options.max_payload * 64
        seqs: list[int] | str
        if wanted.multi_last:
            up_to = self._up_to(wanted)
            seqs = self._last_of_each(wanted, up_to)
        else:
            up_to = 0
            seqs = self._following(wanted)
        if isinstance(seqs, str):
            self._status(reply, seqs)
            return
        if not seqs:
            self._status(reply, "404 No Results" if wanted.multi_last else "404 Message Not Found")
            return
        count_max = wanted.batch if wanted.batch > 0 else len(seqs)
        total = self._pending_total(wanted, seqs)
        sent, last = 0, 0
        for seq in seqs[:count_max]:
            try:
                message = await self._stream.store.load(seq)
            except KeyError:  # removed meanwhile
                continue
            except (StorageError, DiskError) as failure:
                self._fail(seq, reply, failure)
                return
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

    def _up_to(self, wanted: JSApiMsgGetRequest) -> int:
        store = self._stream.store
        if wanted.up_to_time_ns is not None:
            return store.seq_at_time(wanted.up_to_time_ns) - 1
        return wanted.up_to_seq or store.last_seq

    def _last_of_each(self, wanted: JSApiMsgGetRequest, up_to: int) -> list[int] | str:
        if not up_to:
            return []
        filters = tuple(to_bytes(subject) for subject in wanted.multi_last)
        index = self._stream.store.index

        def matches(subject: bytes) -> bool:
            return any(subject_matches(pattern, subject) for pattern in filters)

        found = [seq for seq in index.lasts(matches, up_to) if seq >= wanted.seq]
        return "413 Too Many Results" if len(found) > DIRECT_GET_SUBJECTS_MAX else found

    def _following(self, wanted: JSApiMsgGetRequest) -> list[int]:
        store = self._stream.store
        start = wanted.seq
        if wanted.start_time_ns is not None:
            start = store.seq_at_time(wanted.start_time_ns)
        filters = (to_bytes(wanted.next_by_subj),) if wanted.next_by_subj else ()
        found: list[int] = []
        seq = store.next_matching(filters, max(start, 1))
        while seq and len(found) < wanted.batch:
            found.append(seq)
            seq = store.next_matching(filters, seq + 1)
        return found

    def _pending_total(self, wanted: JSApiMsgGetRequest, seqs: list[int]) -> int:
        if wanted.multi_last:
            return len(seqs)
        filters = (to_bytes(wanted.next_by_subj),) if wanted.next_by_subj else ()
        store = self._stream.store
        return store.count_matching(filters, seqs[0], store.last_seq)
