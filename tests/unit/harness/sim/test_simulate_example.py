"""The worked example of docs/simulation.md: a small trio application of somebody else, tested under partitions.

The application keeps a till: clients send payments by request, and try again until they have an answer. A request may
have been carried out although its answer was lost, so the till must know a payment that it has seen before.
"""

from __future__ import annotations

import pytest
import trio

import tnats.client
from tnats.errors import TnatsError
from tnats.harness.simulate import SEED_VARIABLE, serve, simulate, trouble
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime
from tnats.runtime.sim.world import World


class Till:
    """The service: `pay` requests carry `id amount`; the answer is the sum so far."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.total = 0
        self.remembers = remembers
        self.seen: dict[bytes, bytes] = {}

    async def run(self, runtime: Runtime) -> None:
        while True:
            try:
                async with tnats.client.connect("nats://server:4222", runtime=runtime, ping_interval_s=1) as client:
                    async for message in client.subscribe("pay"):
                        client.publish_nowait(message.reply, self.take(message.data))
            except* tnats.client.ClientError:
                pass
            await runtime.clock.sleep_ns(SECOND_NS)

    def take(self, payment: bytes) -> bytes:
        id, _, amount = payment.partition(b" ")
        if id not in self.seen or not self.remembers:
            self.total += int(amount)
            self.seen[id] = b"%d" % self.total
        return self.seen[id]


class Customer:
    """Pays `count` times 1, each until it is confirmed."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.left = count

    async def run(self, runtime: Runtime) -> None:
        while self.left:
            try:
                async with tnats.client.connect("nats://server:4222", runtime=runtime, ping_interval_s=1) as client:
                    while self.left:
                        await client.request("pay", f"{self.name}-{self.left} 1".encode(), timeout_s=1)
                        self.left -= 1
            except* tnats.client.ClientError:
                pass
            await runtime.clock.sleep_ns(SECOND_NS // 10)


async def shop(world: World, till: Till) -> int:
    """Two customers pay twenty times each under trouble; what the till holds in the end."""
    serve(world)
    world.node("till").start(till.run)
    customers = [Customer("ann", 20), Customer("ben", 20)]
    for customer in customers:
        world.node(customer.name).start(customer.run)
    async with trouble(world, ["till", "ann", "ben"], for_s=5):
        await world.sleep_ns(6 * SECOND_NS)
    with world.deadline(60 * SECOND_NS):
        while any(customer.left for customer in customers):
            await world.sleep_ns(SECOND_NS)
    assert not any(customer.left for customer in customers), "not everybody could pay, a minute after all was healed"
    return till.total


@simulate(seeds=20)
async def test_nothing_is_paid_twice(world: World) -> None:
    """Forty payments of 1 come to 40, whatever the network did."""
    assert await shop(world, Till()) == 40


def test_a_till_without_memory_is_found_out() -> None:
    """The same test on an application that forgets what it has seen fails within twenty seeds, and names its seed."""

    @simulate(seeds=20)
    async def broken(world: World) -> None:
        assert await shop(world, Till(remembers=False)) == 40

    with pytest.raises(AssertionError) as caught:
        broken()
    assert "TNATS_SIM_SEED=" in caught.value.__notes__[0]


def test_a_deadlock_fails_at_once() -> None:
    """A test that waits for what never comes does not hang: it fails, with what waits where."""

    @simulate(seeds=1)
    async def stuck(world: World) -> None:
        await trio.Event().wait()

    with pytest.raises(Exception, match="nothing will ever happen again"):
        stuck()


def test_fixtures_reach_a_simulated_test(tmp_path: object) -> None:
    """Parameters behind the world are pytest's fixtures; a test without a world is refused."""

    @simulate(seeds=1)
    async def with_fixture(world: World, tmp_path: object) -> None:
        assert tmp_path is not None

    assert list(__import__("inspect").signature(with_fixture).parameters) == ["tmp_path"]
    with_fixture(tmp_path=tmp_path)
    with pytest.raises(Exception, match="first parameter"):
        simulate()(shop_without_world)


@pytest.mark.parametrize(
    ("targets", "kinds", "said"),
    [(["til"], ["N_PART"], "no machine 'til'"), (["till"], ["N_PARTY"], "no kind of fault 'N_PARTY'")],
)
def test_trouble_names_what_there_is_not(targets: list[str], kinds: list[str], said: str) -> None:
    """A word that is misspelt does not leave a test without its faults."""

    @simulate(seeds=1)
    async def misspelt(world: World) -> None:
        serve(world)
        world.node("till")
        async with trouble(world, targets, kinds=kinds):
            pass

    with pytest.raises(TnatsError, match=said):
        misspelt()


def test_a_seed_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that names one is told what it takes."""
    monkeypatch.setenv(SEED_VARIABLE, "first")
    with pytest.raises(TnatsError, match="TNATS_SIM_SEED=first"):
        simulate(seeds=1)(shop)()


async def shop_without_world(till: Till) -> None:
    """Not a simulated test."""
