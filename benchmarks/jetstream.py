"""JetStream where it is large: many streams, a million subjects, ten million messages, many who wait; A and B in turns.

    python benchmarks/jetstream.py --a ".venv/bin/tnats serve" --b .venv/bin/nats-server [--parts durable,subjects]
                                   [--scale 0.01] [--json FILE]

`durable`: acknowledged publishes a second with `sync_interval: always`, over 1, 100 and 1,000 streams at once, each
with one publish of 128 bytes in flight. `idle`: memory of 1,000 streams without messages, and of 1,000 consumers of
one of them. `subjects`: a stream with 1,000,000 subjects, one message of 32 bytes each. `messages`: a stream with
10,000,000 messages of 128 bytes on one subject. Of the last two: publishes a second (window of 1,000, `sync_interval:
2m`), median time of STREAM.INFO, memory that the server has grown by, and time from the start after a kill until
STREAM.INFO tells the right count; `--scale` makes them smaller. `waiting`: 500 clients, each with a pull request at
one consumer; publishes a second, one at a time, each until one of the clients has the message. `consumers`: 1,000 of
one stream, whose messages all go to one client, published one at a time, each until it has come from all; deliveries a
second, once of pull consumers and once of push consumers. The figure to quote is the ratio, turned so that above 1.00
A is ahead; absolute figures hold for one run on one machine only.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import attrs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sides import PATIENCE_S, Client, Server

ACK = b'"seq":'
WINDOW = 1000
SECONDS = 3.0
STREAMS = (1, 100, 1000)
IDLE = 1000
SUBJECTS = 1_000_000
MESSAGES = 10_000_000
WAITING = 500
CONSUMERS = 1000


@attrs.frozen
class Figure:
    """One measured value; `more` tells whether more is better."""

    name: str
    value: float
    unit: str
    more: bool


Tick = Callable[[float], None]
"""Told of the share of a part's work that is done."""


def make_stream(client: Client, name: str, subject: str) -> None:
    config = {"name": name, "subjects": [subject], "storage": "file", "num_replicas": 1}
    client.request(f"$JS.API.STREAM.CREATE.{name}", config)


def durable_rate(port: int, streams: int, tick: Tick) -> float:
    """Acknowledged publishes a second with one in flight on each stream."""
    client = Client(port)
    for number in range(streams):
        make_stream(client, f"D{number}", f"d.{number}")
    client.sock.sendall(b"SUB _INBOX.d.* 1\r\n")
    body = b" 128\r\n" + b"x" * 128 + b"\r\n"
    publish = {b"_INBOX.d.%d" % number: b"PUB d.%d _INBOX.d.%d" % (number, number) + body for number in range(streams)}
    client.sock.sendall(b"".join(publish.values()))
    began = time.perf_counter()
    acknowledged, rest = 0, b""
    while True:
        elapsed = time.perf_counter() - began
        tick(min(elapsed / SECONDS, 1.0))
        if elapsed >= SECONDS:
            return acknowledged / elapsed
        *lines, rest = (rest + client.receive()).split(b"\r\n")
        due = []
        for line in lines:
            if line.startswith(b"MSG _INBOX.d."):
                due.append(publish[line.split(b" ", 2)[1]])
            elif b'"error"' in line:
                raise RuntimeError(line.decode())
        acknowledged += len(due)
        client.sock.sendall(b"".join(due))


def fill(port: int, count: int, block_of: Callable[[int], bytes], tick: Tick) -> float:
    """Publish `count` messages, WINDOW to 2 * WINDOW in flight; acknowledged a second."""
    client = Client(port)
    make_stream(client, "B", "b.>")
    client.sock.sendall(b"SUB _INBOX.b 1\r\n")
    began = time.perf_counter()
    sent = acknowledged = 0
    tail = b""
    while acknowledged < count:
        while sent - acknowledged <= WINDOW and sent < count:
            client.sock.sendall(block_of(sent))
            sent += WINDOW
        data = tail + client.receive()
        acknowledged += data.count(ACK)
        if b'"error"' in data:
            raise RuntimeError(data[:300].decode(errors="replace"))
        last = data.rfind(ACK)
        tail = data[max(last + len(ACK), len(data) - len(ACK) + 1) :]
        tick(acknowledged / count)
    return acknowledged / (time.perf_counter() - began)


