"""A running node: what is started in which order, what the operating system may ask of it, and how it ends.

Ownership is the nesting of nurseries, innermost the front door. Ending cancels from the inside out, so that a part
never outlives what it stands on:

    run: signals, files
      monitoring listener
        broker: accounts, connections, reactor
          JetStream
            front door: client listener

A node ends by `shut_down` (at once), by lame duck mode (clients are sent away first), or by the scope around `run`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from tnats import NATS_VERSION, __version__, speedups
from tnats.broker.broker import Broker
from tnats.broker.hot import inbound as hot_loop
from tnats.errors import TnatsError, sole_cause
from tnats.records import frozen
from tnats.runtime.api import Address, DiskError, Listener, NetworkError, Runtime, SignalReceiver
from tnats.server import files, translate
from tnats.server.config.baseline import any_port
from tnats.server.config.difference import differences, reload_problems
from tnats.server.config.options import Options
from tnats.server.config.problems import ConfigError, Problem
from tnats.server.config.validation import start_warnings
from tnats.server.log import ServerLog
from tnats.server.tracing import TracedBroker, Tracer

if TYPE_CHECKING:
    from tnats.jetstream.service import JetStream

ReadOptions = Callable[[], Options]
"""Reads the configuration anew and settles it; run off the reactor. Raises ConfigError."""

_SIGNAL_NAMES = {
    "INT": "interrupt",
    "TERM": "terminated",
    "HUP": "hangup",
    "USR1": "user defined signal 1",
    "USR2": "user defined signal 2",
}

_PORT_MAX = 65_535


@frozen
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
        self.jetstream: JetStream | None = None
        self._tracer: Tracer
        self._read_options = read_options
        self._stopping = trio.Event()
        self._lame_duck = False
        self._ready = trio.Event()
        self._reload_asked = trio.Event()
        self._door: Listener | None = None
        """Where clients come in; None until it is ready, and from lame duck mode on."""
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

        Raises NetworkError or DiskError, having logged its line, when it cannot listen or write its files.
        """
        with self.runtime.process.signals() as signals:  # outermost: a second one cuts short nothing of the end
            self._announce()
            try:
                async with trio.open_nursery() as whole:
                    whole.start_soon(self._obey, signals, whole)
                    whole.start_soon(self._reload_when_asked)
                    await self._serve(task_status)
                    whole.cancel_scope.cancel()
                self.log.info("Server Exiting..")
            except Exception as failure:
                cause = sole_cause(failure)
                if isinstance(cause, TnatsError):
                    self.log.fatal(str(cause))
                raise
            finally:
                with trio.CancelScope(shield=True):
                    for path in list(self._files):
                        await self._remove(path)
                self.log.close()

    async def _serve(self, task_status: trio.TaskStatus[Endpoints]) -> None:
        """All of the server, from the outermost scope inward."""
        if self.options.pid_file:
            await self._write_pid_file(self.options.pid_file)
        async with trio.open_nursery() as outer:
            monitoring = await self._open_monitoring()
            listener = await self._listen("", self.options.host, self.options.port)
            self.endpoints = Endpoints(listener.address, monitoring.address if monitoring is not None else None)
            self._make_broker(listener)
            if monitoring is not None:
                self._start_monitoring(monitoring, outer)
            async with trio.open_nursery() as inner:
                await inner.start(self.broker.run)
                async with trio.open_nursery() as above_broker:
                    if self.options.jetstream.enabled:
                        await above_broker.start(self._make_jetstream().run)
                    await self._serve_door(listener, task_status)
                    above_broker.cancel_scope.cancel()
                inner.cancel_scope.cancel()
            outer.cancel_scope.cancel()

    async def _serve_door(self, listener: Listener, task_status: trio.TaskStatus[Endpoints]) -> None:
        """The innermost scope: from the first client accepted to the last one sent away."""
        self.broker.open_door(listener)
        self._door = listener
        self.log.info(f"Listening for client connections on {shown(listener.address)}")
        if self.broker.gatekeeper.no_auth_required and not is_loopback(listener.address[0]):
            self.log.warn(
                f"Whoever reaches {shown(listener.address)} may use this server: "
                "configure users or a token, or listen on 127.0.0.1"
            )
        if self.options.ports_file_dir:
            await self._write_ports_file(self.options.ports_file_dir)
        self.log.info("Server is ready")
        task_status.started(self.endpoints)
        self._ready.set()
        await self._stopping.wait()
        self.log.info("Initiating Shutdown...")
        self._close_door(listener)

    def _close_door(self, listener: Listener) -> None:
        """Let nobody in any more."""
        self._door = None
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
        if not speedups.is_compiled(hot_loop):
            log.warn("Running interpreted, several times slower: tnats was installed without a C compiler")
        for warning in (*options.warnings, *start_warnings(options)):
            log.warn(str(warning))
        if translate.authenticator(options).has_plain_passwords:
            log.warn("Plaintext passwords detected, use nkeys or bcrypt")

    async def _listen(self, what: str, host: str, port: int) -> Listener:
        port = any_port(port)
        failure = f"Error listening on {what}port: {shown((host, port))}"
        if not 0 <= port <= _PORT_MAX:
            raise NetworkError(f"{failure}, not a port: expected 1 to {_PORT_MAX}, or -1 for any free one")
        try:
            return await self.runtime.network.listen(host, port)
        except NetworkError as error:
            raise NetworkError(f'{failure}, "{error}"') from None

    def _make_broker(self, listener: Listener) -> None:
        told = translate.broker_options(self.options, self.server_id, listener.address)
        self.broker = broker = TracedBroker(self.runtime, told, translate.authenticator(self.options), self.log)
        self._open_accounts(self.options)
        broker.update_info(tnats=__version__)
        broker.tracer = self._tracer = Tracer(broker, self.log)
        broker.observers.append(self._tracer)
        self._configure_tracing()

    def _open_accounts(self, options: Options) -> None:
        """The global account and those of the configuration are there from the start, for reports and JetStream."""
        self.broker.account()
        for account in options.accounts:
            self.broker.account(account.name)

    def _configure_tracing(self) -> None:
        self._tracer.configure(
            max_traced_msg_len=self.options.max_traced_msg_len, headers_only=self.options.trace_headers
        )

    def _make_jetstream(self) -> JetStream:
        from tnats.server.jetstream import make_jetstream  # most starts need none of it

        self.jetstream = make_jetstream(self)
        return self.jetstream

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

    async def _write_pid_file(self, path: str) -> None:
        await files.write_pid_file(self.runtime.disk, path, self.runtime.process.pid)
        self._files[path] = None

    async def _write_ports_file(self, directory: str) -> None:
        path = files.ports_path(directory, self.runtime.process.pid)
        ports = {"nats": [f"nats://{shown(self.endpoints.client)}"]}
        if self.endpoints.monitoring is not None:
            ports["monitoring"] = [f"http://{shown(self.endpoints.monitoring)}"]
        try:
            await files.write_ports_file(self.runtime.disk, path, ports)
            self._files[path] = None
        except DiskError as error:
            self.log.error(str(error))

    # ------------------------------------------------------------------ while running

    async def _obey(self, signals: SignalReceiver, whole: trio.Nursery) -> None:
        """Do what signals ask for; while it is still starting, whatever does not end it has to wait."""
        while True:
            signal = await signals.next()
            self.log.info(f'Trapped "{_SIGNAL_NAMES[signal]}" signal')
            if signal == "INT" or (signal == "TERM" and not self._lame_duck):
                if not self._ready.is_set():
                    whole.cancel_scope.cancel()
                self.shut_down()
            elif signal == "USR1":
                self.log.reopen()
            elif signal == "HUP":
                self._reload_asked.set()
            elif signal == "USR2":
                whole.start_soon(self._leave_as_lame_duck)

    async def _reload_when_asked(self) -> None:
        """One at a time; asked for again meanwhile, however often, once more."""
        await self._ready.wait()
        while True:
            await self._reload_asked.wait()
            self._reload_asked = trio.Event()
            await self.reload()

    async def _leave_as_lame_duck(self) -> None:
        """Send clients away one by one, then shut down (client protocol, "Lame duck")."""
        await self._ready.wait()
        if self._lame_duck or self._door is None:
            return
        self._lame_duck = True
        options = self.options
        self.log.info("Entering lame duck mode, stop accepting new clients")
        self._close_door(self._door)
        if self.broker.connections:
            self.broker.update_info(ldm=True)
            await self.runtime.clock.sleep_ns(options.lame_duck_grace_period_ns)
            self.log.info("Closing existing clients")
            await self.broker.close_clients(options.lame_duck_duration_ns - options.lame_duck_grace_period_ns)
        self.shut_down()

    async def reload(self) -> bool:
        """Read the configuration anew and apply it; False, with the reason logged and nothing changed, on a fault."""
        try:
            if self._read_options is None:
                raise ConfigError([Problem("can only reload config when a file is provided using -c or --config")])
            new = await self.runtime.processor.offload(self._read_options)
            self._keep_ports(new)
            changes = differences(self.options, new)
            problems = reload_problems(changes)
            if self.jetstream is not None:
                from tnats.server.jetstream import accounts_without

                problems += accounts_without(self, new)
            if problems:
                raise ConfigError(problems)
            told = translate.broker_options(new, self.server_id, self.endpoints.client)
            with self.log.changing_to(new):
                self.broker.reload(told, translate.authenticator(new))
        except TnatsError as error:
            for line in str(error).splitlines():
                self.log.error(f"Failed to reload server configuration: {line}")
            return False
        old, self.options = self.options, new
        self._open_accounts(new)
        if self.jetstream is not None:
            from tnats.server.jetstream import reload_jetstream

            reload_jetstream(self, new)
        self._configure_tracing()
        for change in changes:
            self.log.info(f"Reloaded: {change.path} = {change.row.shown(change.new)}")
        await self._move_files(old, new)
        self.configured_wall_ns = self.runtime.clock.wall_ns()
        self.log.info(f"Reloaded server configuration ({new.config_digest})")
        return True

    def _keep_ports(self, new: Options) -> None:
        """A port that names what any free port turned out to be is no change."""
        if new.port == self.endpoints.client[1]:
            new.port = self.options.port
        if self.endpoints.monitoring is not None and new.http_port == self.endpoints.monitoring[1]:
            new.http_port = self.options.http_port

    async def _move_files(self, old: Options, new: Options) -> None:
        """Write the files by which the server is found where they shall be now, and remove them elsewhere."""
        if old.pid_file != new.pid_file:
            await self._remove(old.pid_file)
            if new.pid_file:
                try:
                    await self._write_pid_file(new.pid_file)
                except DiskError as error:
                    self.log.error(str(error))
        if old.ports_file_dir != new.ports_file_dir:
            await self._remove(files.ports_path(old.ports_file_dir, self.runtime.process.pid))
            if new.ports_file_dir:
                await self._write_ports_file(new.ports_file_dir)

    async def _remove(self, path: str) -> None:
        """Remove a file that this node has written; nothing happens for any other."""
        if path in self._files:
            del self._files[path]
            await files.remove(self.runtime.disk, path, self.log)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    return host.startswith("127.") or host in ("::1", "localhost")


def shown(address: Address) -> str:
    """`host:port`, an IPv6 host in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
