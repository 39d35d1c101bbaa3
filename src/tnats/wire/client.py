"""The client protocol outside the hot loop: rules for arguments, encoding, and parsing what a server sends.

The server's own scan of PUB and its like is `broker/hot/publisher.py`; it falls back on the argument rules here. The
other direction (MSG, HMSG, INFO, ...) is read by `ServerParser`, for the client library and for tests.
"""

from __future__ import annotations

import enum

from tnats.limits import CLIENT_CONTROL_LINE_BYTES_MAX, CLIENT_PAYLOAD_BYTES_MAX, SIZE_DIGITS_MAX
from tnats.records import define
from tnats.wire.info import ServerInfo, parse_info

PING_LINE = b"PING\r\n"
PONG_LINE = b"PONG\r\n"
OK_LINE = b"+OK\r\n"

_CRLF = b"\r\n"


# Arguments of control lines (the bytes after the verb, without the line end)


def split_arguments(line: bytes) -> list[bytes]:
    """The arguments: separated by runs of space and tab. Any other byte belongs to one, a stray CR too."""
    return [one for one in line.replace(b"\t", b" ").split(b" ") if one]


def _split_loosely(line: bytes) -> list[bytes]:
    """The arguments of SUB and UNSUB, where a stray CR separates as well (as nats-server 2.15.1 has it)."""
    return split_arguments(line.replace(b"\r", b" "))


def parse_size(digits: bytes) -> int:
    """A byte count of one to nine decimal digits; -1 for anything else."""
    return int(digits) if len(digits) <= SIZE_DIGITS_MAX and digits.isdigit() else -1


def parse_pub_arguments(line: bytes) -> tuple[bytes, bytes, int] | None:
    """`<subject> [reply] <#bytes>` as subject, reply (empty for none) and size, or None: close."""
    arguments = split_arguments(line)
    if not 2 <= len(arguments) <= 3:
        return None
    size = parse_size(arguments[-1])
    return (arguments[0], arguments[1] if len(arguments) == 3 else b"", size) if size >= 0 else None


def parse_hpub_arguments(line: bytes) -> tuple[bytes, bytes, int, int] | None:
    """`<subject> [reply] <#header> <#total>` as subject, reply, header and total size, or None: close."""
    arguments = split_arguments(line)
    if not 3 <= len(arguments) <= 4:
        return None
    header_size, total_size = parse_size(arguments[-2]), parse_size(arguments[-1])
    if not 0 <= header_size <= total_size:
        return None
    return arguments[0], arguments[1] if len(arguments) == 4 else b"", header_size, total_size


def parse_sub_arguments(line: bytes) -> tuple[bytes, bytes | None, bytes] | None:
    """`<subject> [queue] <sid>` as subject, queue and sid, or None: close."""
    arguments = _split_loosely(line)
    if len(arguments) == 2:
        return arguments[0], None, arguments[1]
    if len(arguments) == 3:
        return arguments[0], arguments[1], arguments[2]
    return None


def parse_unsub_arguments(line: bytes) -> tuple[bytes, int] | None:
    """`<sid> [max]` as sid and limit, or None: close. 0 means at once; so does a limit that is no number."""
    arguments = _split_loosely(line)
    if len(arguments) == 1:
        return arguments[0], 0
    if len(arguments) == 2:
        return arguments[0], max(0, parse_size(arguments[1]))
    return None


# Encoding. Subjects, queues and sids hold no white space: the caller has checked.


def encode_pub(subject: bytes, payload: bytes, reply: bytes = b"", headers: bytes = b"") -> bytes:
    """PUB, or HPUB where there is a header block."""
    target = b"%b %b" % (subject, reply) if reply else subject
    if headers:
        total_size = len(headers) + len(payload)
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(headers), total_size, headers, payload)
    return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)


def encode_sub(subject: bytes, sid: bytes, queue: bytes = b"") -> bytes:
    """SUB, in a queue group or not."""
    return b"SUB %b %b %b\r\n" % (subject, queue, sid) if queue else b"SUB %b %b\r\n" % (subject, sid)


