"""What clients might say to a broker, for hypothesis: lawful, nearly lawful and not at all."""

from __future__ import annotations

from hypothesis import strategies as st

TOKENS = st.sampled_from([b"a", b"b", b"foo", b"*", b">", b"_INBOX", b"_R_", b"$JS", b"ACK", b"", b"\xff"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(b".".join)
SIDS = st.sampled_from([b"1", b"2", b"3", b"sid"])
QUEUES = st.sampled_from([b"", b"", b"g", b"h"])
BLANKS = st.sampled_from([b" ", b" ", b" ", b" ", b"\t", b"  ", b" \t "])
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n"])
SIZES = st.one_of(st.integers(0, 40), st.sampled_from([2000, 4090, 4200, 40_000, 70_000]))
CONNECTS = st.sampled_from(
    [
        b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}',
        b'CONNECT {"verbose":false,"pedantic":false,"echo":false}',
        b'CONNECT {"verbose":true,"pedantic":true,"headers":true}',
        b"CONNECT {}",
    ]
)


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """PUB or HPUB with its payload, in plain form or not."""
    subject, reply = draw(SUBJECTS), draw(st.one_of(st.just(b""), SUBJECTS))
    size = draw(SIZES)
    verb, sizes = draw(st.sampled_from([b"PUB", b"PUB", b"pub", b"HPUB"])), [b"%d" % size]
    if verb == b"HPUB":
        sizes.insert(0, b"%d" % draw(st.integers(0, size)))
    words = [word for word in (verb, subject, reply, *sizes) if word]
    line = words[0] + b"".join(draw(BLANKS) + word for word in words[1:])
    payload = (draw(st.binary(min_size=1, max_size=8)) * (size // 1 + 1))[:size]
    return line + draw(ENDS) + payload + b"\r\n"


@st.composite
def subscribes(draw: st.DrawFn) -> bytes:
    words = [word for word in (draw(SUBJECTS), draw(QUEUES), draw(SIDS)) if word]
    return b"SUB" + b"".join(draw(BLANKS) + word for word in words) + draw(ENDS)


UNSUBSCRIBES = st.tuples(SIDS, st.sampled_from([b"", b" 1", b" 3", b" x"])).map(lambda two: b"UNSUB %b%b\r\n" % two)
OTHERS = st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"INFO {}\r\n", b"ping now\n"])
OPERATIONS = st.one_of(
    publishes(), publishes(), subscribes(), UNSUBSCRIBES, OTHERS, CONNECTS.map(lambda one: one + b"\r\n")
)
TALKS = st.lists(OPERATIONS, max_size=25).map(b"".join)


@st.composite
def chunked(draw: st.DrawFn, talks: st.SearchStrategy[bytes]) -> list[bytes]:
    """A talk cut anywhere."""
    talk = draw(talks)
    cuts = sorted(draw(st.lists(st.integers(0, len(talk)), max_size=12)))
    return [part for part in (talk[i:j] for i, j in zip([0, *cuts], [*cuts, len(talk)], strict=True)) if part]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A talk with bytes changed, put in or left out."""
    talk = bytearray(draw(TALKS))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(talk)))
        cut = draw(st.integers(0, 3))
        talk[at : at + cut] = draw(st.binary(max_size=4))
    return bytes(talk)
