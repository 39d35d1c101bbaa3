"""The hot loops of storage: records packed and scanned, runs of messages in one entry.

One source, compiled where a C compiler is there (`hot.pxd`).

Record layout (little endian, `record.py` has the words for it), every record at a multiple of 8 bytes:

| bytes | field |
|---|---|
| 0-3 | crc32c over bytes 4 to the end, started from (segment seed + file offset) mod 2**32 |
| 4-7 | crc32 (the zlib polynomial) over bytes 8 to the end, started from the same value |
| 8-11 | size of the record without padding |
| 12-13, 14-15 | size of the key, size of the head; the body is the rest |
| 16 | kind |
| 17-19 | distance, in units of 8 bytes, back to the offset that was durable when this record was written |
| 20-23 | group |
| 24-31 | index |
| 32-39 | stamp |

An erased record keeps its size, but its checksums cover only these 40 bytes: what follows is free to change.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

try:
    import cython
except ImportError:  # interpreted, where nobody compiles
    from tnats import speedups as cython

if not cython.compiled:
    from tnats.storage.memory import (
        address,
        checksum,
        has_same_subject,
        headers_size_at,
        is_same,
        payload_size_at,
        pin,
        pin_bytes,
        put,
        put_front,
        put_sizes,
        put_word,
        spare_checksum,
        subject_size_at,
    )

Buffer = bytes | bytearray | memoryview
Record = tuple[int, int, int, int, Buffer, Buffer, Buffer]
"""kind, group, index, stamp, key, head, body"""
Found = tuple[int, int, int, int, int, int, int, int, int]
"""position, size, kind, group, index, stamp, key size, head size, durable offset"""
Content = tuple[bytes, bytes, bytes]
"""Subject, header block, payload."""

HEADER_SIZE = 40
ERASED = 7
MESSAGE_HEAD_SIZE = 10
"""Sizes of a message's subject (2 bytes), header block and payload (4 bytes each), little endian."""
FRONT, HOLLOW, MESSAGE_FRONT = HEADER_SIZE, ERASED, MESSAGE_HEAD_SIZE
"""The three again, as C numbers where this is compiled."""
LINK_MAX = (1 << 32) - 1
MESSAGE = 6
"""`record.MESSAGE`."""


def pack(records: list[Record], base: int, seed: int, durable: int) -> tuple[bytearray, list[int]]:
    """Pack records for the file offset `base` (a multiple of 8) of the segment with `seed`.

    `records` is a list of (kind, group, index, stamp, key, head, body); `durable` the offset up to which the file is
    durable now. Returns the bytes (padded to a multiple of 8) and the list of the records' file offsets.
    """
    total = 0
    for _, _, _, _, key, head, body in records:
        total += (FRONT + len(key) + len(head) + len(body) + 7) & -8
    out = bytearray(total)
    data = pin(out)
    offsets = []
    position = 0
    for kind, group, index, stamp, key, head, body in records:
        offsets.append(base + position)
        start = (seed + base + position) & 0xFFFFFFFF
        distance = (base + position - durable) >> 3
        position = put_record(data, position, start, kind | distance << 8, group, index, stamp, key, head, body)
    return out, offsets


def put_record(
    data: memoryview,
    position: int,
    start: int,
    word: int,
    group: int,
    index: int,
    stamp: int,
    key: Buffer,
    head: Buffer,
    body: Buffer,
) -> int:
    """Write one record at `position`; `word` is its kind and distance, `start` what its checksums start from.

    Returns the position of the next record.
    """
    key_size = len(key)
    head_size = len(head)
    size = FRONT + key_size + head_size + len(body)
    at = position + FRONT
    put(data, at, key)
    put(data, at + key_size, head)
    put(data, at + key_size + head_size, body)
    put_front(data, position, size, key_size | head_size << 16, word, group, index, stamp)
    end = position + (FRONT if word & 0xFF == HOLLOW else size)
    spare = spare_checksum(data, position + 8, end, start)
    put_word(data, position + 4, spare)
    put_word(data, position, checksum(data, position + 4, end, start))
    return position + ((size + 7) & -8)


