"""What the parts of a consumer machine share: whose it is, its state, its stream's index, and gathering effects."""

from __future__ import annotations

from tnats.jetstream.api.advisories import Advisory, ConsumerIdentity
from tnats.jetstream.consumer.config import AckPolicy, ConsumerConfig, DeliverPolicy
from tnats.jetstream.consumer.effects import Effects, Status, status_block
from tnats.jetstream.consumer.ports import StreamIndex
from tnats.jetstream.consumer.state import ConsumerState


class Core:
    """See the module's text. Who makes a change calls `op`; who wants something done adds to `effects`."""

    def __init__(
        self,
        identity: ConsumerIdentity,
        config: ConsumerConfig,
        state: ConsumerState,
        index: StreamIndex,
        wall_offset_ns: int,
    ) -> None:
        self.identity = identity
        self.use(config)
        self.state = state
        self.index = index
        self.wall_offset_ns = wall_offset_ns
        self.effects = Effects()
        self.last_activity_ns = 0
        """Of clients; monotonic clock."""
        self.last_delivered_ns: int | None = None
        self.last_acked_ns: int | None = None

    def use(self, config: ConsumerConfig) -> None:
        """Take over a configuration."""
        self.config = config
        self.filters = config.patterns()
        self.is_push = config.is_push
        self.tracks_acks = config.ack_policy != AckPolicy.NONE

    def wants(self, subject: bytes) -> bool:
        """Whether the filters match a subject."""
        return self.index.wants(self.filters, subject)

    def op(self, kind: int, seq: int, count: int = 1, consumer_seq: int = 0, sent_ns: int = 0) -> None:
        """Make a change of the state, and have it logged."""
        op = (kind, seq, count, consumer_seq, sent_ns)
        self.state.apply(op, tracks_acks=self.tracks_acks)
        self.effects.ops.append(op)

    def status(self, target: bytes, line: str, *headers: tuple[str, object]) -> None:
        """Have a status message sent."""
        self.effects.sends.append(Status(target, status_block(line, *headers)))

    def heartbeat(self, target: bytes, *headers: tuple[str, object]) -> None:
        """Have somebody told that we live, and where we are."""
        places = (
            ("Nats-Last-Consumer", self.state.delivered_consumer_seq),
            ("Nats-Last-Stream", self.state.delivered_stream_seq),
        )
        self.status(target, "100 Idle Heartbeat", *places, *headers)

    def advise(self, advisory: Advisory) -> None:
        """Have an event published."""
        self.effects.advisories.append(advisory)

    def take_effects(self) -> Effects:
        """What has gathered."""
        taken, self.effects = self.effects, Effects()
        return taken

    def ack_wait_ns(self, deliveries: int) -> int:
        """How long the ack of a message's n-th delivery is awaited."""
        return ack_wait_ns(self.config, deliveries)


def ack_wait_ns(config: ConsumerConfig, deliveries: int) -> int:
    """How long the ack of a message's n-th delivery is awaited."""
    backoff_ns = config.backoff_ns
    return backoff_ns[min(deliveries, len(backoff_ns)) - 1] if backoff_ns else config.ack_wait_ns


def start_state(config: ConsumerConfig, index: StreamIndex, *, made_ns: int | None = None) -> ConsumerState:
    """The state of a new consumer: where its deliver policy begins.

    `made_ns`: of one that was made then, as far as the messages that are left tell.
    """
    filters = config.patterns()
    policy = config.deliver_policy
    end_seq = index.last_seq + 1 if made_ns is None else index.seq_at_time(made_ns)
    if policy == DeliverPolicy.NEW:
        return ConsumerState(end_seq)
    if policy == DeliverPolicy.LAST:
        return ConsumerState(_last_below(index, filters, end_seq) or end_seq)
    if policy == DeliverPolicy.BY_START_SEQUENCE:
        return ConsumerState(max(config.opt_start_seq, index.first_seq))
    if policy == DeliverPolicy.BY_START_TIME:
        assert config.opt_start_time_ns is not None
        return ConsumerState(index.seq_at_time(config.opt_start_time_ns))
    if policy == DeliverPolicy.LAST_PER_SUBJECT:
        none_seq = max(end_seq - 1, index.first_seq)
        first_seq = min(next(index.last_per_subject(filters), none_seq), end_seq)
        return ConsumerState(first_seq, per_subject_until=end_seq - 1)
    return ConsumerState(index.first_seq)


def _last_below(index: StreamIndex, filters: tuple[bytes, ...], end_seq: int) -> int:
    """The last message below `end_seq` that the filters match, 0 if there is none."""
    last = index.last_matching(filters)
    reach = 1
    while last >= end_seq:
        begin_seq = max(end_seq - reach, index.first_seq)
        last, seq = 0, index.next_matching(filters, begin_seq)
        while seq and seq < end_seq:
            last, seq = seq, index.next_matching(filters, seq + 1)
        if not last and begin_seq > index.first_seq:
            last, reach = end_seq, 2 * reach
    return last
