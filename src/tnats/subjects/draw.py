"""A small integer generator for choices on the hot path: queue members, weighted mappings, `{{random(n)}}`.

It is passed in wherever a choice is made, so that a run repeats from its seed, and it is integer arithmetic
alone, so that compiled and interpreted builds draw the same numbers. Not for secrets.
"""

from __future__ import annotations

_MASK = 0xFFFF_FFFF_FFFF_FFFF


class Draw:
    """Marsaglia's 64-bit xorshift (shifts 13, 7, 17; "Xorshift RNGs", 2003); period 2**64 - 1.

    `state` is an unsigned 64-bit integer, never zero.
    """

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        # Spread small seeds over all bits first (the finalizer of splitmix64): neighbours must not correlate.
        mixed = (seed + 0x9E37_79B9_7F4A_7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
        self.state = (mixed ^ (mixed >> 31)) or 1

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1, `bound` at most 2**32; the top half of the state, scaled."""
        state = self.state
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        self.state = state
        return ((state >> 32) * bound) >> 32
