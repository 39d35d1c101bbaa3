"""`authorization { }`, user entries and permissions: rows, and their way into `tnats.auth`'s records
(configuration reference, "authorization").
"""

from __future__ import annotations

import attrs

from tnats.auth.permissions import Permissions, ResponsePermission, SubjectPermission, entry_problem
from tnats.auth.users import GLOBAL_ACCOUNT, ConnectionType, User
from tnats.ids import KeyKind, is_public_key
from tnats.limits import SECOND_NS
from tnats.notation import quote
from tnats.records import define
from tnats.server.config.features import Feature
from tnats.server.config.parser import Node
from tnats.server.config.readers import (
    ANY_DURATION_TEXT,
    BOOLEAN,
    INTEGER,
    TEXT,
    TEXT_LIST,
    public_key,
    section,
    section_list,
    texts,
    timeout,
)
from tnats.server.config.table import Reader, Reading, Refused, Section, describe, option, read_section

AUTH_TIMEOUT_NS = 2 * SECOND_NS
"""Time for CONNECT without TLS."""

# ------------------------------------------------------------------ permissions


def subjects(*, with_queue: bool) -> Reader:
    """A subject or a list of them; with `with_queue`, entries may be `subject queue`."""

    def read(reading: Reading, node: Node, key: str) -> tuple[str, ...]:
        if isinstance(node.value, str):
            items = [node]
        elif isinstance(node.value, list):
            items = node.value
        else:
            raise Refused(f"Expected subject permissions to be a subject, or array of subjects, got {describe(node)}")
        found = []
        for item in items:
            if not isinstance(item.value, str):
                raise Refused("Subject in permissions array cannot be cast to string", item.position)
            problem = entry_problem(item.value, with_queue=with_queue)
            if problem is not None:
                raise Refused(problem, item.position)
            found.append(item.value)
        return tuple(found)

    return Reader("subject or list of subjects", read)


@define(eq=False, repr=False)
class PublishOptions(Section):
    UNKNOWN_KEY = "Unknown field name {} parsing subject permissions, only 'allow' or 'deny' are permitted"

    allow: tuple[str, ...] | None = option(subjects(with_queue=False), None, doc="an empty list allows nothing")
    deny: tuple[str, ...] = option(subjects(with_queue=False), ())


@define(eq=False, repr=False)
class SubscribeOptions(Section):
    UNKNOWN_KEY = PublishOptions.UNKNOWN_KEY

    allow: tuple[str, ...] | None = option(subjects(with_queue=True), None, doc="an empty list allows everything")
    deny: tuple[str, ...] = option(subjects(with_queue=True), ())


def _subject_permission(record: type[PublishOptions] | type[SubscribeOptions]) -> Reader:
    """`subject`, `[subjects]` (both: allow), `{ allow, deny }`, or `{ }` for no restriction."""
    allow_reader = subjects(with_queue=record is SubscribeOptions)

    def read(reading: Reading, node: Node, key: str) -> SubjectPermission | None:
        if not isinstance(node.value, dict):
            return SubjectPermission(allow=allow_reader.read(reading, node, key))
        if not node.value:
            return None
        entry = read_section(reading, record, node, key)
        return SubjectPermission(allow=entry.allow, deny=entry.deny)

    return Reader("subject, list of subjects, or map", read, record)


@define(eq=False, repr=False)
class ResponseOptions(Section):
    UNKNOWN_KEY = "Unknown field {} parsing permissions"

    max: int = option(
        INTEGER,
        ResponsePermission().max_msgs,
        aliases=("max_msgs", "max_messages", "max_responses"),
        zero_is_default=True,
        doc="messages per reply subject; negative = any number",
    )
    expires_ns: int = option(
        ANY_DURATION_TEXT,
        ResponsePermission().expires_ns,
        key="expires",
        aliases=("expiration", "ttl"),
        zero_is_default=True,
        doc="negative = never",
    )


