"""Plans stay true while subscriptions come and go, and only what changed is built anew."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.stage import RawClient, Stage, play

from tnats.broker.account import Account
from tnats.broker.hot.message import Origin, Subscription
from tnats.broker.hot.outbound import Exchange
from tnats.broker.hot.plan import Plan
from tnats.broker.internal import InternalClient
from tnats.broker.snapshot import sublist_snapshot
from tnats.limits import PLAN_CELLS_MAX
from tnats.subjects.draw import Draw
from tnats.subjects.mappings import Destination, Mapping


class Bench:
    """An account without connections."""

    def __init__(self) -> None:
        draw = Draw(1)
        self.exchange = Exchange(draw, lambda: None)
        self.account = Account("A", draw)
        self.client = InternalClient(self.exchange, self.account, "bench", lambda batch: None, echo=True)
        self.origin = Origin(self.exchange, self.client, None)

    def reach(self, subject: bytes) -> int:
        """How many a message on `subject` reaches."""
        return self.account.find_plan(subject).publish(self.origin, b"", 0, b"x")

    def is_stale(self, plan: Plan) -> bool:
        return plan.epoch != plan.cell.number


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _kept(bench: Bench, subject: bytes) -> Plan:
    """A plan that has been admitted and built."""
    for _ in range(3):  # the first may be served by a family
        bench.reach(subject)
    plan = bench.account.find_plan(subject)
    assert plan.kept
    assert not bench.is_stale(plan)
    return plan


def test_subjects_are_admitted_on_second_use(bench: Bench) -> None:
    """A subject used once leaves no plan behind; the second use does."""
    first = bench.account.find_plan(b"once")
    assert not first.kept
    assert len(bench.account.plans) == 0
    second = bench.account.find_plan(b"once")
    assert second.kept
    assert bench.account.find_plan(b"once") is second


def test_literal_subscriptions_touch_their_subject_alone(bench: Bench) -> None:
    """SUB and UNSUB of a literal subject make exactly its plan stale."""
    one, two = _kept(bench, b"a.one"), _kept(bench, b"a.two")
    subscription = bench.client.subscribe(b"a.one")
    assert (bench.is_stale(one), bench.is_stale(two)) == (True, False)
    assert (bench.reach(b"a.one"), bench.reach(b"a.two")) == (1, 0)
    bench.client.end_subscription(subscription)
    assert (bench.is_stale(one), bench.is_stale(two)) == (True, False)
    assert bench.reach(b"a.one") == 0


def test_patterns_touch_their_first_token_alone(bench: Bench) -> None:
    """A pattern makes the plans under its first token stale, one that begins with a wildcard all plans."""
    one, two = _kept(bench, b"a.one"), _kept(bench, b"b.two")
    bench.client.subscribe(b"a.>")
    assert (bench.is_stale(one), bench.is_stale(two)) == (True, False)
    assert (bench.reach(b"a.one"), bench.reach(b"b.two")) == (1, 0)
    bench.client.subscribe(b"*.two")
    assert (bench.is_stale(one), bench.is_stale(two)) == (True, True)
    assert (bench.reach(b"a.one"), bench.reach(b"b.two")) == (1, 1)


def test_a_plan_that_was_pushed_out_still_hears_of_changes(bench: Bench) -> None:
    """Somebody may hold a plan that is no longer in the table: it goes stale with its first token."""
    plan = _kept(bench, b"a.one")
    for number in range(120_000):
        bench.account.find_plan(b"x.%d" % (number // 3))
    assert bench.account.find_plan(b"a.one") is not plan
    bench.client.subscribe(b"a.one")
    assert bench.is_stale(plan)


def test_many_first_tokens(bench: Bench) -> None:
    """More first tokens than are told apart: plans that were held before go stale rather than wrong."""
    plan = _kept(bench, b"a.one")
    for number in range(PLAN_CELLS_MAX + 10):
        bench.reach(b"%d.x" % number)
    bench.client.subscribe(b"a.*")
    assert bench.is_stale(plan)
    bench.account.plans.refresh(plan)
    assert len(plan.targets) == 1
    bench.client.subscribe(b"a.>")
    assert bench.is_stale(plan)


def test_connections_see_changes_at_once() -> None:
    """A publisher that repeats itself follows every change of subscriptions, message by message."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        talk, want = b"", b""
        for number in range(50):
            talk += b"PUB foo.bar 1\r\n1\r\nSUB foo.bar 1\r\nPUB foo.bar 1\r\n2\r\nSUB foo.* 2\r\nUNSUB 1\r\n"
            talk += (
                b"PUB foo.bar 1\r\n3\r\nSUB > 3\r\nUNSUB 2\r\nPUB foo.bar 1\r\n4\r\nUNSUB 3\r\nPUB foo.bar 1\r\n5\r\n"
            )
            want += b"MSG foo.bar 1 1\r\n2\r\nMSG foo.bar 2 1\r\n3\r\nMSG foo.bar 3 1\r\n4\r\n"
            if number == 20:
                assert await client.ask(talk) == want
                talk, want = b"", b""
        assert await client.ask(talk) == want

    play(scene)


