"""The option tables of streams and consumers against the records that they set."""

from __future__ import annotations

import attrs
import click
import pytest

from tnats.cli import consumer, consumer_config, stream, stream_config
from tnats.cli.config_options import Option
from tnats.cli.edit import changes
from tnats.client import ClientError
from tnats.client.jetstream import AckPolicy, ConsumerConfig, DeliverPolicy, Republish, Retention, StreamConfig

STREAM_PARTS = {"name", "placement", "mirror", "sources", "subject_transform", "republish", "consumer_limits", "sealed"}
CONSUMER_PARTS = {
    "durable_name", "name", "deliver_policy", "opt_start_seq", "opt_start_time_ns", "backoff_ns", "filter_subject",
    "filter_subjects", "direct", "sourcing", "pause_until_ns", "priority_groups", "priority_policy",
    "priority_timeout_ns",
}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "options", "parts"),
    [
        (StreamConfig, stream_config.OPTIONS, STREAM_PARTS),
        (ConsumerConfig, consumer_config.OPTIONS, CONSUMER_PARTS),
    ],
)
def test_every_field_has_its_option(
    record: type[attrs.AttrsInstance], options: tuple[Option, ...], parts: set[str]
) -> None:
    """A field is set by one option, or is among those that are made of several or that nobody sets."""
    fields = [option.field for option in options]
    assert len(fields) == len(set(fields))
    assert set(fields) | parts == {field.name for field in attrs.fields(record)}
    assert not set(fields) & parts


def given(command: click.Command, *arguments: str) -> dict[str, object]:
    """What click makes of a command line."""
    return dict(command.make_context("x", list(arguments)).params)


def test_a_stream_is_configured() -> None:
    """Options change what they name and nothing else; half a pair is refused."""
    config = StreamConfig("S", description="old", max_msgs=7, republish=Republish("a", "b"))
    before = attrs.asdict(config)
    stream_config.configure(
        config,
        given(stream.edit, "S", "--retention", "work", "--no-ack", "--tag", "ssd", "--no-republish", "--max-age", "1h"),
    )
    assert (config.retention, config.no_ack, config.max_age_ns) == (Retention.WORKQUEUE, True, 3600 * 10**9)
    assert config.placement is not None
    assert (config.placement.tags, config.republish) == (["ssd"], None)
    changed = {"retention", "no_ack", "placement", "republish", "max_age_ns"}
    assert {key for key, value in attrs.asdict(config).items() if value != before[key]} == changed
    with pytest.raises(ClientError, match="--transform-destination"):
        stream_config.configure(config, given(stream.edit, "S", "--transform-source", "a"))


def test_a_consumer_is_configured() -> None:
    """Filters, backoff and the place to begin; what contradicts itself is refused."""
    options = given(consumer.add, "S", "c", "--filter", "a,b", "--backoff", "1s, 5s", "--deliver", "1h", "--memory")
    config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    consumer_config.configure(config, dict(options))
    consumer_config.configure_start(config, "c", options, now_ns=2 * 3600 * 10**9)
    assert (config.filter_subject, config.filter_subjects) == ("", ["a", "b"])
    assert config.backoff_ns == [10**9, 5 * 10**9]
    assert (config.deliver_policy, config.opt_start_time_ns) == (DeliverPolicy.BY_START_TIME, 3600 * 10**9)
    assert (config.durable_name, config.mem_storage) == ("c", True)
    with pytest.raises(ClientError, match="--deliver"):
        consumer_config.configure_start(config, "c", given(consumer.add, "S", "--deliver", "soon"), 0)
    pushing = ConsumerConfig(deliver_subject="x")
    with pytest.raises(ClientError, match="--pull or --target"):
        consumer_config.configure_start(pushing, "c", given(consumer.add, "S", "--pull"), 0)


def test_changes_are_told() -> None:
    """A line for each field that differs, in words for people: times as durations, records and metadata field by field.

    What the server adds to the metadata is nobody's change.
    """
    before = StreamConfig("S", subjects=["s"], max_age_ns=604800 * 10**9, metadata={"_nats.ver": "2", "a": "b"})
    after = StreamConfig("S", subjects=["s", "t"], description="d", metadata={"a": "c", "x": "y"})
    after.republish = Republish("s", "r")
    assert changes(before, before) == []
    assert changes(before, after) == [
        'description: none -> "d"',
        'subjects: ["s"] -> ["s","t"]',
        "max_age: 7d -> none",
        'republish.src: none -> "s"',
        'republish.dest: none -> "r"',
        'metadata.a: "b" -> "c"',
        'metadata.x: none -> "y"',
    ]
    waits = ConsumerConfig("c", backoff_ns=[10**9, 60 * 10**9], ack_wait_ns=30 * 10**9)
    assert changes(waits, ConsumerConfig("c", pause_until_ns=0)) == [
        "ack_wait: 30s -> none",
        "backoff: 1s, 1m0s -> none",
    ]
