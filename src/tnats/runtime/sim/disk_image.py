"""The content of a simulated disk: what has reached the medium, what only the page cache holds, and what a crash keeps.

Rules
-----
* Every file and directory is a node with a cached and a durable content (`disk_nodes`). Each change is made to the
  cached one and noted as a pending operation.
* `sync_file` makes the pending writes and lengths of one file durable, `sync_directory` the pending names of one
  directory. These calls, and the order of operations on one name and on one length, are the only
  happens-before edges: POSIX promises nothing else. Syncing a file does not make its name durable.
* `crash` builds a new medium from the durable content plus those pending operations that the policy keeps, and then
  throws the cache away. The process alone dying needs no call: the page cache survives.
* `clone` is O(1): nodes and tables carry the token of the image that may change them in place; a clone gives both
  images new tokens, and whoever changes a thing first copies it. Page contents are immutable bytes.

Damage at rest (`overwrite`, `cut`, `swap`, `duplicate`) changes medium and cache alike, unless the cache is to keep
hiding it.
"""

from __future__ import annotations

import enum
import errno
import random
from collections.abc import Iterable, Iterator, Mapping

from tnats.runtime.sim.disk_nodes import (
    PAGE_SIZE,
    Content,
    DirectoryNode,
    FileNode,
    NameChange,
    Node,
    Operation,
    Resize,
    Write,
)

SECTOR_SIZE = 512
ROOT = 1


class CrashPolicy(enum.Enum):
    """What of the operations that were not yet durable survives a power loss."""

    LAZYFS = "lazyfs"
    """No data that was not synced; all names (so files of length zero may stand there)."""
    STRICT = "strict"
    """Neither data nor names that were not synced."""
    PREFIX = "prefix"
    """A drawn prefix of the operations in the order they were made."""
    SUBSET = "subset"
    """Any set of operations that is closed under the happens-before edges."""
    TORN = "torn"
    """As SUBSET, and each surviving write keeps only drawn units of 512 or 4096 bytes."""
    LENGTH = "length"
    """All names and lengths, but content that was not synced is zero or stale."""
    NAMES = "names"
    """All data, but no names that were not synced."""
    ALL = "all"
    """Everything."""


class ImageError(Exception):
    """What the file system answers; `code` is an errno."""

    def __init__(self, code: int) -> None:
        super().__init__(errno.errorcode[code])
        self.code = code


def refuse(code: int) -> ImageError:
    return ImageError(code)


