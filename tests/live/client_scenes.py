"""What our client and our command line must be able to do with any NATS server.

Not collected by itself: `test_client` runs it against our server, tests/conformance against nats-server. Whoever runs
it gives the fixtures `plain` (a server without log-in) and `guarded` (one with GUARDED as its configuration), both with
`url`, `stop` and `start`.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
import trio
import trio.testing
from tests.live.patient_client import connect
from tests.live.server_process import PATIENCE_S

from tnats.client import (
    AuthorizationFailed,
    Client,
    ConnectFailed,
    Disconnected,
    Event,
    NoResponders,
    PayloadTooLarge,
    PermissionsViolation,
    Status,
)
from tnats.client.events import ErrorReported

GUARDED = """
authorization { timeout = 60, users = [
  { user: admin, password: pw }
  { user: limited, password: pw, permissions: {
      publish: { deny: ["secret.>"] }, subscribe: { deny: ["secret.>"] } } }
] }
"""


class Target(Protocol):
    """A server under test."""

    @property
    def url(self) -> str: ...

    def stop(self) -> None: ...

    def start(self) -> None: ...


async def wait_until(condition: Callable[[], object]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await trio.sleep(0.01)


async def test_messages_pass_unchanged(plain: Target) -> None:
    """Payloads of every size up to the limit, with and without headers, come back as they went."""
    async with connect(plain.url) as client:
        assert client.server_info.version
        subscription = client.subscribe("echo.>")
        payloads = [b"", b"\r\n", bytes(range(256)), bytes(100_000), bytes(client.server_info.max_payload)]
        for payload in payloads:
            await client.publish("echo.a", payload)
        await client.publish("echo.b", b"body", headers={"Name": ["one", "two"], "Empty": ""})
        for payload in payloads:
            assert (await subscription.next_message(PATIENCE_S)).data == payload
        last = await subscription.next_message(PATIENCE_S)
        assert (last.subject, last.data, last.headers) == ("echo.b", b"body", {"Name": ["one", "two"], "Empty": [""]})
        with pytest.raises(PayloadTooLarge):
            await client.publish("echo.a", bytes(client.server_info.max_payload + 1))
        assert client.status is Status.CONNECTED


async def test_many_messages_in_order(plain: Target) -> None:
    """A hundred thousand messages between two connections: all, once, in order."""
    async with connect(plain.url) as receiver, connect(plain.url) as sender:
        subscription = receiver.subscribe("many")
        await receiver.flush()
        count = 100_000
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for number in range(count):
                    await sender.publish("many", b"%d" % number)

            nursery.start_soon(send)
            expected = 0
            with trio.fail_after(PATIENCE_S):
                while expected < count:
                    for message in await subscription.next_batch():
                        assert int(message.data) == expected
                        expected += 1
        assert subscription.dropped_count == 0


async def test_requests(plain: Target) -> None:
    """Replies, several repliers, nobody: as ADR-47 and the no-responders status have it."""
    async with connect(plain.url) as client, trio.open_nursery() as nursery:
        with pytest.raises(NoResponders):
            await client.request("svc")

        async def serve(name: bytes) -> None:
            async for message in client.subscribe("svc"):
                await message.respond(name + message.data, headers={"By": name.decode()})

        for name in (b"a", b"b", b"c"):
            nursery.start_soon(serve, name)
        await trio.testing.wait_all_tasks_blocked()
        await client.flush()
        reply = await client.request("svc", b"-x")
        assert reply.headers is not None
        assert reply.data == reply.headers["By"][0].encode() + b"-x"
        async with client.request_many("svc", b"!", count_max=3, timeout_s=PATIENCE_S) as replies:
            assert sorted([message.data async for message in replies]) == [b"a!", b"b!", b"c!"]
        async with client.request_many("svc", b"!", stall_s=2, timeout_s=PATIENCE_S) as replies:
            assert len([message async for message in replies]) == 3
        nursery.cancel_scope.cancel()


async def test_queue_groups_and_limits(plain: Target) -> None:
    """Each message reaches one member of a group; a limit of messages is kept by both sides."""
    async with connect(plain.url) as client:
        members = [client.subscribe("work", queue="workers") for _ in range(3)]
        limited = client.subscribe("work", max_messages=5)
        for number in range(300):
            await client.publish("work", b"%d" % number)
        await client.flush()
        assert sum(member.received_count for member in members) == 300
        assert all(member.received_count for member in members)
        assert [message.data async for message in limited] == [b"0", b"1", b"2", b"3", b"4"]


async def test_credentials(guarded: Target) -> None:
    """The right ones are let in, the wrong ones raise AuthorizationFailed with the server's words."""
    async with connect(guarded.url, user="admin", password="pw") as client:
        await client.flush()
    for options in ({}, {"user": "admin", "password": "wrong"}, {"token": "t"}):
        with pytest.raises(AuthorizationFailed, match="Authorization Violation"):
            async with connect(guarded.url, **options):
                raise AssertionError("let in")


