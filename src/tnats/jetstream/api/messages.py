"""Bodies of API requests and answers, beside the configurations: one record each, one row per key.

Key order and what is left out when empty are nats-server's, so that answers can be compared byte for byte.
"""

from __future__ import annotations

from typing import Any

from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.fields import (
    ANY,
    BASE64,
    BOOL,
    DURATION,
    INT,
    TEXT,
    TIME,
    UINT64,
    Inline,
    ListOf,
    MapOf,
    Record,
    row,
    to_object,
)
from tnats.jetstream.api.subjects import RESPONSE_TYPE_PREFIX
from tnats.jetstream.consumer.config import ConsumerConfig
from tnats.jetstream.stream.config import ExternalStream, StreamConfig, SubjectTransform
from tnats.jetstream.stream.quotas import AccountLimits
from tnats.records import define
from tnats.wire.documents import encode_document

NAMES_PAGE = 1024
LIST_PAGE = 256
SUBJECTS_PAGE = 100_000

# ------------------------------------------------------------------ requests


@define
class JSApiStreamInfoRequest:
    """STREAM.INFO."""

    offset: int = row("offset", INT, default=0)
    deleted_details: bool = row("deleted_details", BOOL, default=False, omit=True)
    subjects_filter: str = row("subjects_filter", TEXT, default="", omit=True)


@define
class JSApiStreamNamesRequest:
    """STREAM.NAMES: a page, of the streams with subjects that overlap `subject`."""

    offset: int = row("offset", INT, default=0)
    subject: str = row("subject", TEXT, default="", omit=True)


@define
class JSApiStreamListRequest(JSApiStreamNamesRequest):
    """STREAM.LIST."""


@define
class JSApiConsumersRequest:
    """CONSUMER.NAMES and CONSUMER.LIST."""

    offset: int = row("offset", INT, default=0)


@define
class JSApiStreamPurgeRequest:
    """STREAM.PURGE: messages on `filter`, below `seq`, or all but the last `keep`."""

    seq: int = row("seq", UINT64, default=0, omit=True)
    keep: int = row("keep", UINT64, default=0, omit=True)
    filter: str = row("filter", TEXT, default="", omit=True)


@define
class JSApiMsgGetRequest:
    """STREAM.MSG.GET and DIRECT.GET."""

    seq: int = row("seq", UINT64, default=0, omit=True)
    last_by_subj: str = row("last_by_subj", TEXT, default="", omit=True)
    next_by_subj: str = row("next_by_subj", TEXT, default="", omit=True)
    batch: int = row("batch", INT, default=0, omit=True)
    max_bytes: int = row("max_bytes", INT, default=0, omit=True)
    start_time_ns: int | None = row("start_time", TIME, default=None, omit=True)
    multi_last: list[str] = row("multi_last", ListOf(TEXT), factory=list, omit=True)
    up_to_seq: int = row("up_to_seq", UINT64, default=0, omit=True)
    up_to_time_ns: int | None = row("up_to_time", TIME, default=None, omit=True)
    no_hdr: bool = row("no_hdr", BOOL, default=False, omit=True)

    def is_valid_get(self) -> bool:
        """Whether STREAM.MSG.GET can answer it: exactly one way of naming one message."""
        if self.batch > 0 or self.max_bytes > 0:
            return False
        if self.last_by_subj:
            return not (self.seq or self.next_by_subj or self.start_time_ns is not None)
        if self.seq and self.start_time_ns is not None:
            return False
        return bool(self.seq or self.next_by_subj or self.start_time_ns is not None)


@define
class JSApiMsgDeleteRequest:
    """STREAM.MSG.DELETE."""

    seq: int = row("seq", UINT64, default=0)
    no_erase: bool = row("no_erase", BOOL, default=False, omit=True)


@define
class JSApiStreamSnapshotRequest:
    """STREAM.SNAPSHOT."""

    deliver_subject: str = row("deliver_subject", TEXT, default="")
    no_consumers: bool = row("no_consumers", BOOL, default=False, omit=True)
    chunk_size: int = row("chunk_size", INT, default=0, omit=True)
    window_size: int = row("window_size", INT, default=0, omit=True)
    jsck: bool = row("jsck", BOOL, default=False, omit=True)


