"""The subscriptions of one account, found by published subject.

Theory of operation. Two indexes. A subscription to a literal subject sits in a dict under that subject: most
subscriptions are literal, and this costs one lookup and a few hundred bytes each. One to a pattern sits in a
trie with a level per token; a level has its literal children, one child for `*`, and one leaf for a final `>`.
A match walks the trie level by level along the tokens of the subject, holding every node still possible, and
adds the literal entry. Results are not kept here: who asks often for the same subjects keeps what it makes of
them (`broker.plan_table`, `jetstream.stream.interest`). A change of a literal subscription alters the result of that
one subject alone.

Queue groups of the same name under different patterns are one group: `orders.*` and `orders.new` of queue `q`
share their messages.

A subscription is any object with `subject` and `queue`; it is compared by identity, and neither field changes
while it is inside. Order is that of insertion within a pattern, patterns in trie order, literals last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from tnats.subjects.tokens import STAR, TAIL, has_wildcard, subjects_overlap

_SMALL_MEMBERS_MAX = 16
"""Up to this many members are a tuple (48 bytes for one), beyond it a dict (removal in constant time)."""


class Subscription(Protocol):
    """What a sublist needs to know of a subscription."""

    @property
    def subject(self) -> bytes:
        """A valid pattern (`tokens.is_valid_pattern`)."""

    @property
    def queue(self) -> bytes | None:
        """The queue group, or None for a plain subscription."""


S = TypeVar("S", bound=Subscription)

_Members = tuple[S, ...] | dict[S, None]


class Matches(Generic[S]):
    """Result of a match."""

    __slots__ = ("plain", "queues")

    def __init__(self, plain: list[S], queues: dict[bytes, list[S]]) -> None:
        self.plain = plain
        self.queues = queues

    def __bool__(self) -> bool:
        return bool(self.plain or self.queues)


class _Leaf(Generic[S]):
    """The subscriptions to one subject or pattern."""

    __slots__ = ("plain", "queues")

    def __init__(self) -> None:
        self.plain: _Members[S] = ()
        self.queues: dict[bytes, _Members[S]] | None = None

    def add(self, sub: S) -> None:
        queue = sub.queue
        if queue is None:
            self.plain = _added(self.plain, sub)
            return
        if self.queues is None:
            self.queues = {}
        self.queues[queue] = _added(self.queues.get(queue, ()), sub)

    def discard(self, sub: S) -> bool:
        """Take `sub` out; whether it was in."""
        queue = sub.queue
        if queue is None:
            if not _contains(self.plain, sub):
                return False
            self.plain = _removed(self.plain, sub)
            return True
        members = self.queues.get(queue, ()) if self.queues is not None else ()
        if self.queues is None or not _contains(members, sub):
            return False
        members = _removed(members, sub)
        if members:
            self.queues[queue] = members
        else:
            del self.queues[queue]
            self.queues = self.queues or None
        return True

    def is_empty(self) -> bool:
        return not self.plain and self.queues is None

    def subscriptions(self) -> Iterator[S]:
        yield from self.plain
        if self.queues is not None:
            for members in self.queues.values():
                yield from members


class _Node(Generic[S]):
    """One level of the trie: what follows the tokens that lead here."""

    __slots__ = ("children", "end", "star", "tail")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[S]] | None = None
        self.star: _Node[S] | None = None
        self.end: _Leaf[S] | None = None
        self.tail: _Leaf[S] | None = None

    def is_empty(self) -> bool:
        return self.end is None and self.tail is None and self.star is None and not self.children


class Sublist(Generic[S]):
    """See the module's text. Not thread-safe, never awaits."""

    def __init__(self) -> None:
        self.literals: dict[bytes, _Leaf[S]] = {}
        """By subject, those to one subject. For others to look whether one is there."""
        self._root: _Node[S] = _Node()
        self._count = 0
        self.insert_count = 0
        self.remove_count = 0
        self.match_count = 0

    def __len__(self) -> int:
        """How many subscriptions are inside."""
        return self._count

    def __iter__(self) -> Iterator[S]:
        """Every subscription: literals first, then the trie."""
        for leaf in self.literals.values():
            yield from leaf.subscriptions()
        yield from self._pattern_subscriptions()

    # Change

    def insert(self, sub: S) -> None:
        """Add a subscription that is not inside yet."""
        subject = sub.subject
        if has_wildcard(subject):
            leaf = self._pattern_leaf(subject)
        else:
            found = self.literals.get(subject)
            leaf = self.literals[subject] = _Leaf() if found is None else found
        leaf.add(sub)
        self._count += 1
        self.insert_count += 1

    def remove(self, sub: S) -> bool:
        """Take a subscription out; False if it is not inside."""
        subject = sub.subject
        if has_wildcard(subject):
            removed = self._remove_pattern(sub)
        else:
            leaf = self.literals.get(subject)
            removed = leaf is not None and leaf.discard(sub)
            if leaf is not None and leaf.is_empty():
                del self.literals[subject]
        if removed:
            self._count -= 1
            self.remove_count += 1
        return removed

    def _pattern_leaf(self, pattern: bytes) -> _Leaf[S]:
        node = self._root
        for token in pattern.split(b"."):
            if token == TAIL:
                if node.tail is None:
                    node.tail = _Leaf()
                return node.tail
            if token == STAR:
                if node.star is None:
                    node.star = _Node()
                node = node.star
            else:
                if node.children is None:
                    node.children = {}
                child = node.children.get(token)
                if child is None:
                    child = node.children[token] = _Node()
                node = child
        if node.end is None:
            node.end = _Leaf()
        return node.end

    def _remove_pattern(self, sub: S) -> bool:
        tokens = sub.subject.split(b".")
        has_tail = tokens[-1] == TAIL
        if has_tail:
            del tokens[-1]
        path: list[_Node[S]] = [self._root]
        for token in tokens:
            node = path[-1]
            child = node.star if token == STAR else node.children.get(token) if node.children is not None else None
            if child is None:
                return False
            path.append(child)
        last = path[-1]
        leaf = last.tail if has_tail else last.end
        if leaf is None or not leaf.discard(sub):
            return False
        if leaf.is_empty():
            if has_tail:
                last.tail = None
            else:
                last.end = None
            _prune(path, tokens)
        return True

    # Look up

    def match(self, subject: bytes) -> Matches[S]:
        """Who gets a message published on `subject`. Its tokens are opaque; an empty one matches nothing."""
        self.match_count += 1
        leaves: list[_Leaf[S]] = []
        level = self._descend(subject.split(b"."), leaves)
        leaves.extend([node.end for node in level if node.end is not None])
        literal = self.literals.get(subject)
        if literal is not None:
            leaves.append(literal)
        return _gather(leaves)

    def match_siblings(self, prefix: bytes) -> Matches[S] | None:
        """Who gets a message on `prefix` (with the dot at its end) and one more token, none of `literals` being meant.

        None if that is not the same for every token. Counts no match.
        """
        leaves: list[_Leaf[S]] = []
        level = self._descend(prefix[:-1].split(b"."), leaves)
        for node in level:
            if node.children is not None:
                return None
            if node.tail is not None:
                leaves.append(node.tail)
            if node.star is not None and node.star.end is not None:
                leaves.append(node.star.end)
        return _gather(leaves)

    def overlapping(self, pattern: bytes) -> list[S]:
        """Every subscription that shares at least one subject with `pattern` (itself literal or not).

        Walks only the trie branches that can overlap; looks at every literal when `pattern` has wildcards.
        """
        found: list[S] = []
        if not has_wildcard(pattern):
            leaf = self.literals.get(pattern)
            if leaf is not None:
                found.extend(leaf.subscriptions())
        else:
            for subject, leaf in self.literals.items():
                if subjects_overlap(pattern, subject):
                    found.extend(leaf.subscriptions())
        for leaf in _overlapping_leaves(self._root, pattern.split(b".")):
            found.extend(leaf.subscriptions())
        return found

    def _descend(self, tokens: list[bytes], leaves: list[_Leaf[S]]) -> list[_Node[S]]:
        """The nodes that `tokens` lead to; those of a `>` on the way are added to `leaves`."""
        root = self._root
        if root.is_empty() or b"" in tokens:
            return []
        level = [root]
        for token in tokens:
            below: list[_Node[S]] = []
            for node in level:
                if node.tail is not None:
                    leaves.append(node.tail)
                if node.star is not None:
                    below.append(node.star)
                if node.children is not None:
                    child = node.children.get(token)
                    if child is not None:
                        below.append(child)
            level = below
            if not level:
                break
        return level

    def _pattern_subscriptions(self) -> Iterator[S]:
        for node in _subtree(self._root):
            for leaf in (node.tail, node.end):
                if leaf is not None:
                    yield from leaf.subscriptions()


