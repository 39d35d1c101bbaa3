"""Classes of plain records: attrs' own, made in half the time.

attrs writes and compiles `__repr__`, `__eq__` and `__hash__` for each class anew, a tenth of a server's start. Here all
classes share one of each.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from attrs import define as define
    from attrs import frozen as frozen
else:

    def define(cls: type | None = None, *, eq: bool = True, repr: bool = True, **options: Any) -> Any:
        """`attrs.define`. `eq`: equal by value (exceptions never are), else each to itself alone. `repr`: shown by its
        fields, else by its name alone.
        """

        def make(cls: type) -> type:
            own = cls.__dict__
            if repr and "__repr__" not in own:
                cls.__repr__ = _repr
            if eq and "__eq__" not in own and not issubclass(cls, BaseException):
                cls.__eq__ = _is_equal
                cls.__hash__ = _hash if options.get("frozen") else None
            return attrs.define(cls, eq=False, repr=False, **options)

        return make if cls is None else make(cls)

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """`attrs.frozen`, in the same way."""
        return define(cls, frozen=True, **options)


@reprlib.recursive_repr()
def _repr(record: Any) -> str:
    fields = [f"{field.name}={getattr(record, field.name)!r}" for field in attrs.fields(type(record)) if field.repr]
    return f"{type(record).__qualname__.rpartition('>.')[2]}({', '.join(fields)})"


_values: dict[type, Callable[[Any], Any]] = {}
"""By class, what gives the values that decide whether two records are equal: found out when first asked for."""


def _values_of(record: Any) -> Any:
    kind = type(record)
    found = _values.get(kind)
    if found is None:
        names = [field.name for field in attrs.fields(kind) if field.eq]
        found = _values[kind] = attrgetter(*names) if names else type
    return found(record)


def _is_equal(record: Any, other: Any) -> Any:
    return _values_of(record) == _values_of(other) if type(other) is type(record) else NotImplemented


def _hash(record: Any) -> int:
    return hash(_values_of(record))
