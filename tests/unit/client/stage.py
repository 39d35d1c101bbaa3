"""A simulated world with scripted NATS servers and a client node, for tests of the client.

`ScriptedServer` is not a broker: it answers PING, remembers what arrives and delivers to the subscriptions it was
sent, and a test makes it silent, rude or absent at will.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import trio

from tnats.client import Client, Event, connect
from tnats.limits import SECOND_NS
from tnats.runtime.api import Conn, ConnectionBroken, Listener, Runtime
from tnats.runtime.sim.world import Outcome, Settings, World, run_world
from tnats.subjects.tokens import subject_matches, to_bytes
from tnats.wire.client import encode_pub, parse_hpub_arguments, parse_pub_arguments, parse_sub_arguments
from tnats.wire.connect import ConnectInfo, parse_connect
from tnats.wire.info import ServerInfo, encode_info

PORT = 4222


@attrs.define
class Published:
    """A PUB or HPUB that reached a server."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes


class Peer:
    """One client connection, as the server sees it."""

    def __init__(self, server: ScriptedServer, conn: Conn) -> None:
        self.server = server
        self.conn = conn
        self.connect = ConnectInfo()
        self.lines: list[bytes] = []
        """Every control line but PUB and HPUB."""
        self.subscriptions: dict[bytes, tuple[bytes, bytes]] = {}
        """Subject and queue by sid."""
        self.limits: dict[bytes, int] = {}
        self._buffer = bytearray()

    def send(self, data: bytes) -> None:
        """Write; tests send less than a window."""
        try:
            assert self.conn.write([data]) == len(data)
        except ConnectionBroken:
            pass

    def deliver(self, subject: str, data: bytes = b"", reply: str = "", headers: bytes = b"") -> int:
        """Send a message to each matching subscription; returns how many."""
        count = 0
        for sid, (pattern, _) in list(self.subscriptions.items()):
            if not subject_matches(pattern, subject):
                continue
            count += 1
            head = b" ".join(filter(None, (to_bytes(subject), sid, to_bytes(reply))))
            if headers:
                self.send(b"HMSG %b %d %d\r\n%b%b\r\n" % (head, len(headers), len(headers) + len(data), headers, data))
            else:
                self.send(b"MSG %b %d\r\n%b\r\n" % (head, len(data), data))
            if sid in self.limits:
                self.limits[sid] -= 1
                if not self.limits[sid]:
                    del self.subscriptions[sid]
        return count

    def feed(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n")) >= 0:
            line = bytes(self._buffer[:end])
            verb, _, argument = line.partition(b" ")
            if verb in (b"PUB", b"HPUB"):
                if not self._take_publish(verb, argument, end + 2):
                    return
                continue
            del self._buffer[: end + 2]
            self.lines.append(line)
            self._take_line(verb, argument)

    def _take_publish(self, verb: bytes, argument: bytes, start: int) -> bool:
        parsed = parse_pub_arguments(argument) if verb == b"PUB" else parse_hpub_arguments(argument)
        assert parsed is not None, argument
        header_size, total_size = (0, parsed[2]) if len(parsed) == 3 else parsed[2:]
        if len(self._buffer) < start + total_size + 2:
            return False
        body = bytes(self._buffer[start : start + total_size])
        del self._buffer[: start + total_size + 2]
        message = Published(parsed[0], parsed[1], body[:header_size], body[header_size:])
        self.server.published.append(message)
        self.server.route(self, message)
        return True

    def _take_line(self, verb: bytes, argument: bytes) -> None:
        server = self.server
        if verb == b"CONNECT":
            options = parse_connect(argument)
            assert options is not None
            self.connect = options
            if server.refusal is not None:
                self.send(b"-ERR '%b'\r\n" % server.refusal)
                self.conn.close()
        elif verb == b"PING":
            if server.answers_pings:
                self.send(b"PONG\r\n")
        elif verb == b"SUB":
            parsed = parse_sub_arguments(argument)
            assert parsed is not None
            subject, queue, sid = parsed
            if subject in server.denied:
                self.send(b"-ERR 'Permissions Violation for Subscription to \"%b\"'\r\n" % subject)
            else:
                self.subscriptions.setdefault(sid, (subject, queue or b""))
        elif verb == b"UNSUB":
            sid, _, limit = argument.partition(b" ")
            if limit:
                self.limits[sid] = int(limit)
            else:
                self.subscriptions.pop(sid, None)


class ScriptedServer:
    """Started by `run` on a node of its own; may be started again after it was killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.info = ServerInfo(server_id=name, server_name=name, version="2.15.1", max_payload=1024)
        self.peers: list[Peer] = []
        """Connections of the present incarnation, in the order they came."""
        self.published: list[Published] = []
        self.accept_count = 0
        self.answers_pings = True
        self.no_responders = True
        self.refusal: bytes | None = None
        self.denied: set[bytes] = set()
        self.greets = True
        self.reads = True
        self._poller_changed = trio.Event()

    async def run(self, runtime: Runtime) -> None:
        self.peers.clear()
        listener = await runtime.network.listen("0.0.0.0", PORT)
        poller = runtime.network.poller()
        poller.add(listener)
        by_conn: dict[Conn | Listener, Peer] = {}
        buffer = bytearray(4096)
        while True:
            for source in await poller.wait():
                if source is listener:
                    self._accept(listener, poller.add, by_conn)
                elif not self.reads:
                    poller.pause(source)
                elif not self._read(by_conn[source], buffer):
                    poller.remove(source)
                    by_conn[source].conn.close()
                    self.peers.remove(by_conn.pop(source))

    def _accept(
        self, listener: Listener, add: Callable[[Conn | Listener], None], by_conn: dict[Conn | Listener, Peer]
    ) -> None:
        while (conn := listener.accept()) is not None:
            self.accept_count += 1
            peer = by_conn[conn] = Peer(self, conn)
            self.peers.append(peer)
            add(conn)
            if self.greets:
                peer.send(encode_info(self.info))

    def _read(self, peer: Peer, buffer: bytearray) -> bool:
        try:
            count = peer.conn.read_into(buffer)
        except ConnectionBroken:
            return False
        if count:
            peer.feed(bytes(buffer[:count]))
        return count != 0

    def route(self, sender: Peer, message: Published) -> None:
        """Deliver among the connected clients; say 503 where a request reaches nobody."""
        subject, reply = message.subject.decode(), message.reply.decode()
        count = sum(peer.deliver(subject, message.payload, reply, message.headers) for peer in list(self.peers))
        if not count and reply and self.no_responders:
            sender.deliver(reply, b"", "", b"NATS/1.0 503\r\n\r\n")

    def send_info(self) -> None:
        """Tell every client the present `info`."""
        for peer in self.peers:
            peer.send(encode_info(self.info))

    def drop_clients(self) -> None:
        """Close every connection."""
        for peer in self.peers:
            peer.conn.close(reset=True)
        self.peers.clear()


class Stage:
    """What a scene is given: the servers by name, the world, and the client's runtime."""

    def __init__(self, world: World, servers: dict[str, ScriptedServer]) -> None:
        self.world = world
        self.servers = servers
        self.runtime: Runtime
        self.events: list[Event] = []

    @property
    def server(self) -> ScriptedServer:
        return next(iter(self.servers.values()))

    @property
    def now_s(self) -> float:
        return self.runtime.clock.mono_ns() / SECOND_NS

    async def sleep(self, seconds: float) -> None:
        await self.runtime.clock.sleep_ns(round(seconds * SECOND_NS))

    def connect(self, *names: str, **options: object) -> object:
        """`tnats.client.connect` to these servers, the first one by default, with events in `self.events`."""
        urls = [name if "://" in name else f"nats://{name}:{PORT}" for name in names or (self.server.name,)]
        return connect(urls, runtime=self.runtime, on_event=self.events.append, **options)

    def stop(self, name: str) -> None:
        self.world.nodes[name].kill()

    def start(self, name: str) -> None:
        self.world.nodes[name].start()


Scene = Callable[[Stage], Awaitable[None]]


def play(scene: Scene, *names: str, seed: int = 1) -> Outcome[None]:
    """Run `scene` on a client node beside scripted servers of these names ("one" by default); raises what it raises."""

    async def main(world: World) -> None:
        servers = {name: ScriptedServer(name) for name in names or ("one",)}
        stage = Stage(world, servers)

        async def client(runtime: Runtime) -> None:
            stage.runtime = runtime
            await scene(stage)

        for name, server in servers.items():
            world.node(name).start(server.run)
        await world.sleep_ns(SECOND_NS)
        node = world.node("client")
        node.start(client)
        await node.wait_ended()

    outcome = run_world(seed, main, Settings(buggify=False))
    outcome.unwrap()
    return outcome


async def wait_until(stage: Stage, condition: Callable[[], object], within_s: float = 60) -> None:
    """Let virtual time pass until `condition` holds; fail after `within_s`."""
    end_s = stage.now_s + within_s
    while not condition():
        assert stage.now_s < end_s, "the condition never came about"
        await stage.sleep(0.001)


__all__ = ["PORT", "Client", "Published", "ScriptedServer", "Stage", "encode_pub", "play", "wait_until"]
