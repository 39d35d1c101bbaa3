"""Direct gets: what nats-server answers, and what is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conformance.jetstream_talk import Servers, Talk, Told, both_servers, side_by_side

LONG_AGO, FAR_OFF = "2020-01-01T00:00:00Z", "2120-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both servers for all tests of this module."""
    with both_servers(tmp_path_factory.mktemp("servers")) as running:
        yield running


def fill(talk: Talk) -> str:
    """Messages 1 to 20 on nine subjects, without 3, 8 and 16; the time between 10 and 11."""
    talk.create("S", allow_direct=True)
    for number in range(1, 21):
        talk.stored(f"s.{number % 3}.{number % 4}", b"%d" % number, {"N": "x" * number * 10})
    for seq in (3, 8, 16):
        talk.done("STREAM.MSG.DELETE.S", {"seq": seq})
    return talk.get("S", {"seq": 11}).headers["Nats-Time-Stamp"]


def seqs(found: list[Told]) -> list[int]:
    return [int(told.headers["Nats-Sequence"]) for told in found if not told.status]


@side_by_side
def test_one_message(talk: Talk) -> None:
    """By sequence, as the last or the next of a subject, from a time on, and by the subject of the request."""
    time = fill(talk)
    for body, seq in (
        ({"seq": 4}, 4),
        ({"last_by_subj": "s.1.1"}, 13),
        ({"last_by_subj": "s.*.0"}, 20),
        ({"next_by_subj": "s.1.*"}, 1),
        ({"next_by_subj": "s.1.*", "seq": 8}, 10),
        ({"next_by_subj": "s.2.*", "seq": 8}, 11),
        ({"start_time": LONG_AGO}, 1),
        ({"start_time": time}, 11),
        ({"start_time": time, "next_by_subj": "s.1.*"}, 13),
        ({"unknown": 1, "seq": 4}, 4),
    ):
        told = talk.get("S", body)
        assert (told.headers.get("Nats-Sequence"), told.data) == (str(seq), b"%d" % seq), body
        assert told.headers["Nats-Subject"] == f"s.{seq % 3}.{seq % 4}"
    for body in ({"seq": 3}, {"seq": 21}, {"last_by_subj": "x"}, {"next_by_subj": "s.1.*", "seq": 20},
                 {"start_time": FAR_OFF}, {"last_by_subj": "s..x"}):  # fmt: skip
        assert talk.get("S", body).status == "404 Message Not Found", body
    assert talk.get("S", None, "s.1.1").data == b"13"
    assert talk.get("S", None, "s.1.9").status == "404 Message Not Found"


@side_by_side
def test_no_headers(talk: Talk) -> None:
    """Where none are wanted there is none at all, whichever way a single message is asked for."""
    talk.create("S", allow_direct=True)
    talk.stored("s.a", b"body", {"Large": "x" * 10_000})
    for subject, body in (("", {"seq": 1}), ("", {"last_by_subj": "s.a"}), ("s.a", {})):
        assert talk.get("S", {**body, "no_hdr": True}, subject).block == b""
        assert talk.get("S", body or None, subject).headers["Large"]
    with talk.ours_alone():  # nats-server counts what is pending only where it shows it
        told = talk.get_all("S", {"batch": 5, "seq": 1, "no_hdr": True})
    assert [one.block for one in told][:-1] == [b""]


@side_by_side
def test_requests_that_are_none(talk: Talk) -> None:
    """Nothing, something that is no request, and what contradicts itself."""
    fill(talk)
    for body in (
        None,
        {},
        b"null",
        {"seq": 0},
        {"last_by_subj": ""},
        {"batch": 3},
        {"multi_last": []},
        {"up_to_seq": 5},
    ):
        assert talk.get("S", body).status == "408 Empty Request", body
    for body in (b"x", b"[]", {"seq": "x"}, {"seq": -1}, {"start_time": "x"}):
        assert talk.get("S", body).status == "408 Malformed Request", body
    for body in (
        {"seq": 1, "start_time": LONG_AGO},
        {"seq": 1, "last_by_subj": "s.1.1"},
        {"last_by_subj": "s.1.1", "next_by_subj": "s.1.1"},
        {"last_by_subj": "s.1.1", "batch": 3},
        {"multi_last": ["s.1.1"], "last_by_subj": "s.1.1"},
        {"multi_last": ["s.1.1"], "up_to_seq": 5, "up_to_time": LONG_AGO},
        {"multi_last": ["s.1.1"], "seq": 1, "start_time": LONG_AGO},
        {"last_by_subj": "s.1.1", "up_to_seq": 5, "up_to_time": LONG_AGO},
    ):
        assert talk.get("S", body).status == "408 Bad Request", body
    for body in ({"seq": 1}, {"last_by_subj": "s.1.1"}, {"batch": 2}):
        assert talk.get("S", body, "s.1.1").status == "408 Bad Request", body
    assert talk.get("S", {"max_bytes": 10}, "s.1.1").status != "408 Bad Request"
    talk.create("N")
    assert talk.get("N", {"seq": 1}).status == "503"


