"""Plans, tokens, shrinking, the ledger, batches: the parts of the simulated harness one by one."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats.errors import TnatsError
from tnats.harness.faults import FaultError, parse_fault
from tnats.harness.history import from_edn
from tnats.harness.scenario import Scenario
from tnats.harness.sim.batch import Batch
from tnats.harness.sim.bodies import payload, value_of
from tnats.harness.sim.core_evidence import matches
from tnats.harness.sim.drill import Drill
from tnats.harness.sim.export import export
from tnats.harness.sim.files import load_drill, read_plan, resolve, token_of
from tnats.harness.sim.kinds import SIM_KINDS
from tnats.harness.sim.ledger import Ledger, class_of
from tnats.harness.sim.plan import Operation, Plan, PlanError, parse_operation, parse_plan, plan_of
from tnats.harness.sim.run import Result, run_plan
from tnats.harness.sim.shrink import Shrinker, delta_debug
from tnats.harness.sim.swarm import DRAWS, Scene, draw_faults
from tnats.harness.sim.token import Token, TokenError, parse_token
from tnats.runtime.sim.chance import stream
from tnats.subjects.tokens import is_valid_subject

SCENARIOS = Path(__file__).parents[4] / "simulations"
SCENE = Scene(["c1", "c2", "c3"], ["server"], 5_000_000_000)


@given(st.integers(0, 1 << 60), st.sampled_from(sorted(DRAWS)))
def test_every_drawn_fault_has_a_text_form(seed: int, kind: str) -> None:
    """What the swarm draws can be written down, read back as the same, and carried out."""
    for fault in draw_faults(stream(seed, "x"), SCENE, [kind]):
        assert parse_fault(str(fault)) == fault
        assert fault.kind in SIM_KINDS


@pytest.mark.parametrize("text", ["before sync 3 of */journal/* P_KILL targets=server", "at barrier x.y 2 D_POWER"])
def test_anchors_on_events_have_a_text_form(text: str) -> None:
    """Anchors on disk calls and places in the code are written as they are read."""
    assert str(parse_fault(text)) == text


def test_plans_survive_their_text() -> None:
    """A plan comes back from its record as it was, whatever else stands in the file; other files are refused."""
    operations = (Operation(1_500_000_000, "c1", "publish", {"subject": "a.b", "size": "10"}),)
    plan = Plan("core", 7, {"clients": 3, "policy": "fifo"}, (parse_fault("at 1s P_KILL targets=server"),), operations)
    assert plan_of({**plan.record(), "found": {"rule": "x"}}) == plan
    assert str(operations[0]) == "at 1500ms c1 publish subject=a.b size=10"
    for text, message in (
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"format": "tnats-sim/1"}', "'scenario' is missing"),
    ):
        with pytest.raises(PlanError, match=message):
            parse_plan(text)
    with pytest.raises(PlanError, match="expected `at TIME ACTOR VERB"):
        parse_operation("publish something")


def test_tokens() -> None:
    """A token is one word that gives back scenario, seed and code; anything else is refused in one line."""
    token = Token("core_crowd", 123456789, "0123456789")
    assert parse_token(str(token)) == token
    assert str(token).startswith("sim1-")
    assert len(str(token).split()) == 1
    for text in ("sim1-", "sim1-!!!", "sim2-abc", str(token)[:-6], "nonsense"):
        with pytest.raises(TokenError, match="is no token"):
            parse_token(text)


@given(st.sets(st.integers(0, 40), max_size=4), st.integers(1, 41))
def test_delta_debugging_finds_exactly_what_is_needed(needed: set[int], count: int) -> None:
    """If a run fails whenever certain items are there, those are what is left."""
    wanted = {item for item in needed if item < count}
    left = delta_debug(tuple(range(count)), lambda rest: wanted <= set(rest))
    assert set(left) == wanted


def test_shrinking_names_what_is_needed() -> None:
    """Faults, operations and parameters that do not matter go; the counterfactual names those that do."""
    faults = tuple(parse_fault(f"at {second}s N_PART targets=c1,c2 for=7777ms") for second in range(1, 6))
    operations = tuple(Operation(second, "c4", "publish", {"size": "100"}) for second in range(20))
    plan = Plan("core", 1, {"clients": 5, "policy": "random", "duration_ms": 8000}, faults, operations)

    def fails(candidate: Plan) -> bool:
        times = [fault.anchor.time_ns // 1_000_000_000 for fault in candidate.faults]  # type: ignore[union-attr]
        return 2 in times and 4 in times and any(operation.at_ns == 7 for operation in candidate.operations)

    shrunk = Shrinker(plan, fails, calm=Drill.calm).run()
    assert [str(fault) for fault in shrunk.plan.faults] == [
        "at 2s N_PART targets=c2 for=10ms",
        "at 4s N_PART targets=c2 for=10ms",
    ] or all(fault.word("targets", "") in ("c1", "c2") for fault in shrunk.plan.faults)
    assert len(shrunk.plan.operations) == 1
    assert shrunk.plan.number("clients") == 1
    assert shrunk.plan.word("policy") == "fifo"
    assert shrunk.plan.number("duration_ms") <= 250
    assert shrunk.needs == "F1 and F2"


def test_the_ledger_keeps_the_budget() -> None:
    """Faults beyond the budget are refused with the reason; the class of a run is that of the worst that struck."""
    ledger = Ledger("B1")
    power, flip = parse_fault("at 1s D_POWER targets=server"), parse_fault("at 1s D_BITFLIP targets=server")
    assert ledger.refusal(power) == ""
    assert ledger.refusal(flip) == "B3 is beyond the budget B1"
    ledger.enter(power)
    assert ledger.reached == "B1"
    wide = Ledger("B4")
    wide.enter(flip)
    wide.enter(flip)
    wide.enter(parse_fault("at 1s D_MISDIRECT targets=server files=any for=1s times=1"))
    assert wide.reached == "B3"
    wide.enter(parse_fault("at 1s D_MISDIRECT targets=server files=any for=1s"))
    assert wide.reached == "B4"
    assert class_of(parse_fault("at 1s N_PART targets=c1")) == "B0"


TOKENS = st.sampled_from(["a", "b", "c"])


@given(st.lists(TOKENS, min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b", "*"]), max_size=4), st.booleans())
def test_the_oracle_of_matching(subject: list[str], pattern: list[str], rest: bool) -> None:
    """The drill's own matcher agrees with a plain reading of the rules; it is not the server's."""
    tokens = [*pattern, ">"] if rest or not pattern else pattern
    assert is_valid_subject(".".join(tokens))
    fits = len(subject) > len(tokens) - 1 if tokens[-1] == ">" else len(subject) == len(tokens)
    expected = fits and all(
        want in ("*", have) for want, have in zip(tokens if tokens[-1] != ">" else tokens[:-1], subject, strict=False)
    )
    assert matches(".".join(tokens), ".".join(subject)) == expected


class Probed(Drill):
    """For batches."""

    probes = ("seen", "never seen")
    probes_within = 3


class Bird(Scenario):
    """A canary."""

    must_fail = True


def test_a_batch_wants_its_probes_and_its_canary() -> None:
    """A batch that was large enough fails when a probe was never hit, or when its canary lived."""
    batch = Batch({"probed": Probed, "bird": Bird})
    for seed in range(2):
        assert batch.add(Result("probed", seed, "pass", probes={"seen": 2}))
    assert batch.passed
    assert batch.missing() == 1
    batch.add(Result("probed", 2, "pass"))
    assert list(batch.problems()) == ["probed: in 3 runs it never happened that 'never seen'"]
    batch.add(Result("bird", 1, "pass"))
    assert [problem.split(" passed")[0] for problem in batch.problems()][-1] == "the canary bird"
    batch.add(Result("bird", 2, "violation", rule="x"))
    assert len(list(batch.problems())) == 1


def test_results_as_junit() -> None:
    """The XML is well-formed whatever a violation says, names the failing seed, and carries the replay command."""
    batch = Batch({"probed": Probed})
    batch.add(Result("probed", 5, "violation", rule="C32 <loss>", text="a \x00 & b <c>", trace="]]> \x01"))
    batch.add(Result("corpus/held", 5, "pass"))
    suite = ElementTree.fromstring(batch.junit({("probed", 5): "tnats sim replay sim1-abc"}).partition("\n")[2])
    assert suite.get("failures") == "1"
    assert [case.get("classname") for case in suite] == ["corpus/held", "probed"]
    failure = suite.find("./testcase[@name='seed 5']/failure")
    assert failure is not None
    assert failure.get("type") == "C32 <loss>"
    assert "tnats sim replay sim1-abc" in str(failure.text)


def test_every_kind_says_how_it_is_drawn() -> None:
    """Each kind that can be carried out can be drawn, and the other way round."""
    assert SIM_KINDS.keys() == DRAWS.keys()


def test_an_export_can_be_read_again(tmp_path: Path) -> None:
    """The history comes back event by event from its EDN, the trace is that of any other run of the plan."""
    kind = load_drill(SCENARIOS, "jetstream_kv")
    plan = kind.draw(3)
    played, paths = export(kind, plan, tmp_path)
    assert {path.name for path in paths} == {
        "history.edn",
        "history.jsonl",
        "notes.jsonl",
        "trace.txt",
        "scenario.json",
    }
    assert played.drill is not None
    history = played.drill.history
    assert history is not None
    read = from_edn((tmp_path / "history.edn").read_text().splitlines())
    assert [event.record() for event in read.events] == [event.record() for event in history.events]
    assert read_plan(tmp_path / "scenario.json") == plan
    assert played.result.trace_hash == run_plan(kind, plan).result.trace_hash


def test_scenario_files_are_there() -> None:
    """The repository's scenarios load, each with a summary."""
    from tnats.harness.catalogue import load_scenario, scenario_names, summary_of

    for name in scenario_names(SCENARIOS):
        assert summary_of(load_scenario(SCENARIOS, name)).endswith(".")


