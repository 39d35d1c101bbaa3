"""`tnats serve` when something runs short: descriptors, readers, memory, processor time."""

from __future__ import annotations

import os
import resource
import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import bcrypt
import pytest
from tests.live.server_process import PATIENCE_S, RawClient, ServerProcess, serve, wait_until

MANY = int(os.environ.get("TNATS_TEST_CONNECTIONS", "2000"))
IDLE = int(os.environ.get("TNATS_TEST_IDLE_CONNECTIONS", "10000"))


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Room for `count` sockets here and, by inheritance, in the servers started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), max(hard, count)))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_out_of_descriptors(tmp_path: Path) -> None:
    """Who is connected goes on as before; who comes is served as soon as somebody leaves."""
    with serve(tmp_path) as server, ExitStack() as stack:
        first = stack.enter_context(RawClient(server.port))
        first.flush()
        server.wait_for_line("Server is ready")  # it writes no more files
        used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used + 3, used + 3))
        served = [stack.enter_context(RawClient(server.port)) for _ in range(3)]
        waiting: list[RawClient] = []
        comer = threading.Thread(target=lambda: waiting.append(RawClient(server.port)))
        comer.start()
        server.wait_for_line("accepting goes on in a moment")
        assert not waiting
        for client in (first, *served):
            client.flush()
        served[0].close()
        comer.join(PATIENCE_S)
        with waiting[0] as client:
            client.flush()
        first.flush()


def test_monitoring_goes_on_without_descriptors(tmp_path: Path) -> None:
    """Who watches the server on an open connection is told all the same, for the first time as well."""
    with serve(tmp_path, f"http: -1\njetstream {{ store_dir: '{tmp_path}/store' }}") as server:
        watcher = HTTPConnection("127.0.0.1", server.monitoring_port, timeout=PATIENCE_S)
        with closing(watcher):
            for path in ("/", "/healthz", "/varz", "/jsz?streams=1&consumers=1", "/connz?subs=1", "/subsz?subs=1"):
                watcher.request("GET", path)
                answer = watcher.getresponse()
                assert (answer.status, answer.read()[:1]) == (200, b"<" if path == "/" else b"{"), path
                used = len(os.listdir(f"/proc/{server.process.pid}/fd"))
                resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (used, used))


def test_a_subscriber_that_never_reads(tmp_path: Path) -> None:
    """It is cut off with the reason in /connz; the other subscriber gets everything, the publisher is not closed."""
    config = "http: -1\nmax_pending: 2000000\nmax_payload: 100000"
    body = b"x" * 10_000
    with serve(tmp_path, config) as server, RawClient(server.port) as reader, RawClient(server.port) as publisher:
        reader.send(b"SUB a 1\r\n")
        reader.flush()
        with RawClient(server.port, '{"verbose":false,"name":"deaf"}') as deaf:
            deaf.send(b"SUB a 1\r\n")
            deaf.flush()
            sent = 0
            while server.ask("/connz?state=closed")["total"] == 0:
                publisher.send((b"PUB a 10000\r\n" + body + b"\r\n") * 20)
                sent += 20
                read_messages(reader, 20, body)
            (closed,) = server.ask("/connz?state=closed")["connections"]
            assert (closed["name"], closed["reason"]) == ("deaf", "Slow Consumer (Pending Bytes)")
        publisher.flush()
        varz = server.ask("/varz")
        assert (varz["slow_consumers"], varz["in_msgs"], varz["connections"]) == (1, sent, 2)
        reader.flush()


def read_messages(client: RawClient, count: int, body: bytes) -> None:
    """Read `count` messages on `a`, nothing else between them."""
    message = b"MSG a 1 %d\r\n%b\r\n" % (len(body), body)
    for _ in range(count):
        assert client.read_line() + client.read_line() == message


