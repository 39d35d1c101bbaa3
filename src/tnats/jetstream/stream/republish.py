"""Republishing (ADR-26): what is published again when a message is stored.

Streams that republish into each other would go on for ever: from the second time on, a message carries how often it
has been republished, and after REPUBLISHINGS_MAX times it is not any more.
"""

from __future__ import annotations

from tnats.jetstream.stream.config import StreamConfig
from tnats.jetstream.stream.entries import Message
from tnats.jetstream.stream.headers import parse_seq
from tnats.limits import REPUBLISHINGS_MAX
from tnats.notation import format_time
from tnats.subjects.draw import Draw
from tnats.subjects.transforms import Transform
from tnats.wire.headers import get_header, set_header

STREAM = b"Nats-Stream"
COUNT = b"Tnats-Republished"


class Republisher:
    """Builds the messages for one configuration with `republish`."""

    def __init__(self, config: StreamConfig, draw: Draw) -> None:
        assert config.republish is not None
        self._stream = config.name.encode()
        self._headers_only = config.republish.headers_only
        self._transform = Transform(config.republish.src, config.republish.dest) if config.republish.dest else None
        self._draw = draw
        self.is_circular = False
        """A message was republished too often."""

    def build(self, message: Message, seq: int, ts_ns: int, previous_seq: int) -> Message | None:
        """(subject, header block, payload) for a stored message, None if its subject is not republished.

        `previous_seq`: the last sequence of its subject before it, 0 if it is the first.
        """
        subject, block, payload = message
        if self._transform is None or not self._transform.matches(subject):
            return None
        if STREAM in block and get_header(block, STREAM) is not None:
            count = (parse_seq(get_header(block, COUNT) or b"1") or 1) + 1
            if count > REPUBLISHINGS_MAX:
                self.is_circular = True
                return None
            block = set_header(block, COUNT, b"%d" % count)
        for key, value in (
            (STREAM, self._stream),
            (b"Nats-Subject", subject),
            (b"Nats-Sequence", b"%d" % seq),
            (b"Nats-Time-Stamp", format_time(ts_ns).encode()),
            (b"Nats-Last-Sequence", b"%d" % previous_seq),
        ):
            block = set_header(block, key, value)
        if self._headers_only:
            block = set_header(block, b"Nats-Msg-Size", b"%d" % len(payload))
            payload = b""
        return self._transform.apply(subject, self._draw), block, payload
