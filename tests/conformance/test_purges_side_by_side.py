"""Purges and roll-ups as consumers see them: what nats-server answers, and what is right."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.conformance.consumer_talk import info, make, take
from tests.conformance.jetstream_talk import Servers, Talk, both_servers, side_by_side

WHOLE: tuple[object, ...] = (None, {"seq": 3}, {"seq": 8}, {"keep": 2}, {"filter": "s.*"})
PART: tuple[object, ...] = ({"filter": "s.0"}, {"filter": "s.0", "keep": 1}, "sub")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def place_after(
    talk: Talk, stream: str, filters: list[str], count: int, purge: object
) -> tuple[int, int, int, int, int]:
    """Where a consumer stands that took some of ten messages, when they were purged, or rolled up.

    Delivered and floor, consumer and stream sequence each, and how many messages await their ack.
    """
    talk.create(stream, subjects=["s.>"], allow_rollup_hdrs=True)
    talk.flood([f"s.{number % 2}" for number in range(10)])
    make(talk, stream=stream, filter_subjects=filters)
    if count:
        take(talk, count, stream=stream)
    if isinstance(purge, str):
        talk.stored("s.0", b"", {"Nats-Rollup": purge})
    else:
        talk.done(f"STREAM.PURGE.{stream}", purge)
    with talk.ours_alone():  # what is pending is counted later by nats-server
        found = info(talk, stream=stream)
    talk.done(f"STREAM.DELETE.{stream}")
    delivered, floor = ((found[key]["consumer_seq"], found[key]["stream_seq"]) for key in ("delivered", "ack_floor"))
    return *delivered, *floor, found["num_ack_pending"]


@side_by_side
def test_where_a_consumer_stands(talk: Talk) -> None:
    """Behind all that is gone, if that is all it wanted there, and nothing that is gone is awaited.

    Where only a part of what it wants went, nats-server's floor can pass messages that await their ack.
    """
    numbers = itertools.count()
    for filters, purges in (([], WHOLE), (["s.0"], WHOLE + PART), (["s.*"], WHOLE), (["s.1"], WHOLE)):
        for count in (0, 3):
            for purge in (*purges, "all"):
                found = place_after(talk, f"S{next(numbers)}", filters, count, purge)
                talk.log.append((filters, count, purge, found))
                if purge in (None, "all"):
                    assert found == (count, 10, count, 10, 0)
