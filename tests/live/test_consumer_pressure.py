"""Consumers under what clients do to them: requests from nobody, garbage, readers that do not read, sudden ends.

`TNATS_SUBJECTS` says how many subjects the large stream has.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator

import pytest
from tests.conformance.consumer_talk import S, ack, ask, counts, floor, info, make, place, pull, seqs, take, wait_for
from tests.conformance.jetstream_talk import Talk
from tests.live.server_process import PATIENCE_S, ServerProcess, serve

SUBJECTS = int(os.environ.get("TNATS_SUBJECTS", "100000"))
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of this module: each must leave it sound for the next."""
    with serve(tmp_path_factory.mktemp("server"), "jetstream { store_dir: store }") as running:
        yield running


@pytest.fixture
def talk(server: ServerProcess) -> Iterator[Talk]:
    opened = Talk(server.port)
    yield opened
    opened.close()
    clean = Talk(server.port)
    for name in clean.api("STREAM.NAMES")["streams"] or []:
        clean.done(f"STREAM.DELETE.{name}")
    clean.close()
    assert server.process.poll() is None, server.log[-3000:]
    assert "[ERR]" not in server.log, server.log[-3000:]


def test_requests_of_nobody(server: ServerProcess, talk: Talk) -> None:
    """Thousands of requests whose inboxes nobody listens to are bounded, and do not keep a live one waiting."""
    talk.create("S")
    make(talk)
    before = server.memory_bytes()
    for first in range(0, 30_000, 1000):
        body, subject = b'{"batch":100,"expires":3600000000000}', "$JS.API.CONSUMER.MSG.NEXT.S.C"
        talk.send(b"".join(Talk.packed(subject, body, (), f"gone.{number}") for number in range(first, first + 1000)))
    talk.fence()
    assert info(talk)["num_waiting"] <= 512
    talk.flood(["s.x"] * 5)
    assert seqs(take(talk, 5)) == [1, 2, 3, 4, 5]
    assert server.memory_bytes() - before < 64 * MIB


def test_garbage_acknowledgements(talk: Talk) -> None:
    """Made-up subjects and bodies by the thousand change nothing."""
    talk.create("S", retention="workqueue")
    talk.flood(["s.x"] * 10)
    make(talk, ack_wait=600 * S)
    found = take(talk, 4)
    rng = random.Random(1)
    tokens = ["$JS", "ACK", "S", "C", "1", "2", "3", "0", "-1", "x", "S2", "9" * 40, "4294967296", "_", "é", "*"]
    bodies = [b"", b"+ACK", b"-NAK", b"+TERM x", b"+WPI", b"+NXT", b"+NXT {", b"-NAK {}", b"-NAK 9e9h", b"\xff" * 50]
    said = []
    for _ in range(20_000):
        subject = ".".join(["$JS", "ACK", "S", rng.choice(["C", "D"]), *rng.choices(tokens, k=rng.randrange(9))])
        if "*" in subject or ".2." in subject or ".1." in subject or ".3." in subject:
            continue
        said.append(Talk.packed(subject, rng.choice(bodies), (), rng.choice(["", "nobody"])))
    for at in range(0, len(said), 500):
        talk.send(b"".join(said[at : at + 500]))
    talk.fence()
    assert (counts(talk)[:2], floor(talk), talk.state("S")[0]) == ((6, 4), (0, 0), 10)
    for one in found:
        ack(talk, one)
    assert (counts(talk)[:2], talk.state("S")[0]) == ((6, 0), 6)


def test_ends_in_the_middle_of_deliveries(server: ServerProcess, talk: Talk) -> None:
    """Deleting the consumer, or the stream, while thousands of messages are on their way harms nobody else."""
    for round_number in range(12):
        talk.create("S")
        talk.flood(["s.x"] * 2000, b"x" * 500)
        make(talk, "C", ack_policy="none")
        make(talk, "P", deliver_subject="pushed", ack_policy="none")
        other = Talk(server.port)
        other.listen("pushed")
        inbox = ask(other, {"batch": 2000, "expires": 20 * S})
        other.hear(inbox)
        if round_number % 3:
            talk.done("CONSUMER.DELETE.S.C")
            talk.done("CONSUMER.DELETE.S.P")
        talk.done("STREAM.DELETE.S")
        other.fence()
        other.close()
    talk.create("S")
    assert talk.stored("s.x") == 1


