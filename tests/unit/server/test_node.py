"""The node in a simulated world: signals, reload, lame duck mode on the virtual clock, its files."""

from __future__ import annotations

import gc

import orjson
import pytest
from tests.unit.server.stage import Stage, play, start_server, texts

from tnats.broker.connection import Connection
from tnats.limits import SECOND_NS
from tnats.runtime.api import DiskError, Runtime
from tnats.runtime.sim.world import Settings, World, run_world

LAME_DUCK = "lame_duck_duration: 40s\nlame_duck_grace_period: 10s\n"


@pytest.mark.parametrize("signal", ["INT", "TERM"])
def test_shutdown_closes_everything(signal: str) -> None:
    """INT and TERM end the run: clients are closed, nobody can connect, the last line says so."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await stage.signal(signal)
        assert await client.ask() == b""
        assert client.closed
        assert not stage.machine.running
        assert stage.logged[-1] == "[INF] Server Exiting.."

    play(scene)


def test_lame_duck_keeps_grace_then_spreads_the_closing() -> None:
    """Nobody new is let in, clients hear of it at once, are left alone for the grace period, then closed one by one."""

    async def scene(stage: Stage) -> None:
        clients = [await stage.connect() for _ in range(20)]
        began_ns = stage.now_ns
        await stage.signal("USR2")
        for client in clients:
            assert b'"ldm":true' in await client.ask()
        assert not await stage.accepts()
        await stage.sleep(5)
        assert await clients[0].ask(b"PING\r\n") == b"PONG\r\n"
        while stage.machine.running:
            await stage.sleep(0.1)
            for client in clients:
                await client.ask()
            assert stage.now_ns - began_ns < 60 * SECOND_NS
        ends = sorted(client.closed_ns - began_ns for client in clients)
        assert ends[0] >= 10 * SECOND_NS
        assert ends[-1] - ends[0] > 5 * SECOND_NS, "all at once"
        assert ends[-1] <= 40 * SECOND_NS
        assert "[INF] Entering lame duck mode, stop accepting new clients" in stage.logged
        assert "[INF] Closing existing clients" in stage.logged

    play(scene, LAME_DUCK)


def test_lame_duck_is_over_at_once_without_clients() -> None:
    """With nobody to send away there is no reason to wait."""

    async def scene(stage: Stage) -> None:
        await stage.signal("USR2")
        assert not stage.machine.running

    play(scene, LAME_DUCK)


def test_lame_duck_is_not_cut_short_by_term_but_by_int() -> None:
    """An orchestrator's TERM does not undo it, a second USR2 changes nothing, INT ends it."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await stage.signal("USR2")
        await stage.signal("TERM")
        await stage.signal("USR2")
        assert stage.logged.count("[INF] Entering lame duck mode, stop accepting new clients") == 1
        assert (await client.ask(b"PING\r\n")).endswith(b"PONG\r\n")
        await stage.signal("INT")
        assert not stage.machine.running

    play(scene, LAME_DUCK)


def test_reload_applies_limits_and_tells_clients() -> None:
    """A new max_payload holds for connected clients, which are told by INFO; the log names what changed."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        lines = await stage.reload("max_payload: 100\ndebug: true")
        assert b'"max_payload":100' in await client.ask()
        assert "[INF] Reloaded: debug = true" in lines
        assert "[INF] Reloaded: max_payload = 100" in lines
        assert lines[-1] == f"[INF] Reloaded server configuration ({stage.node.options.config_digest})"
        assert b"Maximum Payload Violation" in await client.ask(b"PUB a 101\r\n")
        assert any("[DBG]" in line for line in stage.logged), "debug lines are on"

    play(scene, "max_payload: 1000")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("port: 5000\nmax_payload: 5", "config reload not supported for port: old=4222, new=5000"),
        ("server_name: b\nmax_payload: 5", "config reload not supported for server_name: old='', new='b'"),
        ("max_payload: 5\nnonsense: 1", f'{"/etc/server.conf"}:2:1: unknown field "nonsense"'),
        ("max_payload: {", ""),
        ("max_payload: 5\nmax_pending: 3", "max_payload (5) cannot be higher than max_pending (3)"),
        ("max_payload: 5\njetstream: enabled", "jetstream"),
    ],
)
def test_failed_reload_changes_nothing(config: str, reason: str) -> None:
    """What cannot be changed, parsed or served is named, and the old configuration stays whole."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        before = stage.node.options
        lines = await stage.reload(config)
        assert any(line.startswith("[ERR] Failed to reload server configuration: ") for line in lines)
        assert any(reason.lower() in line.lower() for line in lines), lines
        assert stage.node.options is before
        assert await client.ask(b"PUB a 9\r\n123456789\r\nPING\r\n") == b"PONG\r\n"

    play(scene)


