"""Advisories and metrics: subject and JSON body of each event (published schemas, `io.nats.jetstream.advisory.v1`).

A machine says what happened with an `Advisory` value; whoever publishes it (only if somebody listens) adds a
unique id and the time with `encode`.
"""

from __future__ import annotations

from typing import Any

from tnats.jetstream.api.fields import to_object
from tnats.jetstream.api.messages import StreamState
from tnats.notation import format_time
from tnats.records import frozen
from tnats.wire.documents import encode_document

ADVISORY_PREFIX = "$JS.EVENT.ADVISORY."
METRIC_PREFIX = "$JS.EVENT.METRIC."
ADVISORY_TYPE_PREFIX = "io.nats.jetstream.advisory.v1."
METRIC_TYPE_PREFIX = "io.nats.jetstream.metric.v1."


@frozen
class Advisory:
    """One event: where it goes, its full type, and the fields beside type, id and timestamp."""

    subject: str
    type: str
    fields: dict[str, Any]

    def encode(self, event_id: str, now_ns: int) -> bytes:
        """The JSON body."""
        return encode_document({"type": self.type, "id": event_id, "timestamp": format_time(now_ns), **self.fields})


@frozen
class ConsumerIdentity:
    """Which consumer an event is about, and whose it is."""

    account: str
    stream: str
    consumer: str
    created_ns: int = 0
    domain: str = ""
    """The server's, empty for none."""


def _advisory(subject: str, kind: str, fields: dict[str, Any], domain: str = "") -> Advisory:
    """`domain`: the server's, empty for none."""
    given = {key: value for key, value in {**fields, "domain": domain or None}.items() if value is not None}
    return Advisory(ADVISORY_PREFIX + subject, ADVISORY_TYPE_PREFIX + kind, given)


def stream_action(stream: str, action: str, domain: str = "") -> Advisory:
    """`action`: create, delete or modify."""
    word = {"create": "CREATED", "delete": "DELETED", "modify": "UPDATED"}[action]
    return _advisory(f"STREAM.{word}.{stream}", "stream_action", {"stream": stream, "action": action}, domain)


def consumer_action(of: ConsumerIdentity, action: str) -> Advisory:
    """`action`: create or delete."""
    word = {"create": "CREATED", "delete": "DELETED"}[action]
    return _of_consumer(word, "consumer_action", of, action=action)


def consumer_pause(of: ConsumerIdentity, pause_until_ns: int | None) -> Advisory:
    """A consumer is paused until then, or with None goes on."""
    pause_until = format_time(pause_until_ns) if pause_until_ns is not None else None
    return _of_consumer("PAUSE", "consumer_pause", of, paused=pause_until is not None, pause_until=pause_until)


def group_pinned(of: ConsumerIdentity, group: str, pinned_id: str) -> Advisory:
    """A client of a priority group got the pin."""
    return _of_group("PINNED", "consumer_group_pinned", of, group=group, pinned_id=pinned_id)


def group_unpinned(of: ConsumerIdentity, group: str, reason: str) -> Advisory:
    """`reason`: timeout or admin."""
    return _of_group("UNPINNED", "consumer_group_unpinned", of, group=group, reason=reason)


def max_deliveries(of: ConsumerIdentity, stream_seq: int, deliveries: int) -> Advisory:
    """A message used up its deliveries."""
    return _of_consumer("MAX_DELIVERIES", "max_deliver", of, stream_seq=stream_seq, deliveries=deliveries)


def message_naked(of: ConsumerIdentity, consumer_seq: int, stream_seq: int, deliveries: int) -> Advisory:
    """A client gave a message back."""
    return _of_consumer("MSG_NAKED", "nak", of, consumer_seq=consumer_seq, stream_seq=stream_seq, deliveries=deliveries)


def message_terminated(
    of: ConsumerIdentity, consumer_seq: int, stream_seq: int, deliveries: int, reason: str
) -> Advisory:
    """A client wants a message no more."""
    return _of_consumer(
        "MSG_TERMINATED",
        "terminated",
        of,
        consumer_seq=consumer_seq,
        stream_seq=stream_seq,
        deliveries=deliveries,
        reason=reason or None,
    )