def scan(buffer: Buffer, start: int, base: int, seed: int) -> tuple[list[Found], int]:
    """Walk the valid records of `buffer` (the bytes of a segment from file offset `base` on) from position `start`.

    Returns the list of (position, size, kind, group, index, stamp, key size, head size, durable offset) and the
    position where the walk ended: at the end of `buffer`, or where no valid record stands.
    """
    usable = len(buffer) & -8
    view = memoryview(buffer)[:usable]
    words = view.cast("I")
    quads = view.cast("Q")
    shown = view
    data = address(shown)
    found = []
    position = start
    while position + FRONT <= usable:
        word = position >> 2
        size = words[word + 2]
        if size < FRONT or position + size > usable:
            break
        kind = words[word + 4] & 0xFF
        end = position + (FRONT if kind == HOLLOW else size)
        if words[word] != checksum(data, position + 4, end, (seed + base + position) & 0xFFFFFFFF):
            break
        quad = position >> 3
        sizes = words[word + 3]
        durable = base + position - ((words[word + 4] >> 8) << 3)
        index = quads[quad + 3]
        stamp = quads[quad + 4]
        found.append((position, size, kind, words[word + 5], index, stamp, sizes & 0xFFFF, sizes >> 16, durable))
        position = (position + size + 7) & -8
    return found, min(position, usable)


def reach(places: array[int], first: int, bytes_max: int, gap_max: int) -> int:
    """How many of `places` from `first` on can be read in one piece: in one file, rising, no gap above `gap_max`."""
    shown = places
    start = shown[first]
    last = start
    number = first + 1
    while number < len(shown):
        place = shown[number]
        if place <= last or place - last > gap_max or place - start > bytes_max or place >> 32 != start >> 32:
            break
        last = place
        number += 1
    return number - first


def take_messages(
    buffer: bytes, base: int, seed: int, kind: int, sequences: Sequence[int], places: array[int]
) -> list[tuple[int, int, bytes, bytes, bytes]]:
    """The valid records of `kind` at `places`, whose low halves are file offsets; `buffer` begins at offset `base`.

    (index, stamp, key, head, body) of each, up to the first that is not there, damaged, or of another index.
    """
    usable = len(buffer) & -8
    view = memoryview(buffer)[:usable]
    words = view.cast("I")
    quads = view.cast("Q")
    bytes_shown = view
    data = address(bytes_shown)
    shown = places
    taken = []
    for number in range(len(shown)):
        sequence = sequences[number]
        position = (shown[number] & 0xFFFFFFFF) - base
        if position + FRONT > usable:
            break
        word = position >> 2
        quad = position >> 3
        size = words[word + 2]
        end = position + size
        if size < FRONT or end > len(buffer) or words[word + 4] & 0xFF != kind or quads[quad + 3] != sequence:
            break
        if words[word] != checksum(data, position + 4, end, (seed + base + position) & 0xFFFFFFFF):
            break
        sizes = words[word + 3]
        key_end = position + FRONT + (sizes & 0xFFFF)
        head_end = key_end + (sizes >> 16)
        stamp = quads[quad + 4]
        taken.append(
            (sequence, stamp, buffer[position + FRONT : key_end], buffer[key_end:head_end], buffer[head_end:end])
        )
    return taken


def content_at(image: bytes | bytearray, position: int) -> tuple[int, memoryview]:
    """Stamp and body of a record without key and head at `position` of `image`, which was found valid: no copy."""
    size = int.from_bytes(image[position + 8 : position + 12], "little")
    stamp = int.from_bytes(image[position + 32 : position + 40], "little")
    return stamp, memoryview(image)[position + HEADER_SIZE : position + size]


def checksum_of(buffer: Buffer, seed: int) -> int:
    """The first checksum (crc32c) over all of `buffer`, started from `seed`."""
    view = memoryview(buffer)
    shown = view
    return checksum(address(shown), 0, len(view), seed)


def spare_checksum_of(buffer: Buffer, seed: int) -> int:
    """The second checksum (crc32) over all of `buffer`, started from `seed`."""
    view = memoryview(buffer)
    shown = view
    return spare_checksum(address(shown), 0, len(view), seed)


