"""What the API does with streams: making, changing and removing them, and their messages."""

from __future__ import annotations

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.levels import DURABILITY_KEY, with_server_level
from tnats.jetstream.api.messages import (
    LIST_PAGE,
    NAMES_PAGE,
    SUBJECTS_PAGE,
    AccountInfo,
    ClusterInfo,
    Empty,
    JSApiMsgDeleteRequest,
    JSApiMsgGetRequest,
    JSApiStreamInfoRequest,
    JSApiStreamListRequest,
    JSApiStreamNamesRequest,
    JSApiStreamPurgeRequest,
    LostStreamData,
    MsgGetAnswer,
    StoredMsg,
    StreamCreated,
    StreamInfo,
    StreamInfoAnswer,
    StreamList,
    StreamNames,
    StreamPurged,
    StreamState,
    Success,
    page,
)
from tnats.jetstream.api.service import Read, Refused, Request, Served, granted
from tnats.jetstream.api.subjects import Call, is_valid_name
from tnats.jetstream.host import Host
from tnats.jetstream.stream import rules
from tnats.jetstream.stream.config import Storage, StreamConfigRequest
from tnats.jetstream.stream.service import StreamService
from tnats.jetstream.usage import account_usage
from tnats.notation import format_duration
from tnats.runtime.api import DiskError
from tnats.storage.errors import DataDamaged, StorageError
from tnats.storage.index_columns import REMOVED
from tnats.subjects.tokens import is_valid_subject, subjects_overlap, to_bytes, to_text

LOST_SEQUENCES_MAX = 10_000
"""Lost messages that stream info lists; the health check and the log have the ranges."""