@define
class JSApiConsumerPauseRequest:
    """CONSUMER.PAUSE; without a time: resume."""

    pause_until_ns: int | None = row("pause_until", TIME, default=None, omit=True)


@define
class JSApiConsumerResetRequest:
    """CONSUMER.RESET; 0: to the ack floor."""

    seq: int = row("seq", UINT64, default=0, omit=True)


@define
class JSApiConsumerUnpinRequest:
    """CONSUMER.UNPIN."""

    group: str = row("group", TEXT, default="")


# ------------------------------------------------------------------ parts of answers


@define
class LostStreamData:
    """Messages that were found damaged or missing."""

    msgs: list[int] = row("msgs", ListOf(UINT64), factory=list)
    bytes: int = row("bytes", UINT64, default=0)


@define
class StreamState:
    """What a stream holds."""

    messages: int = row("messages", UINT64, default=0)
    bytes: int = row("bytes", UINT64, default=0)
    first_seq: int = row("first_seq", UINT64, default=0)
    first_ts_ns: int | None = row("first_ts", TIME, default=None)
    last_seq: int = row("last_seq", UINT64, default=0)
    last_ts_ns: int | None = row("last_ts", TIME, default=None)
    num_subjects: int = row("num_subjects", INT, default=0, omit=True)
    subjects: dict[str, int] = row("subjects", MapOf(UINT64), factory=dict, omit=True)
    num_deleted: int = row("num_deleted", INT, default=0, omit=True)
    deleted: list[int] = row("deleted", ListOf(UINT64), factory=list, omit=True)
    lost: LostStreamData | None = row("lost", Record(LostStreamData), default=None, omit=True)
    consumer_count: int = row("consumer_count", INT, default=0)


@define
class JSApiStreamRestoreRequest:
    """STREAM.RESTORE: the configuration the stream is to have, and what the backup says it holds."""

    config: StreamConfig = row("config", Record(StreamConfig), factory=StreamConfig)
    state: StreamState | None = row("state", Record(StreamState), default=None, omit=True)


@define
class PeerInfo:
    """One replica as its leader sees it."""

    name: str = row("name", TEXT, default="")
    current: bool = row("current", BOOL, default=False)
    offline: bool = row("offline", BOOL, default=False, omit=True)
    active_ns: int = row("active", DURATION, default=0)
    lag: int = row("lag", UINT64, default=0, omit=True)
    peer: str = row("peer", TEXT, default="", omit=True)


@define
class ClusterInfo:
    """Where a stream or consumer lives."""

    name: str = row("name", TEXT, default="", omit=True)
    raft_group: str = row("raft_group", TEXT, default="", omit=True)
    leader: str = row("leader", TEXT, default="", omit=True)
    leader_since_ns: int | None = row("leader_since", TIME, default=None, omit=True)
    system_account: bool = row("system_account", BOOL, default=False, omit=True)
    traffic_account: str = row("traffic_account", TEXT, default="", omit=True)
    replicas: list[PeerInfo] = row("replicas", ListOf(Record(PeerInfo)), factory=list, omit=True)


@define
class StreamSourceInfo:
    """How far a mirror or source has come. `active_ns` -1: never heard of."""

    name: str = row("name", TEXT, default="")
    external: ExternalStream | None = row("external", Record(ExternalStream), default=None, omit=True)
    lag: int = row("lag", UINT64, default=0)
    seq: int = row("seq", UINT64, default=0, omit=True)
    active_ns: int = row("active", DURATION, default=-1)
    error: dict[str, object] | None = row("error", ANY, default=None, omit=True)
    filter_subject: str = row("filter_subject", TEXT, default="", omit=True)
    subject_transforms: list[SubjectTransform] = row(
        "subject_transforms", ListOf(Record(SubjectTransform)), factory=list, omit=True
    )


@define
class StreamAlternate:
    """A mirror that may answer reads of this stream."""

    name: str = row("name", TEXT, default="")
    domain: str = row("domain", TEXT, default="", omit=True)
    cluster: str = row("cluster", TEXT, default="")


