"""What the API does with consumers."""

from __future__ import annotations

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.levels import with_server_level
from tnats.jetstream.api.messages import (
    LIST_PAGE,
    NAMES_PAGE,
    ConsumerAnswer,
    ConsumerInfo,
    ConsumerList,
    ConsumerNames,
    ConsumerPaused,
    ConsumerReset,
    Empty,
    JSApiConsumerPauseRequest,
    JSApiConsumerResetRequest,
    JSApiConsumersRequest,
    JSApiConsumerUnpinRequest,
    Success,
    page,
)
from tnats.jetstream.api.service import Read, Refused, Request, Served, granted
from tnats.jetstream.api.subjects import Call
from tnats.jetstream.consumer.config import CreateConsumerRequest
from tnats.jetstream.consumer.rules import check_group_name, check_request_names
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.host import Host
from tnats.jetstream.stream.headers import STREAM_IDENTITY
from tnats.subjects.tokens import to_text
from tnats.wire.headers import build_headers, get_header

GROUP_MISSING = errors.INVALID_JSON(err="consumer group not specified")


class ConsumerCalls:
    """Handlers by call, for `ApiService`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def handlers(self) -> dict[Call, Served | Read]:
        return {
            Call.CONSUMER_CREATE: Served(self.create, ConsumerAnswer),
            Call.CONSUMER_CREATE_NAMED: Served(self.create, ConsumerAnswer),
            Call.CONSUMER_DURABLE_CREATE: Served(self.create, ConsumerAnswer),
            Call.CONSUMER_NAMES: Read(self.names, ConsumerNames),
            Call.CONSUMER_LIST: Read(self.list, ConsumerList),
            Call.CONSUMER_INFO: Read(self.info, ConsumerAnswer),
            Call.CONSUMER_DELETE: Served(self.delete, Success),
            Call.CONSUMER_PAUSE: Served(self.pause, ConsumerPaused),
            Call.CONSUMER_RESET: Served(self.reset, ConsumerReset),
            Call.CONSUMER_UNPIN: Served(self.unpin, Empty),
        }

    async def create(self, request: Request) -> object:
        wanted = request.decode(CreateConsumerRequest)
        address = request.address
        if wanted.stream_name != address.stream:
            raise Refused(errors.STREAM_MISMATCH())
        granted(
            check_request_names(
                wanted.config,
                subject_name=address.consumer,
                subject_filter=address.filter_subject,
                expects_durable=address.call == Call.CONSUMER_DURABLE_CREATE,
            )
        )
        stream = request.stream()
        is_copying = wanted.config.direct or wanted.config.sourcing
        if is_copying:
            claimed = get_header(request.headers, STREAM_IDENTITY)
            if claimed and claimed != stream.identity:
                raise Refused(errors.CONSUMER_STREAM_IDENTITY_MISMATCH(msg=to_text(stream.identity)))
        consumer = granted(await request.account.create_consumer(stream, wanted))
        if is_copying:
            request.answer_headers = build_headers([(STREAM_IDENTITY, stream.identity)])
        return ConsumerAnswer(consumer_info(consumer))

    def names(self, request: Request) -> object:
        wanted = request.decode(JSApiConsumersRequest, is_optional=True)
        found = request.stream().listed_consumers()
        shown, offset = page(found, wanted.offset, NAMES_PAGE)
        return ConsumerNames(len(found), offset, NAMES_PAGE, [consumer.name for consumer in shown])

    def list(self, request: Request) -> object:
        wanted = request.decode(JSApiConsumersRequest, is_optional=True)
        found = request.stream().listed_consumers()
        shown, offset = page(found, wanted.offset, LIST_PAGE)
        infos = [consumer_info(consumer, with_levels=False) for consumer in shown]
        return ConsumerList(len(found), offset, LIST_PAGE, infos)

    def info(self, request: Request) -> object:
        if not request.is_empty:
            raise Refused(errors.NOT_EMPTY_REQUEST())
        consumer = request.consumer()
        return ConsumerAnswer(consumer_info(consumer))

    async def delete(self, request: Request) -> object:
        if not request.is_empty:
            raise Refused(errors.NOT_EMPTY_REQUEST())
        consumer = request.consumer()
        granted(await request.account.delete_consumer(consumer.stream, consumer))
        return Success(True)

    async def pause(self, request: Request) -> object:
        wanted = request.decode(JSApiConsumerPauseRequest, is_optional=True)
        consumer = request.consumer()
        until_ns = wanted.pause_until_ns
        granted(await request.account.pause_consumer(consumer, until_ns))
        info = consumer.info()
        return ConsumerPaused(info.paused, until_ns, info.pause_remaining_ns)

    async def reset(self, request: Request) -> object:
        wanted = request.decode(JSApiConsumerResetRequest)
        consumer = request.consumer()
        effects, outcome = consumer.machine.reset(wanted.seq, self._host.mono_ns())
        consumer.carry_out(effects)
        consumer.stream.sweep()  # what it skips, nobody else may want
        return ConsumerReset(consumer_info(consumer), granted(outcome))

    async def unpin(self, request: Request) -> object:
        if not request.body:
            raise Refused(errors.INVALID_JSON(err="unexpected end of JSON input"))
        wanted = request.decode(JSApiConsumerUnpinRequest, is_lenient=True)
        granted(check_group_name(wanted.group) if wanted.group else GROUP_MISSING)
        consumer = request.consumer()
        consumer.carry_out(granted(consumer.machine.unpin(wanted.group, self._host.mono_ns())))
        return Empty()


def consumer_info(consumer: ConsumerService, *, with_levels: bool = True) -> ConsumerInfo:
    """A consumer as answers show it."""
    info = consumer.info()
    if with_levels and info.config is not None:
        info.config = attrs.evolve(info.config, metadata=with_server_level(info.config.metadata))
    return info