def test_reload_of_users_closes_those_who_are_no_longer_let_in() -> None:
    """Clients are judged anew by their CONNECT: the removed user goes, the other stays."""

    async def scene(stage: Stage) -> None:
        stays, goes = await stage.connect(user="a", **{"pass": "x"}), await stage.connect(user="b", **{"pass": "y"})
        await stage.reload("authorization { users: [ {user: a, password: x} ] }")
        assert b"Authorization Violation" in await goes.ask()
        assert goes.closed
        assert await stays.ask(b"PING\r\n") == b"PONG\r\n"
        assert [one.reason for one in stage.node.broker.closed] == ["Authentication Failure"]

    play(scene, "authorization { users: [ {user: a, password: x}, {user: b, password: y} ] }")


@pytest.mark.parametrize(
    ("config", "warned_of"),
    [
        ("port: 4222", ["0.0.0.0:4222"]),
        ("host: '::'", ["[::]:4222"]),
        ("host: 127.0.0.1", []),
        ("host: localhost", []),
        ("authorization { token: t }", []),
        ("authorization { users: [ {user: a, password: x} ] }", []),
    ],
)
def test_a_server_that_is_open_to_all_says_so(config: str, warned_of: list[str]) -> None:
    """One line at the start, where other machines can connect and nobody has to say who they are."""

    async def scene(stage: Stage) -> None:
        start = "[WRN] Whoever reaches "
        lines = [line for line in stage.logged if line.startswith(start)]
        assert [line.removeprefix(start).partition(" ")[0] for line in lines] == warned_of

    play(scene, config)


def test_reload_names_values_as_they_are_written() -> None:
    """The log shows durations, booleans and maps as a configuration has them, not as the program keeps them."""

    async def scene(stage: Stage) -> None:
        lines = await stage.reload('ping_interval: "90s"\nauthorization { users: [ {user: a, password: x} ] }')
        assert "[INF] Reloaded: ping_interval = 1m30s" in lines
        assert "[INF] Reloaded: authorization.users = [{...}]" in lines
        (line,) = [one for one in await stage.reload("write_timeout: close") if "write_timeout" in one]
        assert line.endswith("Reloaded: write_timeout = 'close'")

    play(scene, "authorization { users: [ {user: a, password: y}, {user: b, password: z} ] }")


def test_reload_shows_no_secrets() -> None:
    """A changed password or token is named, its value is not."""

    async def scene(stage: Stage) -> None:
        lines = await stage.reload("authorization { user: u, password: hush }")
        assert "[INF] Reloaded: authorization.password = [REDACTED]" in lines
        assert not any("hush" in line for line in stage.logged)

    play(scene, "authorization { user: u, password: whisper }")


def test_reload_of_max_connections_closes_the_newest() -> None:
    """What exceeds the new limit is closed, oldest clients last."""

    async def scene(stage: Stage) -> None:
        clients = [await stage.connect() for _ in range(3)]
        await stage.reload("max_connections: 2")
        assert b"maximum connections exceeded" in await clients[2].ask()
        assert [await client.ask(b"PING\r\n") for client in clients[:2]] == [b"PONG\r\n"] * 2

    play(scene)


