"""The page of a run: well-formed, complete in itself, and it counts what it draws."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from tests.unit.harness.test_checkers import GOOD, evidence

from tnats.harness.checkers.acked_present import classes
from tnats.harness.history import Event
from tnats.harness.loss_plot import COLOURS, page, svg, ticks


def test_each_publish_has_its_class() -> None:
    """By sequence among what was kept."""
    found = classes(evidence({1: "0-0", 2: "0-1", 3: "0-2", 4: "0-3", 5: "0-4"}, n1={2: "0-1", 4: "0-3"}))
    assert [name for _, name in found] == ["lost_prefix", "ok", "lost_middle", "ok", "lost_postfix"]


def test_the_plot_is_well_formed_and_shows_faults() -> None:
    """XML; one line a fault with its time and what was done as title."""
    found = evidence(GOOD, n1={1: "0-0"})
    found.history.events.append(Event(99, 20_000, "info", "nemesis", "kill", "<n1>"))
    root = ElementTree.fromstring(svg(found))
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert titles == ["0.00 s: kill <n1>"]


def test_the_page_stands_alone() -> None:
    """No link, script or image from elsewhere; what is text stays text."""
    text = page("t <i>", "broken", [("a", "b & c")], ["K1: <script>"], evidence(GOOD))
    assert "t &lt;i&gt;" in text
    assert "b &amp; c" in text
    assert "<script" not in text
    assert "http" not in text
    assert "src=" not in text


def test_a_run_without_any_acknowledgement_is_drawn_too() -> None:
    """Empty stores and histories have no extremes to divide by."""
    ElementTree.fromstring(svg(evidence({}, n1={})))


def test_every_node_of_a_cluster_has_a_plot() -> None:
    """In which what it lacks is lost, though another node has it; none for a node that could not be read, and one for
    those that hold the same.
    """
    found = evidence(GOOD, n1=GOOD, n2={1: "0-0", 4: "0-3"}, n3=GOOD, n4=GOOD)
    found.replicas[2].failure = "no consumer was placed on it"
    text = page("t", "broken", [], [], found)
    assert text.count("<svg") == 3
    assert re.findall("What is held by ([^<]*)<", text) == ["n1, n4", "n2"]
    assert COLOURS["lost_middle"] in svg(found, found.replicas[1])
    assert COLOURS["lost_middle"] not in svg(found)
    assert page("t", "broken", [], [], evidence(GOOD)).count("<svg") == 1


@pytest.mark.parametrize(
    ("end", "marks"),
    [(3613, [0, 1000, 2000, 3000]), (28.7, [0, 5, 10, 15, 20, 25]), (5, [0, 1, 2, 3, 4, 5]), (130.6, [0, 50, 100])],
)
def test_axes_are_marked_at_round_numbers(end: float, marks: list[float]) -> None:
    """From nought to the last one that is on the axis."""
    assert list(ticks(end)) == marks


def test_what_mends_is_no_fault_and_names_do_not_overlap() -> None:
    """A partition is drawn from its start; three faults at one moment are three lines with two names, one a row."""
    found = evidence(GOOD)
    steps = ["start-partition", "kill", "power-loss", "start", "stop-partition", "resume"]
    found.history.events += [Event(99, 20_000, "info", "nemesis", name, "n1") for name in steps]
    root = ElementTree.fromstring(svg(found))
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert titles == ["0.00 s: partition n1", "0.00 s: kill n1", "0.00 s: power-loss n1"]
    names = [
        element for element in root.iter() if element.tag.endswith("text") and element.text in ("partition", "kill")
    ]
    assert len({element.get("y") for element in names}) == 2
