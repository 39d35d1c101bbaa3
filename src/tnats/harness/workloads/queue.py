"""W1: writers publish unique values; at the end everything is read back by consumers.

A value is `<process>-<counter>`, so that each producer's order is known. Between operations a worker waits a drawn
time, uniform on [0, 2 x workers / rate]. The final drain reads until, for every producer, the highest acknowledged
counter was seen (an empty batch alone proves nothing), or until `EMPTY_BATCHES_MAX` batches in a row were empty.
"""

from __future__ import annotations

from collections.abc import Callable

from tnats.harness.history import History, Recorder
from tnats.harness.workloads.access import Indeterminate, LogAccess, Refused
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

REFUSED_PAUSE_NS = 100_000_000
FETCH_COUNT = 256
EMPTY_BATCHES_MAX = 5
EMPTY_PAUSE_NS = 200_000_000


class QueueWorkload:
    """The operations of W1. `on_ack(value)` is told of each acknowledgement as it arrives."""

    def __init__(
        self,
        runtime: Runtime,
        recorder: Recorder,
        *,
        worker_count: int,
        rate_per_s: float,
        on_ack: Callable[[str], None] = lambda value: None,
    ) -> None:
        self._runtime = runtime
        self._recorder = recorder
        self._delay_ns_max = int(2 * worker_count / rate_per_s * SECOND_NS)
        self._on_ack = on_ack
        self._counters: dict[int, int] = {}

    def _next_value(self, worker: int) -> str:
        process = self._recorder.process(worker)
        counter = self._counters.get(process, 0)
        self._counters[process] = counter + 1
        return f"{process}-{counter}"

    async def write(self, worker: int, access: LogAccess) -> None:
        """Publish until cancelled."""
        rng = self._runtime.chance.rng(f"load.{worker}")
        while True:
            await self._runtime.clock.sleep_ns(int(rng.random() * self._delay_ns_max))
            await self.publish(worker, access)

    async def publish(self, worker: int, access: LogAccess) -> bool:
        """Publish one value; whether it was acknowledged."""
        recorder = self._recorder
        value = self._next_value(worker)
        recorder.invoke(worker, "publish", value, node=access.node)
        try:
            ack = await access.publish(value)
        except Refused as exc:
            recorder.end(worker, "fail", "publish", value, error=str(exc))
            await self._runtime.clock.sleep_ns(REFUSED_PAUSE_NS)
            return False
        except Indeterminate as exc:
            recorder.end(worker, "info", "publish", value, error=str(exc))
            return False
        recorder.end(worker, "ok", "publish", value, stream=ack.stream, seq=ack.seq, duplicate=ack.is_duplicate)
        self._on_ack(value)
        return True

    async def drain(self, worker: int, access: LogAccess) -> bool:
        """Read everything through this access; whether it caught up with what was acknowledged."""
        missing = high_water_marks(self._recorder.history)
        empty_count = 0
        while missing and empty_count < EMPTY_BATCHES_MAX:
            self._recorder.invoke(worker, "fetch", None, node=access.node)
            try:
                batch = await access.fetch(FETCH_COUNT)
            except (Refused, Indeterminate) as exc:
                self._recorder.end(worker, "fail", "fetch", None, error=str(exc))
                batch = []
            else:
                values = [message.value for message in batch]
                seqs = [message.seq for message in batch]
                self._recorder.end(worker, "ok", "fetch", values, node=access.node, seqs=seqs)
            empty_count = 0 if batch else empty_count + 1
            if not batch:
                await self._runtime.clock.sleep_ns(EMPTY_PAUSE_NS)
            for message in batch:
                producer, counter = split_value(message.value)
                if producer in missing and counter >= missing[producer]:
                    del missing[producer]
        return not missing


def split_value(value: str) -> tuple[str, int]:
    """Producer and counter; (value, -1) for what is no value of this workload."""
    producer, _, counter = value.partition("-")
    return (producer, int(counter)) if counter.isdigit() else (value, -1)


def high_water_marks(history: History) -> dict[str, int]:
    """For each producer the highest counter that was acknowledged."""
    marks: dict[str, int] = {}
    for operation in history.operations("publish"):
        if operation.is_ok:
            producer, counter = split_value(operation.value)
            marks[producer] = max(counter, marks.get(producer, -1))
    return marks
