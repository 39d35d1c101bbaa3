"""The seam: everything a tnats node may ask of the world, as types. No code runs here.

Two implementations stand side by side with the same file names, `tnats.runtime.live` and `tnats.runtime.sim`,
and one contract suite (tests/contract) holds both to what the docstrings below promise. Nothing outside
`tnats.runtime` imports sockets, threads, clocks, entropy or file calls.

Theory of operation
-------------------
* **Readiness, not streams.** `Conn.read_into` and `Conn.write` never wait. One reactor task awaits
  `Poller.wait` and then serves every ready connection in a plain loop, with no await between bytes in and bytes
  out. A task that must wait for room awaits `Conn.wait_writable`.
* **Calls that cannot block are plain functions; what can take long is awaited.** A `File.pwrite` goes to the
  page cache and is plain; `File.sync` is awaited. In simulation a slow plain call stalls the whole node, as it
  would in reality.
* **Integer nanoseconds.** `mono_ns` never jumps and drives every time-out; `wall_ns` may be set by people and
  drives only what users see (message timestamps, log lines).
* **trio is the substrate of both.** Nurseries, events and cancel scopes are used directly; time, randomness,
  network, disk and threads only through here. `Clock.deadline` gives a trio cancel scope.
* **Death.** In simulation a node may lose power at any seam call: from then on every call raises
  `tnats.errors.NodeKilled` (a BaseException), so no `finally` block can touch the world afterwards.

Facets compose: a `Runtime` may join the live network with a simulated clock (tnats.testing moves time so).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import attrs
import trio

from tnats.errors import TnatsError
from tnats.records import frozen

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview
Address = tuple[str, int]
"""Host (numeric form once connected or bound) and port."""


# ------------------------------------------------------------------ errors of the world


class NetworkError(TnatsError):
    """The network refused: could not bind, connect or resolve. The text names the address and the reason."""


class ConnectionBroken(NetworkError):
    """This connection is over: reset by the peer, timed out, or closed on our side. Every later call raises it too."""


class OutOfDescriptors(NetworkError):
    """`Listener.accept` found no free descriptor, or no memory; the connection stays in the backlog.

    Pause, then try again.
    """


class TlsError(NetworkError):
    """A certificate or key cannot be used, or a TLS handshake failed; the text says which and why."""


class DiskError(TnatsError):
    """A disk call failed. `errno` tells the reason (EIO, ENOSPC, ENOENT, EEXIST, EACCES, EROFS, EMFILE, ...)."""

    def __init__(self, text: str, errno: int) -> None:
        super().__init__(text)
        self.errno = errno


class StoreLocked(DiskError):
    """Another process holds the lock of this directory; the text names it."""


# ------------------------------------------------------------------ time and chance


class Clock(Protocol):
    """Time in integer nanoseconds."""

    def mono_ns(self) -> int:
        """Monotonic time since an arbitrary start; never jumps, never stands still for long."""

    def wall_ns(self) -> int:
        """Time since the Unix epoch as this machine believes; may jump either way."""

    def utc_offset_ns(self) -> int:
        """How far this machine's local time is ahead of UTC now (log lines show local time)."""

    async def sleep_ns(self, duration_ns: int) -> None:
        """Wait at least `duration_ns` of monotonic time (a checkpoint even at 0)."""

    async def sleep_until_ns(self, deadline_ns: int) -> None:
        """Wait until `mono_ns() >= deadline_ns` (a checkpoint even when that is past)."""

    def deadline(self, deadline_ns: int) -> AbstractContextManager[trio.CancelScope]:
        """A cancel scope that ends at the monotonic time `deadline_ns`; `cancelled_caught` tells whether it did."""


class Chance(Protocol):
    """Randomness, split by label so that a new draw in one place does not shift another's."""

    def rng(self, label: str) -> random.Random:
        """A generator for decisions. The same label gives an independent sequence per call site owner; keep it."""

    def entropy(self, count: int) -> bytes:
        """`count` bytes for secrets, nonces and identities: the system's when live, seeded in simulation."""


