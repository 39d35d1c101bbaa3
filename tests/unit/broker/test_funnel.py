"""Bundles between clients and a part of the server: what comes under a prefix, and what is sent to one target."""

from __future__ import annotations

import pytest
from tests.bundles import Bundled, pack, unpack
from tests.unit.broker.stage import RawClient, Stage, play

from tnats.auth.permissions import Permissions, SubjectPermission
from tnats.auth.users import Credentials, User
from tnats.broker.internal import InternalClient
from tnats.subjects.mappings import Destination, Mapping

CONNECT = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true%b}'


class Taken:
    """A funnel at `in.`, and what it was given."""

    def __init__(self, stage: Stage) -> None:
        self.bundles: list[list[Bundled]] = []
        self.broker, self.account = stage.broker, stage.broker.account()
        self.client = stage.broker.internal_funnel(
            self.account, "test", b"in.", lambda bundle: self.bundles.append(list(unpack(bundle)))
        )

    def take(self) -> list[Bundled]:
        """Everything since the last time."""
        taken = [message for bundle in self.bundles for message in bundle]
        self.bundles.clear()
        return taken


def is_direct(taken: Taken) -> bool:
    """Whether what came last needed no plan."""
    return not any(subject.startswith(b"in.") for subject in taken.account.plans.known.plans)


async def connect(stage: Stage, more: bytes = b"") -> RawClient:
    return await stage.connect(CONNECT % more)


def test_everything_under_the_prefix_comes_in_order() -> None:
    """With and without reply, headers, payload and odd blanks, in pieces or together, as one bundle a read."""

    async def scene(stage: Stage) -> None:
        taken = Taken(stage)
        client = await connect(stage)
        said = (
            b"PUB in.a 1\r\n1\r\nPUB in.b.c re 0\r\n\r\nHPUB in.a 12 13\r\nNATS/1.0\r\n\r\nx\r\nPUB  in.d  2\r\nok\r\n"
            b"HPUB in.a re 12 12\r\nNATS/1.0\r\n\r\n\r\nPUB in.a 1\r\n2\r\nPUB out 0\r\n\r\nPUB in 0\r\n\r\n"
        )
        expected = [
            Bundled(b"in.a", data=b"1"),
            Bundled(b"in.b.c", b"re"),
            Bundled(b"in.a", b"", 12, b"NATS/1.0\r\n\r\nx"),
            Bundled(b"in.d", data=b"ok"),
            Bundled(b"in.a", b"re", 12, b"NATS/1.0\r\n\r\n"),
            Bundled(b"in.a", data=b"2"),
        ]
        await client.ask(said)
        assert taken.bundles == [expected]
        assert client.stage.broker.connections[1].inbound.msgs == 8
        for cut in range(1, len(said)):
            taken.take()
            await client.send(said[:cut])
            await stage.sleep(0.001)
            await client.send(said[cut:])
            await stage.sleep(0.001)
            assert taken.take() == expected, cut

    play(scene)


@pytest.mark.parametrize("pattern", [b"in.a", b"in.*", b"in.>", b">", b"*.a", b"*.>"])
def test_others_get_their_share(pattern: bytes) -> None:
    """Who subscribes to something under the prefix, before or after, gets it too, once; then all is direct again."""

    async def scene(stage: Stage) -> None:
        early = await connect(stage)
        await early.ask(b"SUB %b 1\r\n" % pattern)
        taken = Taken(stage)
        client = await connect(stage)
        for _ in range(3):
            assert await client.ask(b"PUB in.a re 1\r\nx\r\n") == b""
            assert early.take() == b"MSG in.a 1 re 1\r\nx\r\n"
            assert taken.take() == [Bundled(b"in.a", b"re", 0, b"x")]
        late = await connect(stage)
        await late.ask(b"SUB %b q 7\r\n" % pattern)
        await early.ask(b"UNSUB 1\r\n")
        await client.ask(b"PUB in.a 1\r\ny\r\n")
        assert late.take() == b"MSG in.a 7 1\r\ny\r\n"
        assert early.take() == b""
        late.conn.close()
        await client.ask(b"PUB in.a 1\r\nz\r\n")
        assert [message.data for message in taken.take()] == [b"y", b"z"]
        assert taken.account.funnel is not None
        assert taken.account.funnel.rivals == 0

    play(scene)


