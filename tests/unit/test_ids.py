"""Identifiers: nkeys, unique ids, hashes, nonces."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tnats import ids

KINDS = {
    "A": ids.KeyKind.ACCOUNT,
    "C": ids.KeyKind.CLUSTER,
    "N": ids.KeyKind.SERVER,
    "O": ids.KeyKind.OPERATOR,
    "U": ids.KeyKind.USER,
    "X": ids.KeyKind.CURVE,
}


@pytest.mark.parametrize("letter", KINDS)
@given(key=st.binary(min_size=32, max_size=32))
def test_keys_come_back(letter: str, key: bytes) -> None:
    """Every key decodes to itself, shows its kind in the first letter, and is no seed."""
    kind = KINDS[letter]
    public = ids.encode_public_key(kind, key)
    assert (len(public), public[0]) == (56, letter)
    assert ids.decode_public_key(public) == (kind, key)
    assert ids.is_public_key(public, kind)
    assert ids.decode_seed(public) is None


def test_keys_of_nats_server_are_valid() -> None:
    """Keys that nats-server wrote into an INFO pass, as server id and as curve key."""
    server = "NBET4XIZCCE3W5UGLDSMR4BEQQBQOMTMH23IJIO2YXFPM6JBJP5POVBL"
    curve = "XDACQBRMA2YTI4T2EKE3IZXJD53D7JTCENUX35NH67WNDBJX2WXHMTI2"
    assert ids.is_public_key(server, ids.KeyKind.SERVER)
    assert not ids.is_public_key(server, ids.KeyKind.USER)
    assert ids.is_public_key(curve, ids.KeyKind.CURVE)


@given(st.data())
def test_a_damaged_key_is_no_key(data: st.DataObject) -> None:
    """Any one character changed breaks the checksum; so do wrong lengths and alphabets."""
    public = ids.encode_public_key(ids.KeyKind.USER, data.draw(st.binary(min_size=32, max_size=32)))
    at = data.draw(st.integers(0, 55))
    other = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567").filter(lambda c: c != public[at]))
    assert ids.decode_public_key(public[:at] + other + public[at + 1 :]) is None
    for bad in ("", "U", public.lower(), public[:-1], public + "A", public + "AAAAAAAA", "ü" * 56, public[:-1] + "="):
        assert ids.decode_public_key(bad) is None
        assert ids.decode_seed(bad) is None


def test_nuids_are_unique_and_repeat_from_the_seed() -> None:
    """Ids are 22 base62 digits, never twice, and the same for the same generator."""
    first = ids.Nuid(Random(1))
    drawn = [first.next() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(len(one) == 22 and set(one) <= set(ids.DIGITS) for one in drawn)
    second = ids.Nuid(Random(1))
    assert drawn == [second.next() for _ in range(1000)]


def test_nuid_counter_runs_over_into_a_new_prefix() -> None:
    """At the end of the counter the random part changes instead of an id coming back."""
    nuid = ids.Nuid(Random(2))
    before = nuid.next()
    nuid._sequence = 62**10 - 1
    after = nuid.next()
    assert after[:12] != before[:12]
    assert len(after) == 22


def test_name_hash_is_the_raft_peer_id() -> None:
    """The hash that nats-server logs for a server named S1."""
    assert ids.name_hash("S1") == "sQnRv29R"
    assert ids.name_hash("S1", 6) == "sQnRv2"


def test_nonce_is_fifteen_characters() -> None:
    """11 bytes make 15 URL-safe characters without padding."""
    assert ids.encode_nonce(bytes(range(245, 256))) == "9fb3-Pn6-_z9_v8"
