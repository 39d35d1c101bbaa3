"""`accounts { }` and subject mappings: rows and records (configuration reference, "accounts")."""

from __future__ import annotations

import attrs

from tnats.auth.permissions import Permissions
from tnats.auth.users import GLOBAL_ACCOUNT, User
from tnats.ids import KeyKind
from tnats.notation import parse_duration, quote
from tnats.records import define
from tnats.server.config.authorization import PERMISSIONS, USERS, with_default_permissions
from tnats.server.config.features import Feature
from tnats.server.config.parser import Node
from tnats.server.config.readers import (
    BOOLEAN,
    INTEGER,
    TEXT,
    TEXT_LIST,
    as_text,
    choice,
    public_key,
    section,
    section_list,
)
from tnats.server.config.table import Reader, Reading, Refused, Section, describe, option, read_section
from tnats.subjects.tokens import is_valid_literal, is_valid_subject, to_bytes

UNLIMITED = -1


def _percentage(node: Node, refusal: str) -> int:
    """An integer, or digits with an optional `%`."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node.value, str):
        digits = node.value.removesuffix("%")
        if digits.isascii() and digits.isdigit() and len(digits) <= 9:
            return int(digits)
    raise Refused(refusal)


# ------------------------------------------------------------------ mappings


def _weight(reading: Reading, node: Node, key: str) -> int:
    shown = quote(node.value) if isinstance(node.value, str) else describe(node)
    weight = _percentage(node, f"Invalid weight {shown} for mapping destination")
    if not 0 <= weight <= 100:
        raise Refused(f"Invalid weight {weight} for mapping destination")
    return weight


@define(eq=False, repr=False)
class MappingDestination(Section):
    UNKNOWN_KEY = "Unknown field {} for mapping destination"

    destination: str = option(TEXT, "", aliases=("dest",))
    weight: int | None = option(Reader("integer or percentage", _weight), None, doc="percent of the messages")
    cluster: str = option(TEXT, "", doc="only in servers of this cluster")

    def finish(self, reading: Reading, node: Node) -> None:
        if self.weight is None:
            raise Refused(f"Missing weight for mapping destination {quote(self.destination)}")


def _destinations(reading: Reading, source: str, node: Node) -> list[MappingDestination]:
    # Only servers with mappings need it.
    from tnats.subjects.mappings import Destination, Mapping
    from tnats.subjects.transforms import TransformError

    if isinstance(node.value, str):
        found = [MappingDestination(destination=node.value, weight=100)]
        what = f"{quote(source)} to {quote(node.value)}"
    else:
        items = node.value if isinstance(node.value, list) else [node]
        found = [
            read_section(reading, MappingDestination, item, "an entry for the mapping destination") for item in items
        ]
        what = quote(source)
    if any(each.weight is None for each in found):  # was refused, and noted
        return found
    destinations = [Destination(to_bytes(each.destination), each.weight or 0, each.cluster) for each in found]
    try:
        Mapping(to_bytes(source), destinations)
    except TransformError as error:
        raise Refused(f"Error adding mapping for {what} : {error}") from error
    return found


def _mappings(reading: Reading, node: Node, key: str) -> dict[str, list[MappingDestination]]:
    if not isinstance(node.value, dict):
        raise Refused(f"Expected {key} to be a map, got {describe(node)}")
    found = {}
    for source, item in node.value.items():
        if not is_valid_subject(source):
            reading.error(f"Subject {quote(source)} is not a valid subject", item.position)
            continue
        try:
            found[source] = _destinations(reading, source, item)
        except Refused as refused:
            reading.error(refused.text, refused.position or item.position)
    return found


MAPPINGS = Reader("map of subject to destination or destinations", _mappings, MappingDestination)


# ------------------------------------------------------------------ limits, JetStream, tracing


@define(eq=False, repr=False)
class AccountLimitOptions(Section):
    UNKNOWN_KEY = "Unknown field {} parsing account limits"

    max_connections: int = option(INTEGER, UNLIMITED, aliases=("max_conn",))
    max_subscriptions: int = option(INTEGER, UNLIMITED, aliases=("max_subs",))
    max_payload: int = option(INTEGER, UNLIMITED, aliases=("max_pay",))
    max_leafnodes: int = option(INTEGER, UNLIMITED, aliases=("max_leafs",))


@define(eq=False, repr=False)
class AccountJetStreamOptions(Section):
    """`jetstream` of an account; -1 = unlimited."""

    enabled: bool = True
    max_memory: int = option(INTEGER, UNLIMITED, aliases=("max_mem", "mem", "memory"))
    max_store: int = option(INTEGER, UNLIMITED, aliases=("max_file", "max_disk", "store", "disk"))
    max_streams: int = option(INTEGER, UNLIMITED, aliases=("streams",))
    max_consumers: int = option(INTEGER, UNLIMITED, aliases=("consumers",))
    max_bytes_required: bool = option(BOOLEAN, False, aliases=("max_stream_bytes", "max_bytes"))
    mem_max_stream_bytes: int = option(INTEGER, UNLIMITED, aliases=("memory_max_stream_bytes",))
    disk_max_stream_bytes: int = option(INTEGER, UNLIMITED, aliases=("store_max_stream_bytes",))
    max_ack_pending: int = option(INTEGER, UNLIMITED)
    cluster_traffic: str = option(
        choice(
            {"": "system", "system": "system", "owner": "owner"},
            lambda word: f"Expected 'system' or 'owner' string value for \"cluster_traffic\", got {word}",
        ),
        "system",
        doc="account that carries the replication traffic",
        feature=Feature.CLUSTER,
    )


def read_enabled(node: Node) -> bool | None:
    """`jetstream: true|enabled|false|disabled`, or None for a map. Raises `Refused`."""
    if isinstance(node.value, bool):
        return node.value
    if isinstance(node.value, str):
        if node.value.lower() in ("enabled", "enable", "disabled", "disable"):
            return node.value.lower().startswith("enable")
        raise Refused(f"Expected 'enabled' or 'disabled' for string value, got '{node.value}'")
    if isinstance(node.value, dict):
        return None
    raise Refused(f"Expected map, bool or string to define JetStream, got {describe(node)}")


def _account_jetstream(reading: Reading, node: Node, key: str) -> AccountJetStreamOptions | None:
    enabled = read_enabled(node)
    if enabled is None:
        return read_section(reading, AccountJetStreamOptions, node, "JetStream")
    return AccountJetStreamOptions() if enabled else None


def _trace_destination(reading: Reading, node: Node, key: str) -> str:
    subject = as_text(node, key)
    if not is_valid_literal(subject):
        raise Refused(f"Trace destination {quote(subject)} is not valid")
    return subject


def _trace_sampling(reading: Reading, node: Node, key: str) -> int:
    sampling = _percentage(node, f"Trace destination sampling field {quote(key)} should be an integer or a percentage")
    if not 1 <= sampling <= 100:
        raise Refused(f"Trace destination sampling value {sampling} is invalid, needs to be [1..100]")
    return sampling


@define(eq=False, repr=False)
class MessageTraceOptions(Section):
    UNKNOWN_KEY = "Unknown field {} parsing account message trace"

    dest: str = option(Reader("subject", _trace_destination), "")
    sampling: int = option(Reader("integer or percentage", _trace_sampling), 100)

    def finish(self, reading: Reading, node: Node) -> None:
        if not self.dest:
            reading.warn("Trace destination sampling ignored since no destination was set", node.position)


def _message_trace(reading: Reading, node: Node, key: str) -> MessageTraceOptions:
    if isinstance(node.value, str):
        return MessageTraceOptions(dest=_trace_destination(reading, node, key))
    return read_section(reading, MessageTraceOptions, node, f"account message trace {quote(key)}")


# ------------------------------------------------------------------ exports and imports


def _sampling(reading: Reading, node: Node, key: str) -> int:
    """Percent; 0 stands for "as the request's headers say"."""
    if isinstance(node.value, str) and node.value.strip().lower() == "headers":
        return 0
    sampling = _percentage(node, f"Failed to parse latency sample: got {describe(node)}")
    if not 1 <= sampling <= 100:
        raise Refused("bad sampling percentage, should be 1-100")
    return sampling


@define(eq=False, repr=False)
class LatencyOptions(Section):
    subject: str = option(TEXT, "", doc="where the figures are published")
    sampling: int = option(Reader("integer, percentage or `headers`", _sampling), 100)

    def finish(self, reading: Reading, node: Node) -> None:
        if not self.subject:
            raise Refused("Latency subject required, but missing")


def _latency(reading: Reading, node: Node, key: str) -> LatencyOptions:
    if isinstance(node.value, str):
        return LatencyOptions(subject=node.value)
    return read_section(reading, LatencyOptions, node, "latency entry")


def _threshold(reading: Reading, node: Node, key: str) -> int:
    expected = "Expected response threshold to be a parseable time duration, got"
    if not isinstance(node.value, str):
        raise Refused(f"{expected} {describe(node)}")
    threshold_ns = parse_duration(node.value)
    if threshold_ns is None:
        raise Refused(f"{expected} {quote(node.value)}")
    return threshold_ns


@define(eq=False, repr=False)
class ExportOptions(Section):
    stream: str = option(TEXT, "", doc="subject whose messages importers receive")
    service: str = option(TEXT, "", doc="subject that importers may send requests to")
    accounts: list[str] = option(TEXT_LIST, factory=list, doc="none = everybody")
    response_type: str = option(
        choice(
            {
                "single": "singleton",
                "singleton": "singleton",
                "stream": "stream",
                "chunk": "chunked",
                "chunked": "chunked",
            },
            lambda word: f"Unknown response type: {quote(word)}",
        ),
        "singleton",
        aliases=("response",),
    )
    response_threshold_ns: int = option(
        Reader("duration", _threshold),
        0,
        key="response_threshold",
        aliases=("threshold", "response_max_time", "response_time"),
    )
    latency: LatencyOptions | None = option(Reader("subject or map", _latency, LatencyOptions), None)
    account_token_position: int = option(INTEGER, 0)
    allow_trace: bool = option(BOOLEAN, False)

    def finish(self, reading: Reading, node: Node) -> None:
        if self.stream and self.service:
            raise Refused(f"Detected service {quote(self.service)} but already saw a stream")
        if not self.stream and not self.service:
            raise Refused("Export Items should be a map with type entry")
        given = {key.lower() for key in node.value} if isinstance(node.value, dict) else set()
        if self.stream and given & {
            "response",
            "response_type",
            "response_threshold",
            "threshold",
            "response_max_time",
            "response_time",
        }:
            raise Refused("Detected response directive on non-service")
        if self.stream and self.latency is not None:
            raise Refused("Detected latency directive on non-service")
        if self.stream and "allow_trace" in given:
            raise Refused("Detected allow_trace directive on non-service")


@define(eq=False, repr=False)
class ImportSource(Section):
    account: str = option(TEXT, "")
    subject: str = option(TEXT, "")

    def finish(self, reading: Reading, node: Node) -> None:
        if not self.account or not self.subject:
            raise Refused("Expect an account name and a subject")


@define(eq=False, repr=False)
class ImportOptions(Section):
    stream: ImportSource | None = option(section(ImportSource, "stream entry"), None)
    service: ImportSource | None = option(section(ImportSource, "service entry"), None)
    prefix: str = option(TEXT, "", doc="put before the subjects of an imported stream")
    to: str = option(TEXT, "", doc="local subject")
    share: bool = option(BOOLEAN, False, doc="tell the service who asks")
    allow_trace: bool = option(BOOLEAN, False)

    def finish(self, reading: Reading, node: Node) -> None:
        if self.stream is not None and self.service is not None:
            raise Refused("Detected service but already saw a stream")
        if self.stream is None and self.service is None:
            raise Refused("Import Items should be a map with type entry")
        if self.service is not None:
            if self.allow_trace:
                raise Refused("Detected allow_trace directive on a non-stream")
            self.to = self.to or self.service.subject
        elif self.prefix and self.to:
            raise Refused("Stream import can not have a 'prefix' and a 'to' property")


def _imports(reading: Reading, node: Node, key: str) -> list[ImportOptions]:
    seen: dict[tuple[str, str], str] = {}

    def keep(entry: ImportOptions, item: Node) -> ImportOptions:
        if entry.service is not None:
            place = (entry.to, entry.service.account)
            if place in seen:
                raise Refused(
                    f"Duplicate service import subject {quote(entry.to)}, previously used in import for account "
                    f"{quote(entry.service.account)}, subject {quote(seen[place])}"
                )
            seen[place] = entry.service.subject
        return entry

    found: list[ImportOptions] = section_list(ImportOptions, "import item", keep).read(reading, node, key)
    return found


# ------------------------------------------------------------------ accounts


@define(eq=False, repr=False)
class AccountOptions(Section):
    name: str = ""
    nkey: str = option(
        public_key(KeyKind.ACCOUNT, lambda text: f"Not a valid public nkey for an account: {quote(text)}"), ""
    )
    users: list[User] = option(USERS, factory=list)
    default_permissions: Permissions | None = option(PERMISSIONS, None)
    limits: AccountLimitOptions = option(
        section(AccountLimitOptions, "account limits"), factory=AccountLimitOptions, feature=Feature.ACCOUNT_LIMITS
    )
    jetstream: AccountJetStreamOptions | None = option(
        Reader("boolean, `enabled`, `disabled`, or map", _account_jetstream, AccountJetStreamOptions), None
    )
    exports: list[ExportOptions] = option(
        section_list(ExportOptions, "export item"), factory=list, feature=Feature.EXPORTS
    )
    imports: list[ImportOptions] = option(
        Reader("list of maps", _imports, ImportOptions), factory=list, feature=Feature.EXPORTS
    )
    mappings: dict[str, list[MappingDestination]] = option(
        MAPPINGS, factory=dict, aliases=("maps",), feature=Feature.SUBJECT_MAPPINGS
    )
    msg_trace: MessageTraceOptions | None = option(
        Reader("subject or map", _message_trace, MessageTraceOptions),
        None,
        aliases=("trace_dest",),
        feature=Feature.MESSAGE_TRACING,
    )


def _accounts(reading: Reading, node: Node, key: str) -> list[AccountOptions]:
    if isinstance(node.value, list):
        return _account_list(reading, node.value)
    if not isinstance(node.value, dict):
        raise Refused(f"Expected {key} to be a map or an array, got {describe(node)}")
    found = []
    outer = reading.path
    for name, item in node.value.items():
        if item.used:
            continue
        if not isinstance(item.value, dict):
            reading.error("Expected map entries for accounts", item.position)
            continue
        if name == GLOBAL_ACCOUNT:
            reading.error(f"{quote(name)} is a Reserved Account", item.position)
            continue
        reading.path = f"{outer}.{name}"
        account = read_section(reading, AccountOptions, item, "an account")
        account.name = name
        users = [attrs.evolve(user, account=name) for user in account.users]
        account.users = with_default_permissions(users, account.default_permissions)
        found.append(account)
    reading.path = outer
    _check_exports(reading, found, node)
    return found


def _account_list(reading: Reading, items: list[Node]) -> list[AccountOptions]:
    found: dict[str, AccountOptions] = {}
    for item in items:
        name = as_text(item, "accounts")
        if name == GLOBAL_ACCOUNT:
            reading.error(f"{quote(name)} is a Reserved Account", item.position)
        elif name in found:
            reading.error(f"Duplicate Account Entry: {name}", item.position)
        else:
            account = found[name] = AccountOptions()
            account.name = name
    return list(found.values())


def _check_exports(reading: Reading, accounts: list[AccountOptions], node: Node) -> None:
    """Accounts named by exports and imports must exist."""
    names = {account.name for account in accounts}
    for account in accounts:
        for export in account.exports:
            what = "stream" if export.stream else "service"
            for name in export.accounts:
                if name not in names:
                    reading.error(f"{quote(name)} account not defined for {what} export", node.position)
        for item in account.imports:
            what, source = ("stream", item.stream) if item.stream is not None else ("service", item.service)
            if source is not None and source.account not in names:
                reading.error(f"{quote(source.account)} account not defined for {what} import", node.position)


ACCOUNTS = Reader("map of name to account, or list of names", _accounts, AccountOptions)
