"""The exceptions that cross package borders. Each package adds its own small closed set beneath `TnatsError`.

Three kinds, never mixed:

* a peer's fault is no exception at all: the connection's state changes and bytes (`-ERR ...`) are queued;
* an operating error (disk full, port in use, bad configuration) is a `TnatsError` with one clear line;
* a broken invariant is `InvariantBroken`, a BaseException that no bulkhead catches: the node stops rather than
  go on with state it cannot trust.
"""

from __future__ import annotations

from collections.abc import Iterator


class TnatsError(Exception):
    """An operating error. The text is one line: who, what, which limit, what to do."""


class FeatureMissing(TnatsError):
    """A known NATS feature that this release does not offer yet; the text names it."""


class InvariantBroken(BaseException):
    """Our own state contradicts itself. Deliberately not an Exception: only the top of the node may catch it."""


class NodeKilled(BaseException):
    """Raised by every seam call of a simulated node after its power was cut (freeze, then cancel)."""


def ensure(condition: object, text: str) -> None:
    """Raise `InvariantBroken(text)` unless `condition` holds. Stays on in production, unlike `assert`."""
    if not condition:
        raise InvariantBroken(text)


def sole_cause(exc: BaseException) -> BaseException:
    """The exception inside nested groups of one: a nursery wraps what its only failing task raised."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def leaves(group: ExceptionGroup[Exception]) -> Iterator[Exception]:
    """The exceptions in a group and the groups in it."""
    for exc in group.exceptions:
        if isinstance(exc, ExceptionGroup):
            yield from leaves(exc)
        else:
            yield exc
