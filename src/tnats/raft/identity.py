"""Incarnations: one number per boot of a replica, so that peers notice a memory that went back in time.

An incarnation is a boot counter with a random tail: `counter << 16 | nonce`. The counter tells later from earlier
boots, the nonce tells two boots apart that both believe to be the n-th one, as after restoring an old disk image.
"""

from __future__ import annotations

import random

NONCE_BITS = 16


def following(incarnation: int, rng: random.Random) -> int:
    """The incarnation of the next boot after `incarnation` (0: there was none)."""
    counter = (incarnation >> NONCE_BITS) + 1
    return counter << NONCE_BITS | rng.getrandbits(NONCE_BITS)


def supersedes(new: int, known: int) -> bool:
    """Whether `new` is a later boot than `known`."""
    return new >> NONCE_BITS > known >> NONCE_BITS


def contradicts(own: int, seen: int) -> bool:
    """Whether peers having seen `seen` of us proves that the boot `own` forgot one."""
    return seen != own and seen >> NONCE_BITS >= own >> NONCE_BITS