def _of_consumer(word: str, kind: str, of: ConsumerIdentity, **fields: object) -> Advisory:
    named = {"stream": of.stream, "consumer": of.consumer, **fields}
    return _advisory(f"CONSUMER.{word}.{of.stream}.{of.consumer}", kind, named, of.domain)


def _of_group(word: str, kind: str, of: ConsumerIdentity, **fields: object) -> Advisory:
    named = {"account": of.account, "stream": of.stream, "consumer": of.consumer, **fields}
    return _advisory(f"CONSUMER.{word}.{of.stream}.{of.consumer}", kind, named)


def _client(account: str) -> dict[str, str]:
    """Who asked, as far as is told."""
    return {"acc": account}


def snapshot_created(account: str, stream: str, state: StreamState, domain: str = "") -> Advisory:
    """A backup begins; `state`: what the stream holds."""
    fields = {"stream": stream, "state": to_object(state), "client": _client(account)}
    return _advisory(f"STREAM.SNAPSHOT_CREATE.{stream}", "snapshot_create", fields, domain)


def snapshot_completed(
    account: str, stream: str, start_ns: int, end_ns: int, error: str | None = None, domain: str = ""
) -> Advisory:
    """A backup ended; `error`: why before its time."""
    fields = {
        "stream": stream,
        "start": format_time(start_ns),
        "end": format_time(end_ns),
        "client": _client(account),
        "error": error,
    }
    return _advisory(f"STREAM.SNAPSHOT_COMPLETE.{stream}", "snapshot_complete", fields, domain)


def restore_created(account: str, stream: str, domain: str = "") -> Advisory:
    """A restore begins."""
    fields = {"stream": stream, "client": _client(account)}
    return _advisory(f"STREAM.RESTORE_CREATE.{stream}", "restore_create", fields, domain)


def restore_completed(account: str, stream: str, start_ns: int, end_ns: int, size: int, domain: str = "") -> Advisory:
    """A restore ended; `size`: bytes received."""
    fields = {
        "stream": stream,
        "start": format_time(start_ns),
        "end": format_time(end_ns),
        "bytes": size,
        "client": _client(account),
    }
    return _advisory(f"STREAM.RESTORE_COMPLETE.{stream}", "restore_complete", fields, domain)


def batch_abandoned(account: str, stream: str, batch: str, reason: str) -> Advisory:
    """`reason`: timeout, large, incomplete or unsupported."""
    fields = {"account": account, "stream": stream, "batch": batch, "reason": reason}
    return _advisory(f"STREAM.BATCH_ABANDONED.{stream}", "stream_batch_abandoned", fields)


def api_limit_reached(server: str, dropped: int, domain: str = "") -> Advisory:
    """The API's queue was full and its requests were dropped."""
    return _advisory("API.LIMIT_REACHED", "api_limit_reached", {"server": server, "dropped": dropped}, domain)


def api_audit(server: str, account: str, subject: str, request: str, response: str, domain: str = "") -> Advisory:
    """A request of the API was answered."""
    fields = {
        "server": server,
        "client": _client(account),
        "subject": subject,
        "request": request or None,
        "response": response,
    }
    return _advisory("API", "api_audit", fields, domain)


def consumer_ack_metric(
    of: ConsumerIdentity, consumer_seq: int, stream_seq: int, ack_ns: int, deliveries: int
) -> Advisory:
    """A sampled acknowledgement: how long it took."""
    return Advisory(
        f"{METRIC_PREFIX}CONSUMER.ACK.{of.stream}.{of.consumer}",
        METRIC_TYPE_PREFIX + "consumer_ack",
        {
            "stream": of.stream,
            "consumer": of.consumer,
            "consumer_seq": consumer_seq,
            "stream_seq": stream_seq,
            "ack_time": ack_ns,
            "deliveries": deliveries,
        },
    )
