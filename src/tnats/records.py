"""Classes of plain records: attrs' own, made in half the time.

attrs writes and compiles `__repr__`, `__eq__` and `__hash__` for each class anew, a tenth of a server's start. Here all
classes share one of each.
"""

from __future__ import annotations

import reprlib
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
            made = attrs.define(cls, eq=False, repr=False, **options)
            if repr and "__repr__" not in cls.__dict__:
                made.__repr__ = _repr
            if eq and "__eq__" not in cls.__dict__ and not issubclass(cls, BaseException):
                _compare_by_value(made, is_key=options.get("frozen", False))
            return made

        return make if cls is None else make(cls)

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """`attrs.frozen`, in the same way."""
        return define(cls, frozen=True, **options)


@reprlib.recursive_repr()
def _repr(record: Any) -> str:
    fields = [f"{field.name}={getattr(record, field.name)!r}" for field in attrs.fields(type(record)) if field.repr]
    return f"{type(record).__qualname__.rpartition('>.')[2]}({', '.join(fields)})"


def _compare_by_value(made: Any, *, is_key: bool) -> None:
    names = [field.name for field in attrs.fields(made) if field.eq]
    values = attrgetter(*names) if names else type

    def is_equal(record: Any, other: Any) -> Any:
        return values(record) == values(other) if type(other) is type(record) else NotImplemented

    made.__eq__ = is_equal
    made.__hash__ = (lambda record: hash(values(record))) if is_key else None