@side_by_side
def test_batches(talk: Talk) -> None:
    """So many from a place on, with how many are left behind each, and an end."""
    time = fill(talk)
    for body, wanted in (
        ({"batch": 3, "seq": 1}, [1, 2, 4]),
        ({"batch": 100, "seq": 15}, [15, 17, 18, 19, 20]),
        ({"batch": 3, "next_by_subj": "s.1.*"}, [1, 4, 7]),
        ({"batch": 3, "next_by_subj": "s.1.*", "seq": 8}, [10, 13, 19]),
        ({"batch": 2, "start_time": time}, [11, 12]),
        ({"batch": 2, "start_time": time, "next_by_subj": "s.1.*"}, [13, 19]),
        ({"batch": 3, "seq": 1, "max_bytes": 1}, [1]),
    ):
        found = talk.get_all("S", body)
        assert seqs(found) == wanted, body
        assert found[-1].status == "204 EOB"
        assert found[-1].headers["Nats-Last-Sequence"] == str(wanted[-1])
    for body in (
        {"batch": 3, "seq": 21},
        {"batch": 3, "seq": 1, "next_by_subj": "x"},
        {"batch": 3, "start_time": FAR_OFF},
    ):
        assert [told.status for told in talk.get_all("S", body)] == ["404 Message Not Found"]


@side_by_side
def test_bytes_of_a_batch(talk: Talk) -> None:
    """A batch ends before the message that would be too much, unless that is the first."""
    talk.create("S", allow_direct=True)
    talk.flood(["s"] * 10, b"x" * 100)
    with talk.ours_alone() as is_ours:  # nats-server sends the one that is too much, and ends then
        for bytes_max, count in ((350, 3), (300, 3), (299, 2), (50, 1)):
            found = talk.get_all("S", {"batch": 10, "seq": 1, "max_bytes": bytes_max})
            assert not is_ours or len(seqs(found)) == count
            found = talk.get_all("S", {"multi_last": ["s"], "max_bytes": bytes_max})
            assert len(seqs(found)) == 1


@side_by_side
def test_the_last_of_many_subjects(talk: Talk) -> None:
    """As of now, as of a sequence, as of a time; each subject once, in the order of sequences."""
    time = fill(talk)
    last = {number % 3 * 4 + number % 4: number for number in range(1, 21) if number not in (3, 8, 16)}
    for body, wanted in (
        ({"multi_last": ["s.>"]}, sorted(last.values())),
        ({"multi_last": ["s.1.1", "s.2.2", "s.0.0"]}, [12, 13, 14]),
        ({"multi_last": ["s.1.*", "s.1.1"]}, [4, 10, 13, 19]),
        ({"multi_last": ["s.>"], "batch": 2}, sorted(last.values())[:2]),
        ({"multi_last": ["s.>"], "seq": 15}, [15, 17, 18, 19, 20]),
        ({"multi_last": ["s.>"], "up_to_seq": 5}, [1, 2, 4, 5]),
        ({"multi_last": ["s.>"], "up_to_time": time}, [1, 2, 4, 5, 6, 7, 9, 10]),
        ({"multi_last": ["s.>"], "up_to_time": FAR_OFF}, sorted(last.values())),
    ):
        assert seqs(talk.get_all("S", body)) == wanted, body
    for body in ({"multi_last": ["x"]}, {"multi_last": ["s.>"], "up_to_time": LONG_AGO}):
        assert [told.status for told in talk.get_all("S", body)] == ["404 No Results"]
    with talk.ours_alone() as is_ours:  # nats-server shows all headers; without any, nobody could tell them apart
        told = talk.get_all("S", {"multi_last": ["s.0.0"], "no_hdr": True})[0]
        assert not is_ours or (told.headers["Nats-Subject"], "N" in told.headers) == ("s.0.0", False)
    with talk.ours_alone() as is_ours:  # nats-server finds nothing up to a sequence that is yet to come
        assert not is_ours or seqs(talk.get_all("S", {"multi_last": ["s.>"], "up_to_seq": 99})) == sorted(last.values())


@side_by_side
def test_too_many_subjects(talk: Talk) -> None:
    """The last of up to 1024 subjects can be had at once; with one more, the request is refused."""
    talk.create("S", allow_direct=True)
    talk.flood(f"s.{number}" for number in range(1025))
    assert [told.status for told in talk.get_all("S", {"multi_last": ["s.*"]})] == ["413 Too Many Results"]
    talk.done("STREAM.PURGE.S", {"filter": "s.7"})
    assert len(seqs(talk.get_all("S", {"multi_last": ["s.*"]}))) == 1024


@side_by_side
def test_next_messages_among_many_subjects(talk: Talk) -> None:
    """Whatever was deleted, and wherever the reading begins, the next message is of the subject that was asked for."""
    talk.create("S", allow_direct=True)
    talk.flood(f"s.{number % 50}.{number}" for number in range(4000))
    talk.done("STREAM.PURGE.S", {"filter": "s.7.*", "keep": 3})
    talk.done("STREAM.PURGE.S", {"filter": "s.8.*"})
    for start in (1, 900, 2008, 3999):
        for token in (7, 8, 9):
            wanted = [
                number + 1
                for number in range(4000)
                if number % 50 == token and number + 1 >= start and (token != 7 or number > 3850) and token != 8
            ]
            found = talk.get_all("S", {"next_by_subj": f"s.{token}.*", "seq": start, "batch": 100})
            assert seqs(found) == wanted, (start, token)