# ------------------------------------------------------------------ network


@frozen
class TlsCertificate:
    """A certificate chain, leaf first, and the key of its leaf; both PEM."""

    chain: str
    key: str = attrs.field(repr=False)


@frozen
class TlsOptions:
    """How one side of TLS shows itself and what it demands of the other."""

    certificates: tuple[TlsCertificate, ...] = ()
    """At most one for each kind of key; a server needs one."""
    authorities: str = ""
    """PEM of whom to trust; empty: whom the system trusts."""
    verify: bool = False
    """Server: ask for a certificate and refuse without a valid one. Client: refuse an invalid server certificate."""
    version_min: str = "1.2"
    cipher_suites: tuple[str, ...] = ()
    """IANA names, for TLS 1.2; empty: the library's choice."""
    curves: tuple[str, ...] = ()
    """Names as OpenSSL has them; empty: the library's choice."""


class TlsContext(Protocol):
    """A loaded form of `TlsOptions`, for any number of connections. Made by `Network.tls_context`."""

    @property
    def server_side(self) -> bool: ...


@frozen
class TlsSession:
    """What a handshake came to."""

    version: str
    """ "1.2" or "1.3"."""
    cipher_suite: str
    peer_certificates: tuple[bytes, ...]
    """DER, leaf first; empty when the peer showed none. Before Python 3.13 the leaf alone."""


class Conn(Protocol):
    """One byte-stream connection (TCP-like: in order, nothing lost inside it). Owned by one task and the reactor."""

    @property
    def peer(self) -> Address: ...

    @property
    def local(self) -> Address: ...

    @property
    def tls(self) -> TlsSession | None:
        """None in plaintext."""

    def read_into(self, buffer: bytearray | memoryview) -> int | None:
        """Bytes read into the front of `buffer` (at least 1), 0 at end of stream, None when nothing waits.

        Raises ConnectionBroken.
        """

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Hand over as many bytes of `buffers`, in order, as fit now; returns how many (0: no room).

        Accepted bytes need no further keeping: the buffers may change afterwards. Raises ConnectionBroken.
        """

    async def wait_writable(self) -> None:
        """Return when `write` would accept at least one byte. Raises ConnectionBroken."""

    def close(self, *, reset: bool = False) -> None:
        """End the connection: orderly (what was accepted is still delivered), or at once with a reset.

        Idempotent. A task in `wait_writable` gets ConnectionBroken; a poller forgets the connection.
        """


class Listener(Protocol):
    """A listening address."""

    @property
    def address(self) -> Address:
        """The bound address with the real port."""

    def accept(self) -> Conn | None:
        """A new connection, or None when none waits. Raises OutOfDescriptors, NetworkError (this one only)."""

    def close(self) -> None:
        """Stop listening and reset what waits in the backlog. Idempotent."""


class Poller(Protocol):
    """Level-triggered readiness for reading, of many connections and listeners, awaited by one task.

    Data that the connection already holds (decrypted, or peeked) counts as readiness.
    """

    def add(self, source: Conn | Listener) -> None:
        """Watch `source`."""

    def remove(self, source: Conn | Listener) -> None:
        """Forget `source`; no error if it is not watched."""

    def pause(self, source: Conn | Listener) -> None:
        """Stop reporting `source` until `resume` (back-pressure: its bytes stay in the kernel)."""

    def resume(self, source: Conn | Listener) -> None:
        """Report `source` again; if data waits, the next `wait` returns it."""

    async def wait(self) -> list[Conn | Listener]:
        """The sources ready to read or accept, at least one, at most a few hundred, in a fair order.

        Also reports a source whose end of stream or error waits to be read. A checkpoint on every call.
        """

    def ready_nowait(self) -> list[Conn | Listener]:
        """Like `wait` but returns at once, perhaps with an empty list; no checkpoint. For bounded extra rounds."""

    def close(self) -> None: ...


class Network(Protocol):
    """Where connections come from."""

    async def listen(self, host: str, port: int, *, backlog: int = 1024) -> Listener:
        """Bind and listen; port 0 takes a free one. Raises NetworkError naming the address and the reason."""

    async def connect(self, host: str, port: int, *, timeout_ns: int) -> Conn:
        """Connect, resolving `host` if it is a name. Raises NetworkError (refused, unreachable, timed out)."""

    def tls_context(self, options: TlsOptions, *, server_side: bool) -> TlsContext:
        """Load certificates and keys. Takes milliseconds: at start or in `offload`. Raises TlsError, FeatureMissing."""

    async def start_tls(
        self, conn: Conn, context: TlsContext, *, server_name: str = "", received: Buffer = b"", timeout_ns: int
    ) -> Conn:
        """Shake hands over `conn`, which no poller watches; returns the encrypted connection that takes its place.

        `server_name` is what a client asks for and, if it verifies, holds the certificate against. `received` are
        bytes that the caller has read from `conn` already. On failure `conn` is closed. Raises TlsError,
        ConnectionBroken.
        """

    async def resolve(self, host: str) -> list[str]:
        """The numeric addresses of `host`, in the resolver's order. Raises NetworkError."""

    def poller(self) -> Poller:
        """A new poller, owned by the task that awaits it."""

    def interface_addresses(self) -> list[str]:
        """The numeric non-loopback addresses of this machine (what a wildcard listener advertises)."""