def _mapped(*destinations: Destination) -> Callable[[Stage], None]:
    def apply(stage: Stage) -> None:
        stage.broker.account().mappings = [Mapping(b"in.*", destinations)]

    return apply


def test_mappings_apply_to_what_clients_publish() -> None:
    """A mapped subject is what is matched and delivered; removing the mapping ends that at once."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"SUB out.* 1\r\nSUB in.* 2\r\n")
        publish = b"PUB in.a 1\r\nx\r\nPUB in.a 1\r\nx\r\nPUB in.a 1\r\nx\r\n"
        assert await client.ask(publish) == b"MSG in.a 2 1\r\nx\r\n" * 3
        _mapped(Destination(b"out.{{wildcard(1)}}"))(stage)
        assert await client.ask(publish) == b"MSG out.a 1 1\r\nx\r\n" * 3
        stage.broker.account().mappings = []
        assert await client.ask(publish) == b"MSG in.a 2 1\r\nx\r\n" * 3

    play(scene)


def test_weighted_mappings_choose_anew_for_each_message() -> None:
    """80 % go one way, 20 % another, from one publisher that repeats itself; a loss is silent and no 503."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect(b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}')
        await client.ask(b"SUB a 1\r\nSUB b 2\r\nSUB re 3\r\n")
        _mapped(Destination(b"a", 80), Destination(b"b", 20))(stage)
        told = b""
        for _ in range(10):
            told += await client.ask(b"PUB in.x 1\r\nx\r\n" * 1000)
        assert 7700 < told.count(b"MSG a 1") < 8300
        assert told.count(b"MSG a 1") + told.count(b"MSG b 2") == 10_000
        stage.broker.account().mappings = [Mapping(b"in.x", [Destination(b"a", 50), Destination(b"in.x", 0)])]
        told = await client.ask(b"PUB in.x re 1\r\nx\r\n" * 1000)
        assert 400 < told.count(b"MSG a 1") < 600
        assert b"503" not in told

    play(scene)


def test_subscription_is_a_plain_record(bench: Bench) -> None:
    """What a subscription is told at birth is what it shows."""
    subscription = Subscription(bench.client, b"foo.*", b"g", b"7")
    assert (subscription.subject, subscription.queue, subscription.sid) == (b"foo.*", b"g", b"7")
    assert (subscription.delivered, subscription.max_msgs, subscription.checked) == (0, 0, False)


def _family(bench: Bench, prefix: bytes) -> Plan | None:
    """The plan of a family after two subjects of it were used."""
    for token in (b"first", b"second"):
        bench.reach(prefix + token)
    return bench.account.plans.known.families.get(prefix)


def test_subjects_used_once_share_a_plan(bench: Bench) -> None:
    """From the third sibling on nothing is built, and each is shown as it was published."""
    bench.client.subscribe(b"inbox.me.*")
    family = _family(bench, b"inbox.me.")
    assert family is not None
    for token in (b"a", b"b"):
        found = bench.account.plans.known.find_family(b"inbox.me." + token)
        assert found is family
        assert found.subject == b"inbox.me." + token
        assert [target.subject for target in found.targets] == [b"inbox.me." + token]