def _responses(reading: Reading, node: Node, key: str) -> ResponsePermission | None:
    if isinstance(node.value, bool):
        return ResponsePermission() if node.value else None
    if not isinstance(node.value, dict):
        raise Refused("error parsing response permissions, expected a boolean or a map")
    entry = read_section(reading, ResponseOptions, node, key)
    return ResponsePermission(max_msgs=entry.max, expires_ns=entry.expires_ns)


@define(eq=False, repr=False)
class PermissionOptions(Section):
    UNKNOWN_KEY = "Unknown field {} parsing permissions"

    publish: SubjectPermission | None = option(
        _subject_permission(PublishOptions), None, aliases=("pub", "import"), doc="what may be published"
    )
    subscribe: SubjectPermission | None = option(
        _subject_permission(SubscribeOptions), None, aliases=("sub", "export"), doc="what may be subscribed to"
    )
    allow_responses: ResponsePermission | None = option(
        Reader("boolean or map", _responses, ResponseOptions),
        None,
        aliases=("publish_allow_responses",),
        feature=Feature.ALLOW_RESPONSES,
        doc="may publish to reply subjects it has received",
    )


def _permissions(reading: Reading, node: Node, key: str) -> Permissions:
    if not isinstance(node.value, dict):
        raise Refused(f"Expected permissions to be a map/struct, got {describe(node)}")
    entry = read_section(reading, PermissionOptions, node, key)
    publish = entry.publish
    if entry.allow_responses is not None and (publish is None or publish.allow is None):
        publish = SubjectPermission(allow=(), deny=publish.deny if publish is not None else ())
    return Permissions(publish=publish, subscribe=entry.subscribe, responses=entry.allow_responses)


PERMISSIONS = Reader("map", _permissions, PermissionOptions)


# ------------------------------------------------------------------ users


def _connection_types(reading: Reading, node: Node, key: str) -> frozenset[ConnectionType]:
    found = set()
    for word in texts("allowed connection types").read(reading, node, key):
        try:
            found.add(ConnectionType(word.upper()))
        except ValueError:
            reading.error(f"unknown connection type {quote(word)}", node.position)
    return frozenset(found)


@define(eq=False, repr=False)
class UserOptions(Section):
    """One entry of a `users` list."""

    user: str = option(TEXT, "", aliases=("username",))
    password: str = option(TEXT, "", aliases=("pass",), secret=True, doc="plain, or a bcrypt hash")
    nkey: str = option(TEXT, "", feature=Feature.NKEY_USERS, doc="public user nkey (`U...`), in place of a password")
    permissions: Permissions | None = option(
        PERMISSIONS, None, aliases=("permission", "authorization"), feature=Feature.PERMISSIONS
    )
    allowed_connection_types: frozenset[ConnectionType] = option(
        Reader("list of connection types", _connection_types),
        frozenset(),
        aliases=("connection_types", "clients"),
        feature=Feature.CONNECTION_TYPES,
        doc="`STANDARD`, `WEBSOCKET`, `LEAFNODE`, `LEAFNODE_WS`, `MQTT`, `MQTT_WS`, `IN_PROCESS`; none = all",
    )
    proxy_required: bool = option(BOOLEAN, False, feature=Feature.TRUSTED_PROXIES)

    def finish(self, reading: Reading, node: Node) -> None:
        if not self.nkey and not self.user:
            raise Refused("User entry requires a user")
        if self.nkey and not is_public_key(self.nkey, KeyKind.USER):
            raise Refused("Not a valid public nkey for a user")
        if self.nkey and (self.user or self.password):
            raise Refused("Nkey users do not take usernames or passwords")


def as_user(entry: UserOptions, node: Node) -> User:
    return User(
        name=entry.nkey or entry.user,
        password=entry.password,
        is_nkey=bool(entry.nkey),
        permissions=entry.permissions,
        connection_types=entry.allowed_connection_types,
        proxy_required=entry.proxy_required,
    )


USERS = section_list(UserOptions, "user entry", as_user)