async def test_permissions(guarded: Target) -> None:
    """A denied subscription raises where it is iterated, a denied publish is an event, the connection goes on."""
    events: list[Event] = []
    async with connect(guarded.url, user="limited", password="pw", on_event=events.append) as client:
        with pytest.raises(PermissionsViolation, match="Subscription"):
            await client.subscribe("secret.plans").next_message(PATIENCE_S)
        with pytest.raises(PermissionsViolation, match="Publish"):
            await client.request("secret.plans", timeout_s=PATIENCE_S)
        await client.publish("secret.plans")
        await client.flush()
        assert [type(event) for event in events].count(ErrorReported) == 3


async def test_restart_of_the_server(plain: Target) -> None:
    """The client comes back to a restarted server with its subscriptions and with what was published meanwhile."""
    events: list[Event] = []
    async with connect(plain.url, on_event=events.append) as client:
        subscription = client.subscribe("a")
        await client.flush()
        plain.stop()
        await wait_until(lambda: client.status is Status.RECONNECTING)
        await client.publish("a", b"kept")
        await trio.sleep(0.3)
        plain.start()
        assert (await subscription.next_message(PATIENCE_S)).data == b"kept"
        assert any(isinstance(event, Disconnected) for event in events)


async def test_nothing_listens() -> None:
    """The error names the address and the reason."""
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1:.*refused"):
        async with connect("127.0.0.1:1"):
            raise AssertionError("connected")


async def test_drain_leaves_nothing_behind(plain: Target) -> None:
    """What was sent before the drain is handled, answers included."""
    async with connect(plain.url) as worker_client, connect(plain.url) as asker:
        answers = asker.subscribe("answers")
        await asker.flush()

        async def work(client: Client) -> None:
            async for message in client.subscribe("jobs"):
                await trio.sleep(0.01)
                await client.publish("answers", message.data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, worker_client)
            await trio.testing.wait_all_tasks_blocked()
            await worker_client.flush()
            for number in range(20):
                await asker.publish("jobs", b"%d" % number)
            await asker.flush()
            await worker_client.drain()
        assert [(await answers.next_message(PATIENCE_S)).data for _ in range(20)] == [
            b"%d" % number for number in range(20)
        ]


# ------------------------------------------------------------------ the command line


def tnats(server: Target, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tnats", *arguments, "-s", server.url],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def background(server: Target, ready: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in the background; entered once it has printed `ready` on standard error."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tnats", *arguments, "-s", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert ready in line, line
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)


def test_cli_pub_and_sub(plain: Target) -> None:
    """What `pub` sends, from argument, standard input or file, `sub` prints: readable, raw and as JSON."""
    with background(plain, "Subscribed", "sub", "cli.>", "--count", "3") as process:
        done = tnats(plain, "pub", "cli.a", "hello {{Count}}", "--count", "2", "-H", "K:v", "--reply", "r", "--json")
        assert (done.returncode, json.loads(done.stdout)["messages"]) == (0, 2)
        assert tnats(plain, "pub", "cli.b", stdin=b"from a pipe").returncode == 0
        output = process.communicate(timeout=PATIENCE_S)[0].decode()
        assert process.returncode == 0
        assert output.startswith('[#1] Received on "cli.a" with reply "r"\nK: v\n\nhello 1\n\n[#2]')
        assert output.endswith('[#3] Received on "cli.b"\nfrom a pipe\n\n')


def test_cli_json_lines(plain: Target, tmp_path: Path) -> None:
    """`sub --json` prints one object a line, with base64 where the payload is no text."""
    body = tmp_path / "body"
    body.write_bytes(b"\xff\x00")
    process = subprocess.Popen(
        [sys.executable, "-m", "tnats", "sub", "js", "--json", "--count", "2", "-s", plain.url], stdout=subprocess.PIPE
    )
    try:
        lines: list[bytes] = []
        for _ in range(50):
            tnats(plain, "pub", "js", "text")
            tnats(plain, "pub", "js", "--file", str(body), "-H", "A:b")
            if process.poll() is not None:
                break
        lines = process.communicate(timeout=PATIENCE_S)[0].splitlines()
    finally:
        process.kill()
    assert sorted(lines) == [
        b'{"subject":"js","data":"text"}',
        b'{"subject":"js","headers":{"A":["b"]},"data_base64":"/wA="}',
    ]


