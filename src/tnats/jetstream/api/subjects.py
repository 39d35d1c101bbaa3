"""The subjects of the JetStream API as a table: pattern, type of the answer, who may call it.

`parse` finds the row of a subject and the names in its tokens. The domain form `$JS.<domain>.API.` is mapped to
`$JS.API.` before it comes here.
"""

from __future__ import annotations

import enum

from tnats.records import frozen
from tnats.subjects.tokens import to_bytes, to_text

PREFIX = b"$JS.API."
RESPONSE_TYPE_PREFIX = "io.nats.jetstream.api.v1."


class Call(enum.Enum):
    """Every operation of the API."""

    ACCOUNT_INFO = "INFO"
    STREAM_CREATE = "STREAM.CREATE.*"
    STREAM_UPDATE = "STREAM.UPDATE.*"
    STREAM_NAMES = "STREAM.NAMES"
    STREAM_LIST = "STREAM.LIST"
    STREAM_INFO = "STREAM.INFO.*"
    STREAM_DELETE = "STREAM.DELETE.*"
    STREAM_PURGE = "STREAM.PURGE.*"
    STREAM_MSG_GET = "STREAM.MSG.GET.*"
    STREAM_MSG_DELETE = "STREAM.MSG.DELETE.*"
    STREAM_SNAPSHOT = "STREAM.SNAPSHOT.*"
    STREAM_RESTORE = "STREAM.RESTORE.*"
    STREAM_PEER_REMOVE = "STREAM.PEER.REMOVE.*"
    STREAM_PEER_EVACUATE = "STREAM.PEER.EVACUATE.*"
    STREAM_CANCEL_MOVE = "STREAM.CANCEL_MOVE.*"
    STREAM_LEADER_STEPDOWN = "STREAM.LEADER.STEPDOWN.*"
    CONSUMER_LEADER_STEPDOWN = "CONSUMER.LEADER.STEPDOWN.*.*"
    CONSUMER_CREATE = "CONSUMER.CREATE.*"
    CONSUMER_CREATE_NAMED = "CONSUMER.CREATE.*.>"
    CONSUMER_DURABLE_CREATE = "CONSUMER.DURABLE.CREATE.*.*"
    CONSUMER_NAMES = "CONSUMER.NAMES.*"
    CONSUMER_LIST = "CONSUMER.LIST.*"
    CONSUMER_INFO = "CONSUMER.INFO.*.*"
    CONSUMER_DELETE = "CONSUMER.DELETE.*.*"
    CONSUMER_PAUSE = "CONSUMER.PAUSE.*.*"
    CONSUMER_RESET = "CONSUMER.RESET.*.*"
    CONSUMER_UNPIN = "CONSUMER.UNPIN.*.*"
    CONSUMER_MSG_NEXT = "CONSUMER.MSG.NEXT.*.*"
    DIRECT_GET = "DIRECT.GET.*"
    DIRECT_GET_LAST = "DIRECT.GET.*.>"
    META_LEADER_STEPDOWN = "META.LEADER.STEPDOWN"
    META_RESCUE = "META.RESCUE"
    SERVER_REMOVE = "SERVER.REMOVE"
    SERVER_EVACUATE = "SERVER.EVACUATE"
    ACCOUNT_PURGE = "ACCOUNT.PURGE.*"
    ACCOUNT_STREAM_MOVE = "ACCOUNT.STREAM.MOVE.*.*"
    ACCOUNT_STREAM_CANCEL_MOVE = "ACCOUNT.STREAM.CANCEL_MOVE.*.*"


