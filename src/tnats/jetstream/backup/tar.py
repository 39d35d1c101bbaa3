"""Takes a tar archive apart that comes in pieces: names and contents of its files (POSIX.1-2001, ustar and pax)."""

from __future__ import annotations

from collections.abc import Iterator

from tnats.jetstream.backup.contents import BadArchive

BLOCK = 512
_REGULAR, _PAX, _PAX_GLOBAL = (b"0", b"\0"), b"x", b"g"


class TarReader:
    """Holds at most one file. What is neither a file nor a directory is refused."""

    def __init__(self, file_bytes_max: int) -> None:
        self._held = bytearray()
        self._file_bytes_max = file_bytes_max
        self._long_name = ""
        self._is_behind_end = False

    @property
    def is_complete(self) -> bool:
        """The end of the archive was read."""
        return self._is_behind_end

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """The files that are complete with `data`. Raises BadArchive."""
        if self._is_behind_end:
            return  # padding
        held = self._held
        held += data
        at = 0
        while len(held) - at >= BLOCK:
            head = bytes(held[at : at + BLOCK])
            if not any(head):
                self._is_behind_end = True
                break
            size = _size_of(head)
            if size > self._file_bytes_max:
                raise BadArchive(f"a file of {size} bytes is too large")
            end = at + BLOCK + size
            padded_end = at + BLOCK + (size + BLOCK - 1) // BLOCK * BLOCK
            if len(held) < padded_end:
                break
            body = bytes(held[at + BLOCK : end])
            at = padded_end
            kind = head[156:157]
            if kind == _PAX:
                self._long_name = _path_in(body)
            elif kind in _REGULAR:
                name, self._long_name = self._long_name or _name_of(head), ""
                yield name, body
            elif kind not in (_PAX_GLOBAL, b"5"):
                raise BadArchive(f"{_name_of(head)[:64]!r} is no file")
        del held[:at]


def _size_of(head: bytes) -> int:
    total = sum(head[:148]) + 8 * ord(" ") + sum(head[156:])
    try:
        if int(head[148:156].strip(b" \0") or b"0", 8) != total:
            raise BadArchive("a file's head is damaged")
        return int(head[124:136].strip(b" \0") or b"0", 8)
    except ValueError:
        raise BadArchive("a file's head is damaged") from None


def _name_of(head: bytes) -> str:
    name = head[:100].split(b"\0", 1)[0]
    prefix = head[345:500].split(b"\0", 1)[0] if head[257:262] == b"ustar" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "replace")


def _path_in(body: bytes) -> str:
    """The path that a pax header gives, empty if none: lines of "<length> <key>=<value>"."""
    at = 0
    while at < len(body):
        size, _, _ = body[at:].partition(b" ")
        if not size.isdigit() or int(size) <= len(size):
            raise BadArchive("an extended head is damaged")
        key, _, value = body[at + len(size) + 1 : at + int(size) - 1].partition(b"=")
        if key == b"path":
            return value.decode("utf-8", "replace")
        at += int(size)
    return ""
