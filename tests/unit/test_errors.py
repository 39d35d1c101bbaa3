"""The exceptions shared by all packages."""

from __future__ import annotations

from tnats.errors import sole_cause


def test_groups_of_one_are_opened() -> None:
    """The one error inside nested groups is told; several stay together."""
    error = ValueError("x")
    assert sole_cause(ExceptionGroup("outer", [ExceptionGroup("inner", [error])])) is error
    several = ExceptionGroup("two", [error, KeyError("y")])
    assert sole_cause(several) is several