def _gather(leaves: Iterable[_Leaf[S]]) -> Matches[S]:
    plain: list[S] = []
    queues: dict[bytes, list[S]] = {}
    for leaf in leaves:
        plain.extend(leaf.plain)
        if leaf.queues is not None:
            for queue, members in leaf.queues.items():
                if queue in queues:
                    queues[queue].extend(members)
                else:
                    queues[queue] = list(members)
    return Matches(plain, queues)


def _subtree(top: _Node[S]) -> Iterator[_Node[S]]:
    """`top` and every node below it, without recursion: the depth is a client's choice."""
    waiting = [top]
    while waiting:
        node = waiting.pop()
        yield node
        if node.star is not None:
            waiting.append(node.star)
        if node.children is not None:
            waiting.extend(node.children.values())


def _overlapping_leaves(root: _Node[S], tokens: list[bytes]) -> list[_Leaf[S]]:
    """The leaves whose patterns overlap the pattern made of `tokens`."""
    leaves: list[_Leaf[S]] = []
    level = [root]
    for token in tokens:
        below: list[_Node[S]] = []
        for node in level:
            if node.tail is not None:
                leaves.append(node.tail)
            if token == TAIL:
                for inner in _children(node, None):
                    for deeper in _subtree(inner):
                        leaves.extend(leaf for leaf in (deeper.tail, deeper.end) if leaf is not None)
            else:
                below.extend(_children(node, None if token == STAR else token))
        level = below
    leaves.extend(node.end for node in level if node.end is not None)
    return leaves