def large(command: str, name: str, count: int, block_of: Callable[[int], bytes], tick: Tick) -> list[Figure]:
    """Fill one stream, then see what the server makes of it."""
    server = Server(command, "2m")
    try:
        before = server.rss_mib()
        rate = fill(server.port, count, block_of, tick)
        client = Client(server.port)
        times = []
        for _ in range(21):
            began = time.perf_counter()
            info = client.request("$JS.API.STREAM.INFO.B")
            times.append(time.perf_counter() - began)
        if info["state"]["messages"] != count:
            raise RuntimeError(f"{count} published, {info['state']['messages']} stored")
        grown = server.rss_mib() - before
        server.kill()
        began = time.perf_counter()
        server.start()
        while Client(server.port).request("$JS.API.STREAM.INFO.B")["state"]["messages"] != count:
            time.sleep(0.01)
        restart = time.perf_counter() - began
        return [
            Figure(f"{name}: publishes", rate, "/s", more=True),
            Figure(f"{name}: STREAM.INFO, median", statistics.median(times) * 1e6, "us", more=False),
            Figure(f"{name}: memory", grown, "MiB", more=False),
            Figure(f"{name}: restart after a kill", restart * 1e3, "ms", more=False),
            Figure(f"{name}: memory after it", server.rss_mib() - before, "MiB", more=False),
        ]
    finally:
        server.stop()


