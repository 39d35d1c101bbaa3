"""Parts of the stream machine: quotas, sourcing rules, cron, TTL values, control subjects, republishing."""

from __future__ import annotations

import datetime
from typing import Any

import attrs
import orjson
import pytest
from tests.unit.jetstream.stores import SECOND, T0

from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.stream import quotas, rules
from tnats.jetstream.stream.config import Republish, Storage, StreamConfig, StreamSource, SubjectTransform
from tnats.jetstream.stream.counters import Total, merge_sourced
from tnats.jetstream.stream.cron import Cron, find_zone
from tnats.jetstream.stream.fast_batches import Control, parse_control
from tnats.jetstream.stream.headers import nats_headers, source_alone, storable
from tnats.jetstream.stream.quotas import AccountLimits, Quotas
from tnats.jetstream.stream.republish import Republisher
from tnats.jetstream.stream.ttl import NEVER, parse_ttl
from tnats.notation import format_time, parse_time
from tnats.subjects.draw import Draw
from tnats.wire.headers import parse_headers

GB = 1_000_000_000


def stream(name: str, max_bytes: int, replicas: int = 1, storage: Storage = Storage.FILE) -> StreamConfig:
    return StreamConfig(name=name, max_bytes=max_bytes, num_replicas=replicas, storage=storage)


def code(error: ApiError | None) -> int:
    return 0 if error is None else error.err_code


# ------------------------------------------------------------------ quotas


def test_flat_limits_count_replicas() -> None:
    """3 GB: three replicas of 3 GB are too much, one is not, nor three of 1 GB; one byte more is."""
    limits = Quotas(AccountLimits(max_storage=3 * GB))
    assert code(quotas.check(stream("T", 3 * GB, 3), limits, [])) == 10047
    assert code(quotas.check(stream("T", 3 * GB), limits, [])) == 0
    assert code(quotas.check(stream("T", GB, 3), limits, [])) == 0
    assert code(quotas.check(stream("T", GB + 1, 3), limits, [])) == 10047
    assert code(quotas.check(stream("U", 1), limits, [stream("T", GB, 3)])) == 10047
    assert code(quotas.check(stream("U", 1, storage=Storage.MEMORY), limits, [stream("T", GB, 3)])) == 0


def test_huge_reservations_do_not_wrap() -> None:
    """Three times 4e18 bytes are more than any limit, and later streams are judged as if nothing had been."""
    limits = Quotas(AccountLimits(max_storage=10 * GB))
    assert code(quotas.check(stream("T", 4 * 10**18, 3), limits, [])) == 10047
    assert code(quotas.check(stream("U", GB), limits, [])) == 0


def test_tiers() -> None:
    """A tier that is missing allows nothing; a tier counts each of its own streams once."""
    limits = Quotas(tiers={"R1": AccountLimits(max_storage=2 * GB, max_streams=2)})
    assert code(quotas.check(stream("T", GB, 3), limits, [])) == 10120
    others = [stream("A", GB), stream("B", 50 * GB, 3)]
    assert code(quotas.check(stream("T", GB), limits, others)) == 0
    assert code(quotas.check(stream("T", GB + 1), limits, others)) == 10047
    assert code(quotas.check(stream("T", 1), limits, [*others, stream("C", 1)])) == 10027


def test_other_limits() -> None:
    """Bytes that must be stated, and bounds on one stream."""
    required = Quotas(AccountLimits(max_bytes_required=True, storage_max_stream_bytes=100))
    assert code(quotas.check(stream("T", -1), required, [])) == 10113
    assert code(quotas.check(stream("T", 101), required, [])) == 10122
    assert code(quotas.check(stream("T", 100), required, [])) == 0


# ------------------------------------------------------------------ sourcing


def test_cycles_of_sources_are_found() -> None:
    """A stream that would source itself through others is refused; a diamond is not a cycle."""
    others = {
        "B": StreamConfig(name="B", sources=[StreamSource("C"), StreamSource("D")]),
        "C": StreamConfig(name="C", sources=[StreamSource("D")]),
        "D": StreamConfig(name="D"),
    }
    around = rules.Surroundings(find_stream=others.get)
    assert isinstance(rules.check(StreamConfig(name="A", sources=[StreamSource("B")]), around), StreamConfig)
    refused = rules.check(StreamConfig(name="D", sources=[StreamSource("B")]), around)
    assert isinstance(refused, ApiError)
    assert refused.description == "detected cycle"


