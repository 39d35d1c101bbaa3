"""One client machine of the core workload: performs operations with the real client, and writes down what it sees.

| verb | arguments | what it does |
|---|---|---|
| `subscribe` | label, subject, queue, reply=1 | subscribes; with `reply` it answers requests |
| `unsubscribe` | label | ends that subscription |
| `publish` | subject, size, count, headers=1 | so many messages |
| `flush` | | a round trip, two seconds at most |
| `request` | subject, timeout | a request; others go on meanwhile |
| `reconnect` | | closes the client and connects as a new one |

An operation that the connection does not allow is passed over: under faults nothing needs to work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from tnats.client import (
    Client,
    ClientError,
    Connected,
    ConnectionLost,
    Disconnected,
    Event,
    LameDuck,
    Message,
    NoResponders,
    Reconnected,
    SlowConsumer,
    Subscription,
    TimedOut,
    connect,
)
from tnats.harness.sim.core_checks import REPLY_PREFIX
from tnats.harness.sim.core_evidence import Asked, Got, Interest, Sent, Session
from tnats.harness.sim.plan import Operation
from tnats.limits import SECOND_NS
from tnats.runtime.api import Runtime

if TYPE_CHECKING:
    from tnats.harness.sim.core import CoreDrill

URL = "nats://server:4222"
HEADER = "Id"
FLUSH_S = 2.0
REQUEST_NS = 2 * SECOND_NS
INBOXES = "_INBOX."
LIVE = "live"
NOBODY = "nobody.listens"


class Actor:
    """See the module. Outlives its node's incarnations, as the person before the machine does."""

    def __init__(self, drill: CoreDrill, name: str, operations: list[Operation], *, reconnects: bool) -> None:
        self.name = name
        self.state = "not started"
        """For people: where it stands."""
        self._drill = drill
        self._recording = drill.recording
        self._evidence = drill.evidence
        self._operations = operations
        self._done = 0
        self._reconnects = reconnects
        self._count = 0
        self._session: Session | None = None
        self._open: dict[str, tuple[Interest, Subscription]] = {}
        self._closed: list[Interest] = []
        """Ended on the present connection, of which the server may not know yet."""
        self._wants: dict[str, Operation] = {}
        """Subscriptions that a new client makes again."""

    def tick(self) -> int:
        return len(self._recording.notes)

    # ------------------------------------------------------------------ connections

    async def run(self, runtime: Runtime) -> None:
        """The machine's main function: connected as far as possible, until killed."""
        rng = runtime.chance.rng("actor")
        try:
            while True:
                try:
                    self.state = "connecting"
                    async with connect(
                        URL,
                        runtime=runtime,
                        name=self.name,
                        on_event=self._on_event,
                        ping_interval_s=1.0,
                        reconnect_wait_max_s=0.5,
                        reconnect_attempts_max=None if self._reconnects else 0,
                    ) as client:
                        await self._use(runtime, client)
                except* ClientError as group:
                    self.state = str(group.exceptions[0])
                self._end_session("the client ended")
                await runtime.clock.sleep_ns(rng.randrange(50_000_000, 300_000_000))
        finally:
            self._end_session("killed")

    def _on_event(self, event: Event) -> None:
        recording = self._recording
        if isinstance(event, Connected | Reconnected):
            if isinstance(event, Reconnected):
                recording.probe("a client reconnected")
            note = recording.note(self.name, "connect", type(event).__name__.lower())
            self._session = Session(self.name, len(self._evidence.sessions), note.index)
            self._evidence.sessions.append(self._session)
            for interest, _ in self._open.values():
                interest.on.append(self._session)
            self._closed.clear()
        elif isinstance(event, Disconnected):
            if "stale" in event.reason:
                recording.probe("a client found its connection dead by pings")
            self._end_session(event.reason)
        elif isinstance(event, LameDuck):
            recording.probe("a client was told of lame duck mode")
        elif isinstance(event, SlowConsumer):
            recording.probe("a client's subscription overflowed")

    def _end_session(self, reason: str) -> None:
        if self._session is not None:
            self._session.ended = self._recording.note(self.name, "disconnect", reason).index
            self._session = None
            self._drill.session_ended(self.name, reason)

    async def _use(self, runtime: Runtime, client: Client) -> None:
        """Perform what is left to do with one client; ends when that is closed."""
        async with trio.open_nursery() as nursery:
            self._open.clear()
            for operation in list(self._wants.values()):
                self._subscribe(client, nursery, operation)
            while self._done < len(self._operations):
                operation = self._operations[self._done]
                self.state = f"waiting for {operation}"
                await self._drill.wait_until(operation.at_ns)
                self._done += 1
                if operation.verb == "reconnect":
                    for label in list(self._open):
                        await self._unsubscribe(label)
                    await client.close()
                    nursery.cancel_scope.cancel()
                    return
                await self._perform(client, nursery, operation)
            await self._drill.healed.wait()
            await self._prove(client, nursery)
            await trio.sleep_forever()

    # ------------------------------------------------------------------ operations

    async def _perform(self, client: Client, nursery: trio.Nursery, operation: Operation) -> None:
        self.state = f"performing {operation}"
        if operation.verb == "subscribe":
            self._wants[operation.word("label")] = operation
            self._subscribe(client, nursery, operation)
        elif operation.verb == "unsubscribe":
            self._wants.pop(operation.word("label"), None)
            await self._unsubscribe(operation.word("label"))
        elif operation.verb == "publish":
            for _ in range(operation.number("count", 1)):
                await self.publish(
                    client, operation.word("subject"), operation.number("size"), headers=operation.number("headers") > 0
                )
        elif operation.verb == "flush":
            await self._flush(client)
        elif operation.verb == "request":
            timeout_ns = operation.duration_ns("timeout", REQUEST_NS)
            nursery.start_soon(self._request, client, operation.word("subject"), timeout_ns)
        else:
            raise operation.unknown_verb()

    def _subscribe(self, client: Client, nursery: trio.Nursery, operation: Operation) -> None:
        label = operation.word("label")
        subject, queue = operation.word("subject"), operation.word("queue")
        # What goes on under this label goes on under the client's number of it: a name is used again, an interest not.
        label = f"{label}'" if label in self._open else label
        note = self._recording.note(self.name, "subscribe", f"{label}: {subject} {queue}".rstrip())
        subscription = client.subscribe(subject, queue=queue)
        interest = Interest(self.name, label, subject, queue, note.index)
        if self._session is not None:
            interest.on.append(self._session)
        self._open[label] = interest, subscription
        self._evidence.interests.append(interest)
        nursery.start_soon(self._receive, client, interest, subscription, operation.number("reply") > 0)

    async def _unsubscribe(self, label: str) -> None:
        if label not in self._open:
            return
        interest, subscription = self._open.pop(label)
        while subscription.pending_count:
            await trio.lowlevel.checkpoint()  # what has arrived is still received
        interest.closed = self._recording.note(self.name, "unsubscribe", label).index
        subscription.unsubscribe()
        self._closed.append(interest)

    async def _receive(self, client: Client, interest: Interest, subscription: Subscription, answers: bool) -> None:
        while batch := await subscription.next_batch():
            for message in batch:
                if message.subject.startswith(INBOXES):
                    continue  # somebody else's reply, seen through a wildcard
                self.receive(interest, message)
                if answers and message.reply:
                    client.publish_nowait(message.reply, REPLY_PREFIX + message.data.partition(b" ")[0])
            interest.dropped = subscription.dropped_count

    def receive(self, interest: Interest, message: Message) -> None:
        """A message came in."""
        id = message.data.partition(b" ")[0].decode("utf-8", "backslashreplace")
        sent = self._evidence.sent.get(id)
        note = self._recording.note(
            self.name, "receive", f"{id} on {message.subject} by {interest.label}", cause=sent.tick if sent else None
        )
        values = (message.headers or {}).get(HEADER)
        header = values[0] if values else None
        interest.got.append(Got(id, note.index, message.subject, message.data, header))

    async def publish(self, client: Client, subject: str, size: int, *, headers: bool = False) -> None:
        """One message with a new id."""
        sent = self._new_message(subject, size, headers=headers)
        await client.publish(subject, sent.payload, headers={HEADER: sent.id} if headers else None)

    def _new_message(self, subject: str, size: int, *, headers: bool = False) -> Sent:
        id = f"{self.name}.{self._count}"
        self._count += 1
        payload = f"{id} ".encode()
        payload += (payload * (size // len(payload) + 1))[: max(0, size - len(payload))]
        note = self._recording.note(self.name, "publish", f"{id} on {subject}, {sized(len(payload))}")
        if self._session is None:
            self._recording.probe("a message was published without a connection")
        sent = self._evidence.sent[id] = Sent(id, note.index, self._session, subject, payload, headers)
        return sent

    async def _flush(self, client: Client) -> bool:
        """A round trip; whether it went well on one connection."""
        session, start = self._session, self._recording.note(self.name, "flush", "flush").index
        try:
            await client.flush(timeout_s=FLUSH_S)
        except ConnectionLost:
            self._recording.probe("messages went down with their connection")
            return False
        except TimedOut:
            self._recording.probe("a flush timed out")
            return False
        if session is None or session is not self._session:
            return False
        end = self._recording.note(self.name, "flushed", "the server has answered", cause=start).index
        session.round_trips.append((start, end))
        for interest, _ in self._open.values():
            if interest.opened < start and all(known is not session for known, _ in interest.known):
                interest.known.append((session, end))
        for interest in self._closed:
            if interest.closed < start:
                interest.gone = min(interest.gone, end)
        return True

    async def _request(self, client: Client, subject: str, timeout_ns: int) -> bool:
        """Ask, and write down what came of it; whether there was an answer of some kind."""
        sent = self._new_message(subject, 0)
        sent.session = None  # requests go out beside the other operations, in no order that could be held against it
        asked = Asked(sent.id, self.name, sent.tick, self._session, subject)
        self._evidence.asked.append(asked)
        try:
            message = await client.request(subject, sent.payload, timeout_s=timeout_ns / SECOND_NS)
            asked.outcome, asked.reply = "reply", message.data
        except NoResponders:
            asked.outcome = "no responders"
        except TimedOut:
            asked.outcome = "timed out"
        except ClientError:
            asked.outcome = "lost"
        self._recording.probe(f"a request ended in: {asked.outcome}")
        note = self._recording.note(self.name, "answer", f"{sent.id}: {asked.outcome}", cause=sent.tick)
        asked.ended = note.index
        return asked.outcome in ("reply", "no responders")

    # ------------------------------------------------------------------ the liveness phase

    async def _prove(self, client: Client, nursery: trio.Nursery) -> None:
        """Everything works: round trips, subscriptions old and new, queue groups, requests."""
        drill = self._drill
        self.state = "getting a first round trip"
        place = drill.place(self.name)
        if place < drill.LISTENERS:
            self._subscribe(client, nursery, Operation(0, self.name, "subscribe", {"label": LIVE, "subject": "live.*"}))
        if place < drill.MEMBERS:
            arguments = {"label": "team", "subject": "live.>", "queue": LIVE, "reply": "1"}
            self._subscribe(client, nursery, Operation(0, self.name, "subscribe", arguments))
        while not await self._flush(client):
            pass
        await drill.everyone(self.name, "connected")
        while not await self._flush(client):  # what others had kept back may have been too much for this connection
            pass
        await drill.everyone(self.name, "settled")
        self.state = "publishing after the faults"
        await self.publish(client, f"live.{self.name}", 10)
        if not await self._request(client, f"live.{self.name}.ask", REQUEST_NS):
            drill.fail_live(f"{self.name}: a request to a queue group of {drill.MEMBERS} got no answer")
        if not await self._request(client, NOBODY, REQUEST_NS) and self._evidence.must_be_refused(self.name, NOBODY):
            drill.fail_live(f"{self.name}: a request to nobody was told nothing")
        while not await self._flush(client):
            pass
        await drill.everyone(self.name, "published")
        self.state = "collecting after the faults"
        while not await self._flush(client):
            pass
        await drill.everyone(self.name, "collected")
        self.state = "done"


def sized(count: int) -> str:
    """A number of bytes for people."""
    return "1 byte" if count == 1 else f"{count} bytes"
