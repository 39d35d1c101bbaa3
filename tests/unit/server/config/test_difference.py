"""What a reload would change."""

from __future__ import annotations

from tnats.server.config.baseline import complete
from tnats.server.config.difference import differences, reload_problems
from tnats.server.config.load import read_options
from tnats.server.config.options import Options


def load(text: str) -> Options:
    options = read_options("n.conf", read=lambda _: text, env={})
    complete(options)
    return options


def test_equal_configurations_do_not_differ() -> None:
    """Spelling, order and variables make no difference."""
    assert differences(load("port = 4222\nmonitor_port = $port"), load("monitor_port: 4222\nport: 4222")) == []


def test_changes_name_the_innermost_option() -> None:
    """A changed section is told apart into its options; what may be reloaded says so."""
    changes = differences(
        load("max_payload: 1kb\ncluster { port: 1, pool_size: 2 }"), load("cluster { port: 2, pool_size: 5 }")
    )
    assert [(change.path, change.reloadable) for change in changes] == [
        ("max_payload", True),
        ("cluster.port", False),
        ("cluster.pool_size", True),
    ]


def test_change_that_needs_a_restart_is_refused_without_secrets() -> None:
    """The texts name option, old and new value; passwords are not shown, not even inside URLs."""
    text = """
        server_name: NAME
        leafnodes { authorization { user: u, password: PASS } }
        gateway { name: g, port: 1, gateways: [ { name: h, url: "nats://u:PASS@h:1" } ] }
    """
    old, new = (load(text.replace("NAME", name).replace("PASS", f"s3cr3t{name}")) for name in "ab")
    problems = [str(problem) for problem in reload_problems(differences(old, new))]
    assert "config reload not supported for server_name: old='a', new='b'" in problems
    assert (
        "config reload not supported for leafnodes.authorization.password: old=[REDACTED], new=[REDACTED]" in problems
    )
    assert [problem for problem in problems if "gateway.gateways" in problem]
    assert not [problem for problem in problems if "s3cr3t" in problem]


def test_section_may_be_reloadable_in_parts() -> None:
    """More memory for streams and new users are fine; another store directory or an auth callout is not."""
    old = load("jetstream { max_mem: 1, store_dir: a }\nauthorization { token: a }")
    new = load("jetstream { max_mem: 2, store_dir: b }\nauthorization { token: b, proxy_required: true }")
    assert {change.path: change.reloadable for change in differences(old, new)} == {
        "authorization.token": True,
        "authorization.proxy_required": False,
        "jetstream.store_dir": False,
        "jetstream.max_memory_store": True,
    }


def test_host_of_monitoring_is_compared() -> None:
    """It has no key of its own, only `http` and `https` set it."""
    changes = differences(load('http: "a:1"'), load('http: "b:1"'))
    assert [(change.path, change.old, change.new, change.reloadable) for change in changes] == [
        ("http", "a", "b", False)
    ]