@pytest.mark.parametrize(
    ("from_other", "from_own", "is_cycle"),
    [
        ({"filter_subject": "b.>"}, {"filter_subject": "a.>"}, False),
        ({"filter_subject": "b.>"}, {"filter_subject": "*.x"}, True),
        ({"filter_subject": "b.>"}, {}, True),
        ({}, {"filter_subject": "a.>"}, True),
        ({"filter_subject": "b.>"}, {"subject_transforms": [SubjectTransform("a.>", "b.>")]}, True),
    ],
)
def test_streams_that_source_each_other(from_other: dict[str, Any], from_own: dict[str, Any], is_cycle: bool) -> None:
    """They may where no message can come back, whether there is a stream between them or not."""
    other = StreamConfig(name="B", sources=[StreamSource("A", **from_own)])
    between = {"B": StreamConfig(name="B", sources=[StreamSource("C")]), "C": attrs.evolve(other, name="C")}
    wanted = StreamConfig(name="A", sources=[StreamSource("B", **from_other)])
    for others in ({"B": other}, between):
        checked = rules.check(wanted, rules.Surroundings(find_stream=others.get))
        assert (code(checked if isinstance(checked, ApiError) else None) == 10052) is is_cycle


def test_overlap_with_other_streams() -> None:
    """Creating and updating ask for every subject."""
    around = rules.Surroundings(overlaps=lambda subjects: any(subject.startswith("a") for subject in subjects))
    refused = rules.check_create(StreamConfig(name="T", subjects=["b", "a.x"]), around)
    assert code(refused if isinstance(refused, ApiError) else None) == 10065
    old = rules.check_create(StreamConfig(name="T", subjects=["b"]), around)
    assert isinstance(old, StreamConfig)
    refused = rules.check_update(old, StreamConfig(name="T", subjects=["a"]), around)
    assert code(refused if isinstance(refused, ApiError) else None) == 10065


# ------------------------------------------------------------------ cron


def firings(text: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    cron, tz, ns = Cron.parse(text), find_zone(zone), parse_time(start)
    assert cron is not None
    assert tz is not None
    found = []
    for _ in range(count):
        assert ns is not None
        ns = cron.next_after(ns, tz)
        found.append(format_time(ns)[:-1])
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/20 * * * * *", ["2024-02-27T23:59:40", "2024-02-28T00:00:00", "2024-02-28T00:00:20"]),
        ("@daily", ["2024-02-28T00:00:00", "2024-02-29T00:00:00", "2024-03-01T00:00:00"]),
        ("@monthly", ["2024-03-01T00:00:00", "2024-04-01T00:00:00", "2024-05-01T00:00:00"]),
        ("0 0 0 29 FEB *", ["2024-02-29T00:00:00", "2028-02-29T00:00:00"]),
        ("0 30 9 ? * mon-fri", ["2024-02-28T09:30:00", "2024-02-29T09:30:00", "2024-03-01T09:30:00"]),
        ("0 0 12 13 * FRI", ["2024-03-01T12:00:00", "2024-03-08T12:00:00", "2024-03-13T12:00:00"]),
        ("5/25 0 0 * * *", ["2024-02-28T00:00:05", "2024-02-28T00:00:30", "2024-02-28T00:00:55"]),
    ],
)
def test_cron_firings(text: str, expected: list[str]) -> None:
    """Steps, names, ranges, leap days; with both day fields restricted either may match."""
    assert firings(text, "2024-02-27T23:59:30Z", len(expected)) == expected


def test_clock_changes() -> None:
    """A time that a clock change skips does not fire that day; one that occurs twice fires once."""
    spring = firings("0 30 2 * * *", "2026-03-28T12:00:00Z", 2, "Europe/Berlin")
    assert spring == ["2026-03-30T00:30:00", "2026-03-31T00:30:00"]
    autumn = firings("0 30 2 * * *", "2026-10-24T12:00:00Z", 2, "Europe/Berlin")
    assert autumn == ["2026-10-25T00:30:00", "2026-10-26T01:30:00"]


def test_zones() -> None:
    """Names of the IANA data base, and nothing else that a path could reach."""
    assert find_zone("UTC") is datetime.UTC
    assert find_zone("America/Argentina/Buenos_Aires") is not None
    assert [find_zone(name) for name in ("", "Nope/X", "../zones", "zone.tab", "/etc/passwd")] == [None] * 5


# ------------------------------------------------------------------ small parts


