"""What clients say to the consumers of an account, brought to the one that it is for.

Acknowledgements of all consumers come through one funnel, pulls and answers to flow control by subscriptions of each.
Interest in a deliver subject matters to the push consumers that send there.
"""

from __future__ import annotations

from typing import Any

from tnats.jetstream.api.subjects import api_forms
from tnats.jetstream.consumer.acks import PREFIX, AckRun, Said, parse_subject, subject_prefix
from tnats.jetstream.consumer.hot import read_acks
from tnats.jetstream.consumer.service import ConsumerService
from tnats.jetstream.ports import Bus, Client
from tnats.jetstream.stream.ports import Inbound
from tnats.subjects.tokens import to_bytes

FLOW_PREFIX = b"$JS.FC."


class ConsumerDispatch:
    """See the module's text. Knows the consumers by what is sent to them."""

    def __init__(self, bus: Bus, domain: str) -> None:
        self._bus = bus
        self._domain = domain
        self._by_ack_prefix: dict[bytes, ConsumerService] = {}
        self._by_pull_subject: dict[bytes, ConsumerService] = {}
        self._pull_subscriptions: dict[ConsumerService, list[Any]] = {}
        self._by_deliver_subject: dict[bytes, dict[ConsumerService, None]] = {}
        """Push consumers alone."""
        self.sender: Client = bus.client("consumers", self._on_flow_answers)
        """Publishes for all of them; answers to flow control come to it."""
        self._acks: Client | None = None
        self._pulls = bus.client("pulls", self._on_pulls)
        bus.on_interest(self._on_interest)

    def start(self) -> None:
        """Take acknowledgements and answers to flow control from now on. Pulls are taken where a consumer is added."""
        self._acks = self._bus.funnel("acks", PREFIX, self._on_acks)
        self.sender.subscribe(FLOW_PREFIX + b">")

    def stop(self) -> None:
        """Take in nothing more."""
        for client in (self._acks, self.sender, self._pulls):
            if client is not None:
                client.close()

    def add(self, consumer: ConsumerService) -> None:
        """Bring to a consumer what is for it by its configuration."""
        self._by_ack_prefix[_ack_prefix(consumer)] = consumer
        subscriptions = self._pull_subscriptions[consumer] = []
        for subject in api_forms(f"CONSUMER.MSG.NEXT.{consumer.stream.name}.{consumer.name}", self._domain):
            self._by_pull_subject[subject] = consumer
            subscriptions.append(self._pulls.subscribe(subject))
        if consumer.config.is_push:
            self._by_deliver_subject.setdefault(to_bytes(consumer.config.deliver_subject), {})[consumer] = None

    def remove(self, consumer: ConsumerService) -> None:
        """Bring nothing to it any more; its configuration is still the one that it was added with."""
        self._by_ack_prefix.pop(_ack_prefix(consumer), None)
        for subscription in self._pull_subscriptions.pop(consumer, ()):
            self._by_pull_subject.pop(subscription.subject, None)
            self._pulls.end_subscription(subscription)
        subject = to_bytes(consumer.config.deliver_subject)
        if subject in self._by_deliver_subject:
            self._by_deliver_subject[subject].pop(consumer, None)
            if not self._by_deliver_subject[subject]:
                del self._by_deliver_subject[subject]

    # ------------------------------------------------------------------ what comes

    def _on_acks(self, bundle: bytearray) -> None:
        said: dict[int, tuple[ConsumerService, list[AckRun | Said]]] = {}
        for item in read_acks(bundle):
            if isinstance(item, AckRun):
                prefix = item.consumer
            else:
                place = parse_subject(item.subject)
                prefix = subject_prefix(place.stream, place.consumer) if place is not None else b""
            consumer = self._by_ack_prefix.get(prefix)
            if consumer is not None:
                said.setdefault(consumer.record.number, (consumer, []))[1].append(item)
            elif self._acks is not None:
                for reply in item.wanted_replies():
                    self._acks.refuse(reply)
        for consumer, items in said.values():
            consumer.acks(items)

    def _on_pulls(self, batch: list[Inbound]) -> None:
        asked: dict[bytes, list[Inbound]] = {}
        for message in batch:
            asked.setdefault(message.subject, []).append(message)
        for subject, messages in asked.items():
            consumer = self._by_pull_subject.get(subject)
            if consumer is not None:
                consumer.pulls(messages)

    def _on_flow_answers(self, batch: list[Inbound]) -> None:
        for message in batch:
            tokens = message.subject[len(FLOW_PREFIX) :].split(b".")
            if len(tokens) > 2:
                consumer = self._by_ack_prefix.get(subject_prefix(tokens[0], tokens[1]))
                if consumer is not None:
                    consumer.flow_answered(message.subject, message.data[: message.header_size])

    def _on_interest(self, pattern: bytes) -> None:
        for consumer in list(self._by_deliver_subject.get(pattern, ())):
            consumer.look_for_interest()


def _ack_prefix(consumer: ConsumerService) -> bytes:
    return subject_prefix(consumer.stream.name.encode(), consumer.name.encode())
