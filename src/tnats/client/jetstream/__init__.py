"""JetStream, on top of `tnats.client`: docs/client.md has the guide.

js = JetStream(nc)
stream = await js.create_stream(StreamConfig("ORDERS", subjects=["orders.>"]))
ack = await js.publish("orders.new", b"{}")

Configurations and answers are the records of `tnats.jetstream`, the same that the server uses: one row per field.
Durations in them are nanoseconds, and their names say so.
"""

from __future__ import annotations

from tnats.client.jetstream.answers import PubAck
from tnats.client.jetstream.batch import AtomicBatch
from tnats.client.jetstream.consumer import Consumer
from tnats.client.jetstream.context import JetStream
from tnats.client.jetstream.delivery import Delivery, Metadata, StoredMessage
from tnats.client.jetstream.errors import (
    ApiError,
    BucketNotFound,
    ConsumerDeleted,
    ConsumerNotFound,
    JetStreamError,
    JetStreamUnavailable,
    MessageNotFound,
    NameInUse,
    NotFound,
    PullRefused,
    StreamNotFound,
    TemporarilyUnavailable,
    WrongLastSequence,
)
from tnats.client.jetstream.fast_batch import FastBatch
from tnats.client.jetstream.ordered import OrderedMessages
from tnats.client.jetstream.publisher import PendingAck, Publisher
from tnats.client.jetstream.pull import MessageStream
from tnats.client.jetstream.push import PushedMessages
from tnats.client.jetstream.snapshot import Snapshot
from tnats.client.jetstream.stream import Stream
from tnats.jetstream.api.messages import AccountInfo, ConsumerInfo, StreamInfo, StreamState
from tnats.jetstream.consumer.config import (
    AckPolicy,
    Action,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
    ReplayPolicy,
)
from tnats.jetstream.stream.config import (
    Compression,
    ConsumerLimits,
    Discard,
    ExternalStream,
    PersistMode,
    Placement,
    Republish,
    Retention,
    Storage,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

__all__ = [
    "AccountInfo",
    "AckPolicy",
    "Action",
    "ApiError",
    "AtomicBatch",
    "BucketNotFound",
    "Compression",
    "Consumer",
    "ConsumerConfig",
    "ConsumerDeleted",
    "ConsumerInfo",
    "ConsumerLimits",
    "ConsumerNotFound",
    "DeliverPolicy",
    "Delivery",
    "Discard",
    "ExternalStream",
    "FastBatch",
    "JetStream",
    "JetStreamError",
    "JetStreamUnavailable",
    "MessageNotFound",
    "MessageStream",
    "Metadata",
    "NameInUse",
    "NotFound",
    "OrderedMessages",
    "PendingAck",
    "PersistMode",
    "Placement",
    "PriorityPolicy",
    "PubAck",
    "Publisher",
    "PullRefused",
    "PushedMessages",
    "ReplayPolicy",
    "Republish",
    "Retention",
    "Snapshot",
    "Storage",
    "StoredMessage",
    "Stream",
    "StreamConfig",
    "StreamInfo",
    "StreamNotFound",
    "StreamSource",
    "StreamState",
    "SubjectTransform",
    "TemporarilyUnavailable",
    "WrongLastSequence",
]