@pytest.mark.parametrize(
    ("value", "ttl_ns"),
    [
        (b"5", 5 * SECOND),
        (b"1h1m", 3660 * SECOND),
        (b"never", NEVER),
        (b"NEVER", NEVER),
        (b"", 0),
        (b"0", None),
        (b"500ms", None),
        (b"-5", None),
        (b"x", None),
        (b"99999999999999999999", None),
    ],
)
def test_ttl_values(value: bytes, ttl_ns: int | None) -> None:
    """Whole seconds, Go durations of at least a second, or never."""
    assert parse_ttl(value) == ttl_ns


def test_control_subjects_of_fast_batches() -> None:
    """The last six tokens count, whatever stands before them."""
    assert parse_control(b"_INBOX.a.b.uuid.50.ok.7.1.$FI") == Control(b"uuid", 50, False, 7, 1)
    assert parse_control(b"R.uuid.0.fail.1.0.$FI") == Control(b"uuid", 10, True, 1, 0)
    assert parse_control(b"R.uuid.x.fail.18446744073709551614.1.$FI") == Control(b"uuid", 10, True, 2**64 - 2, 1)
    for reply in (b"R.$FI", b"R.u.1.maybe.1.0.$FI", b"R.u.1.ok.2.0.$FI", b"R.u.1.ok.1.3.$FI", b"R.u.1.ok.1.5.$FI"):
        assert isinstance(parse_control(reply), ApiError)


def test_republished_messages() -> None:
    """The copy tells where it comes from, and what came before it on its subject."""
    config = StreamConfig(name="T", subjects=["a.>"], republish=Republish("a.>", "z.>", headers_only=True))
    republisher = Republisher(config, Draw(1))
    assert republisher.build((b"b", b"", b"x"), 1, T0, 0) is None
    copy = republisher.build((b"a.1", b"NATS/1.0\r\nA: b\r\n\r\n", b"xyz"), 7, T0, 3)
    assert copy is not None
    subject, block, payload = copy
    assert (subject, payload) == (b"z.1", b"")
    parsed = parse_headers(block)
    assert parsed is not None
    assert parsed.fields == [
        (b"A", b"b"),
        (b"Nats-Stream", b"T"),
        (b"Nats-Subject", b"a.1"),
        (b"Nats-Sequence", b"7"),
        (b"Nats-Time-Stamp", b"2023-11-14T22:13:20Z"),
        (b"Nats-Last-Sequence", b"3"),
        (b"Nats-Msg-Size", b"3"),
    ]


@pytest.mark.parametrize(
    ("block", "stored"),
    [
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0 503 No\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\nA: b\r\nNats-Request-Info: {}\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\nNats-Request-Info: {}\r\n\r\n", b""),
        (b"NATS/1.0\r\n\r\n", b""),
        (b"NATS/1.0\r\n", b""),
        (b"NATS/1.0", b""),
        (b"junk", b""),
        (b"\r\n\r\n", b""),
        (b"NATS/1.0\nA: b\n\n", b""),
    ],
)
def test_blocks_that_are_stored(block: bytes, stored: bytes) -> None:
    """A stored header block can be read by everybody, whatever was published; nothing is stored of an empty one."""
    assert storable(block) == stored


def test_a_block_with_nothing_but_a_source() -> None:
    """It is read like any other; one with a further header, before or behind, is not taken for it."""
    place = b"O 7 > > o.x"
    assert source_alone(b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % place) == place
    assert nats_headers(b"NATS/1.0\r\nNats-Stream-Source: %b\r\n\r\n" % place) == {b"Nats-Stream-Source": place}
    for lines in (
        b"Nats-Stream-Source: %b\r\nNats-Msg-Id: a\r\n" % place,
        b"Nats-Msg-Id: a\r\nNats-Stream-Source: %b\r\n" % place,
        b"Nats-Stream-Source: %b\r\nX: y\r\n" % place,
    ):
        assert source_alone(b"NATS/1.0\r\n%b\r\n" % lines) == b""
        assert nats_headers(b"NATS/1.0\r\n%b\r\n" % lines)[b"Nats-Stream-Source"] == place


def test_counters_of_subjects_that_are_no_text() -> None:
    """Each counts for itself, although the header that tells of them is JSON."""
    total = Total()
    for subject in (b"c.\xff", b"c.\xfe"):
        for seq, told in ((1, 3), (2, 4)):
            merged = merge_sourced(b"", b'{"val":"%d"}' % told, b"O %d > > %b" % (seq, subject), total)
            assert merged is not None
            total = merged[2]
    assert total.value == 8
    assert len(orjson.loads(total.sources)["O"]) == 2
