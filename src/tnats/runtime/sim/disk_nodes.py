"""What a simulated disk is made of: files, directories, and operations that have not reached the medium.

A node has two contents: *cached*, what programs see, and *durable*, what the medium holds. It carries the token of the
image that may change it in place (`owner`, see `disk_image`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tnats.records import frozen

PAGE_SIZE = 4096
ZERO_PAGE = bytes(PAGE_SIZE)


# ------------------------------------------------------------------ pending operations


@frozen
class Write:
    node: int
    offset: int
    data: bytes


@frozen
class Resize:
    node: int
    size: int


@frozen
class NameChange:
    """Removals, then additions, of (directory, name, node): create, remove and rename alike; atomic."""

    removed: tuple[tuple[int, str], ...]
    added: tuple[tuple[int, str, int], ...]

    def places(self) -> Iterator[tuple[int, str]]:
        yield from self.removed
        for directory, name, _ in self.added:
            yield directory, name


Operation = Write | Resize | NameChange


# ------------------------------------------------------------------ nodes


class Content:
    """Bytes of a file as pages; a missing page is zero."""

    __slots__ = ("pages", "size")

    def __init__(self, pages: dict[int, bytes], size: int) -> None:
        self.pages = pages
        self.size = size

    def copy(self) -> Content:
        return Content(dict(self.pages), self.size)

    def read(self, count: int, offset: int) -> bytes:
        end = min(offset + count, self.size)
        if offset >= end:
            return b""
        first, last = offset // PAGE_SIZE, (end - 1) // PAGE_SIZE
        pages = [self.pages.get(index, ZERO_PAGE) for index in range(first, last + 1)]
        start = offset - first * PAGE_SIZE
        return (pages[0] if len(pages) == 1 else b"".join(pages))[start : start + end - offset]

    def write(self, data: bytes, offset: int) -> None:
        position, end = offset, offset + len(data)
        while position < end:
            index, start = divmod(position, PAGE_SIZE)
            count = min(PAGE_SIZE - start, end - position)
            piece = data[position - offset : position - offset + count]
            if count < PAGE_SIZE:
                page = self.pages.get(index, ZERO_PAGE)
                piece = page[:start] + piece + page[start + count :]
            self.pages[index] = piece
            position += count
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        if size < self.size:
            last, start = divmod(size, PAGE_SIZE)
            for index in [index for index in self.pages if index > last or (index == last and start == 0)]:
                del self.pages[index]
            if last in self.pages:
                self.pages[last] = self.pages[last][:start] + bytes(PAGE_SIZE - start)
        self.size = size


class FileNode:
    __slots__ = ("cached", "durable", "owner")

    def __init__(self, owner: object, cached: Content, durable: Content) -> None:
        self.owner = owner
        self.cached = cached
        self.durable = durable

    def copy(self, owner: object) -> FileNode:
        return FileNode(owner, self.cached.copy(), self.durable.copy())


class DirectoryNode:
    __slots__ = ("cached", "durable", "owner")

    def __init__(self, owner: object, cached: dict[str, int], durable: dict[str, int]) -> None:
        self.owner = owner
        self.cached = cached
        self.durable = durable

    def copy(self, owner: object) -> DirectoryNode:
        return DirectoryNode(owner, dict(self.cached), dict(self.durable))


Node = FileNode | DirectoryNode
