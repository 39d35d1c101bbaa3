"""Sending dead letters until a stream has stored each.

A letter is published like any message, with a reply subject of this server. An answer that names a sequence means that
a stream has it; anything else, or none in time, means to try again after a pause that grows. So a subject that no
stream takes keeps its letters waiting, and a stream that is made later gets them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import orjson
import trio

from tnats.ids import Nuid
from tnats.jetstream.consumer.letters import Letter, letter_block
from tnats.jetstream.ports import Bus
from tnats.jetstream.stream.ports import Inbound
from tnats.limits import (
    CONSUMER_LETTER_ANSWER_NS,
    CONSUMER_LETTER_PAUSE_NS,
    CONSUMER_LETTER_PAUSE_NS_MAX,
    CONSUMER_LETTERS_IN_FLIGHT_MAX,
)
from tnats.runtime.api import DiskError
from tnats.storage.errors import StorageError
from tnats.subjects.tokens import to_bytes

if TYPE_CHECKING:
    from tnats.jetstream.consumer.service import ConsumerService

Answered = Callable[[bool, str], None]
"""Whether a stream has the message; if not, what was answered."""


class Post:
    """Publishing with an answer, for all consumers of an account."""

    def __init__(self, bus: Bus, nuid: Nuid) -> None:
        self._bus = bus
        self._client = bus.client("dead letters", self._on_answers)
        self._inbox = f"_INBOX.{nuid.next()}.".encode()
        self._awaited: dict[bytes, Answered] = {}
        self._count = 0

    def publish(self, subject: str, payload: bytes, headers: bytes, answered: Answered) -> bytes:
        """Publish; the reply subject, for `forget`."""
        target = to_bytes(subject)
        if not self._bus.has_interest(target):
            answered(False, "nobody listens")
            return b""
        if not self._count:
            self._client.subscribe(self._inbox + b"*")
        self._count += 1
        reply = self._inbox + b"%d" % self._count
        self._awaited[reply] = answered
        self._client.publish(target, payload, reply=reply, headers=headers)
        return reply

    def forget(self, replies: Iterable[bytes]) -> None:
        """Await no answer any more."""
        for reply in replies:
            self._awaited.pop(reply, None)

    def close(self) -> None:
        """Take in nothing more."""
        self._client.close()

    def _on_answers(self, batch: list[Inbound]) -> None:
        for message in batch:
            answered = self._awaited.pop(message.subject, None)
            if answered is not None:
                body = message.data[message.header_size :]
                try:
                    is_stored = "error" not in (answer := orjson.loads(body)) and answer["seq"] > 0
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    is_stored = False
                answered(is_stored, body[:200].decode("utf-8", "replace"))


class _Round:
    """What became of letters that were sent together."""

    def __init__(self, count: int) -> None:
        self.stored: set[int] = set()
        self.refusal = ""
        self.is_over = trio.Event()
        self._left = count

    def note(self, seq: int, is_stored: bool, text: str) -> None:
        """One of them was answered."""
        self._left -= 1
        if is_stored:
            self.stored.add(seq)
        else:
            self.refusal = text
        if not self._left:
            self.is_over.set()


class Outbox:
    """The letters of one consumer that are in its log and not known to be stored.

    It does not know its consumer but while it sends: who is removed is gone at once, without the garbage collector.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._waiting: deque[Letter] = deque()
        self._is_sending = False

    def put(self, consumer: ConsumerService, letters: Iterable[Letter]) -> None:
        """Send these too, for `consumer`."""
        self._waiting.extend(letters)
        if self._waiting and not self._is_sending:
            self._is_sending = True
            consumer.host.spawn(self._send, consumer)

    async def _send(self, consumer: ConsumerService) -> None:
        host = consumer.host
        pause_ns = CONSUMER_LETTER_PAUSE_NS
        try:
            while self._waiting and not consumer.is_stopped:
                refusal = await self._send_some(consumer)
                if not refusal:
                    pause_ns = CONSUMER_LETTER_PAUSE_NS
                    continue
                if pause_ns == CONSUMER_LETTER_PAUSE_NS:
                    count, target = len(self._waiting), self._waiting[0].target
                    text = f"{count} dead letters wait for a stream with subject '{target}': {refusal}"
                    host.log.warn(f"{consumer.label}: {text}")
                await host.runtime.clock.sleep_ns(pause_ns)
                pause_ns = min(2 * pause_ns, CONSUMER_LETTER_PAUSE_NS_MAX)
        finally:
            self._is_sending = False

    async def _send_some(self, consumer: ConsumerService) -> str:
        """Send the first letters; why not all were stored, empty if they were."""
        letters = list(islice(self._waiting, CONSUMER_LETTERS_IN_FLIGHT_MAX))
        stream, name = consumer.stream, consumer.name
        sent = _Round(len(letters))
        replies = []
        for letter in letters:
            try:
                message = await stream.store.load(letter.seq)
            except DiskError as failure:  # it may be read later
                sent.note(letter.seq, False, str(failure))
                continue
            except (KeyError, StorageError) as failure:
                text = f"message {letter.seq} was gone before it became a dead letter: {failure}"
                consumer.host.log.warn(f"{consumer.label}: {text}")
                sent.note(letter.seq, True, "")
                continue
            block = letter_block(letter, message.headers, stream.name, name, message.subject)
            answered = partial(sent.note, letter.seq)
            replies.append(self._post.publish(letter.target, message.payload, block, answered))
        clock = consumer.host.runtime.clock
        with clock.deadline(clock.mono_ns() + CONSUMER_LETTER_ANSWER_NS):
            await sent.is_over.wait()
        self._post.forget(replies)
        self._waiting = deque(letter for letter in self._waiting if letter.seq not in sent.stored)
        for letter in letters:
            if letter.seq in sent.stored and not consumer.is_stopped:
                consumer.letter_stored(letter.seq)
        return "" if len(sent.stored) == len(letters) else sent.refusal or "no answer"