class StreamCalls:
    """Handlers by call, for `ApiService`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def handlers(self) -> dict[Call, Served | Read]:
        return {
            Call.ACCOUNT_INFO: Read(self.account_info, Empty),
            Call.STREAM_CREATE: Served(self.create, StreamCreated),
            Call.STREAM_UPDATE: Served(self.update, StreamCreated),
            Call.STREAM_INFO: Read(self.info, StreamInfoAnswer),
            Call.STREAM_NAMES: Read(self.names, StreamNames),
            Call.STREAM_LIST: Read(self.list, StreamList),
            Call.STREAM_DELETE: Served(self.delete, Success),
            Call.STREAM_PURGE: Served(self.purge, StreamPurged),
            Call.STREAM_MSG_GET: Served(self.get_message, MsgGetAnswer),
            Call.STREAM_MSG_DELETE: Served(self.delete_message, Success),
        }

    # ------------------------------------------------------------------ streams

    def account_info(self, request: Request) -> object:
        account = request.account
        used, tiers = account_usage(account)
        figures = attrs.asdict(used, recurse=False)
        return AccountInfo(**figures, domain=self._host.options.domain, api=account.stats, tiers=tiers)

    async def create(self, request: Request) -> object:
        wanted = request.decode(StreamConfigRequest)
        if wanted.name != request.address.stream:
            raise Refused(errors.STREAM_MISMATCH())
        made = await request.account.create_stream(wanted.config(), pedantic=wanted.pedantic)
        stream, did_create = granted(made)
        info = stream_info(stream)
        info.domain = ""  # of all answers about a stream this one alone leaves it out in nats-server
        return StreamCreated(info, did_create)

    async def update(self, request: Request) -> object:
        wanted = request.decode(StreamConfigRequest)
        if wanted.name != request.address.stream:
            raise Refused(errors.STREAM_MISMATCH() if is_valid_name(wanted.name) else rules.NAME_MISSING)
        updated = await request.account.update_stream(wanted.config(), pedantic=wanted.pedantic)
        return StreamCreated(stream_info(granted(updated)))

    def info(self, request: Request) -> object:
        wanted = request.decode(JSApiStreamInfoRequest, is_optional=True)
        stream = request.stream()
        info = stream_info(stream)
        info.cluster = ClusterInfo(leader=self._host.options.server_name)
        answer = StreamInfoAnswer(info=info)
        if wanted.deleted_details and info.state.num_deleted:
            info.state.deleted = _deleted(stream)
        if wanted.subjects_filter:
            found = sorted(stream.store.subjects(to_bytes(wanted.subjects_filter)).items())
            shown, answer.offset = page(found, wanted.offset, SUBJECTS_PAGE)
            answer.total, answer.limit = len(found), SUBJECTS_PAGE if found else 0
            info.state.subjects = {to_text(subject): count for subject, count in shown}
        return answer

    def _select(self, request: Request, wanted: JSApiStreamNamesRequest) -> list[StreamService]:
        streams = sorted(request.account.streams.values(), key=lambda stream: stream.name)
        if not wanted.subject:
            return streams
        return [
            stream
            for stream in streams
            if any(subjects_overlap(wanted.subject, subject) for subject in stream.config.subjects)
        ]

    def names(self, request: Request) -> object:
        wanted = request.decode(JSApiStreamNamesRequest, is_optional=True)
        found = self._select(request, wanted)
        shown, offset = page(found, wanted.offset, NAMES_PAGE)
        return StreamNames(len(found), offset, NAMES_PAGE, [stream.name for stream in shown] or None)

    def list(self, request: Request) -> object:
        wanted = request.decode(JSApiStreamListRequest, is_optional=True)
        found = self._select(request, wanted)
        shown, offset = page(found, wanted.offset, LIST_PAGE)
        infos = [stream_info(stream, with_levels=False) for stream in shown]
        return StreamList(len(found), offset, LIST_PAGE, infos)

    async def delete(self, request: Request) -> object:
        if not request.is_empty:
            raise Refused(errors.NOT_EMPTY_REQUEST())
        stream = request.stream()
        granted(await request.account.delete_stream(stream))
        return Success(True)

    # ------------------------------------------------------------------ messages

    async def purge(self, request: Request) -> object:
        wanted = request.decode(JSApiStreamPurgeRequest, is_optional=True)
        stream = request.stream()
        entry = granted(stream.leader.purge(wanted))
        try:
            applied = await stream.commit(entry)
        except StorageError as failure:
            raise Refused(errors.STREAM_PURGE_FAILED(err=str(failure))) from None
        return StreamPurged(True, applied.removed_count)

    async def get_message(self, request: Request) -> object:
        wanted = request.decode(JSApiMsgGetRequest)
        if not wanted.is_valid_get():
            raise Refused(errors.BAD_REQUEST())
        stream = request.stream()
        seq = find_message(stream, wanted)
        try:
            message = await stream.store.load(seq)
        except KeyError:
            raise Refused(errors.NO_MESSAGE_FOUND()) from None
        except DataDamaged as failure:  # not the same as absent, and a reader must not take it for that
            self._host.log.error(str(failure))
            raise Refused(errors.STREAM_GENERAL_ERROR(err=f"message {seq} is damaged")) from None
        except (StorageError, DiskError) as failure:
            self._host.log.error(str(failure))
            raise Refused(errors.STREAM_GENERAL_ERROR(err=f"message {seq} cannot be read")) from None
        headers = b"" if wanted.no_hdr else message.headers
        stored = StoredMsg(to_text(message.subject), seq, headers, message.payload, message.time_ns)
        return MsgGetAnswer(stored)

    async def delete_message(self, request: Request) -> object:
        if request.is_empty:
            raise Refused(errors.BAD_REQUEST())
        wanted = request.decode(JSApiMsgDeleteRequest)
        stream = request.stream()
        entry = granted(stream.leader.delete_message(wanted))
        try:
            applied = await stream.commit(entry)
        except StorageError as failure:
            raise Refused(errors.STREAM_MSG_DELETE_FAILED(err=str(failure))) from None
        if not applied.removed:
            raise Refused(errors.SEQUENCE_NOT_FOUND(seq=wanted.seq))
        return Success(True)


def find_message(stream: StreamService, wanted: JSApiMsgGetRequest) -> int:
    """The sequence that a get names; 0 if there is none."""
    store = stream.store
    if wanted.last_by_subj:
        pattern = to_bytes(wanted.last_by_subj)
        return store.last_seq_of(pattern) if is_valid_subject(pattern) else 0
    seq = wanted.seq
    if wanted.start_time_ns is not None:
        seq = store.seq_at_time(wanted.start_time_ns)
    if wanted.next_by_subj:
        return store.next_matching((to_bytes(wanted.next_by_subj),), max(seq, 1))
    return store.next_seq(seq) if wanted.start_time_ns is not None else seq


def stream_info(stream: StreamService, *, with_levels: bool = True) -> StreamInfo:
    """A stream as answers show it, without cluster."""
    config = stream.config
    if with_levels:
        metadata = with_server_level(config.metadata) | {DURABILITY_KEY: durability(stream)}
        config = attrs.evolve(config, metadata=metadata)
    origins = [intake.info() for intake in stream.intakes]
    return StreamInfo(
        config=config,
        created_ns=stream.record.created_ns,
        state=stream_state(stream),
        domain=stream.host.options.domain,
        mirror=next(iter(origins), None) if config.mirror is not None else None,
        sources=origins if config.mirror is None else [],
        ts_ns=stream.host.wall_ns(),
    )


def durability(stream: StreamService) -> str:
    """What an acknowledged publish survives: the value of DURABILITY_KEY."""
    if stream.config.storage == Storage.MEMORY:
        return "memory"
    interval_ns = stream.host.options.sync_interval_ns
    return f"interval {format_duration(interval_ns)}" if interval_ns else "synced"


def stream_state(stream: StreamService) -> StreamState:
    """What a stream holds."""
    state = stream.machine.state()
    if not state.last_seq and not stream.machine.was_purged:
        state.first_seq = 0
    state.num_subjects = stream.store.subject_count
    state.consumer_count = stream.consumer_count
    lost = _lost(stream)
    if lost:
        state.lost = LostStreamData(lost)
    return state


def _lost(stream: StreamService) -> list[int]:
    """Sequences whose messages are lost or cannot be read: the first ones, where there are more than a few."""
    index, log = stream.store.index, stream.store.log
    unreadable = [(seq, seq) for seq in log.unreadable if index.place(seq) > REMOVED]
    lost: list[int] = []
    for first, last in sorted([*stream.lost, *unreadable]):
        first = max(first, index.start)
        lost += range(first, min(last, first + LOST_SEQUENCES_MAX - len(lost) - 1) + 1)
    return lost


def _deleted(stream: StreamService) -> list[int]:
    """Sequences whose messages were deleted, not those that were passed over: as many as a disk can have held."""
    index, lost = stream.store.index, sorted(stream.lost)
    deleted: list[int] = []
    for first, last in index.absent(index.first, index.last, REMOVED):
        for lost_first, lost_last in lost:
            if first <= lost_first <= last:
                deleted += range(first, lost_first)
                first = lost_last + 1
        deleted += range(first, last + 1)
    return deleted