def test_a_client_that_asks_and_does_not_read(server: ServerProcess, talk: Talk) -> None:
    """It is sent no more than its bound; others are served meanwhile, and get what it had."""
    talk.create("S")
    talk.flood(["s.x"] * 1500, b"x" * 100_000)
    make(talk, ack_wait=S, max_ack_pending=-1)
    before = server.memory_bytes()
    deaf = Talk(server.port)
    ask(deaf, {"batch": 1500, "expires": 60 * S})
    deaf.fence()
    time.sleep(1)
    assert server.memory_bytes() - before < 400 * MIB
    assert talk.stored("s.y") == 1501
    deaf.close()
    left = set(range(1, 1502))
    while left:
        for one in pull(talk, {"batch": 200, "expires": S}):
            if not one.status:
                left.discard(place(one)[1])
                talk.say(one.reply, b"+ACK")


def test_large_messages_in_large_batches(talk: Talk) -> None:
    """Seven clients with batches of 750 take messages of 1 MB; each is delivered once."""
    talk.create("S")
    for _ in range(150):
        talk.stored("s.x", b"x" * (MIB - 1024))
    make(talk, max_ack_pending=-1, ack_wait=600 * S)
    inboxes = [ask(talk, {"batch": 750, "expires": 600 * S, "max_bytes": 2048 * MIB}) for _ in range(7)]
    came: list[int] = []
    while len(came) < 150:
        talk._read(PATIENCE_S)
        for inbox in inboxes:
            for one in talk._arrived.pop(inbox, ()):
                came.append(place(one)[1])
                talk.say(one.reply, b"+ACK")
    assert sorted(came) == list(range(1, 151))


def test_watchers_that_come_and_go(server: ServerProcess, talk: Talk) -> None:
    """Their consumers go after their threshold; those of live watchers stay."""
    talk.create("S", allow_direct=True)
    talk.flood(["s.a", "s.b"])

    def watch(number: int) -> Talk:
        one = Talk(server.port)
        one.listen(f"watch.{number}")
        subject = f"watch.{number}"
        config = {"deliver_subject": subject, "ack_policy": "none", "inactive_threshold": S, "mem_storage": True}
        one.done("CONSUMER.CREATE.S", {"stream_name": "S", "config": config})
        one.hear(f"watch.{number}")
        return one

    for round_number in range(5):
        for one in [watch(100 * round_number + number) for number in range(20)]:
            one.close()
    alive = [watch(1000 + number) for number in range(5)]
    wait_for(lambda: len(talk.done("CONSUMER.NAMES.S")["consumers"]), 5)
    time.sleep(1.5)  # longer than their threshold
    assert len(talk.done("CONSUMER.NAMES.S")["consumers"]) == 5
    for one in alive:
        one.close()


@pytest.mark.slow
def test_many_subjects_and_many_filters(server: ServerProcess, talk: Talk) -> None:
    """A consumer with fifty filters on a stream with very many subjects gets what fits, nothing else, in order."""
    talk.create("S", subjects=["m.*.*"])
    talk.flood(f"m.{number % 1000}.{number // 1000}" for number in range(SUBJECTS))
    wanted = [number * 17 for number in range(50)]
    make(talk, filter_subjects=[f"m.{kind}.*" for kind in wanted], max_ack_pending=-1, ack_wait=600 * S)
    assert counts(talk)[0] == SUBJECTS // 1000 * 50
    found = seqs([*take(talk, 1000), *take(talk, 1000)])
    assert found == [1000 * above + kind + 1 for above in range(40) for kind in wanted]
    assert counts(talk)[1] == 2000


@pytest.mark.slow
def test_the_end_of_an_interest_that_ran_long(talk: Talk) -> None:
    """Deleting the consumer of an interest stream that has few messages left of very many does not hold it up."""
    talk.create("S", retention="interest")
    make(talk)
    talk.flood("s.x" for _ in range(SUBJECTS))
    assert talk.done("STREAM.PURGE.S", {"keep": 5})["purged"] == SUBJECTS - 5
    talk.done("CONSUMER.DELETE.S.C")
    assert talk.stored("s.x") == SUBJECTS + 1
    wait_for(lambda: talk.state("S")[0], 0)
