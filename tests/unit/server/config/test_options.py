"""From files to options: values, defaults, and everything that is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tnats.auth.permissions import Permissions, ResponsePermission, SubjectPermission
from tnats.auth.users import ConnectionType, User
from tnats.server.config.baseline import complete
from tnats.server.config.load import read_options
from tnats.server.config.options import Options
from tnats.server.config.problems import ConfigError
from tnats.server.config.table import Section, rows_of
from tnats.server.config.validation import unsupported, validate

ACCOUNT_KEY = "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA"
USER_KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
SECOND_NS = 1_000_000_000


def load(text: str, env: dict[str, str] | None = None) -> Options:
    return read_options("n.conf", read=lambda _: text, env=env or {})


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


def start_refusals(text: str) -> list[str]:
    options = load(text)
    complete(options)
    return [str(problem) for problem in validate(options)]


# ------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("listen: 127.0.0.1:4333", "port", 4333),
        ("listen: 127.0.0.1:4333", "host", "127.0.0.1"),
        ('listen: "[::1]:-1"', "host", "::1"),
        ("net: localhost", "host", "localhost"),
        ("PORT: 5", "port", 5),
        ("max_payload: 1mb", "max_payload", 2**20),
        ("max_payload: 2m", "max_payload", 2_000_000),
        ("max_payload: 10k", "max_payload", 10_000),
        ("max_payload: 10KB", "max_payload", 10_240),
        ("max_payload: 1KiB", "max_payload", 1024),
        ("max_payload: 0", "max_payload", 2**20),
        ("max_conn: 0", "max_connections", -1),
        ("", "max_connections", 65_536),
        ('ping_interval: "20s"', "ping_interval_ns", 20 * SECOND_NS),
        ("write_deadline: 1.5s", "write_deadline_ns", 1_500_000_000),
        ("http: 8222", "http_port", 8222),
        ('http: "h:1"', "http_host", "h"),
        ("trace_verbose: true", "trace", True),
        ("server_tags: [A, b, a]", "server_tags", ["a", "b"]),
        ("server_metadata { Owner: x }", "server_metadata", {"Owner": "x"}),
        ("authorization { timeout: 0.5 }", "authorization.timeout_ns", SECOND_NS // 2),
        ('authorization { timeout: "1m" }', "authorization.timeout_ns", 60 * SECOND_NS),
        ("jetstream: enabled", "jetstream.enabled", True),
        ("jetstream: false", "jetstream.enabled", False),
        ("jetstream { }", "jetstream.enabled", True),
        ("jetstream { enabled: false }", "jetstream.enabled", False),
        ("jetstream { max_mem: 0 }", "jetstream.max_memory_store", 0),
        ("jetstream { max_mem: 1gb }", "jetstream.max_file_store", -1),
        ('jetstream { max_file: "2G" }', "jetstream.max_file_store", 2**31),
        ("jetstream { sync: always }", "jetstream.sync_interval", (0, True)),
        ("jetstream { limits { batch { max_msgs: 5 } } }", "jetstream.limits.batch.max_msgs", 5),
        ("cluster { listen: 127.0.0.1:-1, compression: true }", "cluster.compression.mode", "s2_fast"),
        ("leafnodes { compression: on }", "leafnodes.compression.mode", "s2_auto"),
        ("cluster { authorization { user: a, password: b } }", "cluster.authorization.password", "b"),
        ("ws { port: 1, origins: a }", "websocket.allowed_origins", ["a"]),
        ("mqtt { max_inflight: 5 }", "mqtt.max_ack_pending", 5),
        ("tls { handshake_first: auto }", "tls.handshake_first", (True, 50_000_000)),
        ("tls { verify_and_map: true }", "tls.verify", True),
        ('resolver: URL("http://h/")', "resolver.url", "http://h/"),
        ("leaf { remotes: [{url: \"nats://h\"}] }", "leafnodes.remotes", None),
    ],
)  # fmt: skip
def test_option_has_its_value(text: str, path: str, value: Any) -> None:
    """Keys, aliases, units and forms of values give what the option stands for."""
    found: Any = load(text)
    for name in path.split("."):
        found = getattr(found, name)
    if value is not None:
        assert found == value
    else:
        assert [remote.urls for remote in found] == [["nats://h"]]


def test_of_two_aliases_the_later_wins() -> None:
    """File order decides, not chance."""
    assert load("host: a\nnet: b").host == "b"
    assert load("net: b\nhost: a").host == "a"


def test_users_have_their_permissions() -> None:
    """Every form of permissions reads into the same records; defaults go to users without permissions."""
    options = load(
        """
        authorization {
          users: [
            {user: a, password: x, permissions: {publish: "p.>", sub: [s, "q.* workers"]}},
            {user: b, permissions: {publish: {deny: [x]}, allow_responses: {max: 5, ttl: "3s"}}},
            {user: c, permissions: {allow_responses: true}, connection_types: [websocket, STANDARD]},
            {user: d, permissions: {publish: {}}},
            {nkey: USER_KEY}
          ]
          default_permissions: {subscribe: {deny: secret}}
        }
    """.replace("USER_KEY", USER_KEY)
    )
    assert options.authorization is not None
    assert options.authorization.users == [
        User(
            "a",
            "x",
            permissions=Permissions(SubjectPermission(allow=("p.>",)), SubjectPermission(allow=("s", "q.* workers"))),
        ),
        User(
            "b",
            permissions=Permissions(
                SubjectPermission(allow=(), deny=("x",)), responses=ResponsePermission(5, 3 * SECOND_NS)
            ),
        ),
        User(
            "c",
            permissions=Permissions(SubjectPermission(allow=()), responses=ResponsePermission()),
            connection_types=frozenset({ConnectionType.WEBSOCKET, ConnectionType.STANDARD}),
        ),
        User("d", permissions=Permissions()),
        User(USER_KEY, is_nkey=True, permissions=Permissions(subscribe=SubjectPermission(deny=("secret",)))),
    ]


def test_users_of_accounts_know_their_account() -> None:
    """Users of accounts and of the authorization block are one list, each with its account."""
    options = load(
        "accounts { A { users: [{user: a}] }, $SYS { users: [{user: s}] } }\nauthorization { users: [{user: hub}] }"
    )
    assert [(user.name, user.account) for user in options.all_users()] == [("hub", "$G"), ("a", "A"), ("s", "$SYS")]
    assert options.credentials().users is not None


def test_partition_over_several_wildcards_counts_as_using_them() -> None:
    """A mapping may use wildcards only inside a partition; one beyond the source's wildcards is refused."""
    destination = "foo.{{partition(3,3,4)}}.{{wildcard(1)}}.{{wildcard(2)}}"
    assert list(load('mappings { "foo.*.*.*.*": "TO" }'.replace("TO", destination)).mappings) == ["foo.*.*.*.*"]
    assert "wildcard index out of range" in refusal('mappings { "foo.*": "foo.{{wildcard(2)}}" }')