# ------------------------------------------------------------------ disk


class File(Protocol):
    """An open file. Offsets and sizes in bytes. Every call but `close` raises DiskError."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Current length, as readers see it."""

    def pwrite(self, buffers: Sequence[Buffer], offset: int) -> None:
        """Write all of `buffers` at `offset` into the page cache. Not durable before `sync`.

        On an error (ENOSPC, EIO) a prefix may have been written: treat the range as unknown.
        """

    def pread_cached(self, count: int, offset: int) -> bytes | None:
        """Up to `count` bytes at `offset` if the page cache answers at once, else None: then await `pread`.

        Fewer bytes than asked only at the end of the file. Never fails: `pread` says what is wrong.
        """

    async def pread(self, count: int, offset: int) -> bytes:
        """Up to `count` bytes at `offset`, fewer only at the end of the file."""

    async def preallocate(self, size: int) -> None:
        """Make the file `size` bytes long with blocks assigned and zero content, so that later syncs are cheap."""

    async def truncate(self, size: int) -> None: ...

    def begin_sync(self) -> Syncing:
        """Begin to make data and length durable (fdatasync), as they are now. Whoever begins it awaits its end, once.

        Syncs are carried out by one dedicated thread when live, in the order they were begun.
        """

    async def sync(self) -> None:
        """Begin a sync and await its end. After a failure the unsynced content must be taken as lost."""

    def close(self) -> None:
        """Close without syncing. Idempotent."""


class Syncing(Protocol):
    """A sync that is under way."""

    async def wait(self) -> None:
        """Return when it is done. Raises DiskError."""


class DirectoryLock(Protocol):
    """Held until `release` or the end of the process."""

    def release(self) -> None: ...


@frozen
class DirectoryEntry:
    """One name in a directory listing."""

    name: str
    is_directory: bool
    size: int


