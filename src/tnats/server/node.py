"""A running node: what is started in which order, what the operating system may ask of it, and how it ends.

Ownership is the nesting of nurseries, innermost the front door. Ending cancels from the inside out, so that a part
never outlives what it stands on:

    run
      monitoring listener
        broker: accounts, connections, reactor
          front door: client listener, signals

A node ends by `shut_down` (at once), by lame duck mode (clients are sent away first), or by the scope around `run`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import trio

from tnats import NATS_VERSION, __version__
from tnats.broker.broker import Broker
from tnats.errors import TnatsError
from tnats.runtime.api import Address, Listener, NetworkError, Runtime
from tnats.server import files, translate
from tnats.server.config.baseline import any_port
from tnats.server.config.difference import differences, reload_problems
from tnats.server.config.options import Options
from tnats.server.config.problems import ConfigError
from tnats.server.config.validation import start_warnings
from tnats.server.log import ServerLog

ReadOptions = Callable[[], Options]
"""Reads the configuration anew and settles it; run off the reactor. Raises ConfigError."""

_SIGNAL_NAMES = {
    "INT": "interrupt",
    "TERM": "terminated",
    "HUP": "hangup",
    "USR1": "user defined signal 1",
    "USR2": "user defined signal 2",
}


@attrs.frozen
class Endpoints:
    """Where a node listens, with the real ports."""

    client: Address
    monitoring: Address | None


class Node:
    """One server. `run` it once; the rest may be called while it runs."""

    def __init__(
        self, runtime: Runtime, options: Options, server_id: str, log: ServerLog, read_options: ReadOptions | None
    ) -> None:
        """Use `tnats.server.compose.build`."""
        self.runtime = runtime
        self.options = options
        self.server_id = server_id
        self.log = log
        self.started_wall_ns = runtime.clock.wall_ns()
        self.started_mono_ns = runtime.clock.mono_ns()
        self.configured_wall_ns = self.started_wall_ns
        self.endpoints: Endpoints
        self.broker: Broker
        self._read_options = read_options
        self._stopping = trio.Event()
        self._lame_duck = False
        self._files: dict[str, None] = {}
        """Paths to remove at the end."""

    @property
    def name(self) -> str:
        return self.options.server_name or self.server_id

    def shut_down(self) -> None:
        """Make `run` return, soon."""
        self._stopping.set()

    async def run(self, *, task_status: trio.TaskStatus[Endpoints] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until shut down. Reports its endpoints once clients can connect.

        Raises NetworkError, with one line for the log, when an address cannot be listened on.
        """
        self._announce()
        try:
            async with trio.open_nursery() as outer:
                monitoring = await self._open_monitoring()
                listener = await self._listen("", self.options.host, self.options.port)
                self.endpoints = Endpoints(listener.address, monitoring.address if monitoring is not None else None)
                self._make_broker(listener)
                if monitoring is not None:
                    self._start_monitoring(monitoring, outer)
                async with trio.open_nursery() as inner:
                    await inner.start(self.broker.run)
                    await self._serve_door(listener, task_status)
                    inner.cancel_scope.cancel()
                outer.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                for path in self._files:
                    await files.remove(self.runtime.disk, path, self.log)
            self.log.info("Server Exiting..")
            self.log.close()

    async def _serve_door(self, listener: Listener, task_status: trio.TaskStatus[Endpoints]) -> None:
        """The innermost scope: from the first client accepted to the last one sent away."""
        with self.runtime.process.signals() as signals:
            async with trio.open_nursery() as door:
                self.broker.open_door(listener)
                self.log.info(f"Listening for client connections on {shown(listener.address)}")
                await self._write_files()
                self.log.info("Server is ready")
                task_status.started(self.endpoints)
                door.start_soon(self._obey, signals.next, door, listener)
                await self._stopping.wait()
                self.log.info("Initiating Shutdown...")
                door.cancel_scope.cancel()
        self.broker.close_door(listener)
        listener.close()

    # ------------------------------------------------------------------ starting

    def _announce(self) -> None:
        log, options = self.log, self.options
        log.info("Starting nats-server")
        log.info(f"  Version:  {NATS_VERSION} (tnats {__version__})")
        log.info(f"  Name:     {self.name}")
        log.info(f"  ID:       {self.server_id}")
        if options.config_file:
            log.info(f"Using configuration file: {options.config_file} ({options.config_digest})")
        for warning in (*options.warnings, *start_warnings(options)):
            log.warn(str(warning))
        if translate.authenticator(options).has_plain_passwords:
            log.warn("Plaintext passwords detected, use nkeys or bcrypt")

    async def _listen(self, what: str, host: str, port: int) -> Listener:
        try:
            return await self.runtime.network.listen(host, any_port(port))
        except NetworkError as error:
            raise NetworkError(f'Error listening on {what}port: {host}:{port}, "{error}"') from None

    def _make_broker(self, listener: Listener) -> None:
        told = translate.broker_options(self.options, self.server_id, listener.address)
        self.broker = Broker(self.runtime, told, translate.authenticator(self.options), self.log)
        self.broker.update_info(tnats=__version__)

    async def _open_monitoring(self) -> Listener | None:
        if not self.options.http_port:
            return None
        listener = await self._listen("monitoring ", self.options.http_host, self.options.http_port)
        self.log.info(f"Starting http monitor on {shown(listener.address)}")
        return listener

    def _start_monitoring(self, listener: Listener, nursery: trio.Nursery) -> None:
        from tnats.edges.http_server import HttpServer  # most starts need none of it
        from tnats.server.reports import make_monitor

        monitor = make_monitor(self)
        nursery.start_soon(HttpServer(self.runtime, listener, monitor.handle).run)

    async def _write_files(self) -> None:
        """What scripts find a running server by."""
        process, disk, options = self.runtime.process, self.runtime.disk, self.options
        if options.pid_file:
            await files.write_pid_file(disk, options.pid_file, process.pid, self.log)
            self._files[options.pid_file] = None
        if options.ports_file_dir:
            path = files.ports_path(options.ports_file_dir, process.pid)
            ports = {"nats": [f"nats://{shown(self.endpoints.client)}"]}
            if self.endpoints.monitoring is not None:
                ports["monitoring"] = [f"http://{shown(self.endpoints.monitoring)}"]
            await files.write_ports_file(disk, path, ports, self.log)
            self._files[path] = None

    # ------------------------------------------------------------------ while running

    async def _obey(self, next_signal: Callable[[], object], door: trio.Nursery, listener: Listener) -> None:
        """Do what signals ask for."""
        while True:
            signal = str(await next_signal())  # type: ignore[misc]
            self.log.info(f'Trapped "{_SIGNAL_NAMES[signal]}" signal')
            if signal == "INT" or (signal == "TERM" and not self._lame_duck):
                self.shut_down()
            elif signal == "HUP":
                await self.reload()
            elif signal == "USR1":
                self.log.reopen()
            elif signal == "USR2" and not self._lame_duck:
                self._lame_duck = True
                door.start_soon(self._leave_as_lame_duck, listener)

    async def _leave_as_lame_duck(self, listener: Listener) -> None:
        """Send clients away one by one, then shut down (client protocol, "Lame duck")."""
        options = self.options
        self.log.info("Entering lame duck mode, stop accepting new clients")
        self.broker.close_door(listener)
        listener.close()
        if self.broker.connections:
            self.broker.update_info(ldm=True)
            await self.runtime.clock.sleep_ns(options.lame_duck_grace_period_ns)
            self.log.info("Closing existing clients")
            await self.broker.close_clients(options.lame_duck_duration_ns - options.lame_duck_grace_period_ns)
        self.shut_down()

    async def reload(self) -> bool:
        """Read the configuration anew and apply it; False, with the reason logged and nothing changed, on a fault."""
        if self._read_options is None:
            self.log.error("Failed to reload server configuration: this server was not started from a file")
            return False
        try:
            new = await self.runtime.processor.offload(self._read_options)
            changes = differences(self.options, new)
            problems = reload_problems(changes)
            if problems:
                raise ConfigError(problems)
            told = translate.broker_options(new, self.server_id, self.endpoints.client)
            self.log.configure(new)
            self.broker.reload(told, translate.authenticator(new))
        except TnatsError as error:
            for line in str(error).splitlines():
                self.log.error(f"Failed to reload server configuration: {line}")
            return False
        for change in changes:
            self.log.info(f"Reloaded: {change}")
        self.options = new
        self.configured_wall_ns = self.runtime.clock.wall_ns()
        await self._write_files()
        self.log.info("Reloaded server configuration")
        return True


def shown(address: Address) -> str:
    """`host:port`, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