RESPONSE_TYPES: dict[Call, str] = {
    Call.ACCOUNT_INFO: "account_info_response",
    Call.STREAM_CREATE: "stream_create_response",
    Call.STREAM_UPDATE: "stream_update_response",
    Call.STREAM_NAMES: "stream_names_response",
    Call.STREAM_LIST: "stream_list_response",
    Call.STREAM_INFO: "stream_info_response",
    Call.STREAM_DELETE: "stream_delete_response",
    Call.STREAM_PURGE: "stream_purge_response",
    Call.STREAM_MSG_GET: "stream_msg_get_response",
    Call.STREAM_MSG_DELETE: "stream_msg_delete_response",
    Call.STREAM_SNAPSHOT: "stream_snapshot_response",
    Call.STREAM_RESTORE: "stream_restore_response",
    Call.STREAM_PEER_REMOVE: "stream_remove_peer_response",
    Call.STREAM_PEER_EVACUATE: "stream_remove_peer_response",
    Call.STREAM_CANCEL_MOVE: "stream_cancel_move_response",
    Call.STREAM_LEADER_STEPDOWN: "stream_leader_stepdown_response",
    Call.CONSUMER_LEADER_STEPDOWN: "consumer_leader_stepdown_response",
    Call.CONSUMER_CREATE: "consumer_create_response",
    Call.CONSUMER_CREATE_NAMED: "consumer_create_response",
    Call.CONSUMER_DURABLE_CREATE: "consumer_create_response",
    Call.CONSUMER_NAMES: "consumer_names_response",
    Call.CONSUMER_LIST: "consumer_list_response",
    Call.CONSUMER_INFO: "consumer_info_response",
    Call.CONSUMER_DELETE: "consumer_delete_response",
    Call.CONSUMER_PAUSE: "consumer_pause_response",
    Call.CONSUMER_RESET: "consumer_reset_response",
    Call.CONSUMER_UNPIN: "consumer_unpin_response",
    Call.META_LEADER_STEPDOWN: "meta_leader_stepdown_response",
    Call.META_RESCUE: "meta_rescue_response",
    Call.SERVER_REMOVE: "meta_server_remove_response",
    Call.SERVER_EVACUATE: "meta_server_remove_response",
    Call.ACCOUNT_PURGE: "account_purge_response",
    Call.ACCOUNT_STREAM_MOVE: "stream_update_response",
    Call.ACCOUNT_STREAM_CANCEL_MOVE: "stream_update_response",
}
"""The `type` of each call's JSON answer. MSG.NEXT and DIRECT.GET answer with messages and status headers."""

SYSTEM_ACCOUNT_CALLS = frozenset(
    {
        Call.META_LEADER_STEPDOWN,
        Call.META_RESCUE,
        Call.SERVER_REMOVE,
        Call.SERVER_EVACUATE,
        Call.ACCOUNT_PURGE,
        Call.ACCOUNT_STREAM_MOVE,
        Call.ACCOUNT_STREAM_CANCEL_MOVE,
    }
)
"""Calls that other accounts get no answer to."""


@frozen
class Address:
    """A parsed API subject. `names`: what stood for the `*` tokens (stream, consumer or account); `rest`: for `>`."""

    call: Call
    names: tuple[str, ...] = ()
    rest: str = ""

    @property
    def stream(self) -> str:
        """The stream's name, empty where the call has none."""
        return self.names[0] if self.names else ""

    @property
    def consumer(self) -> str:
        """The consumer's name token, empty where the call has none."""
        if self.call == Call.CONSUMER_CREATE_NAMED:
            return self.rest.split(".", 1)[0]
        return self.names[1] if len(self.names) > 1 else ""

    @property
    def filter_subject(self) -> str:
        """The filter behind the consumer's name in CONSUMER.CREATE, empty where there is none."""
        if self.call != Call.CONSUMER_CREATE_NAMED:
            return ""
        return self.rest.partition(".")[2]


_BY_HEAD: dict[tuple[str, ...], list[tuple[list[str], Call]]] = {}
for _call in Call:
    _tokens = _call.value.split(".")
    _head = tuple(token for token in _tokens if token not in ("*", ">"))
    _BY_HEAD.setdefault(_head, []).append((_tokens[len(_head) :], _call))


def api_forms(tail: str, domain: str) -> list[bytes]:
    """The subjects of a call: with the server's domain, there are two."""
    return [to_bytes(f"$JS.API.{tail}"), *([to_bytes(f"$JS.{domain}.API.{tail}")] if domain else [])]


NAME_FORBIDDEN = frozenset(".*> \t\r\n\f")
"""What stands in no name of a stream or consumer, which is one token of a subject."""


def is_text(token: str) -> bool:
    """Whether a token of a subject is UTF-8: other bytes are surrogates in its text, and no JSON can say them."""
    return not any("\ud800" <= char <= "\udfff" for char in token)


def is_valid_name(name: str) -> bool:
    """Whether `name` may name a stream or consumer: one subject token without white space, which is text."""
    return bool(name) and not NAME_FORBIDDEN.intersection(name) and is_text(name)


def parse(subject: bytes) -> Address | None:
    """The call that `subject` names, None for a subject that is none."""
    if not subject.startswith(PREFIX):
        return None
    tokens = to_text(subject[len(PREFIX) :]).split(".")
    if "" in tokens:
        return None
    for head_count in range(min(len(tokens), 3), 0, -1):
        for tail, call in _BY_HEAD.get(tuple(tokens[:head_count]), ()):
            values = tokens[head_count:]
            stars = [token for token in tail if token == "*"]
            if tail[-1:] == [">"]:
                if len(values) > len(stars):
                    return Address(call, tuple(values[: len(stars)]), ".".join(values[len(stars) :]))
            elif len(values) == len(stars):
                return Address(call, tuple(values))
    return None
