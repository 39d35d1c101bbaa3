"""Log lines in nats-server's format, and what may stand in them; pure.

A line is `[pid] 2026/11/29 20:00:00.123456 [INF] text`. The sink (stderr, file, syslog) belongs to the runtime; time
comes in as integer nanoseconds of local time.

Traced protocol never shows secrets: `redact_connect` takes passwords, tokens and signatures out of a CONNECT.
"""

from __future__ import annotations

import datetime
import enum
import re

from tnats.limits import SECOND_NS
from tnats.records import frozen

REDACTED = "[REDACTED]"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Level(enum.Enum):
    """Value: the label in the line."""

    INFO = "INF"
    DEBUG = "DBG"
    WARN = "WRN"
    ERROR = "ERR"
    FATAL = "FTL"
    TRACE = "TRC"


_COLORS = {
    Level.INFO: "32",
    Level.DEBUG: "36",
    Level.WARN: "0;93",
    Level.ERROR: "31",
    Level.FATAL: "31",
    Level.TRACE: "33",
}


@frozen
class LogFormat:
    """How lines look, and which are written at all."""

    pid: int | None = None
    """None: no pid in front (syslog adds its own)."""
    time: bool = True
    colors: bool = False
    debug: bool = False
    trace: bool = False

    def wants(self, level: Level) -> bool:
        if level is Level.DEBUG:
            return self.debug
        return self.trace if level is Level.TRACE else True

    def line(self, level: Level, text: str, local_ns: int) -> str:
        """One line, without newline, at `local_ns` (local time as nanoseconds since 1970).

        A text of several lines stays one line: line ends in it are escaped.
        """
        prefix = f"[{self.pid}] " if self.pid is not None else ""
        if self.time:
            prefix += format_time(local_ns) + " "
        label = f"\x1b[{_COLORS[level]}m{level.value}\x1b[0m" if self.colors else level.value
        if "\n" in text or "\r" in text:
            text = text.replace("\r", "\\r").replace("\n", "\\n")
        return f"{prefix}[{label}] {text}"


def format_time(local_ns: int) -> str:
    """`2026/11/29 20:00:00.123456` for nanoseconds since 1970."""
    seconds, rest_ns = divmod(local_ns, SECOND_NS)
    return f"{_EPOCH + datetime.timedelta(seconds=seconds):%Y/%m/%d %H:%M:%S}.{rest_ns // 1000:06d}"


# ------------------------------------------------------------------ tracing

_SECRET_VALUE = re.compile(
    rb'((?<![A-Za-z0-9_])"?(?:auth_token\w*|pass\w*|sig|nkey|proxy_sig|jwt)"?\s*[:=]\s*)("(?:[^"\\]|\\.)*"?|[^,}\s]*)',
    re.IGNORECASE | re.DOTALL,
)


def redact_connect(connect: bytes) -> bytes:
    """The JSON of a CONNECT with every secret value replaced by "[REDACTED]", complete or not, valid or not.

    Covers `auth_token`, every key that begins with `pass`, `sig`, `nkey`, `proxy_sig`, and `jwt` (a bearer token is
    a secret too; nats-server shows it).
    """
    return _SECRET_VALUE.sub(rb'\1"[REDACTED]"', connect)


def traced_operation(operation: str, arguments: bytes, *, outbound: bool) -> str:
    """The trace line of one protocol operation: `<<- [SUB foo 1]` in, `->> [PONG]` out."""
    if operation == "CONNECT":
        arguments = redact_connect(arguments)
    elif operation == "-ERR":
        arguments = arguments.removeprefix(b"'").removesuffix(b"'")
    shown = _printable(arguments)
    return f"{'->>' if outbound else '<<-'} [{operation.removeprefix('+')}{' ' if shown else ''}{shown}]"


def traced_payload(payload: bytes, max_traced_msg_len: int, *, outbound: bool) -> str:
    """The trace line of a message's payload, cut to `max_traced_msg_len` bytes (0: whole)."""
    cut = payload if max_traced_msg_len <= 0 else payload[:max_traced_msg_len]
    dots = "..." if len(cut) < len(payload) else ""
    shown = _printable(cut.replace(b"\\", b"\\\\").replace(b'"', b'\\"'))
    return f'{"->>" if outbound else "<<-"} MSG_PAYLOAD: ["{shown}{dots}"]'


def traced_end(sid: bytes) -> str:
    """The trace line of a subscription that ends, for whatever reason."""
    return f"<-> [DELSUB {_printable(sid)}]"


def _printable(payload: bytes) -> str:
    """Control codes and bytes that are no UTF-8 escaped as in Go's %q, so that nobody writes to a terminal by them."""
    text = payload.decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
