"""Two rows that the usual comparison lacks, server A and server B in turns: churn and unique inboxes.

    python benchmarks/core.py --a ".venv/bin/tnats serve" --b .venv/bin/nats-server --rounds 5

`churn`: one client subscribes and unsubscribes (a literal and a wildcard in turns) as fast as it can while another
publishes on a subject with one subscriber; operations a second of the first. `inboxes`: requests that each use a reply
subject of their own, the responder answering on it; requests a second. The figure to quote is the median of the
ratios A/B of each round: above 1.00, A is ahead. Absolute figures hold for one run on one machine only.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

from sides import Client, Server


def churn(port: int, count: int) -> float:
    """Subscriptions made and removed a second, under load."""
    done = threading.Event()

    def load() -> None:
        receiver, sender = Client(port), Client(port)
        receiver.sock.sendall(b"SUB load 1\r\nPING\r\n")
        receiver.wait_for(b"PONG\r\n")
        block = b"PUB load 16\r\n0123456789abcdef\r\n" * 200
        while not done.is_set():
            sender.sock.sendall(block + b"PING\r\n")
            sender.wait_for(b"PONG\r\n")
            receiver.wait_for(b"MSG load 1 16\r\n", 200)

    thread = threading.Thread(target=load)
    thread.start()
    client = Client(port)
    chunk = 500
    began = time.perf_counter()
    for first in range(0, count, chunk):
        client.sock.sendall(
            b"".join(
                (b"SUB a.%d.b %d\r\nUNSUB %d\r\n" if n % 2 else b"SUB a.%d.> %d\r\nUNSUB %d\r\n") % (n, n, n)
                for n in range(first, first + chunk)
            )
            + b"PING\r\n"
        )
        client.wait_for(b"PONG\r\n")
    rate = 2 * count / (time.perf_counter() - began)
    done.set()
    thread.join()
    return rate


def inboxes(port: int, count: int) -> float:
    """Requests a second, in windows of 100, each with a reply subject that is used once."""
    responder, requester = Client(port), Client(port)
    responder.sock.sendall(b"SUB svc 1\r\nPING\r\n")
    responder.wait_for(b"PONG\r\n")
    requester.sock.sendall(b"SUB _INBOX.me.* 1\r\nPING\r\n")
    requester.wait_for(b"PONG\r\n")
    window = 100

    def respond() -> None:
        buffer = b""
        left = count
        while left:
            buffer += responder.sock.recv(1 << 20)
            *lines, buffer = buffer.split(b"\r\n")
            replies = [line.split()[3] for line in lines if line.startswith(b"MSG svc 1 ")]
            left -= len(replies)
            responder.sock.sendall(b"".join(b"PUB %b 2\r\nok\r\n" % reply for reply in replies))

    thread = threading.Thread(target=respond)
    thread.start()
    began = time.perf_counter()
    for first in range(0, count, window):
        requester.sock.sendall(
            b"".join(b"PUB svc _INBOX.me.%d 2\r\nhi\r\n" % number for number in range(first, first + window))
        )
        requester.wait_for(b"\r\nok\r\n", window)
    rate = count / (time.perf_counter() - began)
    thread.join()
    return rate


ROWS = {"core.churn": (churn, 40_000), "core.inboxes": (inboxes, 40_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--a", required=True, help="command of server A")
    parser.add_argument("--b", required=True, help="command of server B")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'row':16} {'A /s':>12} {'B /s':>12} {'A ahead':>8}  (min-max)")  # noqa: T201
    for name, (measure, count) in ROWS.items():
        rates: dict[str, list[float]] = {"a": [], "b": []}
        for _ in range(arguments.rounds):
            for side in ("a", "b"):
                server = Server(getattr(arguments, side))
                try:
                    rates[side].append(measure(server.port, count))
                finally:
                    server.stop()
        ratios = [a / b for a, b in zip(rates["a"], rates["b"], strict=True)]
        print(  # noqa: T201
            f"{name:16} {statistics.median(rates['a']):12,.0f} {statistics.median(rates['b']):12,.0f} "
            f"{statistics.median(ratios):8.2f}  ({min(ratios):.2f}-{max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
