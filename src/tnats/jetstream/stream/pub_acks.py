"""Answers to what is published on one stream: acknowledgements once it is committed, and refusals."""

from __future__ import annotations

from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.stream.entries import Append, Reply
from tnats.wire.documents import encode_document


class PubAcks:
    """The JSON of a stream's answers ("PubAck Response" of the JetStream API)."""

    def __init__(self, stream_name: str, domain: str) -> None:
        name = encode_document(stream_name)
        shown_domain = b', "domain":%b, ' % encode_document(domain) if domain else b","
        self._head = b'{"stream":%b%b"seq":' % (name, shown_domain)
        self._refusal_tail = b',"stream":%b,"seq":0}' % name

    def refusal(self, error: ApiError) -> bytes:
        """Of a message that is not stored."""
        return b'{"error":' + encode_document(error.to_json()) + self._refusal_tail

    def duplicate(self, seq: int) -> bytes:
        """Of a message that was stored before."""
        return b'%b%d,"duplicate": true}' % (self._head, seq)

    def counted(self, seq: int, total: int) -> bytes:
        """Of an increment of a counter, which makes it `total`."""
        return b'%b%d,"val":"%d"}' % (self._head, seq, total)

    def batch(self, seq: int, batch_id: str, count: int) -> bytes:
        """Of an atomic batch of `count` messages, whose last one is at `seq`."""
        return b'%b%d,"batch":%b,"count":%d}' % (self._head, seq, encode_document(batch_id), count)

    def answers(self, entry: Append) -> list[Reply]:
        """What to send now that the entry is committed, in order."""
        replies, acks, head = entry.replies, entry.acks, self._head
        seq = entry.first_seq
        if not acks and not entry.after:
            return [(reply, b"%b%d}" % (head, seq + offset)) for offset, reply in enumerate(replies) if reply]
        answers: list[Reply] = []
        after, sent = entry.after, 0
        for offset, reply in enumerate(replies):
            while sent < len(after) and after[sent][0] <= offset:
                answers.append(after[sent][1])
                sent += 1
            if reply:
                answer = acks.get(offset, head)
                if answer is head:
                    answer = b"%b%d}" % (head, seq + offset)
                if answer is not None:
                    answers.append((reply, answer))
        answers.extend(answer for _, answer in after[sent:])
        return answers