class DiskImage:
    """One disk's nodes and pending operations. All calls are plain and take effect at once."""

    def __init__(self) -> None:
        self._token = object()
        self._shared = False
        self._nodes: dict[int, Node] = {ROOT: DirectoryNode(self._token, {}, {})}
        self._pending: dict[int, Operation] = {}
        self._unnamed: dict[int, None] = {}
        """Files whose last name went, durably: kept for those who have them open."""
        self._next_node = ROOT + 1
        self._next_operation = 0
        self._used_bytes = 0

    def clone(self) -> DiskImage:
        """An independent copy; O(1) now, each thing copied when one of the two changes it."""
        other = DiskImage.__new__(DiskImage)
        other._token = object()
        self._token = object()
        self._shared = other._shared = True
        other._nodes = self._nodes
        other._pending = self._pending
        other._unnamed = self._unnamed
        other._next_node = self._next_node
        other._next_operation = self._next_operation
        other._used_bytes = self._used_bytes
        return other

    def _unshare(self) -> None:
        if self._shared:
            self._nodes = dict(self._nodes)
            self._pending = dict(self._pending)
            self._unnamed = dict(self._unnamed)
            self._shared = False

    def _changeable(self, number: int) -> Node:
        self._unshare()
        node = self._nodes[number]
        if node.owner is not self._token:
            node = self._nodes[number] = node.copy(self._token)
        return node

    def _changeable_file(self, number: int) -> FileNode:
        node = self._changeable(number)
        assert isinstance(node, FileNode)
        return node

    def _changeable_directory(self, number: int) -> DirectoryNode:
        node = self._changeable(number)
        assert isinstance(node, DirectoryNode)
        return node

    def _note(self, operation: Operation) -> None:
        self._unshare()
        self._pending[self._next_operation] = operation
        self._next_operation += 1

    @property
    def operation_count(self) -> int:
        """How many operations were made so far: the bound to pass to `sync_file` for "what is there now"."""
        return self._next_operation

    @property
    def used_bytes(self) -> int:
        """Sum of the lengths of all files that have a name."""
        return self._used_bytes

    # -------------------------------------------------------------- names

    def split(self, path: str) -> tuple[int, str]:
        """Directory node and last name of `path`. Raises ENOENT, ENOTDIR."""
        parts = [part for part in path.split("/") if part]
        if not parts:
            raise refuse(errno.EINVAL)
        number = ROOT
        for part in parts[:-1]:
            number = self._child(number, part)
        if not isinstance(self._nodes[number], DirectoryNode):
            raise refuse(errno.ENOTDIR)
        return number, parts[-1]

    def _child(self, number: int, name: str) -> int:
        node = self._nodes[number]
        if not isinstance(node, DirectoryNode):
            raise refuse(errno.ENOTDIR)
        if name not in node.cached:
            raise refuse(errno.ENOENT)
        return node.cached[name]

    def directory(self, path: str) -> int:
        """The node of directory `path`. Raises ENOENT, ENOTDIR."""
        if not path.strip("/"):
            return ROOT
        parent, name = self.split(path)
        number = self._child(parent, name)
        if not isinstance(self._nodes[number], DirectoryNode):
            raise refuse(errno.ENOTDIR)
        return number

    def file(self, path: str) -> int:
        """The node of file `path`. Raises ENOENT, EISDIR, ENOTDIR."""
        parent, name = self.split(path)
        number = self._child(parent, name)
        if not isinstance(self._nodes[number], FileNode):
            raise refuse(errno.EISDIR)
        return number

    def is_file(self, path: str) -> bool:
        """Whether `path` names a file."""
        try:
            self.file(path)
        except ImageError:
            return False
        return True

    def require_directory(self, path: str) -> None:
        """Raises EEXIST unless `path` is a directory."""
        parent, name = self.split(path)
        if not isinstance(self._nodes[self._child(parent, name)], DirectoryNode):
            raise refuse(errno.EEXIST)

    def entries(self, path: str) -> list[tuple[str, bool, int]]:
        """(name, is a directory, size) of what stands in directory `path`, by name."""
        node = self._nodes[self.directory(path)]
        assert isinstance(node, DirectoryNode)
        found = []
        for name, number in sorted(node.cached.items()):
            child = self._nodes[number]
            is_file = isinstance(child, FileNode)
            found.append((name, not is_file, child.cached.size if isinstance(child, FileNode) else 0))
        return found

    def walk(self, path: str = "/") -> Iterator[str]:
        """The paths of all files beneath `path`, in order."""
        base = path.rstrip("/")
        for name, is_directory, _ in self.entries(path):
            if is_directory:
                yield from self.walk(f"{base}/{name}")
            else:
                yield f"{base}/{name}"

    def _change_names(self, change: NameChange) -> None:
        for directory, name in change.removed:
            removed = self._nodes[self._changeable_directory(directory).cached.pop(name)]
            if isinstance(removed, FileNode):
                self._used_bytes -= removed.cached.size
        for directory, name, number in change.added:
            self._changeable_directory(directory).cached[name] = number
            added = self._nodes[number]
            if isinstance(added, FileNode):
                self._used_bytes += added.cached.size
        self._note(change)

    def create(self, path: str) -> int:
        """Make an empty file. Raises EEXIST."""
        directory, name = self.split(path)
        parent = self._nodes[directory]
        if isinstance(parent, DirectoryNode) and name in parent.cached:
            raise refuse(errno.EEXIST)
        return self._add(directory, name, FileNode(self._token, Content({}, 0), Content({}, 0)))

    def make_directory(self, path: str) -> int:
        """Make a directory. Raises EEXIST."""
        directory, name = self.split(path)
        parent = self._nodes[directory]
        if isinstance(parent, DirectoryNode) and name in parent.cached:
            raise refuse(errno.EEXIST)
        return self._add(directory, name, DirectoryNode(self._token, {}, {}))

    def _add(self, directory: int, name: str, node: Node) -> int:
        self._unshare()
        number = self._next_node
        self._next_node += 1
        self._nodes[number] = node
        self._change_names(NameChange((), ((directory, name, number),)))
        return number

    def remove(self, path: str) -> None:
        """Remove the name of a file; who has it open keeps its content."""
        directory, name = self.split(path)
        if not isinstance(self._nodes[self._child(directory, name)], FileNode):
            raise refuse(errno.EISDIR)
        self._change_names(NameChange(((directory, name),), ()))

    def remove_directory(self, path: str) -> None:
        directory, name = self.split(path)
        node = self._nodes[self._child(directory, name)]
        if not isinstance(node, DirectoryNode):
            raise refuse(errno.ENOTDIR)
        if node.cached:
            raise refuse(errno.ENOTEMPTY)
        self._change_names(NameChange(((directory, name),), ()))

    def rename(self, source: str, target: str) -> None:
        """Atomically give the node `source` the name `target`, replacing a file or an empty directory there."""
        source_directory, source_name = self.split(source)
        number = self._child(source_directory, source_name)
        directory, name = self.split(target)
        parent = self._nodes[directory]
        assert isinstance(parent, DirectoryNode)
        removed = [(source_directory, source_name)]
        replaced = parent.cached.get(name)
        if replaced == number:
            return
        if replaced is not None:
            old, new = self._nodes[replaced], self._nodes[number]
            if isinstance(old, DirectoryNode):
                if isinstance(new, FileNode):
                    raise refuse(errno.EISDIR)
                if old.cached:
                    raise refuse(errno.ENOTEMPTY)
            elif isinstance(new, DirectoryNode):
                raise refuse(errno.ENOTDIR)
            removed.append((directory, name))
        self._change_names(NameChange(tuple(removed), ((directory, name, number),)))

    # -------------------------------------------------------------- content

    def size(self, number: int) -> int:
        node = self._nodes[number]
        assert isinstance(node, FileNode)
        return node.cached.size

    def read(self, number: int, count: int, offset: int) -> bytes:
        node = self._nodes[number]
        assert isinstance(node, FileNode)
        return node.cached.read(count, offset)

    def write(self, number: int, data: bytes, offset: int) -> None:
        if not data:
            return
        node = self._changeable_file(number)
        self._used_bytes += max(0, offset + len(data) - node.cached.size)
        node.cached.write(data, offset)
        self._note(Write(number, offset, data))

    def resize(self, number: int, size: int) -> None:
        node = self._changeable_file(number)
        self._used_bytes += size - node.cached.size
        node.cached.resize(size)
        self._note(Resize(number, size))

    # -------------------------------------------------------------- durability

    def sync_file(self, number: int, before: int | None = None) -> None:
        """Make the pending content and length of a file durable: the operations numbered below `before`."""
        self._settle(self._content_operations(number, before))

    def sync_directory(self, number: int, before: int | None = None) -> None:
        """Make the pending names of a directory durable, with the earlier operations on the same names."""
        bound = self._next_operation if before is None else before
        wanted: set[tuple[int, str]] = set()
        chosen = []
        for index, operation in reversed(self._pending.items()):
            if index >= bound or not isinstance(operation, NameChange):
                continue
            places = list(operation.places())
            if any(place in wanted or place[0] == number for place in places):
                wanted.update(places)
                chosen.append(index)
        self._settle(reversed(chosen))

    def forget_content(self, number: int, before: int | None = None) -> None:
        """Take the pending content of a file for clean without having written it: it never becomes durable."""
        doomed = self._content_operations(number, before)
        self._unshare()
        for index in doomed:
            del self._pending[index]

    def has_pending(self, number: int) -> bool:
        """Whether a file has content or length that is not durable."""
        return bool(self._content_operations(number, None))

    def _content_operations(self, number: int, before: int | None) -> list[int]:
        bound = self._next_operation if before is None else before
        return [
            index
            for index, operation in self._pending.items()
            if not isinstance(operation, NameChange) and operation.node == number and index < bound
        ]

    def _settle(self, indexes: Iterable[int]) -> None:
        self._unshare()
        for index in indexes:
            self._make_durable(self._pending.pop(index))

    def _make_durable(self, operation: Operation) -> None:
        if isinstance(operation, Write):
            self._changeable_file(operation.node).durable.write(operation.data, operation.offset)
        elif isinstance(operation, Resize):
            self._changeable_file(operation.node).durable.resize(operation.size)
        else:
            gone: dict[int, None] = {}
            for directory, name in operation.removed:
                number = self._changeable_directory(directory).durable.pop(name, None)
                if number is not None and isinstance(self._nodes.get(number), FileNode):
                    gone[number] = None
            for directory, name, number in operation.added:
                self._changeable_directory(directory).durable[name] = number
                gone.pop(number, None)
            self._unnamed.update(gone)

    def forget_unnamed(self, opened: Mapping[int, int]) -> None:
        """Free the files without a name that nobody has open (`opened`: how often, by node)."""
        doomed = [number for number in self._unnamed if not opened.get(number)]
        if doomed:
            self._unshare()
            for number in doomed:
                del self._unnamed[number]
                self._nodes.pop(number, None)
            self._pending = {
                index: operation
                for index, operation in self._pending.items()
                if isinstance(operation, NameChange) or operation.node in self._nodes
            }

    # -------------------------------------------------------------- crash

    def crash(self, policy: CrashPolicy, rng: random.Random) -> None:
        """Lose power: the medium keeps what is durable plus what `policy` spares; the cache is gone."""
        self._unshare()
        pending, self._pending = self._pending, {}
        if policy is CrashPolicy.LENGTH:
            self._keep_lengths(pending, rng)
        else:
            for index in _surviving(policy, pending, rng):
                for operation in _torn(pending[index], rng) if policy is CrashPolicy.TORN else (pending[index],):
                    self._make_durable(operation)
        self._drop_cache()

    def _keep_lengths(self, pending: dict[int, Operation], rng: random.Random) -> None:
        for operation in pending.values():
            if isinstance(operation, Write):
                durable = self._changeable_file(operation.node).durable
                grown = operation.offset + len(operation.data) - durable.size
                if grown > 0:
                    self._make_durable(Write(operation.node, durable.size, self._stale_bytes(grown, rng)))
            else:
                self._make_durable(operation)

    def _stale_bytes(self, count: int, rng: random.Random) -> bytes:
        """What an unwritten block shows: zeros, or an old block of some other file."""
        if rng.random() < 0.5:
            return bytes(count)
        numbers = [n for n, node in self._nodes.items() if isinstance(node, FileNode) and node.durable.pages]
        if not numbers:
            return bytes(count)
        node = self._nodes[rng.choice(numbers)]
        assert isinstance(node, FileNode)
        page = node.durable.pages[rng.choice(list(node.durable.pages))]
        return (page * (count // PAGE_SIZE + 1))[:count]

    def _drop_cache(self) -> None:
        """Start again from the medium: only nodes that a durable name reaches remain."""
        reached: dict[int, Node] = {}
        used = 0
        queue = [ROOT]
        while queue:
            number = queue.pop()
            if number in reached:
                continue
            node = self._nodes[number]
            if isinstance(node, DirectoryNode):
                reached[number] = DirectoryNode(self._token, dict(node.durable), dict(node.durable))
                queue.extend(node.durable.values())
            else:
                reached[number] = FileNode(self._token, node.durable.copy(), node.durable.copy())
                used += node.durable.size
        self._nodes = reached
        self._unnamed = {}
        self._used_bytes = used

    # -------------------------------------------------------------- damage at rest

    def overwrite(self, path: str, data: bytes, offset: int, *, cached: bool = True) -> None:
        """Change bytes on the medium behind everybody's back, inside the present length; `cached`: visible at once."""
        node = self._changeable_file(self.file(path))
        for content in (node.durable, node.cached) if cached else (node.durable,):
            piece = data[: max(0, content.size - offset)]
            if piece:
                content.write(piece, offset)

    def cut(self, path: str, size: int) -> None:
        """Shorten a file on the medium behind everybody's back."""
        node = self._changeable_file(self.file(path))
        before = node.cached.size
        for content in (node.durable, node.cached):
            content.resize(min(size, content.size))
        self._used_bytes += node.cached.size - before

    def swap(self, path: str, other: str) -> None:
        """Exchange two files on the medium; names under way are settled first."""
        for place in (path, other):
            self.sync_directory(self.split(place)[0])
        places = [self.split(path), self.split(other)]
        numbers = [self.file(other), self.file(path)]
        for (directory, name), number in zip(places, numbers, strict=True):
            node = self._changeable_directory(directory)
            node.cached[name] = node.durable[name] = number

    def duplicate(self, path: str, target: str) -> None:
        """Put a durable copy of a file under another name, replacing what stands there; names under way are settled."""
        original = self._nodes[self.file(path)]
        assert isinstance(original, FileNode)
        directory, name = self.split(target)
        # A change of that name made before the copy must not reach the medium after it: it would take the copy away.
        self.sync_directory(directory)
        parent = self._changeable_directory(directory)
        if name in parent.cached:
            self._used_bytes -= self.size(parent.cached[name])
        number = self._next_node
        self._next_node += 1
        self._nodes[number] = FileNode(self._token, original.cached.copy(), original.cached.copy())
        parent.cached[name] = parent.durable[name] = number
        self._used_bytes += original.cached.size

    def content(self, path: str) -> bytes:
        """What a program would read from `path`."""
        number = self.file(path)
        return self.read(number, self.size(number), 0)


def _surviving(policy: CrashPolicy, pending: dict[int, Operation], rng: random.Random) -> list[int]:
    if policy is CrashPolicy.ALL:
        return list(pending)
    if policy is CrashPolicy.STRICT:
        return []
    if policy is CrashPolicy.LAZYFS:
        return [index for index, operation in pending.items() if isinstance(operation, NameChange)]
    if policy is CrashPolicy.NAMES:
        return [index for index, operation in pending.items() if not isinstance(operation, NameChange)]
    if policy is CrashPolicy.PREFIX:
        return list(pending)[: rng.randint(0, len(pending))]
    lost_places: set[tuple[int, str]] = set()
    lost_lengths: set[int] = set()
    kept = []
    chance = rng.choice((0.1, 0.5, 0.9))
    for index, operation in pending.items():
        keep = rng.random() < chance
        if isinstance(operation, NameChange):
            if keep and not any(place in lost_places for place in operation.places()):
                kept.append(index)
            else:
                lost_places.update(operation.places())
        elif isinstance(operation, Resize):
            if keep and operation.node not in lost_lengths:
                kept.append(index)
            else:
                lost_lengths.add(operation.node)
        elif keep:
            kept.append(index)
    return kept


def _torn(operation: Operation, rng: random.Random) -> list[Operation]:
    """The parts of a surviving write that reached the medium."""
    if not isinstance(operation, Write):
        return [operation]
    unit = rng.choice((SECTOR_SIZE, PAGE_SIZE))
    parts: list[Operation] = []
    position, end = operation.offset, operation.offset + len(operation.data)
    while position < end:
        stop = min(position - position % unit + unit, end)
        if rng.random() < 0.5:
            start = position - operation.offset
            parts.append(Write(operation.node, position, operation.data[start : start + stop - position]))
        position = stop
    return parts
