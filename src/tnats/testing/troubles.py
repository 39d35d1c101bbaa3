"""What a test can have go wrong in the JetStream of its server: called in the server's own thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tnats.errors import TnatsError

if TYPE_CHECKING:
    from tnats.jetstream.consumer.service import ConsumerService
    from tnats.jetstream.stream.entries import Append, Reply
    from tnats.jetstream.stream.leader import StreamLeader
    from tnats.jetstream.stream.service import StreamService
    from tnats.server.node import Node


class NotThere(TnatsError):
    """No such stream, consumer or message; the text says which."""


def find_stream(node: Node, account: str, name: str) -> StreamService:
    """Raises NotThere."""
    jetstream = node.jetstream
    if jetstream is None:
        raise NotThere("this server has no JetStream: serve(jetstream=True)")
    service = jetstream.accounts.get(account)
    stream = None if service is None else service.streams.get(name)
    if stream is None:
        raise NotThere(f"there is no stream {name!r} in account {account}")
    return stream


def find_consumer(node: Node, account: str, stream: str, name: str) -> ConsumerService:
    """Raises NotThere."""
    consumer = find_stream(node, account, stream).consumers.get(name)
    if consumer is None:
        raise NotThere(f"stream {stream!r} has no consumer {name!r}")
    return consumer


def expire_acks(consumer: ConsumerService, seq: int | None) -> int:
    """End the ack wait of one pending message, or of all; how many. Raises NotThere when the one is not pending."""
    now_ns = consumer.host.mono_ns()
    pending = list(consumer.machine.state.pending.seqs())
    if seq is not None and seq not in pending:
        raise NotThere(f"message {seq} awaits no acknowledgement of {consumer.name!r}; pending: {pending or 'none'}")
    ended = [each for each in (pending if seq is None else [seq]) if consumer.machine.end_ack_wait(each, now_ns)]
    consumer.tick(now_ns)
    return len(ended)


class LostAnswers:
    """Stands for `StreamLeader.answers` until `left` of them were kept back."""

    def __init__(self, leader: StreamLeader) -> None:
        self.left = 0
        self._leader = leader
        self._answers = leader.answers

    def __call__(self, entry: Append) -> list[Reply]:
        told = self._answers(entry)
        lost = min(self.left, len(told))
        self.left -= lost
        if not self.left:
            self._leader.answers = self._answers  # type: ignore[method-assign]
        return told[lost:]


def lose_publish_acks(stream: StreamService, count: int) -> None:
    """Keep `count` more acknowledgements of stored messages from their publishers; the messages are stored."""
    leader = stream.leader
    lost = leader.answers if isinstance(leader.answers, LostAnswers) else LostAnswers(leader)
    lost.left += count
    leader.answers = lost  # type: ignore[method-assign]
