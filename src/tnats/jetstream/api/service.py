"""The API of a node: requests of all accounts, in order, answered by one task.

Requests that only read queue behind those that change something; one that comes alone when nothing is queued is
answered in place, which takes half the time of waking the task. A queue that overflows is emptied without answers, as
nats-server does it: answers that come too late help nobody, and the clients' own time-outs slow them down. What takes
long (backup, restore) gets a task of its own. A request that meets a bug of ours is reported and stays unanswered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import trio

from tnats.jetstream.api import errors, fields
from tnats.jetstream.api.advisories import api_audit, api_limit_reached
from tnats.jetstream.api.errors import ApiError
from tnats.jetstream.api.json_text import SPACES, DecodeError
from tnats.jetstream.api.levels import REQUIRED_LEVEL_HEADER, supports
from tnats.jetstream.api.messages import Empty, encode_answer
from tnats.jetstream.api.subjects import (
    RESPONSE_TYPES,
    SYSTEM_ACCOUNT_CALLS,
    Address,
    Call,
    api_forms,
    parse,
)
from tnats.jetstream.host import Host
from tnats.jetstream.ports import Client
from tnats.jetstream.stream.ports import Inbound
from tnats.records import define, frozen
from tnats.subjects.tokens import to_text
from tnats.wire.headers import get_header

if TYPE_CHECKING:
    from tnats.jetstream.account import AccountService
    from tnats.jetstream.consumer.service import ConsumerService
    from tnats.jetstream.stream.service import StreamService

T = TypeVar("T")

AUDIT_SUBJECT = b"$JS.EVENT.ADVISORY.API"

TAILS = (
    "INFO",
    "STREAM.>",
    *(f"CONSUMER.{word}.>" for word in ("CREATE", "DURABLE", "NAMES", "LIST", "INFO", "DELETE")),
    *(f"CONSUMER.{word}.>" for word in ("PAUSE", "RESET", "UNPIN", "LEADER")),
)
"""The calls that the API listens for. Pulls and direct gets have subscriptions of their own, so that a request to what
does not exist finds no responders."""


class Refused(Exception):
    """Ends the handling of a request: the error of its answer."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.description)
        self.error = error


def granted(outcome: T | ApiError) -> T:
    """What a call has come to. Raises Refused if that is an error."""
    if isinstance(outcome, ApiError):
        raise Refused(outcome)
    return outcome


@define(eq=False)
class Request:
    """One request. `body`: without headers."""

    account: AccountService
    address: Address
    subject: bytes
    reply: bytes
    headers: bytes
    body: bytes
    answer: Callable[[bytes, bytes], None]
    """Send a header block, and a body."""
    is_strict: bool
    """Unknown fields of the body are errors."""
    answer_headers: bytes = b""
    """Of the answer, unless it is a refusal."""

    @property
    def is_empty(self) -> bool:
        """Whether the body says nothing."""
        return self.body in (b"", b"{}")

    def decode(self, record: type[T], *, is_optional: bool = False, is_lenient: bool = False) -> T:
        """The body as a record. Raises Refused.

        `is_optional`: what does not look like one says nothing; `is_lenient`: unknown fields are never errors.
        """
        if is_optional and self.body.lstrip(SPACES)[:1] not in (b"{", b"["):
            return record()
        try:
            return fields.decode(record, self.body, strict=self.is_strict and not is_lenient)
        except DecodeError as error:
            raise Refused(errors.INVALID_JSON(err=error)) from None

    def stream(self) -> StreamService:
        """The stream that the subject names. Raises Refused."""
        found = self.account.streams.get(self.address.stream)
        if found is None:
            raise Refused(errors.STREAM_NOT_FOUND())
        return found

    def consumer(self) -> ConsumerService:
        """The consumer that the subject names. Raises Refused."""
        found = self.stream().consumers.get(self.address.consumer)
        if found is None:
            raise Refused(errors.CONSUMER_NOT_FOUND())
        return found


@frozen
class Served:
    """How a call is served: `handle` gives the body of the answer or raises Refused, `blank` that of a refusal."""

    handle: Callable[[Request], Awaitable[object]]
    blank: Callable[[], object]


@frozen
class Read:
    """How a call is served that only reads, and waits for nothing."""

    tell: Callable[[Request], object]
    blank: Callable[[], object]


