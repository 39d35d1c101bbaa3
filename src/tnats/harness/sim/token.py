"""Tokens: one word that names a run, to be pasted from a failure into a command.

`sim1-` and the base64url of "scenario/seed/code/check". `check` tells a word that was cut off in pasting; `code` is a
hash over the sources that the run was made with: a seed means the same run only for the same code, so a token of other
code is stale. What survives changes of code is the plan (`scenario.json`).
"""

from __future__ import annotations

import base64
import binascii
import zlib

from tnats.errors import TnatsError
from tnats.records import frozen

PREFIX = "sim1-"


class TokenError(TnatsError):
    """A word that is no token, or one of other code."""


@frozen
class Token:
    """A run: seed `seed` of scenario `scenario` with the code whose hash is `code`."""

    scenario: str
    seed: int
    code: str

    def __str__(self) -> str:
        body = f"{self.scenario}/{self.seed}/{self.code}"
        return PREFIX + base64.urlsafe_b64encode(f"{body}/{check_of(body)}".encode()).decode().rstrip("=")


def check_of(body: str) -> str:
    return f"{zlib.crc32(body.encode()) & 0xFFFF:04x}"


def parse_token(text: str) -> Token:
    """Read a token. Raises TokenError."""
    body = text.removeprefix(PREFIX)
    try:
        decoded = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True).decode()
        scenario, seed, code, check = decoded.split("/")
        if text.startswith(PREFIX) and check == check_of(f"{scenario}/{seed}/{code}"):
            return Token(scenario, int(seed), code)
    except (binascii.Error, ValueError):
        pass
    raise TokenError(f"{text!r} is no token: expected {PREFIX}... as a failed run prints it")