def encode_unsub(sid: bytes, messages_max: int = 0) -> bytes:
    """UNSUB at once, or after `messages_max` deliveries counted since SUB."""
    return b"UNSUB %b %d\r\n" % (sid, messages_max) if messages_max else b"UNSUB %b\r\n" % sid


# What a server sends


class Message:
    """MSG or HMSG. `reply` and `headers` (the raw block) are empty for none."""

    __slots__ = ("headers", "payload", "reply", "sid", "subject")

    def __init__(self, subject: bytes, sid: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self.subject = subject
        self.sid = sid
        self.reply = reply
        self.headers = headers
        self.payload = payload


class Signal(enum.Enum):
    """The messages without content."""

    PING = b"PING"
    PONG = b"PONG"
    OK = b"+OK"


@define
class ErrorReceived:
    """-ERR: its text without the quotes."""

    text: bytes


Operation = Message | ServerInfo | ErrorReceived | Signal

_SIGNALS = {signal.value: signal for signal in Signal}


class ServerParser:
    """Reads what a server sends, cut anywhere, and holds at most one unfinished message.

    A stream that breaks the protocol or a bound sets `fault` (one line, empty until then); what came whole before
    the fault is still handed out, everything after it is ignored.
    """

    __slots__ = ("_chunks", "_needed", "_waiting", "fault")

    def __init__(self) -> None:
        self.fault = ""
        self._chunks: list[bytes] = []
        self._waiting = 0
        # Bytes without which the unfinished message cannot be complete: below it, chunks are only collected.
        self._needed = 0

    def feed(self, data: bytes) -> list[Operation]:
        """The operations completed by `data`, in order."""
        if self.fault:
            return []
        self._chunks.append(data)
        self._waiting += len(data)
        if self._waiting < self._needed:
            return []
        buffer = data if len(self._chunks) == 1 else b"".join(self._chunks)
        operations: list[Operation] = []
        done = self._scan(buffer, operations)
        rest = buffer[done:]
        self._chunks = [rest] if rest and not self.fault else []
        self._waiting = len(rest)
        return operations

    def _scan(self, buffer: bytes, operations: list[Operation]) -> int:
        """Append the whole operations of `buffer`; return where the first unfinished one begins."""
        at = 0
        self._needed = 0
        find = buffer.find
        append = operations.append
        while True:
            end = find(_CRLF, at)
            if (end if end >= 0 else len(buffer)) - at > CLIENT_CONTROL_LINE_BYTES_MAX:
                self.fault = f"control line of more than {CLIENT_CONTROL_LINE_BYTES_MAX} bytes"
                return at
            if end < 0:
                return at
            arguments = buffer[at:end].split(b" ")
            verb = arguments[0]
            if verb == b"MSG":
                header_size = 0
            elif verb == b"HMSG" and len(arguments) > 4:
                header_size = parse_size(arguments.pop(-2))
            else:
                operation = _parse_line(buffer[at:end])
                if operation is None:
                    self.fault = f"unknown protocol operation {buffer[at : min(end, at + 32)]!r}"
                    return at
                append(operation)
                at = end + 2
                continue

            argument_count = len(arguments)
            total_size = parse_size(arguments[-1])
            if not 4 <= argument_count <= 5 or not 0 <= header_size <= total_size <= CLIENT_PAYLOAD_BYTES_MAX:
                self.fault = f"bad arguments in {buffer[at : min(end, at + 64)]!r}"
                return at
            start = end + 2
            body = start + header_size
            stop = start + total_size
            if len(buffer) < stop + 2:
                self._needed = stop + 2 - at
                return at
            if buffer[stop : stop + 2] != _CRLF:
                self.fault = f"no line end after the body of {buffer[at : min(end, at + 64)]!r}"
                return at
            reply = arguments[3] if argument_count == 5 else b""
            append(Message(arguments[1], arguments[2], reply, buffer[start:body], buffer[body:stop]))
            at = stop + 2


def _parse_line(line: bytes) -> Operation | None:
    """A message that is one line, or None if it is none."""
    signal = _SIGNALS.get(line)
    if signal is not None:
        return signal
    if line.startswith(b"INFO "):
        return parse_info(line[5:])
    if line.startswith(b"-ERR "):
        return ErrorReceived(line[5:].strip().removeprefix(b"'").removesuffix(b"'"))
    return None
