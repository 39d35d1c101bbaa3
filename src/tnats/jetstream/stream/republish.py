"""Republishing (ADR-26): what is published again when a message is stored."""

from __future__ import annotations

from tnats.jetstream.api.times import format_time
from tnats.jetstream.stream.config import StreamConfig
from tnats.jetstream.stream.entries import Message
from tnats.subjects.draw import Draw
from tnats.subjects.transforms import Transform
from tnats.wire.headers import set_header


class Republisher:
    """Builds the messages for one configuration with `republish`."""

    def __init__(self, config: StreamConfig, draw: Draw) -> None:
        assert config.republish is not None
        self._stream = config.name.encode()
        self._headers_only = config.republish.headers_only
        self._transform = Transform(config.republish.src, config.republish.dest) if config.republish.dest else None
        self._draw = draw

    def build(self, message: Message, seq: int, ts_ns: int, previous_seq: int) -> Message | None:
        """(subject, header block, payload) for a stored message, None if its subject is not republished.

        `previous_seq`: the last sequence of its subject before it, 0 if it is the first.
        """
        subject, block, payload = message
        if self._transform is None or not self._transform.matches(subject):
            return None
        for key, value in (
            (b"Nats-Stream", self._stream),
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