@define
class StreamInfo:
    """A stream as answers show it."""

    config: StreamConfig = row("config", Record(StreamConfig))
    created_ns: int | None = row("created", TIME, default=None)
    state: StreamState = row("state", Record(StreamState), factory=StreamState)
    domain: str = row("domain", TEXT, default="", omit=True)
    cluster: ClusterInfo | None = row("cluster", Record(ClusterInfo), default=None, omit=True)
    mirror: StreamSourceInfo | None = row("mirror", Record(StreamSourceInfo), default=None, omit=True)
    sources: list[StreamSourceInfo] = row("sources", ListOf(Record(StreamSourceInfo)), factory=list, omit=True)
    alternates: list[StreamAlternate] = row("alternates", ListOf(Record(StreamAlternate)), factory=list, omit=True)
    ts_ns: int | None = row("ts", TIME, default=None)


@define
class SequenceInfo:
    """A consumer's place: its own count and the stream's."""

    consumer_seq: int = row("consumer_seq", UINT64, default=0)
    stream_seq: int = row("stream_seq", UINT64, default=0)
    last_active_ns: int | None = row("last_active", TIME, default=None, omit=True)


@define
class PriorityGroupState:
    """Who a priority group is pinned to."""

    group: str = row("group", TEXT, default="")
    pinned_client_id: str = row("pinned_client_id", TEXT, default="", omit=True)
    pinned_ts_ns: int | None = row("pinned_ts", TIME, default=None)


@define
class ConsumerInfo:
    """A consumer as answers show it."""

    stream_name: str = row("stream_name", TEXT)
    name: str = row("name", TEXT)
    created_ns: int | None = row("created", TIME)
    config: ConsumerConfig | None = row("config", Record(ConsumerConfig), omit=True)
    delivered: SequenceInfo = row("delivered", Record(SequenceInfo), factory=SequenceInfo)
    ack_floor: SequenceInfo = row("ack_floor", Record(SequenceInfo), factory=SequenceInfo)
    num_ack_pending: int = row("num_ack_pending", INT, default=0)
    num_redelivered: int = row("num_redelivered", INT, default=0)
    num_waiting: int = row("num_waiting", INT, default=0)
    num_pending: int = row("num_pending", UINT64, default=0)
    cluster: ClusterInfo | None = row("cluster", Record(ClusterInfo), default=None, omit=True)
    push_bound: bool = row("push_bound", BOOL, default=False, omit=True)
    paused: bool = row("paused", BOOL, default=False, omit=True)
    pause_remaining_ns: int = row("pause_remaining", DURATION, default=0, omit=True)
    ts_ns: int | None = row("ts", TIME, default=None)
    priority_groups: list[PriorityGroupState] = row(
        "priority_groups", ListOf(Record(PriorityGroupState)), factory=list, omit=True
    )


@define
class StoredMsg:
    """A message as STREAM.MSG.GET shows it."""

    subject: str = row("subject", TEXT)
    seq: int = row("seq", UINT64)
    hdrs: bytes = row("hdrs", BASE64, default=b"", omit=True)
    data: bytes = row("data", BASE64, default=b"", omit=True)
    time_ns: int | None = row("time", TIME, default=None)


# ------------------------------------------------------------------ answers


@define
class Success:
    """Deletes, step-downs and the like."""

    success: bool = row("success", BOOL, default=False, omit=True)


@define
class Paged:
    """A part of what was asked for: how many there are in all, where the part begins, how many fit."""

    total: int = row("total", INT, default=0)
    offset: int = row("offset", INT, default=0)
    limit: int = row("limit", INT, default=0)


@define
class Empty:
    """Answers that carry nothing but an error, if any (UNPIN)."""


@define
class StreamCreated:
    """STREAM.CREATE and STREAM.UPDATE."""

    info: StreamInfo | None = row("", Inline(StreamInfo), default=None)
    did_create: bool = row("did_create", BOOL, default=False, omit=True)


@define
class StreamInfoAnswer(Paged):
    """STREAM.INFO: a page of subject details and the stream."""

    info: StreamInfo | None = row("", Inline(StreamInfo), default=None)


@define
class StreamNames(Paged):
    """STREAM.NAMES; no stream at all is null."""

    streams: list[str] | None = row("streams", ListOf(TEXT), default=None)