def durable(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    figures = []
    for done, streams in enumerate(STREAMS):
        server = Server(command, "always")
        try:
            rate = durable_rate(server.port, streams, lambda share, done=done: tick((done + share) / len(STREAMS)))  # type: ignore[misc]
        finally:
            server.stop()
        figures.append(Figure(f"durable: {streams:,} streams at once", rate, "/s", more=True))
    return figures


def idle(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    server = Server(command, "2m")
    try:
        client = Client(server.port)
        sizes = [server.rss_mib()]
        for number in range(IDLE):
            make_stream(client, f"I{number}", f"i.{number}")
            tick(number / IDLE / 2)
        sizes.append(server.rss_mib())
        for number in range(IDLE):
            config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
            call = f"$JS.API.CONSUMER.DURABLE.CREATE.I0.c{number}"
            client.request(call, {"stream_name": "I0", "config": config})
            tick((1 + number / IDLE) / 2)
        sizes.append(server.rss_mib())
    finally:
        server.stop()
    return [
        Figure(f"{IDLE:,} idle {what}: memory", sizes[place + 1] - sizes[place], "MiB", more=False)
        for place, what in enumerate(("streams", "consumers"))
    ]


def subjects(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    count = max(1, int(SUBJECTS * scale) // WINDOW) * WINDOW
    body = b" _INBOX.b 32\r\n" + b"x" * 32 + b"\r\n"

    def block_of(first: int) -> bytes:
        return b"".join([b"PUB b.key.%d" % number + body for number in range(first, first + WINDOW)])

    return large(command, f"{count:,} subjects", count, block_of, tick)


def messages(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    count = max(1, int(MESSAGES * scale) // WINDOW) * WINDOW
    block = (b"PUB b.one _INBOX.b 128\r\n" + b"x" * 128 + b"\r\n") * WINDOW
    return large(command, f"{count:,} messages", count, lambda first: block, tick)


def waiting(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    server = Server(command, "2m")
    try:
        client = Client(server.port)
        make_stream(client, "B", "b.>")
        wanted = {"durable_name": "C", "ack_policy": "none", "max_waiting": 2 * WAITING}
        client.request("$JS.API.CONSUMER.DURABLE.CREATE.B.C", {"stream_name": "B", "config": wanted})
        request = b'{"batch":100000,"expires":600000000000}'
        waiters = [Client(server.port) for _ in range(WAITING)]
        ready = select.poll()
        by_descriptor = {waiter.sock.fileno(): waiter for waiter in waiters}
        for number, waiter in enumerate(waiters):
            pull = b"PUB $JS.API.CONSUMER.MSG.NEXT.B.C _INBOX.w.%d %d\r\n%b\r\n" % (number, len(request), request)
            waiter.sock.sendall(b"SUB _INBOX.w.%d 1\r\n" % number + pull + b"PING\r\n")
            waiter.wait_for(b"PONG\r\n")
            ready.register(waiter.sock, select.POLLIN)
        count = 0
        began = time.perf_counter()
        while (elapsed := time.perf_counter() - began) < SECONDS:
            tick(elapsed / SECONDS)
            client.sock.sendall(b"PUB b.one 16\r\n0123456789abcdef\r\n")
            count += 1
            for descriptor, _ in ready.poll(PATIENCE_S * 1000):
                by_descriptor[descriptor].receive()
        return [Figure(f"{WAITING} waiting requests: messages, one at a time", count / elapsed, "/s", more=True)]
    finally:
        server.stop()


def consumers(command: str, scale: float, tick: Tick) -> list[Figure]:
    """The part of the same name."""
    pulled = deliveries(command, is_push=False, tick=lambda share: tick(share / 2))
    pushed = deliveries(command, is_push=True, tick=lambda share: tick(0.5 + share / 2))
    return [
        Figure(f"{CONSUMERS:,} pull consumers: deliveries", pulled, "/s", more=True),
        Figure(f"{CONSUMERS:,} push consumers: deliveries", pushed, "/s", more=True),
    ]


def deliveries(command: str, *, is_push: bool, tick: Tick) -> float:
    """Deliveries a second of all consumers."""
    server = Server(command, "2m")
    try:
        client, reader = Client(server.port), Client(server.port)
        make_stream(client, "B", "b.>")
        request = b'{"batch":100000,"expires":600000000000}'
        for number in range(CONSUMERS):
            inbox = f"_INBOX.c.{number}"
            reader.sock.sendall(b"SUB %b %d\r\nPING\r\n" % (inbox.encode(), number))
            reader.wait_for(b"PONG\r\n")
            wanted = {"name": f"C{number}", "ack_policy": "none"} | ({"deliver_subject": inbox} if is_push else {})
            client.request(f"$JS.API.CONSUMER.CREATE.B.C{number}", {"stream_name": "B", "config": wanted})
            if not is_push:
                subject = f"$JS.API.CONSUMER.MSG.NEXT.B.C{number} {inbox} {len(request)}"
                reader.sock.sendall(b"PUB %b\r\n%b\r\n" % (subject.encode(), request))
        count = 0
        began = time.perf_counter()
        while (elapsed := time.perf_counter() - began) < SECONDS:
            tick(elapsed / SECONDS)
            client.sock.sendall(b"PUB b.one 16\r\n0123456789abcdef\r\n")
            reader.wait_for(b"0123456789abcdef\r\n", CONSUMERS)
            count += CONSUMERS
        return count / elapsed
    finally:
        server.stop()


PARTS = {
    "durable": durable,
    "idle": idle,
    "subjects": subjects,
    "messages": messages,
    "waiting": waiting,
    "consumers": consumers,
}


def main() -> None:
    """Run the parts that were asked for, A and B in turns, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", required=True, help="command of server A")
    parser.add_argument("--b", help="command of server B, the reference; without it, A alone")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of the two large streams")
    parser.add_argument("--json", help="also write the figures to this file")
    given = parser.parse_args()
    commands = {"A": given.a, **({"B": given.b} if given.b else {})}
    unknown = [part for part in given.parts.split(",") if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: there are {', '.join(PARTS)}")
    console = Console()
    table = Table("", *commands, *(["A ahead"] if given.b else []))
    rows: dict[str, dict[str, object]] = {}
    with Progress(console=console, transient=True) as progress:
        for part in given.parts.split(","):
            found: dict[str, list[Figure]] = {}
            for side, command in commands.items():
                task = progress.add_task(f"{part} {side}", total=1.0)
                try:
                    found[side] = PARTS[part](
                        command,
                        given.scale,
                        lambda share, task=task: progress.update(task, completed=share),  # type: ignore[misc]
                    )
                except (OSError, LookupError, RuntimeError) as failure:  # reported, never counted
                    console.print(f"{part} cannot run: {side}: {type(failure).__name__}: {failure}")
                    break
                finally:
                    progress.remove_task(task)
            if len(found) < len(commands):
                continue
            for position, figure in enumerate(found["A"]):
                values = {side: figures[position].value for side, figures in found.items()}
                row: dict[str, object] = {"unit": figure.unit, **values}
                if given.b:
                    row["ahead"] = values["A"] / values["B"] if figure.more else values["B"] / max(values["A"], 1e-9)
                rows[figure.name] = row
                cells = [f"{value:,.0f} {figure.unit}" for value in values.values()]
                table.add_row(figure.name, *cells, *([f"{row['ahead']:.2f}"] if given.b else []))
    console.print(table)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