def test_a_seed_is_named_by_its_scenario_or_by_a_token() -> None:
    """SCENARIO:SEED names the run that the token of the present code names; anything else is told what a run is."""
    token = token_of(SCENARIOS, "core", 3)
    assert resolve(SCENARIOS, "core:3", stale_too=False)[1:] == resolve(SCENARIOS, token, stale_too=False)[1:]
    with pytest.raises(PlanError, match="SCENARIO:SEED"):
        resolve(SCENARIOS, "core", stale_too=False)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"operations": ["at 1ms c1 dance"]}, "there is no verb dance"),
        ({"parameters": {"budget": "B9"}}, "budget is to be one of B0"),
        ({"parameters": {"policy": "lucky"}}, "policy is to be one of random"),
        ({"operations": ["at 1ms c9 publish"]}, "there is no c9; there are c1, c2"),
        ({"faults": ["at 1ms M_ADD targets=server"]}, "only a cluster"),
        ({"faults": ["at 1ms N_PART targets=server kind=ring"]}, "only a cluster"),
        ({"faults": ["at 1ms T_JUMP targets=server way=bakc"]}, "way is to be one of forth, back, not 'bakc'"),
        ({"faults": ["at 1ms D_POWER targets=server policy=x"]}, "policy is to be one of lazyfs"),
    ],
)
@pytest.mark.parametrize("name", ["core", "jetstream_publish"])
def test_a_plan_that_makes_no_sense_is_refused(name: str, changes: dict[str, object], said: str) -> None:
    """It is neither run as something else nor taken for a failure of the system."""
    refused(name, changes, said)