@define
class StreamList(Paged):
    """STREAM.LIST. `offline`: name to reason."""

    streams: list[StreamInfo] = row("streams", ListOf(Record(StreamInfo)), factory=list)
    missing: list[str] = row("missing", ListOf(TEXT), factory=list, omit=True)
    offline: dict[str, str] = row("offline", MapOf(TEXT), factory=dict, omit=True)


@define
class StreamPurged(Success):
    """STREAM.PURGE."""

    purged: int = row("purged", UINT64, default=0)


@define
class MsgGetAnswer:
    """STREAM.MSG.GET."""

    message: StoredMsg | None = row("message", Record(StoredMsg), default=None, omit=True)


@define
class SnapshotAnswer:
    """STREAM.SNAPSHOT: the chunks follow on the request's deliver subject."""

    config: StreamConfig | None = row("config", Record(StreamConfig), default=None, omit=True)
    state: StreamState | None = row("state", Record(StreamState), default=None, omit=True)


@define
class RestoreAnswer:
    """STREAM.RESTORE: where the chunks go."""

    deliver_subject: str = row("deliver_subject", TEXT, default="")


@define
class ConsumerAnswer:
    """CONSUMER.CREATE and CONSUMER.INFO."""

    info: ConsumerInfo | None = row("", Inline(ConsumerInfo), default=None)


@define
class ConsumerNames(Paged):
    """CONSUMER.NAMES."""

    consumers: list[str] = row("consumers", ListOf(TEXT), factory=list)


@define
class ConsumerList(Paged):
    """CONSUMER.LIST."""

    consumers: list[ConsumerInfo] = row("consumers", ListOf(Record(ConsumerInfo)), factory=list)
    missing: list[str] = row("missing", ListOf(TEXT), factory=list, omit=True)
    offline: dict[str, str] = row("offline", MapOf(TEXT), factory=dict, omit=True)


@define
class ConsumerPaused:
    """CONSUMER.PAUSE."""

    paused: bool = row("paused", BOOL, default=False)
    pause_until_ns: int | None = row("pause_until", TIME, default=None)
    pause_remaining_ns: int = row("pause_remaining", DURATION, default=0, omit=True)


@define
class ConsumerReset:
    """CONSUMER.RESET."""

    info: ConsumerInfo | None = row("", Inline(ConsumerInfo), default=None)
    reset_seq: int = row("reset_seq", UINT64, default=0)


@define
class ApiStats:
    """Use of the API."""

    level: int = row("level", INT, default=0)
    total: int = row("total", UINT64, default=0)
    errors: int = row("errors", UINT64, default=0)
    inflight: int = row("inflight", UINT64, default=0, omit=True)


@define
class Usage:
    """What an account or one of its tiers uses, and may use."""

    memory: int = row("memory", UINT64, default=0)
    storage: int = row("storage", UINT64, default=0)
    reserved_memory: int = row("reserved_memory", UINT64, default=0)
    reserved_storage: int = row("reserved_storage", UINT64, default=0)
    streams: int = row("streams", INT, default=0)
    consumers: int = row("consumers", INT, default=0)
    limits: AccountLimits = row("limits", Record(AccountLimits), factory=AccountLimits)


@define
class AccountInfo(Usage):
    """INFO."""

    domain: str = row("domain", TEXT, default="", omit=True)
    api: ApiStats = row("api", Record(ApiStats), factory=ApiStats)
    tiers: dict[str, Usage] = row("tiers", MapOf(Record(Usage)), factory=dict, omit=True)


def encode_answer(response_type: str, body: Any, error: ApiError | None = None) -> bytes:
    """The JSON of an answer: its type, the error if any, then the body's keys."""
    answer: dict[str, Any] = {"type": RESPONSE_TYPE_PREFIX + response_type}
    if error is not None:
        answer["error"] = error.to_json()
    answer.update(to_object(body))
    return encode_document(answer)


def page(items: list[Any], offset: int, limit: int) -> tuple[list[Any], int]:
    """(the page of `items` that begins at `offset`, the offset as it is answered); a negative offset is 0."""
    offset = min(max(offset, 0), len(items))
    return items[offset : offset + limit], offset
