"""Messages that wait in memory, against a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tnats.storage.held import HeldMessages
from tnats.storage.hot import Content


@given(st.data())
def test_held_messages_are_what_a_dictionary_would_hold(data: st.DataObject) -> None:
    """Whatever is put, dropped and taken in turns: contents and size are a dictionary's, and all leave in the end."""
    held = HeldMessages()
    model: dict[int, Content] = {}
    last = 0

    def new(count: int) -> list[Content]:
        return [(b"s", b"", b"%d" % (last + offset + 1)) for offset in range(count)]

    def size_of(sequences: list[int]) -> int:
        return sum(10 + sequence for sequence in sequences)

    for _ in range(data.draw(st.integers(0, 30))):
        action = data.draw(st.sampled_from(["put", "run", "drop", "take", "skip"]))
        if action == "put":
            (content,) = new(1)
            last += 1
            held.put(last, content, size_of([last]))
            model[last] = content
        elif action == "run":
            contents = new(data.draw(st.integers(1, 5)))
            sequences = range(last + 1, last + 1 + len(contents))
            gone = data.draw(st.sets(st.sampled_from(sequences), max_size=len(contents) - 1))
            kept = [sequence for sequence in sequences if sequence not in gone]
            held.put_run(last + 1, contents, size_of(kept), gone)
            model.update((sequence, contents[sequence - last - 1]) for sequence in kept)
            last += len(contents)
        elif action == "skip":
            last += 1
        elif model and action == "drop":
            sequence = data.draw(st.sampled_from(sorted(model)))
            held.drop(sequence, size_of([sequence]))
            del model[sequence]
        elif model:
            take_some(held, model, data.draw(st.integers(1, 4)), size_of)
        assert sorted(held.sequences()) == sorted(model)
        assert held.bytes == size_of(list(model))
        assert all(held.content(sequence) == content for sequence, content in model.items())
        assert bool(held) == bool(model)
    while model:
        take_some(held, model, 3, size_of)
    assert not held
    assert held.first == held.bytes == 0


def take_some(held: HeldMessages, model: dict[int, Content], count_max: int, size_of) -> None:  # type: ignore[no-untyped-def]
    """Take what is to be written next: consecutive messages, at least one."""
    first, contents = held.first, held.front(count_max)
    assert 1 <= len(contents) <= count_max
    assert [model.pop(first + offset) for offset in range(len(contents))] == list(contents)
    held.take(len(contents), size_of(list(range(first, first + len(contents)))))