def refused(name: str, changes: dict[str, object], said: str) -> None:
    kind = load_drill(SCENARIOS, name)
    record = kind.draw(1).record() | {"faults": [], "operations": []}
    parameters = record["parameters"] | {"clients": 2, "budget": "B1"} | changes.get("parameters", {})
    with pytest.raises((PlanError, FaultError), match=said):
        run_plan(kind, plan_of(record | changes | {"parameters": parameters}))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("jetstream_publish", {"parameters": {"sync": "lzy"}}, "sync is to be one of always, lazy, not 'lzy'"),
        ("storage_power", {"parameters": {"cipher": "rot13"}}, "cipher is to be one of .*chacha.*, not 'rot13'"),
        ("storage_power", {"operations": ["at 1ms s9 append"]}, "there is no s9"),
    ],
)
def test_a_word_that_one_drill_has_alone_is_looked_at_too(name: str, changes: dict[str, object], said: str) -> None:
    """A wrong word is no other word for the default."""
    refused(name, changes, said)


def test_a_fault_without_a_machine_never_strikes() -> None:
    """A corpus entry whose faults name nobody is stale, and not a success."""
    kind = load_drill(SCENARIOS, "core")
    record = kind.draw(1).record() | {"faults": ["at 1ms P_KILL targets=nobody"], "operations": []}
    assert run_plan(kind, plan_of(record)).result.missed == ("at 1ms P_KILL targets=nobody",)


