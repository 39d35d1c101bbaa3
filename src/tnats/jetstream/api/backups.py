"""What the API does with backups: it checks the request, and starts what then goes on beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.messages import (
    JSApiStreamRestoreRequest,
    JSApiStreamSnapshotRequest,
    RestoreAnswer,
    SnapshotAnswer,
    StreamCreated,
    encode_answer,
)
from tnats.jetstream.api.service import Read, Refused, Request, Served, granted
from tnats.jetstream.api.streams import stream_info, stream_state
from tnats.jetstream.api.subjects import RESPONSE_TYPES, Call
from tnats.jetstream.host import Host
from tnats.jetstream.stream.service import StreamService
from tnats.limits import BACKUPS_MAX
from tnats.subjects.tokens import is_publishable, to_bytes

TOO_MANY = f"{BACKUPS_MAX} backups and restores are under way"


class BackupCalls:
    """Handlers by call, for `ApiService`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._under_way_count = 0

    def handlers(self) -> dict[Call, Served | Read]:
        return {
            Call.STREAM_SNAPSHOT: Served(self.snapshot, SnapshotAnswer),
            Call.STREAM_RESTORE: Served(self.restore, RestoreAnswer),
        }

    async def snapshot(self, request: Request) -> object:
        if request.is_empty:
            raise Refused(errors.BAD_REQUEST())
        stream = request.stream()
        wanted = request.decode(JSApiStreamSnapshotRequest)
        deliver = to_bytes(wanted.deliver_subject)
        if not is_publishable(deliver):
            raise Refused(errors.SNAPSHOT_DELIVER_SUBJECT_INVALID())
        if self._under_way_count >= BACKUPS_MAX:
            raise Refused(errors.STREAM_SNAPSHOT(err=TOO_MANY))
        state = stream_state(stream)
        from tnats.jetstream.backup.sending import BackupSender  # most servers never make one

        self._begin(BackupSender(self._host, stream, wanted, state).run)
        return SnapshotAnswer(stream.config, state)

    async def restore(self, request: Request) -> object:
        if request.is_empty:
            raise Refused(errors.BAD_REQUEST())
        wanted = request.decode(JSApiStreamRestoreRequest)
        config = wanted.config
        config.name = config.name or request.address.stream
        if config.name != request.address.stream:
            raise Refused(errors.STREAM_MISMATCH())
        if config.name in request.account.streams:
            raise Refused(errors.STREAM_NAME_EXIST_RESTORE_FAILED())
        checked = granted(request.account.check_new_stream(config, is_restored=True))
        if self._under_way_count >= BACKUPS_MAX:
            raise Refused(errors.STREAM_RESTORE(err=TOO_MANY))
        from tnats.jetstream.backup.receiving import Restore  # most servers never take one

        restore = Restore(self._host, request.account, checked, _last_answer)
        self._begin(restore.run)
        return RestoreAnswer(restore.subject)

    def _begin(self, run: Callable[[], Awaitable[None]]) -> None:
        self._under_way_count += 1
        self._host.spawn(self._run, run)

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        finally:
            self._under_way_count -= 1


def _last_answer(stream: StreamService | None, error: ApiError | None) -> bytes:
    body = StreamCreated(stream_info(stream)) if stream is not None else StreamCreated()
    return encode_answer(RESPONSE_TYPES[Call.STREAM_CREATE], body, error)
