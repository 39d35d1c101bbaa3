"""Server processes under test: start, readiness, signals, logs.

A `ServerProcess` keeps its name, addresses and store across restarts, as a machine in a rack does. Everything listens
on the loopback interface. The process belongs to a `Workplace`, which ends it whatever happens.
"""

from __future__ import annotations

import signal
from pathlib import Path

import trio

from tnats.harness.real import configuration
from tnats.harness.real.configuration import Membership, Ports
from tnats.harness.real.errors import CouldNotRun
from tnats.harness.real.targets import Target
from tnats.harness.real.workplace import Workplace, last_line, log_text
from tnats.limits import SECOND_NS
from tnats.records import frozen
from tnats.runtime.api import NetworkError, Runtime

START_TIMEOUT_S = 30.0
POLL_NS = 50_000_000
ANSWER_TIMEOUT_S = 5.0
HTTP_BYTES_MAX = 64 * 1024


@frozen
class Health:
    """What `/healthz` answered; status 0 when nobody did."""

    status: int
    text: str

    @property
    def complaint(self) -> str:
        """Empty when all is well."""
        return "" if self.status == 200 else f"{self.status} {self.text}"


class ServerProcess:
    """One server on this machine."""

    def __init__(
        self, runtime: Runtime, workplace: Workplace, target: Target, name: str, store: Path, sync_interval: str | None
    ) -> None:
        """`sync_interval` as in the configuration file; None leaves it to the target's default."""
        self.name = name
        self.target = target
        self.store = store
        self.ports = Ports(workplace.reserve_port(), workplace.reserve_port())
        self.log = workplace.directory / f"{name}.log"
        self.boot_count = 1
        """Counts the losses of power, too: a server may ask its machine whether there was one."""
        self._runtime = runtime
        self._workplace = workplace
        self._process: trio.Process | None = None
        self._path = workplace.directory / f"{name}.conf"
        self._sync_interval = sync_interval
        self._membership: Membership | None = None
        self._incarnation = 0
        self._configure()

    @property
    def server_name(self) -> str:
        """What it calls itself."""
        return self.name if self._membership is None else f"{self.name}-{self._incarnation}"

    def _configure(self) -> None:
        text = configuration.write(
            self.server_name,
            self.ports,
            self.store,
            sync_interval=self._sync_interval,
            membership=self._membership,
        )
        self._path.write_text(text)

    def join(self, membership: Membership) -> None:
        """From its next start on it is a member of a cluster."""
        self._membership = membership
        self._incarnation = 0
        self._configure()

    def rename(self) -> None:
        """From its next start on it is somebody else to the cluster: one who lost his store must not use his name."""
        self._incarnation += 1
        self._configure()

    @property
    def url(self) -> str:
        """For clients of the account that the workload uses."""
        return f"nats://{self._login(configuration.USER, configuration.PASSWORD)}127.0.0.1:{self.ports.client}"

    @property
    def system_url(self) -> str:
        """For an operator; of members of a cluster alone."""
        login = self._login(configuration.SYSTEM_USER, configuration.SYSTEM_PASSWORD)
        return f"nats://{login}127.0.0.1:{self.ports.client}"

    def _login(self, user: str, password: str) -> str:
        return "" if self._membership is None else f"{user}:{password}@"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def launch(self) -> None:
        """Start it, and wait for nothing. Raises CouldNotRun when that is no program."""
        assert not self.is_running
        try:
            self._process = await self._workplace.start(
                [*self.target.command, "-c", str(self._path)],
                log=self.log,
                environment={"TNATS_BOOT_ID": f"{self.name}-boot-{self.boot_count}"},
            )
        except OSError as exc:
            raise CouldNotRun(f"{self.target.name} did not start: {exc.strerror}") from None

    async def start(self) -> None:
        """Start it and wait until it answers clients. Raises CouldNotRun with the log's last word."""
        await self.launch()
        with trio.move_on_after(START_TIMEOUT_S):
            while self.is_running:
                if await self._answers():
                    return
                await self._runtime.clock.sleep_ns(POLL_NS)
        reason = "ended at once" if not self.is_running else f"no answer within {START_TIMEOUT_S:g} s"
        await self.kill()
        which = "" if self._membership is None else f" as {self.server_name}"
        raise CouldNotRun(
            f"{self.target.name} did not start{which}: {reason}; its log ends with: {last_line(self.log)}"
        )

    async def _answers(self) -> bool:
        """Whether it greets a client: a server may well listen before it serves."""
        return b"INFO " in await self._ask(self.ports.client, b"", wanted=b"INFO ")

    async def kill(self) -> None:
        """SIGKILL: the page cache survives, nothing else does."""
        if self._process is not None:
            await self._workplace.kill(self._process)

    async def stop(self) -> None:
        """SIGTERM and wait for an orderly end; SIGKILL after the start time-out."""
        if self._process is None or not self.is_running:
            return
        self._process.send_signal(signal.SIGTERM)
        with trio.move_on_after(START_TIMEOUT_S):
            await self._workplace.wait(self._process)
            return
        await self.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGCONT)

    def log_text(self) -> str:
        """Everything it printed so far."""
        return log_text(self.log)

    async def health(self) -> Health:
        """Ask `/healthz`, for everything that it has to say."""
        answer = await self._ask(self.ports.monitor, b"GET /healthz?details=true HTTP/1.0\r\nHost: localhost\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        words = head.split()
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        return Health(status, body.decode(errors="replace").strip())

    async def _ask(self, port: int, request: bytes, wanted: bytes = b"") -> bytes:
        """What comes back on a connection to `port`, up to its end, a time-out, or (if given) the `wanted` bytes;
        nothing if nobody listens there.
        """
        answer = bytearray()
        try:
            conn = await self._runtime.network.connect("127.0.0.1", port, timeout_ns=SECOND_NS)
        except NetworkError:
            return b""
        buffer = bytearray(HTTP_BYTES_MAX)
        poller = self._runtime.network.poller()
        try:
            if request:
                conn.write([request])
            poller.add(conn)
            with trio.move_on_after(ANSWER_TIMEOUT_S):
                while len(answer) < HTTP_BYTES_MAX and not (wanted and wanted in answer):
                    count = conn.read_into(buffer)
                    if count == 0:
                        break
                    if count is None:
                        await poller.wait()
                    else:
                        answer += buffer[:count]
        except NetworkError:
            pass  # reset: what came before it counts
        finally:
            poller.close()
            conn.close()
        return bytes(answer)