@pytest.mark.parametrize("name", ["core", "jetstream_publish"])
def test_a_reload_is_carried_out(name: str) -> None:
    """O_RELOAD has the server take its configuration anew; a reload that is refused is a violation."""
    kind = load_drill(SCENARIOS, name)
    record = kind.draw(1).record() | {"faults": ["at 100ms O_RELOAD targets=server"], "operations": []}
    played = run_plan(kind, plan_of(record))
    assert played.result.passed
    assert played.drill is not None
    log = [line for _, line in played.drill.stage.world.nodes["server"].log_lines]
    assert sum("Reloaded server configuration" in line for line in log) == 1


def test_deaths_inside_disk_calls_are_of_machines_with_a_disk() -> None:
    """A client calls no disk: such a fault would never strike."""
    kind = load_drill(SCENARIOS, "jetstream_publish")
    faults = [fault for seed in range(60) for fault in kind.draw(seed).faults if str(fault.anchor).startswith("before")]
    assert {fault.word("targets", "") for fault in faults} == {"server"}


@pytest.mark.parametrize(
    ("data", "said"), [(b"\xff", "not UTF-8 at byte 0"), (b"[" * 100_000, "not JSON"), (b"[1]", "expected an object")]
)
def test_a_file_that_is_no_plan_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    """Whatever stands in it, it is one line with its path."""
    (tmp_path / "plan.json").write_bytes(data)
    with pytest.raises(PlanError, match=said) as caught:
        read_plan(tmp_path / "plan.json")
    assert str(caught.value).startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"), [("x = ", "SyntaxError"), ("import nothing_of_it", "line 1"), ("1 / 0", "Zero")]
)
def test_a_scenario_file_that_does_not_load_is_named(tmp_path: Path, text: str, said: str) -> None:
    """Its author is told which file, what, and where."""
    (tmp_path / "wrong.py").write_text(text)
    with pytest.raises(TnatsError, match=said) as caught:
        load_drill(tmp_path, "wrong")
    assert str(caught.value).startswith(f"{tmp_path}/wrong.py does not load")


@pytest.mark.parametrize("size", [0, 1, 10, 3000])
def test_a_body_is_whole_or_has_no_value(size: int) -> None:
    """Whatever is cut off a message, or added or changed, leaves something that nobody has sent."""
    whole = payload("c1-12", size)
    assert value_of(whole) == "c1-12"
    changed = [whole[:end] for end in range(1, len(whole))]
    changed += [whole + b"#", whole + b"x", whole[:-1] + b"?", b"x" + whole]
    assert "c1-12" not in map(value_of, changed)