def test_secrets_do_not_show_in_repr() -> None:
    """Passwords, tokens and keys are left out of what a log or a traceback could show."""
    options = load(
        "authorization { user: u, password: hunter2 }\njetstream { key: k3y }\n"
        "cluster { authorization { user: u, pass: r0ute } }"
    )
    shown = repr(options)
    assert not any(secret in shown for secret in ("hunter2", "k3y", "r0ute"))
    assert "[REDACTED]" in shown


# ------------------------------------------------------------------ refusals


def test_all_problems_are_reported_together() -> None:
    """One run shows every problem, with position, warnings first."""
    assert refusal("ping_interval: 5\nport: x\nbogus: 3\ncluster { foo: 1 }").split("\n") == [
        'n.conf:1:1: invalid use of field "ping_interval": ping_interval should be converted to a duration',
        'n.conf:2:1: field "port" should be an integer, got a string',
        'n.conf:3:1: unknown field "bogus"',
        'n.conf:4:11: unknown field "foo"',
    ]


def test_number_where_a_string_is_wanted_says_what_to_do() -> None:
    """An unquoted token of digits and a size suffix is the commonest mistake: the message names the cure."""
    assert refusal("authorization { token: 10k }") == (
        'n.conf:1:17: field "token" should be a string, got the integer 10000; put the value in quotes'
    )


@pytest.mark.parametrize("key", ["pid_file", "log_file", "ports_file_dir", "store_dir", "jetstream.store_dir"])
def test_a_path_has_no_nul(key: str) -> None:
    """No system call takes one: it is found while reading, and not when the file is to be opened."""
    section, _, name = key.rpartition(".")
    text = f'{name}: "/a\\x00b"'
    assert "should be a path, and no file's name has a NUL in it" in refusal(
        f"{section} {{ {text} }}" if section else text
    )