class ApiService:
    """See the module's text."""

    def __init__(self, host: Host, calls: dict[Call, Served | Read]) -> None:
        self._host = host
        self._calls = calls
        self._changes: deque[Request] = deque()
        self._reads: deque[Request] = deque()
        self._work = trio.Event()
        self._is_busy = False
        self.clients: list[Client] = []

    def serve(self, account: AccountService) -> None:
        """Take requests of an account from now on."""

        def deliver(batch: list[Inbound]) -> None:
            for message in batch:
                self._take(account, client, message, is_alone=len(batch) == 1)

        client = account.bus.client("api", deliver)
        self.clients.append(client)
        for tail in TAILS:
            for subject in api_forms(tail, self._host.options.domain):
                client.subscribe(subject)

    def stop(self) -> None:
        """Take no more requests."""
        for client in self.clients:
            client.close()

    def _take(self, account: AccountService, client: Client, message: Inbound, *, is_alone: bool) -> None:
        subject = message.subject
        if not subject.startswith(b"$JS.API."):
            subject = b"$JS." + subject.split(b".", 2)[2]
        address = parse(subject)
        if address is None or address.call in SYSTEM_ACCOUNT_CALLS:
            return
        size = message.header_size

        def answer(headers: bytes, payload: bytes) -> None:
            if message.reply:
                client.publish(message.reply, payload, headers=headers)

        head, body = message.data[:size], message.data[size:]
        is_strict = self._host.options.is_strict
        request = Request(account, address, subject, message.reply, head, body, answer, is_strict)
        served = self._calls.get(address.call)
        if isinstance(served, Read):
            if is_alone and not (self._changes or self._reads or self._is_busy):
                self._tell(request, served)
                return
            self._put(self._reads, request, self._host.options.info_requests_max)
        else:
            self._put(self._changes, request, self._host.options.requests_max)

    def _put(self, queue: deque[Request], request: Request, bound: int) -> None:
        if len(queue) >= bound:
            dropped = len(queue)
            queue.clear()
            options = self._host.options
            self._host.log.warn(f"JetStream API queue limit reached, dropping {dropped} requests")
            request.account.advise([api_limit_reached(options.server_name, dropped, options.domain)])
            return
        queue.append(request)
        self._work.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            while self._changes or self._reads:
                request = (self._changes or self._reads).popleft()
                await self._serve(request)
            self._work = trio.Event()
            await self._work.wait()

    async def _serve(self, request: Request) -> None:
        self._is_busy = True
        try:
            served = self._calls.get(request.address.call)
            if isinstance(served, Read):
                self._tell(request, served)
            elif served is None:
                self._respond(request, Empty(), errors.CLUSTER_REQUIRED())
            else:
                with self._concluding(request, served):
                    if self._is_served(request):
                        self._respond(request, await served.handle(request), None)
        finally:
            self._is_busy = False

    def _tell(self, request: Request, read: Read) -> None:
        with self._concluding(request, read):
            if self._is_served(request):
                self._respond(request, read.tell(request), None)

    @contextmanager
    def _concluding(self, request: Request, served: Served | Read) -> Iterator[None]:
        """Answer what is refused within, and report what is a bug of ours."""
        try:
            try:
                yield
            except Refused as refused:
                self._respond(request, served.blank(), refused.error)
        except Exception as bug:
            self._host.runtime.process.on_bug(bug, f"jetstream api {to_text(request.subject)}")

    def _is_served(self, request: Request) -> bool:
        """Whether this server knows as much as the request asks for; if not, that is answered.

        Raises Refused where the account may not use JetStream.
        """
        if not request.account.quotas.is_enabled:
            raise Refused(errors.NOT_ENABLED_FOR_ACCOUNT())
        if not request.headers or supports(get_header(request.headers, REQUIRED_LEVEL_HEADER)):
            return True
        self._respond(request, Empty(), errors.REQUIRED_API_LEVEL())
        return False

    def _respond(self, request: Request, body: object, error: ApiError | None) -> None:
        """Send an answer, and tell those who audit."""
        account = request.account
        payload = encode_answer(RESPONSE_TYPES[request.address.call], body, error)
        account.stats.total += 1  # an account's report does not count itself
        account.stats.errors += error is not None
        request.answer(request.answer_headers if error is None else b"", payload)
        if account.bus.has_interest(AUDIT_SUBJECT) and request.address.call != Call.STREAM_MSG_GET:
            name = self._host.options.server_name
            domain = self._host.options.domain
            audit = api_audit(name, account.name, to_text(request.subject), _text(request.body), _text(payload), domain)
            account.advise([audit])


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")