def test_no_plan_is_made_for_what_nobody_else_gets() -> None:
    """A thousand subjects under the prefix leave nothing in the plan table; a neighbour's subscription is no rival."""

    async def scene(stage: Stage) -> None:
        taken = Taken(stage)
        client = await connect(stage)
        await client.ask(b"SUB inn.> 1\r\nSUB in 2\r\nSUB out.* 3\r\n")
        await client.ask(b"".join(b"PUB in.%d 0\r\n\r\n" % (number % 500) for number in range(1000)))
        assert len(taken.take()) == 1000
        assert len(taken.account.plans) == 0
        assert is_direct(taken)

    play(scene)


@pytest.mark.parametrize(
    ("allow", "deny", "passes"),
    [
        (["in.>"], [], True),
        ([">"], ["out.>"], True),
        (["in.a"], [], True),
        (["in.b"], [], False),
        (None, ["in.*"], False),
        (None, ["in.b"], True),
        ([">"], ["*.a"], False),
    ],
)
def test_permissions_hold(allow: list[str] | None, deny: list[str], passes: bool) -> None:
    """Who may not publish a subject is told so, and the funnel gets nothing."""
    publish = SubjectPermission(None if allow is None else tuple(allow), tuple(deny))
    user = User("u", "p", permissions=Permissions(publish=publish))

    async def scene(stage: Stage) -> None:
        taken = Taken(stage)
        client = await connect(stage, b',"user":"u","pass":"p"')
        for _ in range(2):
            answer = await client.ask(b"PUB in.a 1\r\nx\r\n")
            assert taken.take() == [Bundled(b"in.a", data=b"x")] * passes
            assert answer == (b"" if passes else b"-ERR 'Permissions Violation for Publish to \"in.a\"'\r\n")

    play(scene, credentials=Credentials(users=(user,)))


def test_mappings_move_messages() -> None:
    """A mapping into, out of, or within the prefix is applied."""

    async def scene(stage: Stage) -> None:
        taken = Taken(stage)
        client = await connect(stage)
        await client.ask(b"SUB out 1\r\n")
        taken.account.mappings = [
            Mapping(b"in.a", [Destination(b"out")]),
            Mapping(b"x", [Destination(b"in.x")]),
            Mapping(b"in.b", [Destination(b"in.c")]),
        ]
        got = await client.ask(b"PUB in.a 1\r\n1\r\nPUB x 1\r\n2\r\nPUB in.b 1\r\n3\r\nPUB in.d 1\r\n4\r\n")
        assert got == b"MSG out 1 1\r\n1\r\n"
        assert taken.take() == [Bundled(b"in.x", data=b"2"), Bundled(b"in.c", data=b"3"), Bundled(b"in.d", data=b"4")]
        taken.account.mappings = []
        await client.ask(b"PUB in.a 1\r\n5\r\n")
        assert taken.take() == [Bundled(b"in.a", data=b"5")]

    play(scene)


def test_ceremony_and_reserved_replies() -> None:
    """A verbose client gets its +OK for each, and a reply subject that clients may not use is refused."""

    async def scene(stage: Stage) -> None:
        taken = Taken(stage)
        client = await stage.connect(b'{"verbose":true,"pedantic":false}')
        assert await client.ask(b"PUB in.a 0\r\n\r\nPUB in.b 0\r\n\r\n") == b"+OK\r\n+OK\r\n"
        assert len(taken.take()) == 2
        quiet = await connect(stage)
        assert (await quiet.ask(b"PUB in.a _R_.x 0\r\n\r\n")).startswith(b"-ERR 'Permissions Violation for Publish")
        assert taken.take() == []

    play(scene)


def test_a_bundle_can_be_refused() -> None:
    """Its owner can have a publisher told that nobody answers, if that is what it wants to be told."""

    async def scene(stage: Stage) -> None:
        refused: list[InternalClient] = []

        def refuse(bundle: bytearray) -> None:
            for message in unpack(bundle):
                refused[0].refuse(message.reply)

        refused.append(stage.broker.internal_funnel(stage.broker.account(), "test", b"in.", refuse))
        client, other = await connect(stage), await stage.connect()
        assert await client.ask(b"SUB re 1\r\nPUB in.a re 0\r\n\r\nPUB in.b 0\r\n\r\n") == (
            b"HMSG re 1 36 36\r\nNATS/1.0 503\r\nNats-Subject: in.a\r\n\r\n\r\n"
        )
        assert await other.ask(b"SUB re 1\r\nPUB in.a re 0\r\n\r\n") == b""
        assert client.take() == b""

    play(scene)