class Disk(Protocol):
    """Names and files. Paths are `/`-separated strings; a simulated disk is private to its node."""

    async def open(self, path: str, *, create: bool = False, exclusive: bool = False, readonly: bool = False) -> File:
        """Open a file for reading and writing. `create` makes it if missing, with `exclusive` it must be missing.

        A new name is durable only after `sync_dir` of its directory. Raises DiskError (ENOENT, EEXIST, EACCES, ...).
        """

    async def create_file(self, path: str, content: Sequence[Buffer]) -> File:
        """Make a file that holds `content` from its first moment under `path` on, and open it: temporary name, rename.

        What stands there is replaced. The content is durable after `sync`, the name after `sync_dir`. What fails
        leaves no temporary file if that can be helped. Live, all of it is one call of a worker.
        """

    async def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`; durable after `sync_dir`."""

    async def unlink(self, path: str) -> None: ...

    async def mkdir(self, path: str, *, parents: bool = False) -> None:
        """Make a directory; no error if it exists. Mode 0o750."""

    async def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    async def list(self, path: str) -> list[DirectoryEntry]:
        """Entries sorted by name. Raises DiskError (ENOENT, ENOTDIR)."""

    async def sync_dir(self, path: str) -> None:
        """Make names created, renamed and removed in `path` durable."""

    async def free_bytes(self, path: str) -> int:
        """Bytes a new file in `path` could still take."""

    async def lock(self, path: str) -> DirectoryLock:
        """Take the advisory lock file `path` so that a store serves one server. Raises StoreLocked."""

    async def read_file(self, path: str, *, bytes_max: int) -> bytes:
        """The whole content; DiskError (EFBIG) when larger than `bytes_max`."""

    async def write_file(self, path: str, data: Buffer, *, mode: int = 0o640) -> None:
        """Replace the content durably: temporary name, sync, rename, sync of the directory.

        What fails leaves the old content, and no temporary file if that can be helped.
        """


# ------------------------------------------------------------------ processor, process


class Processor(Protocol):
    """Work that would stall the reactor."""

    async def offload(self, work: Callable[[], T], *, kind: str = "work", cost_ns: int = 0) -> T:
        """Run `work` on a bounded pool of threads (live) or inline after `cost_ns` of virtual time (simulation).

        `kind` names a pool of its own bound ("login" for password hashing, "work" for all else); excess calls wait
        in line. `work` touches nothing that the reactor owns. Its exception is raised here. When the waiting task
        is cancelled, the result is dropped.
        """


class LogSink(Protocol):
    """Where finished log lines go."""

    def write(self, line: str) -> None:
        """Append one line (without newline). Never raises; what cannot be written is counted and dropped."""

    def reopen(self) -> None:
        """Open the file anew under its name (after an outside rotation)."""

    def close(self) -> None: ...


class SignalReceiver(Protocol):
    """Signals that arrived, in order."""

    async def next(self) -> str:
        """The name of the next signal: "INT", "TERM", "HUP", "USR1", "USR2"."""


class Process(Protocol):
    """The process this node is."""

    @property
    def argv(self) -> Sequence[str]: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def pid(self) -> int: ...

    @property
    def core_count(self) -> int: ...

    def signals(self) -> AbstractContextManager[SignalReceiver]:
        """Receive signals inside the context instead of dying of them."""

    def open_log(self, target: str, *, size_max: int = 0, backups_max: int = 0) -> LogSink:
        """`target` is "stderr" or a file path. With `size_max`, rotate to a dated name and keep `backups_max`.

        Raises DiskError when the file cannot be opened.
        """

    def read_text(self, path: str) -> str:
        """The whole of a small text file, at once: configuration. It blocks: only at start, or inside `offload`.

        Raises DiskError (also for what is not UTF-8).
        """

    def on_bug(self, exc: BaseException, where: str) -> None:
        """Report an exception that a bulkhead caught: logged with its trace when live, raised in simulation."""

    def memory_bytes(self) -> int:
        """Resident memory; 0 while it cannot be found out."""

    def memory_total_bytes(self) -> int:
        """What this machine (or its control group) has."""

    def cpu_time_ns(self) -> int:
        """Processor time used so far by this process."""

    def boot_id(self) -> str:
        """Changes when the machine lost power or rebooted since: unsynced data of an earlier boot may be gone."""


@frozen
class Runtime:
    """One node's world, handed to `tnats.server.compose.build` and from there inward."""

    clock: Clock
    chance: Chance
    network: Network
    disk: Disk
    processor: Processor
    process: Process
    buggify: Callable[[str], bool]
    """`buggify("name")` is False when live. In simulation a site is switched on for the run with 25 % chance and
    then fires with its own probability, to make rare branches common from inside the code."""
