"""What the server's refusals name."""

from __future__ import annotations

import pytest

from tnats.client.errors import (
    AuthorizationFailed,
    PermissionsViolation,
    ServerError,
    server_error,
)
from tnats.client.table import Denial
from tnats.wire.errors import publish_violation, subscription_violation, too_many_tokens


@pytest.mark.parametrize(
    ("line", "publish", "subject", "queue"),
    [
        (publish_violation(b"a.b"), True, "a.b", ""),
        (subscription_violation(b"a.*"), False, "a.*", ""),
        (subscription_violation(b"a", b"q"), False, "a", "q"),
        (subscription_violation(b"a", None, b"7"), False, "a", ""),
        (subscription_violation(b"a", b"q", b"7"), False, "a", "q"),
        (subscription_violation(b'with"quote\\and'), False, 'with"quote\\and', ""),
        (too_many_tokens(b"a.b.c"), False, "a.b.c", ""),
    ],
)
def test_refusals_are_taken_apart(line: bytes, publish: bool, subject: str, queue: str) -> None:
    """Each form in which a server refuses gives kind, subject and queue group."""
    text = line.decode().strip().removeprefix("-ERR '").removesuffix("'")
    error = server_error(text)
    assert isinstance(error, PermissionsViolation)
    assert Denial.parse(error) == Denial(error, publish, subject, queue)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Authorization Violation", AuthorizationFailed),
        ("User Authentication Expired", AuthorizationFailed),
        ("Account Authentication Expired", AuthorizationFailed),
        ("User Authentication Revoked", AuthorizationFailed),
        ("Authentication Timeout", AuthorizationFailed),
        ("Failed Account Registration", AuthorizationFailed),
        ('Permissions Violation for Publish with Reply of "x"', PermissionsViolation),
        ("maximum connections exceeded", ServerError),
        ("Stale Connection", ServerError),
    ],
)
def test_kinds_of_refusal(text: str, kind: type[ServerError]) -> None:
    """Which exception each text becomes."""
    assert type(server_error(text)) is kind
