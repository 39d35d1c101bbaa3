"""Every bound of the server that is not a configuration key, each with its reason. Cross-checked at the end.

Bounds that users configure have their defaults here too, so that one file answers "how much may it hold".
Sizes are bytes and end in `_BYTES` or `_bytes_max`; times end in their unit.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
SECOND_NS = 1_000_000_000
