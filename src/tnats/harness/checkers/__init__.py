"""One checker a file, each a function from evidence to a result.

These are the black-box forms: they use what clients saw and what a replica serves, so they judge any NATS server.
`STREAM` suits a workload of publishes, `REGISTERS` one of key-value operations.
"""

from __future__ import annotations

from collections.abc import Callable

from tnats.harness.checkers import (
    ack_unique,
    acked_present,
    compare_and_set,
    converged,
    kv_linearizable,
    no_duplicate,
    no_fabrication,
    order,
    read_sanity,
)
from tnats.harness.checkers.evidence import Evidence, Result

Checker = Callable[[Evidence], Result]

STREAM: tuple[Checker, ...] = (
    acked_present.check,
    ack_unique.check,
    no_fabrication.check,
    no_duplicate.check,
    order.check,
    converged.check,
)
REGISTERS: tuple[Checker, ...] = (read_sanity.check, kv_linearizable.check, compare_and_set.check)
