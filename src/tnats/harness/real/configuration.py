"""The configuration file of a server under test: alone, or as a member of a cluster as Jepsen sets one up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tnats.records import frozen

USER, PASSWORD = "jepsen", "jepsenpw"
SYSTEM_USER, SYSTEM_PASSWORD = "sys", "jepsenpw"
"""Accounts of a cluster; a server alone has none."""

ALONE = """\
server_name: "{name}"
listen: "127.0.0.1:{client_port}"
http: "127.0.0.1:{monitor_port}"
jetstream {{
  store_dir: "{store}"
  max_memory_store: 64MiB
  max_file_store: 4GiB
{more}}}
"""
CLUSTER = """\
cluster {{
  name: "jepsen-cluster"
  listen: "127.0.0.1:{port}"
  advertise: "127.0.0.1:{nowhere}"
  routes: [{routes}]
  ping_interval: 5s
}}
accounts {{
  SYS {{ users: [{{ user: "{system_user}", password: "{system_password}" }}] }}
  jepsen {{ jetstream: enabled, users: [{{ user: "{user}", password: "{password}" }}] }}
}}
system_account: SYS
"""
NOWHERE_PORT = 1
"""What servers tell each other of where they listen for routes: nothing is there, so that every route is one of those
that are configured, and can be cut.
"""


@frozen
class Ports:
    """Where a server listens for whom, on the loopback interface."""

    client: int
    monitor: int


@frozen
class Membership:
    """What makes a server a member: where it listens for routes, and where it finds the others."""

    route_port: int
    peer_ports: Sequence[int]


def write(
    name: str, ports: Ports, store: Path, *, sync_interval: str | None = None, membership: Membership | None = None
) -> str:
    """The file's text. `sync_interval` None leaves it to the server."""
    more = f"  sync_interval: {sync_interval}\n" if sync_interval else ""
    text = ALONE.format(name=name, client_port=ports.client, monitor_port=ports.monitor, store=store, more=more)
    if membership is None:
        return text
    return text + CLUSTER.format(
        port=membership.route_port,
        nowhere=NOWHERE_PORT,
        routes=", ".join(f'"nats-route://127.0.0.1:{port}"' for port in membership.peer_ports),
        user=USER,
        password=PASSWORD,
        system_user=SYSTEM_USER,
        system_password=SYSTEM_PASSWORD,
    )