@pytest.mark.parametrize(
    ("text", "column"),
    [("key: $KEY", 13), ("cipher: aes", 13), ('max_mem: 1, key: "", cipher: aes', 25), ("key: k, cipher: aes", None)],
)
def test_a_store_that_is_not_encrypted_though_it_looks_so_is_warned_of(text: str, column: int | None) -> None:
    """An empty key (of an environment variable, say), or a cipher without a key."""
    warnings = [str(warning) for warning in load(f"jetstream {{ {text} }}", {"KEY": ""}).warnings]
    said = f'n.conf:1:{column}: the store is not encrypted: "key" is empty or not given'
    assert warnings == ([] if column is None else [said])


@pytest.mark.parametrize(
    "token",
    ["4e2abc", "0K1abc", "8m4dwr", "5e7bcd-abc10", "2Tybceg8yj", "33feda22ea", "10kbps", "1e3", "1_000", "12-ab"],
)
def test_unquoted_token_that_looks_like_a_number_is_a_string(token: str) -> None:
    """Only a whole word of digits and a known suffix is a number."""
    options = load(f"authorization {{ token: {token} }}")
    assert options.authorization is not None
    assert options.authorization.token == token


@pytest.mark.parametrize(
    "text",
    ["{listen: 4222\n# c}\n}", "{listen: 4222\n# c\n}", "{\nlisten: 4222 # c\n}", "{listen: 4222\n# c\n}\n"],
)
def test_comment_on_the_last_line_inside_braces(text: str) -> None:
    """A comment before the closing brace of a file ends with its line."""
    assert load(text).port == 4222


def test_unknown_key_used_as_variable_is_no_error() -> None:
    """Keys may be made up to be used as variables, at any depth."""
    options = load("P: 5\nport: $P\nauthorization { T: abc, token: $T }")
    assert options.port == 5


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("server_name: 'my server'", "server name cannot contain spaces"),
        ("cluster { name: 'c 1' }", "cluster name cannot contain spaces"),
        ("gateway { name: 'g 1' }", "gateway name cannot contain spaces"),
    ],
)
def test_names_with_spaces_are_refused(text: str, refused: str) -> None:
    """The error says which name."""
    assert refused in refusal(text)


# ------------------------------------------------------------------ checks at start


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("jetstream { domain: 'a b' }", '1:13: invalid domain name: derived "$JS.a b.API.>" is not a valid subject'),
        ("jetstream { domain: a.b }", "1:13: invalid domain name: may not contain ., * or >"),
        (
            "max_payload: 2mb\nmax_pending: 1mb",
            "1:1: max_payload (2097152) cannot be higher than max_pending (1048576)",
        ),
        (
            "lame_duck_duration: '30s'\nlame_duck_grace_period: '30s'",
            "2:1: lame duck grace period (30s) should be strictly lower than lame duck duration (30s)",
        ),
        ("max_closed_clients: -1", "1:1: max_closed_clients (-1) cannot be negative"),
        ("client_advertise: 'h:1:x'", '1:1: client_advertise "h:1:x": too many colons in address'),
        ("client_advertise: 'h:x'", '1:1: client_advertise "h:x": could not parse port "x"'),
        ("no_auth_user: x", '1:1: no_auth_user: "x" present, but users/nkeys are not defined'),
        (
            "no_auth_user: x\nauthorization { users: [{user: y}] }",
            '1:1: no_auth_user: "x" not present as user or nkey in authorization block or account configuration',
        ),
        ("default_sentinel: abc", "1:1: default sentinel requires operators and accounts"),
        ("websocket { port: 1 }", "1:1: websocket requires TLS configuration"),
        (
            "websocket { port: 1, no_tls: true, headers { Host: x } }",
            '1:36: websocket: invalid header "Host" not allowed',
        ),
        ("mqtt { port: 1 }", "1:1: mqtt requires JetStream to be enabled if running in standalone mode"),
        ("gateway { name: a }", '1:1: gateway "a" has no port specified (select -1 for random port)'),
        (
            "gateway { name: a, port: 1 }\ncluster { name: b }",
            "2:11: cluster name conflicts between cluster and gateway definitions",
        ),
        (
            "cluster { port: 1, pool_size: -1, accounts: [A] }",
            "1:20: pool_size cannot be negative if pinned accounts are specified",
        ),
        (
            'leafnodes { remotes: [{url: "nats://h", account: A}] }',
            '1:41: cannot find local account "A" specified in leafnode remote',
        ),
        ("jetstream: true\ncluster { port: 1, name: c }", "1:1: jetstream cluster requires `server_name` to be set"),
    ],
)
def test_start_is_refused(text: str, refused: str) -> None:
    """What does not go together keeps the server from starting, with nats-server's words and a position."""
    assert f"n.conf:{refused}" in start_refusals(text)