def test_a_publisher_waits_for_a_slow_subscriber(tmp_path: Path) -> None:
    """At full speed it is made to wait, shown as stalls, and not one message is lost."""
    count, size = 12_000, 8_000
    config = f"http: -1\nwrite_deadline: {PATIENCE_S:g}s"  # it reads nothing before the publisher has come so far
    with serve(tmp_path, config) as server, RawClient(server.port) as reader:
        reader.send(b"SUB a 1\r\n")
        reader.flush()
        publisher = threading.Thread(target=publish, args=(server, count, size))
        publisher.start()
        wait_until(lambda: server.ask("/varz")["stalled_clients"] > 0, "a stall")
        read_messages(reader, count, b"x" * size)
        publisher.join(PATIENCE_S)
        reader.flush()
        varz = server.ask("/varz")
        assert (varz["in_msgs"], varz["out_msgs"], varz["slow_consumers"]) == (count, count, 0)


def publish(server: ServerProcess, count: int, size: int) -> None:
    with RawClient(server.port) as client:
        block = (b"PUB a %d\r\n%b\r\n" % (size, b"x" * size)) * 100
        for _ in range(count // 100):
            client.send(block)
        client.flush()


def test_bcrypt_does_not_hold_up_others(tmp_path: Path) -> None:
    """While many log in with costly passwords, another client is answered more often than logins are settled."""
    hashed = bcrypt.hashpw(b"x", bcrypt.gensalt(11)).decode()
    config = f'authorization {{ users: [ {{user: u, password: "{hashed}"}}, {{user: v, password: y}} ], timeout: 60 }}'
    with serve(tmp_path, config) as server, ExitStack() as stack:
        other = stack.enter_context(RawClient(server.port, '{"user":"v","pass":"y","verbose":false}'))
        other.flush()
        logins = [stack.enter_context(RawClient(server.port, "")) for _ in range(8)]
        for client in logins:
            client.send(b'CONNECT {"user":"u","pass":"x","verbose":false}\r\nPING\r\n')
        waiting = {client.socket: client for client in logins}
        answered = 0
        while waiting:
            other.flush()
            answered += 1
            for ready in select.select(list(waiting), [], [], 0)[0]:
                assert waiting.pop(ready).read_line() == b"PONG\r\n"
        assert answered > 2 * len(logins)


@pytest.mark.slow
def test_thousands_of_clients_lose_nothing(tmp_path: Path) -> None:
    """Each publishes to the next one and hears the one before: all messages arrive, in order."""
    with descriptors(MANY + 200), serve(tmp_path, "http: -1") as server, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(MANY)]
        for number, client in enumerate(clients):
            client.send(b"SUB to.%d 1\r\nPING\r\n" % number)
        for client in clients:
            assert client.read_line() == b"PONG\r\n"
        for turn in range(5):
            for number, client in enumerate(clients):
                client.send(b"PUB to.%d 1\r\n%d\r\n" % ((number + 1) % MANY, turn))
        for number, client in enumerate(clients):
            for turn in range(5):
                assert client.read_line() == b"MSG to.%d 1 1\r\n" % number
                assert client.read_line() == b"%d\r\n" % turn
        varz = server.ask("/varz")
        assert (varz["connections"], varz["in_msgs"], varz["out_msgs"]) == (MANY, 5 * MANY, 5 * MANY)


@pytest.mark.slow
def test_idle_connections_are_cheap(tmp_path: Path) -> None:
    """Ten thousand logged-in clients with a subscription each: under 400 MiB, and any of them is still served."""
    with descriptors(IDLE + 200), serve(tmp_path, "http: -1") as server, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.port)) for _ in range(IDLE)]
        for number, client in enumerate(clients):
            client.send(b"SUB to.%d 1\r\nPING\r\n" % number)
        for client in clients:
            assert client.read_line() == b"PONG\r\n"
        assert server.ask("/varz")["connections"] == IDLE
        assert server.memory_bytes() < 400 << 20
        clients[0].send(b"PUB to.%d 2\r\nhi\r\n" % (IDLE - 1))
        assert [clients[-1].read_line(), clients[-1].read_line()] == [b"MSG to.%d 1 2\r\n" % (IDLE - 1), b"hi\r\n"]
