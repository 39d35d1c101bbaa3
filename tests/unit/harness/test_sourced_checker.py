"""Chains of sources and mirrors: the checker is quiet on a correct run and names what is planted."""

from __future__ import annotations

import pytest
from tests.unit.harness.test_checkers import history
from tests.unit.harness.test_stream_checkers import evidence, pair, publish, refused

from tnats.harness.checkers import mirror, sourced
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.harness.checkers.sourced import Origin

U, V, W = publish("u", 1), publish("v", 2), publish("w", 3, subject="b")


def gathered(*texts: str) -> Replica:
    """What a stream has gathered, each as "value origin sequence", on subject "a" from sequence 1 on."""
    found = {}
    for seq, text in enumerate(texts, 1):
        value, _, source = text.partition(" ")
        found[seq] = Stored(value, "a", seq, {sourced.HEADER: f"{source} a a"} if source else None)
    return Replica("n1", found, len(texts))


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (("u S 1", "v S 2"), ""),
        (("u S 1",), "acknowledged v at 2"),
        (("v S 2", "u S 1"), "behind its 2"),
        (("u S 1", "v S 2", "v S 2"), "behind its 2"),
        (("u S 1", "v S 3"), "acknowledged at 2"),
        (("u S 1", "v S 2", "x S 4"), "nobody published there"),
        (("u S 1", "v S 2", "r S 4"), "nobody published there"),
        (("u S 1", "v S 2", "w S 3"), "nobody published there"),
        (("u S 1", "v S 2", "q S 4"), ""),
        (("u S 1", "v S 2", "u T 1"), "of no origin"),
        (("u S 1", "v S 2", "u"), "of no origin"),
    ],
)
def test_sources_bring_everything_once(texts: tuple[str, ...], named: str) -> None:
    """Lost, twice, out of order, from nowhere, refused, and on another subject than what is taken are named."""
    origin = Origin(evidence(U, V, W, publish("q", None), refused("r")), "a")
    found = sourced.check({"S": origin}, [gathered(*texts)])
    assert found.verdict == ("violated" if named else "ok")
    assert named in " ".join(found.texts)


def test_what_an_origin_holds_twice_may_come_twice() -> None:
    """A message that was stored once more, its id's window having passed, comes from where the origin holds it."""
    held = Replica("o1", {1: Stored("u", "a", 1), 2: Stored("u", "a", 2)}, 2)
    twice = Evidence(evidence(U).history, [held])
    assert sourced.check({"S": Origin(twice)}, [gathered("u S 1", "u S 2")]).verdict == "ok"
    assert "acknowledged at 1" in " ".join(sourced.check({"S": Origin(twice)}, [gathered("u S 1", "u S 3")]).texts)


def test_only_what_is_taken_is_asked_for() -> None:
    """A filter is kept both ways; what was to be removed need not have come; members of batches count."""
    elsewhere = Origin(evidence(U, W), "b")
    assert "is not taken from S" in " ".join(sourced.check({"S": elsewhere}, [gathered("u S 1")]).texts)
    removed = Origin(evidence(U, V, pair("remove", 1)))
    assert sourced.check({"S": removed}, [gathered("v S 2")]).verdict == "ok"
    batch = pair("batch", ["u", "v"], told={"seq": 2, "count": 2}, commit=True, subject="a")
    whole = {"S": Origin(Evidence(history(batch)))}
    assert sourced.check(whole, [gathered("u S 1", "v S 2")]).verdict == "ok"
    assert "acknowledged u at 1" in " ".join(sourced.check(whole, [gathered("v S 2")]).texts)


def test_a_mirror_is_the_image() -> None:
    """Another message, another end, and a hole are named."""
    origin = gathered("u S 1", "v S 2")
    assert mirror.check_image([(origin, gathered("u S 1", "v S 2"))]).verdict == "ok"
    for image in (gathered("u S 1"), gathered("u S 1", "x S 2"), Replica("n2", dict(origin.messages), 3)):
        assert mirror.check_image([(origin, image)]).verdict == "violated"