def test_cli_request_and_reply(plain: Target) -> None:
    """`reply` echoes, and `req` prints; without anybody there `req` fails in one line."""
    done = tnats(plain, "req", "cli.svc", "x")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"tnats: nobody listens on 'cli.svc'\n"
    with background(plain, "Subscribed", "sub", "cli.deaf"):
        done = tnats(plain, "req", "cli.deaf", "x", "--timeout", "100ms")
        assert done.stderr == b"tnats: request on 'cli.deaf': no reply within 0.1 s\n"
    with background(plain, "Answering", "reply", "cli.svc", "--echo"):
        done = tnats(plain, "req", "cli.svc", "x y", "-H", "K:v", "--json")
        answer = json.loads(done.stdout)
        assert (answer["data"], answer["headers"]) == ("x y", {"K": ["v"]})
        assert answer["duration_ns"] > 0
        assert tnats(plain, "req", "cli.svc", "x", "--raw").stdout == b"x\n"


def test_cli_reply_by_a_program(plain: Target) -> None:
    """The program gets tokens of the subject as words of their own, whatever they hold, and the payload as input."""
    script = "import sys; print(sys.argv[1:], sys.stdin.read())"
    template = f"{sys.executable} -c '{script}' {{{{2}}}} 'and {{{{3}}}}' {{{{9}}}}"
    with background(plain, "Answering", "reply", "prog.>", "--command", template):
        done = tnats(plain, "req", "prog.$(id);rm.b", "body", "--raw")
        assert done.stdout.decode().strip() == "['$(id);rm', 'and b', ''] body"
    with background(plain, "Answering", "reply", "prog.>", "--command", "/no/such/program"):
        answer = json.loads(tnats(plain, "req", "prog.x", "b", "--json").stdout)
        assert answer["headers"]["Nats-Service-Error-Code"] == ["500"]


def test_cli_round_trip_and_bench(plain: Target) -> None:
    """`rtt` and `bench` report sensible figures as JSON."""
    times_ns = json.loads(tnats(plain, "rtt", "--count", "3", "--json").stdout)["times_ns"]
    assert len(times_ns) == 3
    assert all(time_ns > 0 for time_ns in times_ns)
    arguments = ("--messages", "2001", "--size", "16", "--clients", "2", "--json")
    figures = json.loads(tnats(plain, "bench", "pub", "bench.a", *arguments).stdout)
    assert (figures["messages"], figures["bytes"], len(figures["clients"])) == (2001, 2001 * 16, 2)
    assert figures["messages_per_second"] > 0
    with background(plain, "Answering", "bench", "service", "serve", "bench.svc"):
        arguments = ("--messages", "50", "--json")
        figures = json.loads(tnats(plain, "bench", "service", "request", "bench.svc", *arguments).stdout)
        latency = figures["latency_ns"]
        assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]


def test_cli_errors_are_one_line(plain: Target, guarded: Target) -> None:
    """No trace, one line that says what is wrong, and exit code 1 (2 for wrong usage)."""
    done = subprocess.run(
        [sys.executable, "-m", "tnats", "pub", "a", "b", "-s", "127.0.0.1:1"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(rb"tnats: no server could be joined: .*refused\n", done.stderr)
    done = tnats(guarded, "pub", "a", "b")
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"Authorization Violation" in done.stderr
    done = tnats(plain, "pub", "a b", "c")
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    done = tnats(plain, "pub", "a", "c", "--creds", "file")
    assert (done.returncode, b"not available yet" in done.stderr) == (1, True)
    assert tnats(plain, "reply", "a").returncode == 2
    assert tnats(plain, "nonsense").returncode == 2


@pytest.mark.parametrize("command", [("pub", "secret.x", "body"), ("bench", "pub", "secret.x", "--messages", "3")])
def test_cli_publishing_what_is_denied_fails(guarded: Target, command: tuple[str, ...]) -> None:
    """Nothing says that it was published; one line says what was denied."""
    done = tnats(guarded, *command, "--user", "limited", "--password", "pw")
    refusal = b'tnats: Permissions Violation for Publish to "secret.x"\n'
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", refusal)


def test_cli_interrupt_is_clean(plain: Target) -> None:
    """Ctrl-C ends `sub` without a trace and with exit code 130."""
    with background(plain, "Subscribed", "sub", "quiet") as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, output, errors) == (130, b"", b"")


def test_cli_reader_that_leaves(plain: Target) -> None:
    """When whoever reads the output ends first (`tnats sub x | head -1`), the command ends without a trace."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tnats", "sub", "pipe", "--raw", "-s", plain.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    for _ in range(200):
        tnats(plain, "pub", "pipe", "x")
        if process.poll() is not None:
            break
    assert process.stderr is not None
    assert (process.wait(PATIENCE_S), process.stderr.read()) == (1, b"")
    process.stderr.close()
