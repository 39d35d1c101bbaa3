"""What must hold between options once file, command line and defaults are merged (nats-server's start-up checks).

All checks run and all their problems are reported, each at the position of the option to blame where there is one.
`unsupported` names what the configuration asks for and this release does not offer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tnats.auth.users import GLOBAL_ACCOUNT
from tnats.ids import KeyKind, is_public_key
from tnats.notation import format_duration, quote
from tnats.server.config.addresses import split_host_and_maybe_port
from tnats.server.config.baseline import DEFAULT_SYSTEM_ACCOUNT
from tnats.server.config.doors import MqttOptions, WebSocketOptions
from tnats.server.config.features import BUILT, Feature
from tnats.server.config.options import MAX_PAYLOAD_WARNING_BYTES, Options, position_of
from tnats.server.config.problems import Problem
from tnats.subjects.tokens import is_valid_subject

_FORBIDDEN_HEADERS = frozenset({"host", "content-length", "connection", "upgrade", "nats-no-masking"})


def validate(options: Options) -> list[Problem]:
    """Everything that keeps a server from starting with these options, in a fixed order."""
    checks: tuple[Callable[[Options], Iterator[tuple[str, str]]], ...] = (
        _limits,
        _operator_mode,
        _users,
        _leafnodes,
        _gateway,
        _cluster,
        _mqtt,
        _jetstream,
        _websocket,
    )
    return [Problem(text, position_of(options.given, path)) for check in checks for path, text in check(options)]


def start_warnings(options: Options) -> list[str]:
    """Lines a server logs at start, at level warn."""
    found = []
    if options.max_payload > MAX_PAYLOAD_WARNING_BYTES:
        found.append(
            f"Maximum payloads over {MAX_PAYLOAD_WARNING_BYTES / 2**20:.2f} MB are generally discouraged "
            "and could lead to poor performance"
        )
    found.extend(f"Feature flag {quote(name)} is not supported" for name in options.feature_flags)
    return found


def unsupported(options: Options, built: frozenset[Feature] = BUILT) -> list[Problem]:
    """One problem per option that asks for a feature outside `built`, outermost option only, in file order."""
    found: list[tuple[str, Problem]] = []
    for account in options.accounts:
        if account.name == DEFAULT_SYSTEM_ACCOUNT and Feature.SYSTEM_ACCOUNT not in built:
            path = f"accounts.{account.name}"
            problem = Problem(_missing(path, Feature.SYSTEM_ACCOUNT), position_of(options.given, "accounts"))
            found.append((path, problem))
    closed: list[str] = []
    for path in sorted(options.given, key=lambda path: (path.count("."), path)):
        given = options.given[path]
        if any(path.startswith((f"{outer}.", f"{outer}[")) for outer in closed):
            continue
        feature = given.row.feature
        if feature is not None and feature not in built:
            closed.append(path)
            if given.asks:
                found.append((path, Problem(_missing(path, feature), given.position)))
    found.sort(key=lambda item: (item[1].position is None, item[1].position and (item[1].position.line, item[0])))
    return [problem for _, problem in found]


def _missing(path: str, feature: Feature) -> str:
    return f"{quote(path)}: {feature.value}: not available in this release"


# ------------------------------------------------------------------ the checks: (path of the option to blame, text)


def _limits(options: Options) -> Iterator[tuple[str, str]]:
    if options.lame_duck_duration_ns > 0 and options.lame_duck_grace_period_ns >= options.lame_duck_duration_ns:
        yield (
            "lame_duck_grace_period",
            f"lame duck grace period ({format_duration(options.lame_duck_grace_period_ns)}) should be strictly lower "
            f"than lame duck duration ({format_duration(options.lame_duck_duration_ns)})",
        )
    if options.max_payload > options.max_pending:
        yield (
            "max_payload",
            f"max_payload ({options.max_payload}) cannot be higher than max_pending ({options.max_pending})",
        )
    if options.max_closed_clients < 0:
        yield "max_closed_clients", f"max_closed_clients ({options.max_closed_clients}) cannot be negative"
    try:
        split_host_and_maybe_port(options.client_advertise, options.port)
    except ValueError as error:
        yield "client_advertise", f"client_advertise {quote(options.client_advertise)}: {error}"
    if " " in options.server_name:
        yield "server_name", "server name cannot contain spaces"


def _operator_mode(options: Options) -> Iterator[tuple[str, str]]:
    if not options.operator:
        if options.default_sentinel:
            yield "default_sentinel", "default sentinel requires operators and accounts"
        return
    if options.accounts:
        yield "accounts", "operators do not allow Accounts to be configured directly"
    if options.all_users():
        yield "authorization", "operators do not allow users to be configured directly"
    if options.trusted_keys:
        yield "trusted_keys", "conflicting options for 'TrustedKeys' and 'TrustedOperators'"
    if options.authorization is not None and options.authorization.auth_callout is not None:
        yield "authorization.auth_callout", "operators do not allow authorization callouts to be configured directly"
    for key in options.resolver_pinned_accounts:
        if not is_public_key(key, KeyKind.ACCOUNT):
            yield "resolver_pinned_accounts", f"pinned account key {quote(key)} is not a valid public account nkey"


def _no_auth_user(options: Options, name: str) -> str | None:
    """What is wrong with a `no_auth_user`, or None."""
    if not name:
        return None
    if options.operator:
        return "no_auth_user not compatible with Trusted Operator"
    if options.credentials().users is None:
        return f"no_auth_user: {quote(name)} present, but users/nkeys are not defined"
    if any(user.name == name for user in options.all_users()):
        return None
    return f"no_auth_user: {quote(name)} not present as user or nkey in authorization block or account configuration"


def _users(options: Options) -> Iterator[tuple[str, str]]:
    text = _no_auth_user(options, options.no_auth_user)
    if text is not None:
        yield "no_auth_user", text


def _leafnodes(options: Options) -> Iterator[tuple[str, str]]:
    leaf = options.leafnodes
    if options.operator:
        if leaf.authorization.users:
            yield "leafnodes.authorization.users", "operator mode does not allow specifying users in leafnode config"
        for index, remote in enumerate(leaf.remotes):
            if not is_public_key(remote.account, KeyKind.ACCOUNT):
                yield (
                    f"leafnodes.remotes[{index}]",
                    "operator mode requires account nkeys in remotes. Please add an `account` key to each remote in "
                    "your `leafnodes` section, to assign it to an account. Each account value should be a 56 character "
                    "public key, starting with the letter 'A'",
                )
        return
    names = {account.name for account in options.accounts} | {"", GLOBAL_ACCOUNT}
    if not options.system_account and not options.no_system_account:
        names.add(DEFAULT_SYSTEM_ACCOUNT)
    used = [("leafnodes.authorization", "authorization", leaf.authorization.account)]
    used += [("leafnodes.authorization.users", "authorization", user.account) for user in leaf.authorization.users]
    used += [
        (f"leafnodes.remotes[{index}].account", "remote", remote.account) for index, remote in enumerate(leaf.remotes)
    ]
    for path, what, name in used:
        if name not in names:
            yield path, f"cannot find local account {quote(name)} specified in leafnode {what}"
    if leaf.port and options.gateway.port and not options.system_account:
        yield (
            "leafnodes",
            "leaf nodes and gateways (both being defined) require a system account to also be configured",
        )


def _gateway(options: Options) -> Iterator[tuple[str, str]]:
    gateway = options.gateway
    if not gateway.name and not gateway.port:
        return
    if not gateway.name:
        yield "gateway", "gateway has no name"
    if not gateway.port:
        yield "gateway", f"gateway {quote(gateway.name)} has no port specified (select -1 for random port)"
    for index, remote in enumerate(gateway.gateways):
        if not remote.name:
            yield "gateway.gateways", f"gateway in the list {index} has no name"
        elif not remote.urls:
            yield "gateway.gateways", f"gateway {quote(remote.name)} has no URL"
    if gateway.name and options.cluster.name not in ("", gateway.name):
        yield "cluster.name", "cluster name conflicts between cluster and gateway definitions"


def _cluster(options: Options) -> Iterator[tuple[str, str]]:
    cluster = options.cluster
    if " " in cluster.name:
        yield "cluster.name", "cluster name cannot contain spaces"
    if cluster.accounts and cluster.pool_size < 0:
        yield "cluster.pool_size", "pool_size cannot be negative if pinned accounts are specified"
    seen: set[str] = set()
    for name in cluster.accounts:
        if name in seen:
            yield "cluster.accounts", f"found duplicate account name {quote(name)} in pinned accounts list"
        seen.add(name)


def _door_auth(options: Options, door: WebSocketOptions | MqttOptions, path: str) -> Iterator[tuple[str, str]]:
    text = _no_auth_user(options, door.no_auth_user)
    if text is not None:
        yield f"{path}.no_auth_user", text
    if options.all_users():
        if door.authorization.user:
            yield path, f"{path} authentication username not compatible with presence of users/nkeys"
        if door.authorization.token:
            yield path, f"{path} authentication token not compatible with presence of users/nkeys"


def _mqtt(options: Options) -> Iterator[tuple[str, str]]:
    mqtt = options.mqtt
    if not mqtt.port:
        return
    if not options.server_name and (options.cluster.port or options.gateway.port):
        yield "mqtt", "mqtt requires server name to be explicitly set"
    yield from _door_auth(options, mqtt, "mqtt")
    if mqtt.ack_wait_ns < 0:
        yield "mqtt.ack_wait", "ack wait must be a positive value"
    if mqtt.js_api_timeout_ns < 0:
        yield "mqtt.js_api_timeout", "JS API timeout must be a positive value"
    others = options.cluster.port or options.gateway.port or options.leafnodes.port or options.leafnodes.remotes
    if not options.jetstream.enabled and not others:
        yield "mqtt", "mqtt requires JetStream to be enabled if running in standalone mode"


def _jetstream(options: Options) -> Iterator[tuple[str, str]]:
    jetstream = options.jetstream
    with_limits = {account.name: account.jetstream is not None for account in options.accounts}
    for name, domain in options.default_js_domain.items():
        path = "default_js_domain"
        if options.operator:
            if not is_public_key(name, KeyKind.ACCOUNT):
                yield (
                    path,
                    f"default_js_domain contains account name {quote(name)}, which is not a valid public account nkey",
                )
        elif name != GLOBAL_ACCOUNT and name not in with_limits:
            yield path, f"in non operator mode, `default_js_domain` references non existing account {quote(name)}"
        elif domain and with_limits.get(name):
            yield path, f"default_js_domain contains account name {quote(name)} with enabled JetStream"
        if name == (options.system_account or DEFAULT_SYSTEM_ACCOUNT):
            yield path, f"system account {quote(name)} can not be in default_js_domain"
        if domain and not is_valid_subject(f"$JS.{domain}.API.>"):
            yield path, f"default_js_domain contains account {quote(name)} with invalid domain name {quote(domain)}"
    if jetstream.domain:
        derived = f"$JS.{jetstream.domain}.API.>"
        if not is_valid_subject(derived):
            yield "jetstream.domain", f"invalid domain name: derived {quote(derived)} is not a valid subject"
        elif any(char in jetstream.domain for char in ".*>"):
            yield "jetstream.domain", "invalid domain name: may not contain ., * or >"
    if not jetstream.enabled or not options.cluster.port:
        return
    if not options.server_name:
        yield "jetstream", "jetstream cluster requires `server_name` to be set"
    if not options.cluster.name:
        yield "jetstream", "jetstream cluster requires `cluster.name` to be set"
    if jetstream.extension_hint.lower() not in ("", "no_extend", "will_extend"):
        yield (
            "jetstream.extension_hint",
            f"expected 'no_extend' for string value, got '{jetstream.extension_hint.lower()}'",
        )
    if jetstream.max_outstanding_catchup < 0:
        yield "jetstream.max_outstanding_catchup", "jetstream max catchup cannot be negative"


def _websocket(options: Options) -> Iterator[tuple[str, str]]:
    websocket = options.websocket
    if not websocket.port:
        return
    if websocket.tls is None and not websocket.no_tls:
        yield "websocket", "websocket requires TLS configuration"
    for origin in websocket.allowed_origins:
        scheme, separator, rest = origin.partition("://")
        if not separator or scheme not in ("http", "https"):
            yield (
                "websocket.allowed_origins",
                f"unable to parse allowed origin {quote(origin)}: "
                "allowed origins must be absolute URLs with http or https scheme",
            )
        elif not rest.partition("/")[0]:
            yield "websocket.allowed_origins", f"unable to parse allowed origin {quote(origin)}: host is required"
    yield from _door_auth(options, websocket, "websocket")
    if websocket.jwt_cookie and not options.operator and not options.trusted_keys:
        yield (
            "websocket.jwt_cookie",
            "trusted operators or trusted keys configuration is required for JWT authentication via cookie "
            + quote(websocket.jwt_cookie),
        )
    for name in websocket.headers:
        if name.lower() in _FORBIDDEN_HEADERS:
            yield "websocket.headers", f"websocket: invalid header {quote(name)} not allowed"
        elif name.lower().startswith("sec-websocket-"):
            yield (
                "websocket.headers",
                f'websocket: invalid header {quote(name)}, "Sec-WebSocket-" prefix not allowed',
            )
