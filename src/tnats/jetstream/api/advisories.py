"""Advisories and metrics: subject and JSON body of each event (published schemas, `io.nats.jetstream.advisory.v1`).

A machine says what happened with an `Advisory` value; whoever publishes it (only if somebody listens) adds a
unique id and the time with `encode`.
"""

from __future__ import annotations

from typing import Any

from tnats.jetstream.api.fields import to_object
from tnats.jetstream.api.messages import StreamState
from tnats.jetstream.api.times import format_time
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


def _advisory(subject: str, kind: str, fields: dict[str, Any], domain: str = "") -> Advisory:
    """`domain`: the server's, empty for none."""
    given = {key: value for key, value in {**fields, "domain": domain or None}.items() if value is not None}
    return Advisory(ADVISORY_PREFIX + subject, ADVISORY_TYPE_PREFIX + kind, given)


def stream_action(stream: str, action: str, domain: str = "") -> Advisory:
    """`action`: create, delete or modify."""
    word = {"create": "CREATED", "delete": "DELETED", "modify": "UPDATED"}[action]
    return _advisory(f"STREAM.{word}.{stream}", "stream_action", {"stream": stream, "action": action}, domain)


def consumer_action(stream: str, consumer: str, action: str, domain: str = "") -> Advisory:
    """`action`: create or delete."""
    word = {"create": "CREATED", "delete": "DELETED"}[action]
    return _advisory(
        f"CONSUMER.{word}.{stream}.{consumer}",
        "consumer_action",
        {"stream": stream, "consumer": consumer, "action": action},
        domain,
    )


def consumer_pause(
    stream: str, consumer: str, pause_until_ns: int | None, is_paused: bool, domain: str = ""
) -> Advisory:
    """A consumer was paused or goes on."""
    fields = {
        "stream": stream,
        "consumer": consumer,
        "paused": is_paused,
        "pause_until": format_time(pause_until_ns) if pause_until_ns is not None else None,
    }
    return _advisory(f"CONSUMER.PAUSE.{stream}.{consumer}", "consumer_pause", fields, domain)


def group_pinned(account: str, stream: str, consumer: str, group: str, pinned_id: str) -> Advisory:
    """A client of a priority group got the pin."""
    return _advisory(
        f"CONSUMER.PINNED.{stream}.{consumer}",
        "consumer_group_pinned",
        {"account": account, "stream": stream, "consumer": consumer, "group": group, "pinned_id": pinned_id},
    )


def group_unpinned(account: str, stream: str, consumer: str, group: str, reason: str) -> Advisory:
    """`reason`: timeout or admin."""
    return _advisory(
        f"CONSUMER.UNPINNED.{stream}.{consumer}",
        "consumer_group_unpinned",
        {"account": account, "stream": stream, "consumer": consumer, "group": group, "reason": reason},
    )


def max_deliveries(stream: str, consumer: str, stream_seq: int, deliveries: int, domain: str = "") -> Advisory:
    """A message used up its deliveries."""
    fields = {
        "stream": stream,
        "consumer": consumer,
        "stream_seq": stream_seq,
        "deliveries": deliveries,
    }
    return _advisory(f"CONSUMER.MAX_DELIVERIES.{stream}.{consumer}", "max_deliver", fields, domain)


def message_naked(
    stream: str, consumer: str, consumer_seq: int, stream_seq: int, deliveries: int, domain: str = ""
) -> Advisory:
    """A client gave a message back."""
    fields = {
        "stream": stream,
        "consumer": consumer,
        "consumer_seq": consumer_seq,
        "stream_seq": stream_seq,
        "deliveries": deliveries,
    }
    return _advisory(f"CONSUMER.MSG_NAKED.{stream}.{consumer}", "nak", fields, domain)


def message_terminated(
    stream: str,
    consumer: str,
    consumer_seq: int,
    stream_seq: int,
    deliveries: int,
    reason: str,
    domain: str = "",
) -> Advisory:
    """A client wants a message no more."""
    fields = {
        "stream": stream,
        "consumer": consumer,
        "consumer_seq": consumer_seq,
        "stream_seq": stream_seq,
        "deliveries": deliveries,
        "reason": reason or None,
    }
    return _advisory(f"CONSUMER.MSG_TERMINATED.{stream}.{consumer}", "terminated", fields, domain)


def snapshot_created(stream: str, state: StreamState, client: dict[str, Any], domain: str = "") -> Advisory:
    """A backup begins; `state`: what the stream holds."""
    fields = {"stream": stream, "state": to_object(state), "client": client}
    return _advisory(f"STREAM.SNAPSHOT_CREATE.{stream}", "snapshot_create", fields, domain)


def snapshot_completed(
    stream: str, start_ns: int, end_ns: int, client: dict[str, Any], error: str | None = None, domain: str = ""
) -> Advisory:
    """A backup ended; `error`: why before its time."""
    fields = {
        "stream": stream,
        "start": format_time(start_ns),
        "end": format_time(end_ns),
        "client": client,
        "error": error,
    }
    return _advisory(f"STREAM.SNAPSHOT_COMPLETE.{stream}", "snapshot_complete", fields, domain)


def restore_created(stream: str, client: dict[str, Any], domain: str = "") -> Advisory:
    """A restore begins."""
    fields = {"stream": stream, "client": client}
    return _advisory(f"STREAM.RESTORE_CREATE.{stream}", "restore_create", fields, domain)


def restore_completed(
    stream: str, start_ns: int, end_ns: int, size: int, client: dict[str, Any], domain: str = ""
) -> Advisory:
    """A restore ended; `size`: bytes received."""
    fields = {
        "stream": stream,
        "start": format_time(start_ns),
        "end": format_time(end_ns),
        "bytes": size,
        "client": client,
    }
    return _advisory(f"STREAM.RESTORE_COMPLETE.{stream}", "restore_complete", fields, domain)


def batch_abandoned(account: str, stream: str, batch: str, reason: str) -> Advisory:
    """`reason`: timeout, large, incomplete or unsupported."""
    fields = {"account": account, "stream": stream, "batch": batch, "reason": reason}
    return _advisory(f"STREAM.BATCH_ABANDONED.{stream}", "stream_batch_abandoned", fields)


def api_limit_reached(server: str, dropped: int, domain: str = "") -> Advisory:
    """The API's queue was full and its requests were dropped."""
    return _advisory("API.LIMIT_REACHED", "api_limit_reached", {"server": server, "dropped": dropped}, domain)


def api_audit(
    server: str, client: dict[str, Any], subject: str, request: str, response: str, domain: str = ""
) -> Advisory:
    """A request of the API was answered."""
    fields = {
        "server": server,
        "client": client,
        "subject": subject,
        "request": request or None,
        "response": response,
    }
    return _advisory("API", "api_audit", fields, domain)


def consumer_ack_metric(
    stream: str, consumer: str, consumer_seq: int, stream_seq: int, ack_ns: int, deliveries: int
) -> Advisory:
    """A sampled acknowledgement: how long it took."""
    return Advisory(
        f"{METRIC_PREFIX}CONSUMER.ACK.{stream}.{consumer}",
        METRIC_TYPE_PREFIX + "consumer_ack",
        {
            "stream": stream,
            "consumer": consumer,
            "consumer_seq": consumer_seq,
            "stream_seq": stream_seq,
            "ack_time": ack_ns,
            "deliveries": deliveries,
        },
    )
