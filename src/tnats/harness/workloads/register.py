"""W3: registers in a key-value bucket, read and written by several workers at once.

Values are unique, those of delete markers too (`DELETED` in front). A key is retired for a new one after
`OPERATIONS_PER_KEY_MAX` operations or `INDETERMINATE_PER_KEY_MAX` whose end nobody knows, so that each key's history
stays small enough to be judged. Operations: put, create, delete, get (at the leader), get-direct (any replica), and
update from the revision that this worker saw last, sometimes from the one before: never from a guess, so that an
expected revision was always told to somebody. The value of an operation is `[key, value]`; further keys are
`connection`, `revision` (what an update expects) and `seq` (what the answer told).
"""

from __future__ import annotations

import random

from tnats.harness.history import Recorder
from tnats.harness.workloads.access import Indeterminate, Refused, RegisterAccess
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

OPERATIONS_PER_KEY_MAX = 200
INDETERMINATE_PER_KEY_MAX = 10
REFUSED_PAUSE_NS = 100_000_000
SHARES = {"get": 30, "get-direct": 20, "put": 20, "update": 18, "create": 7, "delete": 5}
DELETED = "deleted "
"""In front of the value of a delete marker."""
CONFLICT = "conflict"
"""The `error` of an update or create that found another revision than it expected."""


class Key:
    """A register in use."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operation_count = 0
        self.indeterminate_count = 0

    @property
    def is_worn(self) -> bool:
        return self.operation_count >= OPERATIONS_PER_KEY_MAX or self.indeterminate_count >= INDETERMINATE_PER_KEY_MAX


class RegisterWorkload:
    """The operations of W3."""

    def __init__(
        self,
        runtime: Runtime,
        recorder: Recorder,
        *,
        worker_count: int,
        rate_per_s: float,
        key_count: int,
        key_prefix: str = "k",
    ) -> None:
        self._runtime = runtime
        self._key_prefix = key_prefix
        self._recorder = recorder
        self._delay_ns_max = int(2 * worker_count / rate_per_s * SECOND_NS)
        self._key_count = 0
        self._keys = [self._new_key() for _ in range(key_count)]
        self._value_count = 0
        self._seen: dict[tuple[int, str], tuple[int, int]] = {}
        """(worker, key): the revision that it saw last, and the one before."""

    def _new_key(self) -> Key:
        self._key_count += 1
        return Key(f"{self._key_prefix}{self._key_count}")

    def _draw_key(self, rng: random.Random) -> Key:
        place = rng.randrange(len(self._keys))
        if self._keys[place].is_worn:
            self._keys[place] = self._new_key()
        return self._keys[place]

    async def run(self, worker: int, access: RegisterAccess) -> None:
        """Operate until cancelled."""
        rng = self._runtime.chance.rng(f"load.{worker}")
        while True:
            await self._runtime.clock.sleep_ns(int(rng.random() * self._delay_ns_max))
            await self.operate(worker, access, rng)

    @staticmethod
    async def read_all(recorder: Recorder, worker: int, access: RegisterAccess) -> None:
        """Get every key of the history once more."""
        keys = dict.fromkeys(operation.value[0] for operation in recorder.history.operations())
        for key in keys:
            recorder.invoke(worker, "get", [key, None], node=access.node, connection=worker)
            try:
                value, seq = await access.get(key, direct=False)
            except (Refused, Indeterminate) as exc:
                recorder.end(worker, "fail", "get", [key, None], error=str(exc))
            else:
                recorder.end(worker, "ok", "get", [key, value], seq=seq)

    async def operate(self, worker: int, access: RegisterAccess, rng: random.Random) -> None:
        """One drawn operation."""
        f = rng.choices(list(SHARES), weights=list(SHARES.values()))[0]
        key = self._draw_key(rng)
        key.operation_count += 1
        value: str | None = None
        extra: dict[str, int] = {}
        if not f.startswith("get"):
            self._value_count += 1
            value = f"{DELETED if f == 'delete' else ''}{worker}-{self._value_count}"
        last, before = self._seen.get((worker, key.name), (0, 0))
        if f == "update":
            extra["revision"] = last if rng.random() < 0.9 else before
        self._recorder.invoke(worker, f, [key.name, value], node=access.node, connection=worker, **extra)
        try:
            value, seq = await self._carry_out(f, access, key.name, value, extra.get("revision", 0))
        except Refused as exc:
            error = CONFLICT if exc.is_conflict else str(exc)
            self._recorder.end(worker, "fail", f, [key.name, value], error=error)
            if not exc.is_conflict:
                await self._runtime.clock.sleep_ns(REFUSED_PAUSE_NS)
        except Indeterminate as exc:
            key.indeterminate_count += not f.startswith("get")
            self._recorder.end(worker, "info", f, [key.name, value], error=str(exc))
        else:
            self._seen[worker, key.name] = (seq, last)
            self._recorder.end(worker, "ok", f, [key.name, value], seq=seq)

    async def _carry_out(
        self, f: str, access: RegisterAccess, key: str, value: str | None, revision: int
    ) -> tuple[str | None, int]:
        if f.startswith("get"):
            return await access.get(key, direct=f == "get-direct")
        assert value is not None
        if f == "delete":
            return value, await access.delete(key, value)
        if f == "put":
            return value, await access.put(key, value)
        if f == "create":
            return value, await access.create(key, value)
        return value, await access.update(key, value, revision)