def test_a_closed_funnel_is_as_if_it_had_never_been() -> None:
    """After its client is closed messages reach nobody, and another can take its place."""

    async def scene(stage: Stage) -> None:
        taken = Taken(stage)
        client = await connect(stage)
        taken.client.close()
        assert b"503" in await client.ask(b"SUB re 1\r\nPUB in.a re 0\r\n\r\n")
        again = Taken(stage)
        await client.ask(b"PUB in.a 0\r\n\r\n")
        assert (taken.take(), again.take()) == ([], [Bundled(b"in.a")])

    play(scene)


# ------------------------------------------------------------------ sending

MESSAGES = [
    Bundled(b"one", b"r.1", 0, b"1"),
    Bundled(b"one", b"r.2", 12, b"NATS/1.0\r\n\r\n2"),
    Bundled(b"two.x", b"", 0, b""),
    Bundled(b"one", b"r.4", 0, b"4" * 5000),
]
SHOWN = (
    b"MSG one 1 r.1 1\r\n1\r\nHMSG one 1 r.2 12 13\r\nNATS/1.0\r\n\r\n2\r\nMSG two.x 1 0\r\n\r\nMSG one 1 r.4 5000\r\n"
    + b"4" * 5000
    + b"\r\n"
)


def test_a_bundle_shows_its_own_subjects() -> None:
    """Subscribers of the target get each message under its subject; without headers who does not know them."""

    async def scene(stage: Stage) -> None:
        one, old = await stage.connect(), await stage.connect(b'{"verbose":false,"pedantic":false}')
        await one.ask(b"SUB to 1\r\n")
        await old.ask(b"SUB * 1\r\n")
        internal = stage.broker.internal_client(stage.broker.account(), "test", lambda batch: None)
        for _ in range(3):
            assert internal.send_bundle(b"to", pack(MESSAGES)) == 8
            assert await one.read() == SHOWN
            assert old.take() == SHOWN.replace(b"HMSG one 1 r.2 12 13\r\nNATS/1.0\r\n\r\n2", b"MSG one 1 r.2 1\r\n2")
        assert internal.publish(b"to", b"own") == 2
        assert await one.read() == b"MSG to 1 3\r\nown\r\n"
        await one.ask(b"UNSUB 1\r\n")
        assert internal.send_bundle(b"to", pack(MESSAGES)) == 4
        assert one.take() == b""
        assert internal.send_bundle(b"no.body", pack(MESSAGES)) == 0

    play(scene)


def test_a_bundle_is_shared_out_and_ends_subscriptions() -> None:
    """Each message goes to one member of a queue group; a subscription that may get two gets two."""

    async def scene(stage: Stage) -> None:
        members = [await stage.connect() for _ in range(3)]
        for member in members:
            await member.ask(b"SUB to q 1\r\n")
        short = await stage.connect()
        await short.ask(b"SUB to 9\r\nUNSUB 9 2\r\n")
        internal = stage.broker.internal_client(stage.broker.account(), "test", lambda batch: None)
        bundle = pack(Bundled(b"s", data=b"%d" % number) for number in range(9))
        assert internal.send_bundle(b"to", bundle) == 11
        await stage.sleep(1)
        assert sorted(b"".join(member.take() for member in members).splitlines()[1::2]) == [b"%d" % n for n in range(9)]
        assert short.take() == b"MSG s 9 1\r\n0\r\nMSG s 9 1\r\n1\r\n"

    play(scene)


def test_a_bundle_reaches_parts_of_the_server() -> None:
    """Internal clients get messages of a bundle as any others, the sender itself does not."""

    async def scene(stage: Stage) -> None:
        heard: list[tuple[bytes, bytes, int, bytes]] = []
        account = stage.broker.account()
        other = stage.broker.internal_client(
            account,
            "other",
            lambda batch: heard.extend((one.subject, one.reply, one.header_size, one.data) for one in batch),
        )
        other.subscribe(b"to")
        sender = stage.broker.internal_client(account, "sender", lambda batch: heard.clear())
        sender.subscribe(b"to")
        assert sender.send_bundle(b"to", pack(MESSAGES)) == len(MESSAGES)
        await stage.sleep(1)
        assert heard == [(one.subject, one.reply, one.header_size, one.data) for one in MESSAGES]

    play(scene)