def find_flip(syndrome: int, count: int, table: array[int], inverse: array[int]) -> int:
    """Which single flipped bit of `count` bytes explains the difference `syndrome` of two crc32c values.

    Returns its number (8 * byte + bit) or -1. The difference that bit `b` of the last byte makes is table[1 << b];
    each byte nearer to the front multiplies by x**8. So divide by x**8, from the last byte to the first, until
    one of the eight values appears. `inverse[t >> 24]` is the index of table value `t`.
    """
    value = syndrome
    for byte in range(count - 1, -1, -1):
        for bit in range(8):
            if table[1 << bit] == value:
                return 8 * byte + bit
        index = inverse[value >> 24]
        value = ((value ^ table[index]) << 8 | index) & 0xFFFFFFFF
    return -1


def join_messages(front: bytes, messages: Sequence[Content]) -> bytes:
    """`front`, and behind it each message: the sizes of its subject, header block and payload, then their bytes."""
    total = len(front)
    for subject, headers, payload in messages:
        total += MESSAGE_FRONT + len(subject) + len(headers) + len(payload)
    out = bytearray(total)
    data = pin(out)
    put(data, 0, front)
    at = len(front)
    for subject, headers, payload in messages:
        subject_size = len(subject)
        headers_size = len(headers)
        put_sizes(data, at, subject_size, headers_size, len(payload))
        at += MESSAGE_FRONT
        put(data, at, subject)
        put(data, at + subject_size, headers)
        put(data, at + subject_size + headers_size, payload)
        at += subject_size + headers_size + len(payload)
    return bytes(out)


def find_messages(body: bytes, start: int, count: int) -> tuple[array[int], bool, bool]:
    """Where the `count` messages stand in `body` that begin at `start`.

    Returns the positions, whether any has headers, and whether all have the subject of the first.
    """
    places = array("I", bytes(4 * count))
    shown = places
    data = pin_bytes(body)
    size = len(body)
    at = start
    headers_size = 0
    has_headers = False
    is_uniform = True
    for number in range(count):
        end = at + MESSAGE_FRONT
        if end <= size:
            headers_size = headers_size_at(data, at)
            end += subject_size_at(data, at) + headers_size + payload_size_at(data, at)
        if end > size:
            raise ValueError(f"message {number} of {count} ends at {end} of {size}")
        shown[number] = at
        if headers_size:
            has_headers = True
        if is_uniform and not has_same_subject(data, at, start):
            is_uniform = False
        at = end
    if at != size:
        raise ValueError(f"{count} messages end at {at} of {size}")
    return places, has_headers, is_uniform


def measure_messages(body: bytes, places: array[int], base: int, headers_cost: int) -> array[int]:
    """The size of each message: `base`, subject, header block and payload, and `headers_cost` if it has headers."""
    count = len(places)
    sizes = array("I", bytes(4 * count))
    shown = places
    measured = sizes
    data = pin_bytes(body)
    for number in range(count):
        at = shown[number]
        headers_size = headers_size_at(data, at)
        size = base + subject_size_at(data, at) + headers_size + payload_size_at(data, at)
        measured[number] = size + headers_cost if headers_size else size
    return sizes


def subjects_of_messages(body: bytes, places: array[int]) -> list[bytes]:
    """The subject of each message that `find_messages` found."""
    found: list[bytes] = []
    shown = places
    data = pin_bytes(body)
    for number in range(len(places)):
        start = shown[number] + MESSAGE_FRONT
        found.append(body[start : start + subject_size_at(data, shown[number])])
    return found


def link_forward(
    identities: array[int],
    first: int,
    counts: array[int],
    firsts: array[int],
    lasts: array[int],
    links: array[int],
) -> list[tuple[int, int]]:
    """Take messages behind all others into the books of their subjects.

    `identities` are the subjects of the sequences from `first` on, the books go by identity. `links` gets
    the distance from each message to the next of its subject. Returns (message before the run, next of its subject).
    """
    outside: list[tuple[int, int]] = []
    subject, count_of, first_of, last_of, link = identities, counts, firsts, lasts, links
    sequence = first
    for number in range(len(identities)):
        identity = subject[number]
        before = last_of[identity]
        if not count_of[identity]:
            first_of[identity] = sequence
        elif before < sequence:
            if before >= first:
                if sequence - before <= LINK_MAX:
                    link[before - first] = sequence - before
            else:
                outside.append((before, sequence))
        count_of[identity] += 1
        last_of[identity] = sequence
        sequence += 1
    return outside