def test_tracing_can_be_switched_while_a_message_is_half_way() -> None:
    """Trace begins in step with the protocol, whatever part of an operation had arrived, and ends without a trace."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"SUB a 1\r\nPUB a 10\r\n12345")
        await stage.reload("trace: true")
        assert await client.ask(b"67890\r\nPUB a 0\r\n\r\n") == b"MSG a 1 10\r\n1234567890\r\nMSG a 1 0\r\n\r\n"
        traced = [line.split(" - ", 2)[2] for line in stage.logged if "[TRC]" in line]
        assert '->> MSG_PAYLOAD: ["1234567890"]' in traced
        assert "<<- [PUB a 0]" in traced
        before = len(traced)
        await stage.reload("trace: false")
        await client.ask(b"PUB a 0\r\n\r\nUNSUB 1\r\n")
        assert len([line for line in stage.logged if "[TRC]" in line]) == before

    play(scene)


def test_traced_connections_are_gone_at_once_when_they_end() -> None:
    """Their buffers do not wait for the garbage collector, which comes late to a busy server."""

    async def scene(stage: Stage) -> None:
        gc.collect()
        assert not gc.isenabled()
        for farewell in (b"PING\r\n", b"BOGUS\r\n"):
            client = await stage.connect()
            await client.ask(farewell)
            client.close()
            await stage.sleep(1)
            assert [one for one in gc.get_objects() if type(one) is Connection] == []
        assert any("->> [-ERR" in line for line in stage.logged)

    play(scene, "port: 4222\ntrace: true")


def test_files_are_written_moved_and_removed() -> None:
    """The pid file and the ports file exist while the server runs, follow a reload, and are gone afterwards."""

    async def scene(stage: Stage) -> None:
        disk = stage.node.runtime.disk
        pid = stage.node.runtime.process.pid
        assert await disk.read_file("/a.pid", bytes_max=100) == b"%d" % pid
        ports = orjson.loads(await disk.read_file(f"/nats-server_{pid}.ports", bytes_max=1000))
        assert ports == {"nats": ["nats://0.0.0.0:4222"], "monitoring": ["http://0.0.0.0:8222"]}
        await stage.reload("pid_file: /b.pid\nhttp: 8222")
        assert await disk.read_file("/b.pid", bytes_max=100) == b"%d" % pid
        for path in ("/a.pid", f"/nats-server_{pid}.ports"):
            with pytest.raises(DiskError):
                await disk.read_file(path, bytes_max=100)
        await stage.signal("TERM")

    play(scene, 'pid_file: "/a.pid"\nports_file_dir: "/"\nhttp: 8222')


def test_reload_without_a_file_is_refused() -> None:
    """HUP to a server that was started by flags alone says why nothing happens."""

    async def scene(stage: Stage) -> None:
        stage.node._read_options = None
        assert not await stage.node.reload()
        assert "can only reload config when a file is provided using -c or --config" in stage.logged[-1]

    play(scene)


def test_reopening_needs_a_file() -> None:
    """USR1 is answered in the log either way."""

    async def standard_error(stage: Stage) -> None:
        await stage.signal("USR1")
        assert stage.logged[-1] == "[INF] File log re-open ignored, not a file logger"

    async def file(stage: Stage) -> None:
        await stage.signal("USR1")
        assert stage.logged[-1] == "[INF] File log re-opened"

    play(standard_error)
    play(file, "log_file: server.log")


def test_zero_connections_closes_the_door_and_the_house() -> None:
    """A reload with `max_connections: 0` drops everybody and refuses whoever comes; leaving it out lets them in."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await stage.reload("max_connections: 0")
        assert b"maximum connections exceeded" in await client.ask()
        assert client.closed
        late = await stage.connect()
        assert late.closed
        await stage.reload("max_payload: 9")
        assert await (await stage.connect()).ask(b"PING\r\n") == b"PONG\r\n"

    play(scene)


def test_reload_during_lame_duck() -> None:
    """It is carried out, and lame duck mode goes on; a full house is not what newcomers are told of."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await stage.signal("USR2")
        lines = await stage.reload(f"{LAME_DUCK}max_connections: 1\ndebug: true")
        assert "[INF] Reloaded: debug = true" in lines
        assert not await stage.accepts()
        await client.ask()
        assert await client.ask(b"PING\r\n") == b"PONG\r\n"
        await stage.sleep(15)
        assert not stage.machine.running
        assert not any("exceeded" in line for line in stage.logged)

    play(scene, f"{LAME_DUCK}max_connections: 1")


@pytest.mark.parametrize("signal", ["INT", "TERM"])
def test_a_start_can_be_broken_off(signal: str) -> None:
    """A server that is told to end before it is ready ends at once, and leaves no file behind."""

    async def main(world: World) -> None:
        machine, nodes = start_server(world, 'pid_file: "/a.pid"')
        while not nodes or machine.process is None or machine.process.receiver is None:
            await world.sleep_ns(100)
        machine.signal(signal)
        await machine.wait_ended()
        assert texts(machine)[-1] == "[INF] Server Exiting.."
        assert "[INF] Server is ready" not in texts(machine)

        async def look(runtime: Runtime) -> None:
            assert await runtime.disk.list("/") == []

        machine.start(look)
        await machine.wait_ended()

    run_world(1, main, Settings(buggify=False)).unwrap()
