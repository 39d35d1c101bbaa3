"""The server's log: what is written, where to, and how it looks. Lines are made by `tnats.server.log_lines`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tnats.runtime.api import DiskError, LogSink, Runtime
from tnats.server.config.options import Options
from tnats.server.log_lines import Level, LogFormat

STDERR = "stderr"


class ServerLog:
    """One server's log. A `tnats.broker.ports.Log`."""

    def __init__(self, runtime: Runtime, options: Options, *, colors: bool) -> None:
        """Opens the log the options ask for; `colors` are for standard error. Raises DiskError when it has no file."""
        self._runtime = runtime
        self._colors = colors
        self._use(options, self._open(options))

    @contextmanager
    def changing_to(self, options: Options) -> Iterator[None]:
        """Write as `options` ask from the end of the block on, unless it raises.

        Raises DiskError, before the block is entered, when their file cannot be opened.
        """
        sink = self._open(options)
        try:
            yield
        except BaseException:
            sink.close()
            raise
        self._sink.close()
        self._use(options, sink)

    def _open(self, options: Options) -> LogSink:
        # nats-server's number counts the file that is written to; one backup is kept at the least.
        backups_max = max(1, options.logfile_max_num - 1) if options.logfile_max_num > 0 else 0
        return self._runtime.process.open_log(
            options.log_file or STDERR, size_max=options.logfile_size_limit, backups_max=backups_max
        )

    def _use(self, options: Options, sink: LogSink) -> None:
        self._sink = sink
        self._utc = options.logtime_utc
        self.has_file = bool(options.log_file)
        self._format = LogFormat(
            pid=self._runtime.process.pid,
            time=options.logtime,
            colors=self._colors and not self.has_file,
            debug=options.debug,
            trace=options.trace,
        )

    @property
    def traces(self) -> bool:
        """Whether the protocol is to be traced."""
        return self._format.trace

    def debug(self, text: str) -> None:
        self._write(Level.DEBUG, text)

    def trace(self, text: str) -> None:
        self._write(Level.TRACE, text)

    def info(self, text: str) -> None:
        self._write(Level.INFO, text)

    def warn(self, text: str) -> None:
        self._write(Level.WARN, text)

    def error(self, text: str) -> None:
        self._write(Level.ERROR, text)

    def fatal(self, text: str) -> None:
        self._write(Level.FATAL, text)

    def reopen(self) -> None:
        """Open the file anew, after somebody moved it away; write on to the old one where that cannot be done."""
        if not self.has_file:
            self.info("File log re-open ignored, not a file logger")
            return
        try:
            self._sink.reopen()
        except DiskError as error:
            self.error(f"File log not re-opened: {error}")
        else:
            self.info("File log re-opened")

    def close(self) -> None:
        self._sink.close()

    def _write(self, level: Level, text: str) -> None:
        if not self._format.wants(level):
            return
        clock = self._runtime.clock
        local_ns = clock.wall_ns() + (0 if self._utc else clock.utc_offset_ns())
        self._sink.write(self._format.line(level, text, local_ns))
