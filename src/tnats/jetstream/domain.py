"""The domain's own names for what clients write to: `$JS.<domain>.API.$KV.>` stands for `$KV.>` (ADR-8, "Domains").

A client that reaches JetStream through a domain puts the prefix of the API before the subjects of buckets and object
stores too, so that its messages find their way to this domain. Here the prefix comes off again.
"""

from __future__ import annotations

from tnats.jetstream.ports import Bus
from tnats.jetstream.stream.ports import Inbound
from tnats.wire.headers import build_headers

ROOTS = (b"$KV.>", b"$OBJ.>")
NO_RESPONDERS = build_headers((), status=503)


class DomainNames:
    """Publishes again without the prefix what comes with it."""

    def __init__(self, bus: Bus, domain: str) -> None:
        self._prefix = f"$JS.{domain}.API.".encode()
        self._client = bus.client("domain", self._deliver)

    def start(self) -> None:
        """Take messages from now on."""
        for root in ROOTS:
            self._client.subscribe(self._prefix + root)

    def close(self) -> None:
        """Take nothing more."""
        self._client.close()

    def _deliver(self, batch: list[Inbound]) -> None:
        for message in batch:
            subject = message.subject[len(self._prefix) :]
            headers, payload = message.data[: message.header_size], message.data[message.header_size :]
            reached = self._client.publish(subject, payload, reply=message.reply, headers=headers)
            if not reached and message.reply:
                self._client.publish(message.reply, b"", headers=NO_RESPONDERS)