@pytest.mark.parametrize("pattern", [b"inbox.me.one", b"*.me.one", b"inbox.*.one"])
def test_a_sibling_with_a_subscription_of_its_own_is_no_sibling(bench: Bench, pattern: bytes) -> None:
    """Neither a literal nor a pattern that tells the last token apart is missed."""
    bench.client.subscribe(b"inbox.me.*")
    bench.client.subscribe(pattern)
    _family(bench, b"inbox.me.")
    assert bench.account.plans.known.find_family(b"inbox.me.one") is None
    assert bench.reach(b"inbox.me.one") == 2


def test_a_family_ends_with_a_change_of_its_patterns(bench: Bench) -> None:
    """Once a pattern under its first token comes or goes, the family serves nobody."""
    bench.client.subscribe(b"inbox.me.*")
    assert _family(bench, b"inbox.me.") is not None
    bench.client.subscribe(b"inbox.>")
    assert bench.account.plans.known.find_family(b"inbox.me.x") is None


def test_an_empty_last_token_is_no_sibling(bench: Bench) -> None:
    """A subject that ends in a dot matches no pattern, so the family does not serve it."""
    bench.client.subscribe(b"inbox.me.*")
    assert _family(bench, b"inbox.me.") is not None
    assert bench.account.plans.known.find_family(b"inbox.me.") is None


def test_a_mapped_account_has_no_families(bench: Bench) -> None:
    """Where a mapping may stand between what is published and its plan, every subject is looked up."""
    bench.client.subscribe(b"inbox.me.*")
    bench.account.mappings = [Mapping(b"inbox.me.q", [Destination(b"other", 100)])]
    assert _family(bench, b"inbox.me.") is None


def test_a_sibling_in_steady_use_gets_a_plan_of_its_own(bench: Bench) -> None:
    """Having a family does not keep a subject from being remembered."""
    bench.client.subscribe(b"inbox.me.*")
    family = _family(bench, b"inbox.me.")
    assert bench.account.find_plan(b"inbox.me.steady") is family
    for _ in range(2):
        bench.reach(b"inbox.me.steady")
    plan = bench.account.find_plan(b"inbox.me.steady")
    assert plan.kept
    assert plan is not family


def test_targets_of_all_plans_together_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many subjects that many listen to are not all remembered, and what is published still reaches everybody."""
    monkeypatch.setattr("tnats.broker.plan_table.PLAN_TARGETS_MAX", 100)
    for _ in range(20):
        bench.client.subscribe(b">")
    plans = bench.account.plans
    for number in range(200):
        subject = b"a.%d.x" % (number % 40)
        assert bench.reach(subject) == bench.reach(subject) == 20
        assert sum(plans.fanouts()) <= 100
    assert len(plans) > 0


def test_plans_that_are_out_of_date_do_not_keep_who_left(bench: Bench) -> None:
    """Of subjects that were in use once little is left when their subscribers are gone; others are not disturbed."""
    gc.collect()
    before = sum(type(one) is Subscription for one in gc.get_objects())
    bench.client.subscribe(b"stays.*")
    stays = _kept(bench, b"stays.x")
    for number in range(60):
        leaving = [bench.client.subscribe(b"leave.>") for _ in range(50)]
        for subject in (b"leave.%d.%d" % (number, each) for each in range(20)):
            assert bench.reach(subject) == bench.reach(subject) == 50
        for subscription in leaving:
            bench.client.end_subscription(subscription)
    gc.collect()
    assert sum(type(one) is Subscription for one in gc.get_objects()) - before < 1000
    assert bench.account.find_plan(b"stays.x") is stays


def test_the_fan_out_of_accounts_is_that_of_their_plans(bench: Bench) -> None:
    """One that is out of date counts for nothing, in whichever account it is."""
    other = Bench()
    for one, patterns in (bench, [b"a", b"a", b"b"]), (other, [b"a"]):
        for pattern in patterns:
            one.client.subscribe(pattern)
            _kept(one, pattern)
    bench.client.subscribe(b"b")
    found = sublist_snapshot([bench.account, other.account])
    assert (found.num_subscriptions, found.num_cache) == (5, 3)
    assert (found.max_fanout, found.avg_fanout) == (2, 1.5)


def test_a_plan_built_again_and_again_counts_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions that come and go push no plan out of those that stay."""
    monkeypatch.setattr("tnats.broker.plan_table.PLAN_TARGETS_MAX", 100)
    stays = _kept(bench, b"stays")
    changes = _kept(bench, b"changes")
    for _ in range(10):
        subscriptions = [bench.client.subscribe(b"changes") for _ in range(50)]
        assert bench.reach(b"changes") == 50
        for subscription in subscriptions:
            bench.client.end_subscription(subscription)
        assert bench.account.find_plan(b"changes") is changes
    assert bench.account.find_plan(b"stays") is stays


