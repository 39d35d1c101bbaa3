"""The monitoring pages of a running `tnats serve`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.live.server_process import RawClient, serve, wait_until


def test_pages(tmp_path: Path) -> None:
    """Every page answers, as JSON, what the clients of the moment make true; unknown ones are 404."""
    with serve(tmp_path, "http: -1\nserver_name: s") as server, RawClient(server.port) as client:
        client.send(b"SUB a.* 1\r\nPUB a.b 5\r\nhello\r\n")
        client.flush()
        varz = server.ask("/varz")
        assert (varz["server_name"], varz["port"], varz["http_port"]) == ("s", server.port, server.monitoring_port)
        assert (varz["connections"], varz["in_msgs"], varz["out_bytes"]) == (1, 1, 5)
        assert re.fullmatch(r"\d+\.\d+\.\d+", varz["version"])
        assert varz["mem"] > 1 << 20
        (connection,) = server.ask("/connz?subs=1")["connections"]
        assert (connection["subscriptions_list"], connection["in_msgs"]) == (["a.*"], 1)
        assert server.ask("/subsz?subs=1&test=a.x")["subscriptions_list"][0]["subject"] == "a.*"
        assert server.ask("/accstatz")["account_statz"][0]["conns"] == 1
        assert server.ask("/healthz") == {"status": "ok"}
        for path in ("/routez", "/leafz", "/gatewayz", "/accountz", "/jsz"):
            assert server.ask(path)["server_id"] == varz["server_id"]
        assert server.ask_raw("/")[1].count("href=") > 5
        assert server.ask_raw("/none")[0] == 404
        assert server.ask_raw("/connz?limit=x")[0] == 400
        assert server.ask("/varz")["http_req_stats"]["/varz"] == 2


def test_closed_connections(tmp_path: Path) -> None:
    """Those that have gone are told of, with the reason."""
    with serve(tmp_path, "http: -1") as server:
        with RawClient(server.port, '{"name":"left"}') as client:
            client.flush()  # a socket closed with unread bytes is reset, which is another reason
        with RawClient(server.port, '{"name":"wrong"}') as client:
            client.send(b"BOGUS\r\n")
            client.read_rest()
        wait_until(lambda: server.ask("/connz?state=closed")["total"] == 2)
        closed = server.ask("/connz?state=closed")["connections"]
        assert {one["name"]: one["reason"] for one in closed} == {
            "left": "Client Closed",
            "wrong": "Protocol Violation",
        }


def test_base_path(tmp_path: Path) -> None:
    """`http_base_path` stands before every page."""
    with serve(tmp_path, "http: -1\nhttp_base_path: nats") as server:
        assert json.loads(server.ask_raw("/nats/healthz")[1]) == {"status": "ok"}
        assert server.ask_raw("/healthz")[0] == 404


def test_subjects_that_are_no_text(tmp_path: Path) -> None:
    """Subscriptions on bytes that are no UTF-8 are in the reports, each such byte as U+FFFD."""
    with serve(tmp_path, "http: '127.0.0.1:-1'") as server, RawClient(server.port) as client:
        client.send(b"SUB a.\xff q\xe9 1\r\n")
        client.flush()
        (connection,) = server.ask("/connz?subs=1")["connections"]
        assert connection["subscriptions_list"] == ["a.\ufffd"]
        (subscription,) = [one for one in server.ask("/subsz?subs=1")["subscriptions_list"] if one["cid"]]
        assert (subscription["subject"], subscription["qgroup"]) == ("a.\ufffd", "q\ufffd")