def _children(node: _Node[S], token: bytes | None) -> Iterable[_Node[S]]:
    """The child for `*` and the one for `token`, or with None all of them."""
    if node.star is not None:
        yield node.star
    if node.children is not None:
        if token is None:
            yield from node.children.values()
        elif token in node.children:
            yield node.children[token]


def _prune(path: list[_Node[S]], tokens: list[bytes]) -> None:
    """Drop the nodes at the end of `path` (root first, one token between neighbours) that hold nothing."""
    for index in range(len(tokens) - 1, -1, -1):
        if not path[index + 1].is_empty():
            return
        parent = path[index]
        if tokens[index] == STAR:
            parent.star = None
        elif parent.children is not None:
            del parent.children[tokens[index]]
            parent.children = parent.children or None


def _contains(members: _Members[S], sub: S) -> bool:
    if isinstance(members, dict):
        return sub in members
    return any(member is sub for member in members)


def _added(members: _Members[S], sub: S) -> _Members[S]:
    if isinstance(members, dict):
        members[sub] = None
        return members
    grown = (*members, sub)
    return grown if len(grown) <= _SMALL_MEMBERS_MAX else dict.fromkeys(grown)


def _removed(members: _Members[S], sub: S) -> _Members[S]:
    if isinstance(members, dict):
        del members[sub]
        # Half the bound: a group that hovers at it must not be rebuilt at every change.
        return members if len(members) > _SMALL_MEMBERS_MAX // 2 else tuple(members)
    return tuple(member for member in members if member is not sub)
