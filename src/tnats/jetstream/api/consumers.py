"""What the API does with consumers."""

from __future__ import annotations

import attrs

from tnats.jetstream.api import errors
from tnats.jetstream.api.errors import ApiError
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
from tnats.jetstream.api.service import Answer, Handler, Request
from tnats.jetstream.api.subjects import Call
from tnats.jetstream.consumer.config import CreateConsumerRequest
from tnats.jetstream.consumer.rules import check_group_name, check_request_names
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.host import Host

GROUP_MISSING = errors.INVALID_JSON(err="consumer group not specified")


class ConsumerCalls:
    """Handlers by call, for `ApiService`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._strict = host.options.is_strict

    def handlers(self) -> dict[Call, Handler]:
        return {
            Call.CONSUMER_CREATE: self.create,
            Call.CONSUMER_CREATE_NAMED: self.create,
            Call.CONSUMER_DURABLE_CREATE: self.create,
            Call.CONSUMER_NAMES: self.names,
            Call.CONSUMER_LIST: self.list,
            Call.CONSUMER_INFO: self.info,
            Call.CONSUMER_DELETE: self.delete,
            Call.CONSUMER_PAUSE: self.pause,
            Call.CONSUMER_RESET: self.reset,
            Call.CONSUMER_UNPIN: self.unpin,
        }

    async def create(self, request: Request) -> Answer:
        wanted = request.decode(CreateConsumerRequest, strict=self._strict)
        if isinstance(wanted, ApiError):
            return ConsumerAnswer(), wanted
        address = request.address
        if wanted.stream_name != address.stream:
            return ConsumerAnswer(), errors.STREAM_MISMATCH()
        error = check_request_names(
            wanted.config,
            subject_name=address.consumer,
            subject_filter=address.filter_subject,
            expects_durable=address.call == Call.CONSUMER_DURABLE_CREATE,
        )
        if error is not None:
            return ConsumerAnswer(), error
        stream = request.account.streams.get(address.stream)
        if stream is None:
            return ConsumerAnswer(), errors.STREAM_NOT_FOUND()
        outcome = await request.account.create_consumer(stream, wanted)
        if isinstance(outcome, ApiError):
            return ConsumerAnswer(), outcome
        return ConsumerAnswer(consumer_info(outcome)), None

    async def names(self, request: Request) -> Answer:
        wanted = request.decode(JSApiConsumersRequest, strict=self._strict, is_optional=True)
        if isinstance(wanted, ApiError):
            return ConsumerNames(), wanted
        stream = request.account.streams.get(request.address.stream)
        if stream is None:
            return ConsumerNames(), errors.STREAM_NOT_FOUND()
        shown, offset = page(sorted(stream.consumers), wanted.offset, NAMES_PAGE)
        return ConsumerNames(len(stream.consumers), offset, NAMES_PAGE, shown), None

    async def list(self, request: Request) -> Answer:
        wanted = request.decode(JSApiConsumersRequest, strict=self._strict, is_optional=True)
        if isinstance(wanted, ApiError):
            return ConsumerList(), wanted
        stream = request.account.streams.get(request.address.stream)
        if stream is None:
            return ConsumerList(), errors.STREAM_NOT_FOUND()
        shown, offset = page(sorted(stream.consumers), wanted.offset, LIST_PAGE)
        infos = [consumer_info(stream.consumers[name], with_levels=False) for name in shown]
        return ConsumerList(len(stream.consumers), offset, LIST_PAGE, infos), None

    async def info(self, request: Request) -> Answer:
        if not request.is_empty:
            return ConsumerAnswer(), errors.NOT_EMPTY_REQUEST()
        consumer = self._find(request)
        if isinstance(consumer, ApiError):
            return ConsumerAnswer(), consumer
        return ConsumerAnswer(consumer_info(consumer)), None

    async def delete(self, request: Request) -> Answer:
        if not request.is_empty:
            return Success(), errors.NOT_EMPTY_REQUEST()
        consumer = self._find(request)
        if isinstance(consumer, ApiError):
            return Success(), consumer
        error = await request.account.delete_consumer(consumer.stream, consumer)
        return Success(error is None), error

    async def pause(self, request: Request) -> Answer:
        wanted = request.decode(JSApiConsumerPauseRequest, strict=self._strict, is_optional=True)
        if isinstance(wanted, ApiError):
            return ConsumerPaused(), wanted
        consumer = self._find(request)
        if isinstance(consumer, ApiError):
            return ConsumerPaused(), consumer
        until_ns = wanted.pause_until_ns
        error = await request.account.pause_consumer(consumer, until_ns)
        if error is not None:
            return ConsumerPaused(), error
        info = consumer.info()
        return ConsumerPaused(info.paused, until_ns, info.pause_remaining_ns), None

    async def reset(self, request: Request) -> Answer:
        wanted = request.decode(JSApiConsumerResetRequest, strict=self._strict)
        if isinstance(wanted, ApiError):
            return ConsumerReset(), wanted
        consumer = self._find(request)
        if isinstance(consumer, ApiError):
            return ConsumerReset(), consumer
        effects, outcome = consumer.machine.reset(wanted.seq, self._host.mono_ns())
        consumer.carry_out(effects)
        if isinstance(outcome, ApiError):
            return ConsumerReset(), outcome
        return ConsumerReset(consumer_info(consumer), outcome), None

    async def unpin(self, request: Request) -> Answer:
        if not request.body:
            return Empty(), errors.INVALID_JSON(err="unexpected end of JSON input")
        wanted = request.decode(JSApiConsumerUnpinRequest, strict=False)
        if isinstance(wanted, ApiError):
            return Empty(), wanted
        error = check_group_name(wanted.group) if wanted.group else GROUP_MISSING
        consumer = error or self._find(request)
        if isinstance(consumer, ApiError):
            return Empty(), consumer
        outcome = consumer.machine.unpin(wanted.group, self._host.mono_ns())
        if isinstance(outcome, ApiError):
            return Empty(), outcome
        consumer.carry_out(outcome)
        return Empty(), None

    def _find(self, request: Request) -> ConsumerService | ApiError:
        stream = request.account.streams.get(request.address.stream)
        if stream is None:
            return errors.STREAM_NOT_FOUND()
        return stream.consumers.get(request.address.consumer) or errors.CONSUMER_NOT_FOUND()


def consumer_info(consumer: ConsumerService, *, with_levels: bool = True) -> ConsumerInfo:
    """A consumer as answers show it."""
    info = consumer.info()
    if with_levels and info.config is not None:
        info.config = attrs.evolve(info.config, metadata=with_server_level(info.config.metadata))
    return info
