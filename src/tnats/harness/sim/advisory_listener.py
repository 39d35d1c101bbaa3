"""A machine that listens to the server's advisories, and knows which of them it must have heard.

An advisory is a message like others: it is lost with the connection of who listens. One client that never reconnects is
a *session*; behind a ping that came back on it everything has been heard that the server had sent before. So an
advisory of something that ended between two such pings of one session has come, or was never sent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import trio

from tnats.client import ClientError, connect
from tnats.client.subscription import Subscription
from tnats.harness.checkers.advised import Heard, Session
from tnats.jetstream.api.advisories import ADVISORY_PREFIX
from tnats.limits import SECOND_NS
from tnats.records import define
from tnats.runtime.api import Runtime

if TYPE_CHECKING:
    from tnats.harness.sim.jetstream import JetStreamDrill

LISTENER = "listener"
PING_NS = SECOND_NS // 2
PING_S = 2.0


@define
class AdvisoryListener:
    """See the module. `run` is the machine's main function."""

    drill: JetStreamDrill
    url: str
    sessions: list[Session] = attrs.field(factory=list)

    async def run(self, runtime: Runtime) -> None:
        """Listen, one session after the other."""
        while True:
            try:
                async with connect(
                    self.url, runtime=runtime, name=LISTENER, discover_servers=False, reconnect_attempts_max=0
                ) as client:
                    subscription = client.subscribe(f"{ADVISORY_PREFIX}>")
                    await client.flush(timeout_s=PING_S)
                    session = Session(self._event_count)
                    self.sessions.append(session)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._hear, subscription, session)
                        while True:
                            count = self._event_count
                            await client.flush(timeout_s=PING_S)
                            await runtime.clock.sleep_ns(1)  # what came before the answer is taken in first
                            session.until = count
                            await runtime.clock.sleep_ns(PING_NS)
            except* ClientError as group:
                self.drill.recording.note(LISTENER, "failure", str(group.exceptions[0]))
            await runtime.clock.sleep_ns(PING_NS)

    @property
    def _event_count(self) -> int:
        return len(self.drill.history.events)

    async def _hear(self, subscription: Subscription, session: Session) -> None:
        async for message in subscription:
            told = json.loads(message.data)
            session.heard.append(Heard(message.subject.removeprefix(ADVISORY_PREFIX), told["id"], told["type"]))
            self.drill.recording.probe("an advisory was heard")
