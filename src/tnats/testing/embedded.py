"""A server that runs beside the caller's code, in a thread with a trio run of its own.

Theory of operation
-------------------
The node is the one that `tnats serve` runs, from the same `compose.build`; of its world only the process is replaced:
the log is kept in memory, and no signal reaches it. The caller's side is plain blocking code, so that it serves tests
in trio, asyncio and neither alike: starting and stopping take some ten milliseconds and block for that time.
What the caller's thread and the server's share are an event, a trio token and the deque of log lines; what else the
caller wants done is done in the server's thread while the caller waits (`_call`).

With `disk="memory"` the server's disk is the simulator's, which knows what was synced. `kill` and `power_cut` are then
possible: the incarnation is dead from one moment to the next, for every call of its disk and clock raises from then on,
and only after that its tasks are cancelled.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import attrs
import trio
import trio.testing

from tnats import limits
from tnats.errors import TnatsError, sole_cause

if TYPE_CHECKING:
    from tnats.runtime.api import Runtime
    from tnats.runtime.sim.disk import SimDrive
    from tnats.server.config.options import Options
    from tnats.server.node import Endpoints, Node
    from tnats.testing.network import OwnedNetwork

LOCAL_HOST = "127.0.0.1"
ANY_PORT = -1
GLOBAL_ACCOUNT = "$G"

DiskKind = Literal["files", "memory"]
T = TypeVar("T")


class ServerFailed(TnatsError):
    """The server did not start, did not stop, or met an internal error. Its log follows the first line."""


class EmbeddedServer:
    """One server at a time, which may be stopped and started again on the same port and with the same files.

    Made by `serve`. Every method may be called from any thread but the server's own.
    """

    def __init__(self, config: str | Path, options: dict[str, Any], disk: DiskKind = "files") -> None:
        from tnats.testing.clock import MovableClock

        if disk not in get_args(DiskKind):
            raise ValueError(f"disk is to be one of {', '.join(get_args(DiskKind))}, not {disk!r}")
        self._folder = tempfile.TemporaryDirectory(prefix="tnats-")
        self._config_path = str(config) if isinstance(config, Path) else f"{self._folder.name}/server.conf"
        text = config.read_text() if isinstance(config, Path) else config
        lines = [f"{key}: {json.dumps(value)}" for key, value in options.items()]
        self._config_text = "\n".join([text, *lines] if text else lines)
        self._lines: deque[str] = deque(maxlen=limits.TESTING_LOG_LINES_MAX)
        self._bugs: list[str] = []
        self._port = ANY_PORT
        self._endpoints: Endpoints | None = None
        self._node: Node
        self._token: trio.lowlevel.TrioToken
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()
        """Set once the server can be connected to, and when it has ended."""
        self._failure: BaseException | None = None
        self._clock = MovableClock()
        self._drive = memory_drive() if disk == "memory" else None
        self._boot_count = 1
        self._scope: trio.CancelScope
        self._network: OwnedNetwork

    def __repr__(self) -> str:
        return f"<EmbeddedServer {self.url if self._endpoints else 'not started'} {'up' if self.running else 'down'}>"

    # ---------------------------------------------------------------- what there is to know

    @property
    def running(self) -> bool:
        """Whether it serves now."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def port(self) -> int:
        """Where clients connect; kept when it is started again."""
        assert self._endpoints is not None, "the server was never started"
        return self._endpoints.client[1]

    @property
    def url(self) -> str:
        """For clients: `nats://127.0.0.1:PORT`."""
        assert self._endpoints is not None, "the server was never started"
        host = self._endpoints.client[0]
        return f"nats://{LOCAL_HOST if host in ('', '0.0.0.0', '::') else host}:{self.port}"

    @property
    def monitoring_url(self) -> str | None:
        """`http://127.0.0.1:PORT` of the monitoring server; None unless the options ask for one (`http_port=-1`)."""
        assert self._endpoints is not None, "the server was never started"
        address = self._endpoints.monitoring
        return None if address is None else f"http://{LOCAL_HOST}:{address[1]}"

    @property
    def folder(self) -> Path:
        """The private folder of this server, removed at the end."""
        return Path(self._folder.name)

    @property
    def logs(self) -> str:
        """Everything logged so far, of every start (the last `limits.TESTING_LOG_LINES_MAX` lines)."""
        return "\n".join(list(self._lines))

    # ---------------------------------------------------------------- starting and stopping

    def start(self) -> None:
        """Start it; returns once clients can connect. No error if it runs.

        Raises ConfigError for wrong options, NetworkError when it cannot listen, ServerFailed.
        """
        from tnats.server.compose import build

        if self.running:
            return
        runtime = self._runtime()
        self._node = build(runtime, self._options(runtime))
        self._failure = None
        self._changed.clear()
        self._thread = threading.Thread(target=self._run, name="tnats server", daemon=True)
        self._thread.start()
        if not self._changed.wait(limits.TESTING_WAIT_S):
            raise ServerFailed(self._with_logs(f"the server is not ready after {limits.TESTING_WAIT_S} s"))
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure

    def stop(self) -> None:
        """Shut it down and wait for the end. No error if it does not run.

        Raises ServerFailed when it does not end, and when it met an internal error while it ran.
        """
        thread = self._thread
        if thread is None:
            return
        if thread.is_alive():
            try:
                self._token.run_sync_soon(self._node.shut_down)
            except trio.RunFinishedError:
                pass  # it ended by itself just now
            self._wait_end(thread)
        self._thread = None
        if self._failure is not None:
            raise ServerFailed(self._with_logs(f"the server ended with {self._failure!r}")) from self._failure
        if self._bugs:
            bugs, self._bugs = self._bugs, []
            raise ServerFailed(self._with_logs("the server met an internal error:\n" + "\n".join(bugs)))

    def restart(self) -> None:
        """Stop and start: clients lose their connections and find the server on the same port."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End it at once, as SIGKILL does: nothing is finished, but the disk keeps all that was written.

        Then `start` it again. Needs `serve(disk="memory")`; raises ServerFailed without.
        """
        self._end_at_once("kill")

    def power_cut(self, policy: str = "strict") -> None:
        """Cut its power: what was not synced is lost as `policy` says. Then `start` it again.

        `policy`: "strict" (nothing of it is left), "torn" (some, in pieces), "prefix", "subset", "length", "names",
        "lazyfs" or "all". Needs `serve(disk="memory")`; raises ServerFailed without, ValueError for another policy.
        """
        from tnats.runtime.sim.disk_image import CrashPolicy

        chosen = CrashPolicy(policy)
        drive = self._end_at_once("power_cut")
        drive.power_loss(chosen)
        self._boot_count += 1

    def close(self) -> None:
        """`stop`, then remove the private folder."""
        try:
            self.stop()
        finally:
            self._folder.cleanup()

    # ---------------------------------------------------------------- time and troubles

    def advance(self, seconds: float) -> None:
        """Move the server's clocks ahead; returns when it has done what fell due (ack waits, TTLs, duplicate windows).

        Clients' clocks stay as they are. Raises ServerFailed when it does not run, and when it has not done it in time.
        """
        if seconds < 0:
            raise ValueError("a clock moves ahead only")
        self._call(lambda: self._clock.move(round(seconds * limits.SECOND_NS)))
        self._wait_idle()

    def expire_acks(self, stream: str, consumer: str, seq: int | None = None, *, account: str = GLOBAL_ACCOUNT) -> int:
        """End the ack wait of one message that was delivered and not acknowledged, or of all; how many these were.

        They are delivered again, or given up, as after `ack_wait`. Raises NotThere.
        """
        from tnats.testing.troubles import expire_acks, find_consumer

        return self._call(lambda: expire_acks(find_consumer(self._node, account, stream, consumer), seq))

    def lose_publish_acks(self, stream: str, count: int = 1, *, account: str = GLOBAL_ACCOUNT) -> None:
        """Store the next `count` messages of a stream without telling their publishers. Raises NotThere."""
        from tnats.testing.troubles import find_stream, lose_publish_acks

        self._call(lambda: lose_publish_acks(find_stream(self._node, account, stream), count))

    def _call(self, action: Callable[[], T]) -> T:
        """Have `action` done in the server's thread; its result, or what it raises."""
        outcome: list[T] = []
        failure: list[Exception] = []
        done = threading.Event()

        def run() -> None:
            try:
                outcome.append(action())
            except Exception as exc:
                failure.append(exc)
            done.set()

        self._soon(run)
        if not done.wait(limits.TESTING_WAIT_S):
            raise ServerFailed(self._with_logs(f"the server did nothing for {limits.TESTING_WAIT_S} s"))
        if failure:
            raise failure[0]
        return outcome[0]

    def _soon(self, action: Callable[[], None]) -> None:
        if not self.running:
            raise ServerFailed("the server does not run: start() it first")
        try:
            self._token.run_sync_soon(action)
        except trio.RunFinishedError:
            raise ServerFailed("the server has just ended") from None

    def _wait_idle(self) -> None:
        """Return when every task of the server waits for something that is not its disk. Raises ServerFailed."""
        done = threading.Event()
        jetstream = self._node.jetstream

        async def wait() -> None:
            await trio.testing.wait_all_tasks_blocked()
            if jetstream is not None and jetstream.is_ready:
                await jetstream.store.journal.flush()  # what fell due was written down
                await trio.testing.wait_all_tasks_blocked()
            done.set()

        self._soon(lambda: (trio.lowlevel.spawn_system_task(wait), None)[1])
        if not done.wait(limits.TESTING_WAIT_S):
            raise ServerFailed(self._with_logs(f"the server was at work for {limits.TESTING_WAIT_S} s"))

    def _wait_end(self, thread: threading.Thread) -> None:
        """Return when the server's thread has ended. Raises ServerFailed."""
        thread.join(limits.TESTING_WAIT_S)
        if thread.is_alive():
            raise ServerFailed(self._with_logs(f"the server has not ended after {limits.TESTING_WAIT_S} s"))

    def _end_at_once(self, what: str) -> SimDrive:
        if self._drive is None:
            raise ServerFailed(f'{what} needs a disk that can be cut off: serve(..., disk="memory")')
        thread = self._thread
        if thread is not None and thread.is_alive():

            def die() -> None:
                self._clock.is_over = True
                self._scope.cancel()

            self._soon(die)
            self._wait_end(thread)
        self._thread = None
        return self._drive

    # ---------------------------------------------------------------- inside

    def _runtime(self) -> Runtime:
        from tnats.runtime.live import live_runtime
        from tnats.testing.clock import MovableClock
        from tnats.testing.network import OwnedNetwork
        from tnats.testing.process import EmbeddedProcess

        process = EmbeddedProcess(self._lines, self._bugs, boot=self._boot_count)
        clock = self._clock = MovableClock(self._clock.ahead_ns)
        self._network = OwnedNetwork()
        runtime = attrs.evolve(live_runtime(argv=process.argv), process=process, clock=clock, network=self._network)
        if self._drive is not None:
            from tnats.runtime.sim.disk import SimDisk

            runtime = attrs.evolve(runtime, disk=SimDisk(self._drive, clock, alive=lambda: not clock.is_over))
        return runtime

    def _options(self, runtime: Runtime) -> Options:
        """From the configuration, with what a test wants by default: this machine only, any port, private files."""
        from tnats.server.config.load import read_options
        from tnats.server.config.options import Options

        def read(path: str) -> str:
            return self._config_text if path == self._config_path else runtime.process.read_text(path)

        options = Options()
        if self._config_text.strip():
            options = read_options(self._config_path, read=read, env=runtime.process.environment)
        options.host = options.host or LOCAL_HOST
        options.port = self._port if self._port != ANY_PORT else options.port or ANY_PORT
        if not options.store_dir and not options.jetstream.store_dir:
            options.store_dir = f"{self._folder.name}/store"
        return options

    def _run(self) -> None:
        """The server's thread."""
        try:
            trio.run(self._serve, clock=self._clock)
        except BaseException as exc:
            self._failure = None if self._clock.is_over else sole_cause(exc)
        finally:
            if self._clock.is_over:
                self._close_sockets()
            self._changed.set()

    def _close_sockets(self) -> None:
        """What the kernel does when a process has ended."""
        for listener in self._network.listeners:
            listener.close()
        for connection in list(self._node.broker.connections.values()):
            connection.conn.close()

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            self._endpoints = await nursery.start(self._node.run)
            self._port = self.port
            self._changed.set()

    def _with_logs(self, text: str) -> str:
        return f"{text}\n{self.logs}"


def memory_drive() -> SimDrive:
    """A disk in memory that takes no time."""
    from tnats.runtime.sim.chance import stream
    from tnats.runtime.sim.disk import DiskTiming, SimDrive

    instant = DiskTiming(write_ns=0, read_ns=0, sync_ns=0, name_ns=0, bytes_per_second=1 << 60)
    return SimDrive(stream(0, "memory disk"), timing=instant)


@contextmanager
def serve(config: str | Path = "", *, disk: DiskKind = "files", **options: Any) -> Iterator[EmbeddedServer]:
    """A running server for the length of the block, on a free port of this machine, with a private folder.

    `disk="memory"` puts its files on a disk in memory, whose power can be cut.

    `config` is a configuration in the server's language, or the Path of a file. `options` are further keys of it, with
    values as in JSON: `serve(http_port=-1, authorization={"user": "u", "password": "p"})`. If the block raises,
    the server's log is attached to the exception as a note. Raises like `EmbeddedServer.start` and `.stop`.
    """
    server = EmbeddedServer(config, options, disk)
    try:
        server.start()
        yield server
    except Exception as exc:
        if server.logs:
            exc.add_note(f"--- log of the tnats server ---\n{server.logs}")
        raise
    finally:
        server.close()
