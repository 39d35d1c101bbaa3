"""Fault records: text in, text out, and errors that say what was expected."""

from __future__ import annotations

import pytest

from tnats.harness.faults import AfterAcks, At, Every, Fault, FaultError, duration_text, parse_duration, parse_fault

SECOND_NS = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("at 20s D_POWER policy=strict down=1s", (At(20 * SECOND_NS), {"policy": "strict", "down_ns": SECOND_NS})),
        ("every 5s from 1500ms P_KILL", (Every(5 * SECOND_NS, 1_500_000_000), {})),
        ("after 500 acks D_BITFLIP files=block bits=2", (AfterAcks(500), {"files": "block", "bits_count": 2})),
        ("at 0ns P_PAUSE targets=n1,n2 for=1m", (At(0), {"targets": "n1,n2", "for_ns": 60 * SECOND_NS})),
    ],
)
def test_a_record_is_read_and_written_alike(text: str, fault: tuple[At | Every | AfterAcks, dict[str, object]]) -> None:
    """The text form gives anchor and typed parameters, and comes back as it was."""
    read = parse_fault(text)
    assert (read.anchor, read.parameters) == fault
    assert str(read) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begin with"),
        ("soon P_KILL", "begin with"),
        ("at 5 P_KILL", "no duration"),
        ("every 0s from 1s P_KILL", "begin with"),
        ("after x acks P_KILL", "begin with"),
        ("at 5s", "unknown kind (nothing)"),
        ("at 5s P_KIL", "unknown kind P_KIL"),
        ("at 5s P_KILL policy=strict", "takes: targets, down"),
        ("at 5s P_KILL down_ns=5", "takes: targets, down"),
        ("at 5s P_KILL targets=", "takes: targets, down"),
        ("at 5s D_BITFLIP bits=two", "whole number"),
        ("at 5s P_KILL down=1h", "no duration"),
    ],
)
def test_what_is_no_record_is_refused_with_a_reason(text: str, reason: str) -> None:
    """One line that names the text and what was expected."""
    with pytest.raises(FaultError) as caught:
        parse_fault(text)
    assert reason in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_scaling_touches_times_alone() -> None:
    """Anchors and durations shrink, counts and names stay."""
    fault = parse_fault("every 5s from 2s D_BITFLIP files=block bits=2 stop=kill down=1s")
    assert str(fault.scaled(0.1)) == "every 500ms from 200ms D_BITFLIP files=block bits=2 stop=kill down=100ms"
    counted = parse_fault("after 9 acks P_KILL")
    assert counted.scaled(0.1) == Fault(AfterAcks(9), "P_KILL", {})


@pytest.mark.parametrize("text", ["0ns", "1ns", "17us", "1500ms", "90s", "2m"])
def test_durations_round_trip(text: str) -> None:
    """The shortest form is stable."""
    assert duration_text(parse_duration(text)) == text