def with_default_permissions(users: list[User], permissions: Permissions | None) -> list[User]:
    """`users` in which those without permissions of their own have `permissions`."""
    if permissions is None:
        return users
    return [attrs.evolve(user, permissions=permissions) if user.permissions is None else user for user in users]


def describe_user(user: User) -> str:
    return f"{'nkey' if user.is_nkey else 'user'} {quote(user.name)}"


# ------------------------------------------------------------------ authorization


@define(eq=False, repr=False)
class AuthCalloutOptions(Section):
    UNKNOWN_KEY = "Unknown field {} parsing authorization callout"

    issuer: str = option(
        public_key(
            KeyKind.ACCOUNT,
            lambda text: f"Expected callout user to be a valid public account nkey, got {quote(text)}",
        ),
        "",
        doc="account nkey that signs the answers",
    )
    account: str = option(TEXT, GLOBAL_ACCOUNT, aliases=("acc",), zero_is_default=True)
    auth_users: list[str] = option(TEXT_LIST, factory=list, aliases=("users",), doc="users that skip the callout")
    xkey: str = option(
        public_key(KeyKind.CURVE, lambda text: f"Expected callout xkey to be a valid public xkey, got {quote(text)}"),
        "",
        aliases=("key",),
    )
    allowed_accounts: list[str] = option(TEXT_LIST, factory=list)

    def finish(self, reading: Reading, node: Node) -> None:
        if not self.issuer:
            raise Refused("Authorization callouts require an issuer to be specified")
        if not self.auth_users:
            raise Refused("Authorization callouts require authorized users to be specified")


@define(eq=False, repr=False)
class AuthorizationOptions(Section):
    """`authorization { }` at the top, in a cluster or in a gateway."""

    user: str = option(TEXT, "", aliases=("username",), reloadable=True)
    password: str = option(TEXT, "", aliases=("pass",), reloadable=True, secret=True, doc="plain, or a bcrypt hash")
    token: str = option(TEXT, "", reloadable=True, secret=True, doc="plain, or a bcrypt hash")
    timeout_ns: int = option(
        timeout("authorization", warn_if_long=True),
        0,
        key="timeout",
        reloadable=True,
        doc="time for CONNECT; default 2s, with TLS its timeout + 1s",
    )
    users: list[User] | None = option(USERS, None, reloadable=True, feature=Feature.USERS)
    default_permissions: Permissions | None = option(
        PERMISSIONS,
        None,
        aliases=("default_permission", "permissions"),
        reloadable=True,
        feature=Feature.PERMISSIONS,
        doc="for users without permissions of their own",
    )
    auth_callout: AuthCalloutOptions | None = option(
        section(AuthCalloutOptions, "authorization callout"),
        None,
        aliases=("auth_hook",),
        feature=Feature.AUTH_CALLOUT,
    )
    proxy_required: bool = option(BOOLEAN, False, feature=Feature.TRUSTED_PROXIES)

    def finish(self, reading: Reading, node: Node) -> None:
        if self.users is not None:
            self.users = with_default_permissions(self.users, self.default_permissions)


def between_servers(where: str) -> Reader:
    """The narrower block of clusters and gateways: one user and password."""

    def read(reading: Reading, node: Node, key: str) -> AuthorizationOptions:
        block = read_section(reading, AuthorizationOptions, node, "authorization")
        if block.users is not None:
            raise Refused(f"{where} authorization does not allow multiple users")
        if block.token:
            raise Refused(f"{where} authorization does not support tokens")
        if block.auth_callout is not None:
            raise Refused(f"{where} authorization does not support callouts")
        return block

    return Reader("map", read, AuthorizationOptions)


@define(eq=False, repr=False)
class SimpleAuthorizationOptions(Section):
    """`authorization { }` of WebSocket and MQTT: overrides the top one for their clients."""

    user: str = option(TEXT, "", aliases=("username",))
    password: str = option(TEXT, "", aliases=("pass",), secret=True)
    token: str = option(TEXT, "", secret=True)
    timeout_ns: int = option(timeout("authorization"), 0, key="timeout")
