"""Histories: Jepsen's rules of processes, and its text forms."""

from __future__ import annotations

import pytest

from tnats.harness import edn
from tnats.harness.history import History, Recorder, from_edn, from_json_lines

JEPSEN_LINES = """\
{:index 0, :time 16109960074, :type :invoke, :process 4, :f :publish, :value "4-63"}
{:index 1, :time 16112167773, :type :ok, :process 4, :f :publish, :value "4-63"}
{:index 2, :time 16114235936, :type :info, :process :nemesis, :f :start-partition, \
:value [:isolated {"n1" #{"n2" "n5"}, "n2" #{"n1"}}], :clock-offsets {"n1" 0.5}}
"""


def recorded() -> History:
    times = iter(range(100, 10_000, 7))
    recorder = Recorder(lambda: next(times), 2)
    recorder.invoke(0, "publish", "0-0", node="n1")
    recorder.invoke(1, "publish", "1-0", node="n1")
    recorder.end(1, "info", "publish", "1-0", error="timed out")
    recorder.nemesis("kill", ["n1"])
    recorder.end(0, "ok", "publish", "0-0", stream="s", seq=7, duplicate=False)
    recorder.invoke(1, "publish", "3-0", node="n1")
    recorder.end(1, "fail", "publish", "3-0", error="no responders")
    return recorder.history


def test_a_worker_goes_by_another_number_after_an_unknown_end() -> None:
    """Process numbers are not used again after `info`, and keep their remainder modulo the workers."""
    assert [event.process for event in recorded().events] == [0, 1, 1, "nemesis", 0, 3, 3]


def test_operations_pair_invocations_with_their_ends() -> None:
    """Pairs come in the order of invocation; an unknown end counts as none; the nemesis is no client."""
    operations = recorded().operations("publish")
    assert [(op.value, op.is_ok, op.is_failed, op.told("seq")) for op in operations] == [
        ("0-0", True, False, 7),
        ("1-0", False, False, None),
        ("3-0", False, True, None),
    ]


def test_both_text_forms_are_read_back() -> None:
    """EDN and JSON lines hold the whole history."""
    history = recorded()
    assert from_edn(history.to_edn()).events == history.events
    assert from_json_lines(history.to_json_lines()).events == history.events


def test_edn_has_the_form_of_jepsens_histories() -> None:
    """One map a line, the keys in Jepsen's order, keywords for type and function."""
    assert next(iter(recorded().to_edn())) == (
        '{:index 0, :time 7, :type :invoke, :process 0, :f :publish, :value "0-0", :node "n1"}'
    )


def test_a_history_of_jepsen_is_read() -> None:
    """Keywords, sets, nested maps and further keys of a real history file."""
    history = from_edn(JEPSEN_LINES.splitlines())
    assert [op.value for op in history.operations() if op.is_ok] == ["4-63"]
    (nemesis,) = history.nemesis()
    assert nemesis.value == ["isolated", {"n1": {"n2": None, "n5": None}, "n2": {"n1": None}}]
    assert nemesis.extra == {"clock-offsets": {"n1": 0.5}}


@pytest.mark.parametrize("text", ["", "{:a}", "[1 2", ")", '"open', "1 2", "#inst 5", "\\a"])
def test_what_is_no_edn_is_refused(text: str) -> None:
    """Broken or foreign text raises EdnError and nothing else."""
    with pytest.raises(edn.EdnError):
        edn.read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("[true false]", [True, False]),
        ('{:a 1, "b" -2.5}', {edn.Keyword("a"): 1, "b": -2.5}),
        ("(1 2N) ; the end", [1, 2]),
        ('"a\\"b\\nc"', 'a"b\nc'),
        ("sym", "sym"),
    ],
)
def test_edn_values(text: str, value: object) -> None:
    """Each kind of value that histories use."""
    assert edn.read(text) == value
