"""What scenes of consumers say again and again."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.jetstream_talk import Talk, Told, encoded
from tests.live.server_process import PATIENCE_S

S = 1_000_000_000
"""A second in nanoseconds."""


def make(talk: Talk, consumer: str = "C", *, stream: str = "S", **config: object) -> Any:
    """Make or update a durable pull consumer with explicit acks, unless `config` says otherwise."""
    return talk.done(f"CONSUMER.CREATE.{stream}.{consumer}", wish(consumer, stream, config))


def refused(talk: Talk, consumer: str = "C", *, stream: str = "S", **config: object) -> int:
    """As `make`, of what must be refused: the error code."""
    return talk.refused(f"CONSUMER.CREATE.{stream}.{consumer}", wish(consumer, stream, config))


def wish(consumer: str, stream: str, config: dict[str, object]) -> dict[str, object]:
    action = config.pop("action", "")
    return {
        "stream_name": stream,
        "config": {"durable_name": consumer, "name": consumer, "ack_policy": "explicit", **config},
        "action": action,
    }


def info(talk: Talk, consumer: str = "C", stream: str = "S") -> Any:
    return talk.done(f"CONSUMER.INFO.{stream}.{consumer}")


def counts(talk: Talk, consumer: str = "C", stream: str = "S") -> tuple[int, int, int]:
    """Pending, awaiting their ack, redelivered."""
    found = info(talk, consumer, stream)
    return found["num_pending"], found["num_ack_pending"], found["num_redelivered"]


def floor(talk: Talk, consumer: str = "C", stream: str = "S") -> tuple[int, int]:
    """The ack floor: consumer and stream sequence."""
    found = info(talk, consumer, stream)["ack_floor"]
    return found["consumer_seq"], found["stream_seq"]


def delivered(talk: Talk, consumer: str = "C", stream: str = "S") -> tuple[int, int]:
    """The last delivery: consumer and stream sequence."""
    found = info(talk, consumer, stream)["delivered"]
    return found["consumer_seq"], found["stream_seq"]


def ear(talk: Talk) -> str:
    """A subject of its own to hear on: messages come under their own subjects, so the inboxes of `Talk` will not do."""
    subject = f"heard{talk.new_inbox().removeprefix(talk.inbox)}"
    talk.listen(subject)
    return subject


def ask(talk: Talk, body: object = None, consumer: str = "C", stream: str = "S") -> str:
    """Send a pull request; the inbox on which to hear."""
    inbox = ear(talk)
    talk.say(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", encoded(body), reply=inbox)
    return inbox


def pull(talk: Talk, body: object = None, consumer: str = "C", stream: str = "S") -> list[Told]:
    """Send a pull request and hear until a status (which is the last) or, without one, the whole batch came."""
    inbox = ask(talk, body, consumer, stream)
    wanted = body.get("batch", 1) if isinstance(body, dict) else 1
    found: list[Told] = []
    while len(found) < max(wanted, 1):
        found.append(talk.hear(inbox))
        if found[-1].status and not found[-1].status.startswith("100"):
            break
    note(talk, found)
    return found


def take(talk: Talk, count: int, consumer: str = "C", stream: str = "S") -> list[Told]:
    """So many messages, which must be there."""
    found = pull(talk, {"batch": count, "expires": 30 * S}, consumer, stream)
    assert not found[-1].status, [tell(one) for one in found]
    return found


def none(talk: Talk, consumer: str = "C", stream: str = "S") -> None:
    """There is nothing to be had now."""
    found = pull(talk, {"batch": 1, "no_wait": True}, consumer, stream)
    assert [tell(one) for one in found] == ["404 No Messages"]


def ack(talk: Talk, message: Told, body: bytes = b"+ACK") -> Told:
    """Acknowledge with confirmation."""
    confirmed = talk._ask(message.reply, body, ())
    talk.log.append((tell(message), body, confirmed.comparable()))
    return confirmed


def seqs(found: list[Told]) -> list[int]:
    """The stream sequences of messages, statuses left out."""
    return [place(one)[1] for one in found if not one.status]


def place(message: Told) -> tuple[int, int, int, int]:
    """Of a delivery: how many there were of the message, stream sequence, consumer sequence, messages pending."""
    tokens = message.reply.split(".")
    assert len(tokens) == 9, message.reply
    return int(tokens[4]), int(tokens[5]), int(tokens[6]), int(tokens[8])


def tell(message: Told) -> str:
    """`3/1 c7 p2`: message 3, first delivery, consumer sequence 7, two more pending; or a status with its headers."""
    if message.status:
        return " ".join([message.status, *(f"{key}={value}" for key, value in message.headers.items())])
    if not message.reply.startswith("$JS.ACK"):
        return f"{message.subject} {message.data!r}"
    deliveries, seq, consumer_seq, pending = place(message)
    return f"{seq}/{deliveries} c{consumer_seq} p{pending}"


def note(talk: Talk, found: list[Told]) -> None:
    """Have what came compared."""
    talk.log.append([tell(one) for one in found])


def hear_some(talk: Talk, subject: str, count: int) -> list[Told]:
    """So many messages on a subject or inbox, which are compared.

    How many more are pending is left out: somebody waits, so a message may go before the next one is stored.
    """
    found = [talk.hear(subject) for _ in range(count)]
    talk.log.append([tell(one) if one.status else tell(one).rpartition(" ")[0] for one in found])
    return found


def silence(talk: Talk, subject: str, seconds: float) -> None:
    """Nothing comes."""
    found = talk.hear_all(subject, seconds)
    assert found == [], [tell(one) for one in found]


def messages(talk: Talk, stream: str = "S") -> int:
    """How many a stream holds, to be asked for until it is right: how often that is need not be the same."""
    with talk.ours_alone():
        return talk.state(stream)[0]


def wait_for(what: Any, wanted: object) -> None:
    """Until a look-up gives the wanted value."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := what()) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}"
        time.sleep(0.02)