async def _reaches_who_comes_after(stage: Stage, push_out: Callable[[RawClient], Awaitable[None]]) -> None:
    """Of two publishers the first repeats itself on x; the second pushes the plan for that out; then one subscribes."""
    steady, other, listener = await stage.connect(), await stage.connect(), await stage.connect()
    await steady.ask(4 * b"PUB x 1\r\n1\r\n")
    await push_out(other)
    await listener.ask(b"SUB x 1\r\n")
    await steady.ask(b"PUB x 1\r\n2\r\n")
    assert await listener.read() == b"MSG x 1 1\r\n2\r\n"


def test_nobody_goes_on_with_plans_that_the_table_has_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that repeats itself reaches who subscribes after its plan was let go of and another one was made."""
    monkeypatch.setattr("tnats.broker.plan_table.PLAN_TARGETS_MAX", 10)

    async def push_out(other: RawClient) -> None:
        await other.ask(b"".join(b"SUB many %d\r\n" % sid for sid in range(11)))
        await other.ask(4 * b"PUB many 1\r\n1\r\n")
        await other.ask(4 * b"PUB x 1\r\n1\r\n")

    play(lambda stage: _reaches_who_comes_after(stage, push_out))


def test_nobody_goes_on_with_plans_that_others_pushed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where many subjects in use took the place of the publisher's, and the server itself made another one."""
    monkeypatch.setattr("tnats.broker.plan_table.PLANS_MAX", 8)

    async def scene(stage: Stage) -> None:
        async def push_out(other: RawClient) -> None:
            await other.ask(b"".join(3 * (b"PUB y%d 1\r\n1\r\n" % number) for number in range(20)))
            for _ in range(4):
                assert not stage.broker.account().plans.has_interest(b"x")

        await _reaches_who_comes_after(stage, push_out)

    play(scene)


def test_targets_of_plans_that_others_pushed_out_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many subjects come and go, a plan in steady use stays."""
    monkeypatch.setattr("tnats.broker.plan_table.PLANS_MAX", 8)
    monkeypatch.setattr("tnats.broker.plan_table.PLAN_TARGETS_MAX", 40)
    bench = Bench()
    bench.client.subscribe(b">")
    stays = _kept(bench, b"stays")
    for number in range(200):
        assert _kept(bench, b"s%d" % number).kept
        assert bench.account.find_plan(b"stays") is stays


@pytest.mark.parametrize("pattern", [b"a.b", b"a.*"])
def test_a_plan_out_of_date_keeps_no_client_alive(bench: Bench, pattern: bytes) -> None:
    """A subscription that has ended leads nowhere, wherever it is still remembered."""
    subscription = bench.client.subscribe(pattern)
    plan = _kept(bench, b"a.b")
    bench.client.end_subscription(subscription)
    assert bench.is_stale(plan)
    assert subscription.client is not bench.client
    assert all(target.subscription.client is not bench.client for target in plan.targets)


def test_a_subscription_that_reaches_its_limit_keeps_no_client_alive(bench: Bench) -> None:
    """The message that ends it is delivered, and the next one is not."""
    subscription = bench.client.subscribe(b"a.*")
    subscription.max_msgs = 4
    _kept(bench, b"a.b")
    assert [bench.reach(b"a.b"), bench.reach(b"a.b")] == [1, 0]
    assert subscription.client is not bench.client