def test_defaults_follow_other_options() -> None:
    """The time for CONNECT covers the TLS handshake; monitoring listens where clients do; routes have a pool."""
    options = load('net: h\ntls { timeout: 5 }\ncluster { port: 1 }\nleaf { remotes: [{url: "nats://u:p@x"}] }')
    complete(options)
    assert options.authorization is not None
    assert options.authorization.timeout_ns == 6 * SECOND_NS
    assert (options.http_host, options.port, options.http_base_path) == ("h", 4222, "/")
    assert (options.cluster.host, options.cluster.pool_size, options.cluster.accounts) == ("0.0.0.0", 3, ["$SYS"])
    assert options.leafnodes.remotes[0].urls == ["nats://u:p@x:7422"]


# ------------------------------------------------------------------ features


def test_missing_feature_names_option_and_position() -> None:
    """Asking for what is not built stops the start with the outermost option that asks, in file order."""
    options = load(
        "port: 1\nmqtt { port: 1 }\ntls { cert_file: a, key_file: b }\n"
        "authorization { users: [{user: a, proxy_required: true}] }"
    )
    assert [str(problem) for problem in unsupported(options, built=frozenset())][:3] == [
        'n.conf:2:1: "mqtt": MQTT: not available in this release',
        'n.conf:3:1: "tls": TLS: not available in this release',
        'n.conf:4:17: "authorization.users": users with passwords: not available in this release',
    ]


@pytest.mark.parametrize(
    "text",
    ["jetstream: false", "jetstream { enabled: false, store_dir: x }", "cluster { name: c }",
     "websocket { no_tls: true }", "mqtt { ack_wait: '1s' }", "accounts {}", "allow_non_tls: false"],
)  # fmt: skip
def test_option_that_asks_for_nothing_needs_no_feature(text: str) -> None:
    """What is given but off, or equal to the default, does not stop a start."""
    assert unsupported(load(text), built=frozenset()) == []


@pytest.mark.parametrize(
    ("inside", "missing"),
    [
        ('A { exports: [{stream: "x"}] }', '"accounts.A.exports": exports and imports between accounts'),
        ('A {}\nB { imports: [{stream: {account: A, subject: "x"}}] }',
         '"accounts.B.imports": exports and imports between accounts'),
        ("A { limits { max_connections: 1 } }", '"accounts.A.limits": limits of an account\'s clients'),
        ('A { mappings { a: "b" } }', '"accounts.A.mappings": subject mappings'),
        ('A { trace_dest: "t" }', '"accounts.A.msg_trace": message tracing'),
        ("A { jetstream { cluster_traffic: owner } }", '"accounts.A.jetstream.cluster_traffic": clustering'),
        ("$SYS { users: [{user: s}] }", '"accounts.$SYS": the system account'),
    ],
)  # fmt: skip
def test_what_is_missing_of_accounts_is_named(inside: str, missing: str) -> None:
    """Accounts with users and JetStream start; whatever else one may have is refused by its path."""
    assert unsupported(load("accounts { A { users: [{user: a}], jetstream { max_streams: 1 } } }")) == []
    (problem,) = unsupported(load(f"accounts {{ {inside} }}"))
    assert str(problem).endswith(f"{missing}: not available in this release")


# ------------------------------------------------------------------ the table


def sections(section: type[Section], seen: dict[type[Section], None] | None = None) -> list[type[Section]]:
    seen = {} if seen is None else seen
    if section not in seen:
        seen[section] = None
        for row in rows_of(section):
            if row.reader.section is not None:
                sections(row.reader.section, seen)
    return list(seen)


@pytest.mark.parametrize("section", sections(Options), ids=lambda section: section.__name__)
def test_no_key_names_two_options(section: type[Section]) -> None:
    """Within a section every key and alias is lower case and belongs to one row; repr works on the defaults."""
    keys = [key for row in rows_of(section) for key in row.keys]
    assert len(keys) == len(set(keys))
    assert keys == [key.lower() for key in keys]
    assert repr(section()).startswith(section.__name__)
    assert section() == section()