def link_backward(
    identities: array[int],
    first: int,
    counts: array[int],
    firsts: array[int],
    lasts: array[int],
    links: array[int],
) -> bool:
    """Take messages in front of all others of their subjects into the books; False if one is not in front.

    As `link_forward`, from the last message to the first.
    """
    is_in_front = True
    subject, count_of, first_of, last_of, link = identities, counts, firsts, lasts, links
    number = len(identities)
    sequence = first + number
    while number:
        number -= 1
        sequence -= 1
        identity = subject[number]
        following = first_of[identity]
        if not count_of[identity]:
            first_of[identity] = last_of[identity] = sequence
        elif sequence < following:
            if following - sequence <= LINK_MAX:
                link[number] = following - sequence
            first_of[identity] = sequence
        elif sequence > last_of[identity]:
            last_of[identity] = sequence
            is_in_front = False
        else:
            is_in_front = False
        count_of[identity] += 1
    return is_in_front


def pack_messages(
    messages: Sequence[Content], first: int, times_ns: array[int], base: int, seed: int, place: int
) -> tuple[bytearray, array[int]]:
    """`pack` for the messages of the sequences from `first` on, with `place` added to each one's file offset."""
    total = 0
    for subject, headers, payload in messages:
        total += (FRONT + len(subject) + len(headers) + len(payload) + 7) & -8
    out = bytearray(total)
    data = pin(out)
    places = array("Q", bytes(8 * len(messages)))
    shown, times = places, times_ns
    position = 0
    for number, (subject, headers, payload) in enumerate(messages):
        shown[number] = place + base + position
        start = (seed + base + position) & 0xFFFFFFFF
        word = MESSAGE | position >> 3 << 8
        position = put_record(data, position, start, word, 0, first + number, times[number], subject, headers, payload)
    return out, places


def scan_messages(
    buffer: Buffer, start: int, seed: int, place: int
) -> tuple[int, int, list[bytes], array[int], array[int], array[int]]:
    """Walk the messages at the front of a segment file from `start` on while they are whole and their sequences rise
    by one; erased, moved and other records end the walk.

    Returns the first sequence, the position where the walk ended, and of each message its subject, its size as NATS
    counts it in files, its position with `place` added, and its time.
    """
    usable = len(buffer) & -8
    view = memoryview(buffer)[:usable]
    words = view.cast("I")
    quads = view.cast("Q")
    shown = view
    data = address(shown)
    most = max(usable - start, 0) // FRONT + 1
    sizes, places, times_ns = array("I", bytes(4 * most)), array("Q", bytes(8 * most)), array("Q", bytes(8 * most))
    size_of, place_of, time_of = sizes, places, times_ns
    subjects: list[bytes] = []
    subject = b""
    subject_at = subject_size = 0
    first = 0
    count = 0
    position = start
    while position + FRONT <= usable:
        word = position >> 2
        size = words[word + 2]
        if size < FRONT or position + size > usable or words[word + 4] & 0xFF != MESSAGE:
            break
        if words[word] != checksum(data, position + 4, position + size, (seed + position) & 0xFFFFFFFF):
            break
        quad = position >> 3
        if not count:
            first = quads[quad + 3]
        elif quads[quad + 3] != first + count:
            break
        key_size = words[word + 3] & 0xFFFF
        if not count or not is_same(data, position + FRONT, key_size, subject_at, subject_size):
            subject = bytes(view[position + FRONT : position + FRONT + key_size])
            subject_at, subject_size = position + FRONT, key_size
        subjects.append(subject)
        size_of[count] = size - 6 if words[word + 3] >> 16 else size - 10
        place_of[count] = place + position
        time_of[count] = quads[quad + 4]
        count += 1
        position = (position + size + 7) & -8
    return first, min(position, usable), subjects, sizes[:count], places[:count], times_ns[:count]
