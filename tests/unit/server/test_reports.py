"""The monitoring reports of a node in a simulated world."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.unit.server.stage import Stage, play

from tnats.broker.hot.message import Subscription
from tnats.broker.snapshot import SubscriptionSnapshot, subscription_snapshot
from tnats.edges.http_server import Request
from tnats.server.reports import make_monitor, uptime
from tnats.subjects.tokens import to_text


def ask(stage: Stage, target: str) -> Any:
    """The report at `target`, which must be there."""
    answer = make_monitor(stage.node).handle(Request("GET", target))
    assert answer.status == 200, answer.body
    return orjson.loads(answer.body)


def refusal(stage: Stage, target: str) -> tuple[int, str]:
    answer = make_monitor(stage.node).handle(Request("GET", target))
    return answer.status, answer.body.decode()


def test_varz_counts_what_clients_do() -> None:
    """Messages, bytes, connections and subscriptions add up, those of closed connections included."""

    async def scene(stage: Stage) -> None:
        one, two = await stage.connect(), await stage.connect()
        await two.ask(b"SUB a 1\r\n")
        await one.ask(b"PUB a 3\r\nabc\r\nPUB b 2\r\nxy\r\n")
        gone = await stage.connect()
        await gone.ask(b"PUB a 1\r\nz\r\n")
        await gone.ask(b"BOGUS\r\n")
        varz = ask(stage, "/varz")
        assert (varz["in_msgs"], varz["in_bytes"]) == (3, 6)
        assert (varz["out_msgs"], varz["out_bytes"]) == (2, 4)
        assert (varz["connections"], varz["total_connections"], varz["subscriptions"]) == (2, 3, 1)
        assert varz["in_client_msgs"] == varz["in_msgs"]
        assert (varz["server_name"], varz["max_payload"], varz["ping_max"]) == ("s", 1 << 20, 2)
        assert varz["tags"] == ["a", "b"]

    play(scene, "server_name: s\nserver_tags: [a, b]")


def test_connz_pages_and_totals() -> None:
    """A page is cut from the sorted whole, whose size is the total; absurd offsets give an empty page."""

    async def scene(stage: Stage) -> None:
        for _ in range(5):
            await stage.connect()
        whole = [one["cid"] for one in ask(stage, "/connz")["connections"]]
        assert whole == sorted(whole)
        page = ask(stage, "/connz?offset=1&limit=2")
        assert [one["cid"] for one in page["connections"]] == whole[1:3]
        assert (page["num_connections"], page["total"], page["offset"], page["limit"]) == (2, 5, 1, 2)
        empty = ask(stage, "/connz?offset=9223372036854775807&limit=1")
        assert (empty["connections"], empty["total"]) == ([], 5)

    play(scene)


def test_connz_tells_of_the_closed_with_their_reason() -> None:
    """A closed connection is found by state, with why and when it ended and what it had subscribed to."""

    async def scene(stage: Stage) -> None:
        bad = await stage.connect(name="bad")
        await bad.ask(b"SUB a 1\r\nBOGUS\r\n")
        assert ask(stage, "/connz")["total"] == 0
        (closed,) = ask(stage, "/connz?state=closed&subs=1")["connections"]
        assert (closed["name"], closed["reason"]) == ("bad", "Protocol Violation")
        assert closed["subscriptions_list"] == ["a"]
        assert closed["stop"] >= closed["start"]

    play(scene)


def test_connz_sorts_by_duration_not_by_its_text() -> None:
    """The longest idle come first: 100 seconds before 9."""

    async def scene(stage: Stage) -> None:
        cids = []
        for idle in (91, 2, 5, 2):
            client = await stage.connect(name=f"{idle}")
            cids.append(client)
            await stage.sleep(idle)
        names = [one["name"] for one in ask(stage, "/connz?sort=idle")["connections"]]
        assert names == ["91", "2", "5", "2"]
        idle = [one["idle"] for one in ask(stage, "/connz?sort=idle")["connections"]]
        assert sorted(idle, key=seconds, reverse=True) == idle

    play(scene, "ping_interval: 1h")


def seconds(text: str) -> int:
    minutes, _, rest = text.rpartition("m")
    return int(minutes or 0) * 60 + int(rest.removesuffix("s"))


def test_connz_shows_users_only_when_asked() -> None:
    """Names of users stand in the report with `auth` alone; passwords never."""

    async def scene(stage: Stage) -> None:
        await stage.connect(user="u", **{"pass": "hush"})
        (plain,) = ask(stage, "/connz")["connections"]
        assert "authorized_user" not in plain
        (full,) = ask(stage, "/connz?auth=true&subs=detail")["connections"]
        assert full["authorized_user"] == "u"
        assert "hush" not in str(full)
        assert ask(stage, "/connz?user=u")["total"] == 1
        assert ask(stage, "/connz?user=v")["total"] == 0

    play(scene, "authorization { user: u, password: hush }")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/connz?sort=size", "invalid sorting option: size"),
        ("/connz?sort=stop", "sort by stop only valid on closed connections"),
        ("/connz?state=half", "Error decoding state for half"),
        ("/connz?cid=-1", "Error decoding uint64 for 'cid': strconv.ParseUint: parsing \"-1\": invalid syntax"),
        ("/subsz?test=a.*", "invalid test subject, must be valid publish subject: a.*"),
        ("/accountz?acc=none", "Account none does not exist"),
    ],
)
def test_senseless_questions_are_400(target: str, reason: str) -> None:
    """The answer says what is wrong with the question."""

    async def scene(stage: Stage) -> None:
        status, text = refusal(stage, target)
        assert status == 400
        assert reason in text

    play(scene)


def test_subsz_tells_the_fan_out_of_known_subjects() -> None:
    """Subjects that were published on more than once count, each with those whom a message reaches."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"SUB a 1\r\nSUB * 2\r\nSUB a q 3\r\nSUB a q 4\r\n")
        assert (ask(stage, "/subsz")["max_fanout"], ask(stage, "/subsz")["avg_fanout"]) == (0, 0)
        await client.ask(2 * b"PUB a 1\r\nx\r\nPUB b 1\r\nx\r\n")
        report = ask(stage, "/subsz")
        assert (report["num_cache"], report["max_fanout"], report["avg_fanout"]) == (2, 3, 2)
        assert report["num_inserts"] == report["num_subscriptions"] == 4

    play(scene)


def test_subsz_finds_who_would_get_a_message() -> None:
    """`test` leaves the subscriptions that match a subject; the figures are of the whole table."""

    async def scene(stage: Stage) -> None:
        client = await stage.connect()
        await client.ask(b"SUB a.* 1\r\nSUB a.b q 2\r\nSUB b 3\r\n")
        report = ask(stage, "/subsz?subs=1&test=a.b")
        assert report["num_subscriptions"] == 3
        assert {(one["subject"], one.get("qgroup", "")) for one in report["subscriptions_list"]} == {
            ("a.*", ""),
            ("a.b", "q"),
        }
        assert ask(stage, "/subsz")["total"] == 0
        assert "subscriptions_list" not in ask(stage, "/subsz")

    play(scene)


def test_a_page_costs_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the connections and subscriptions that are not on the page only what sorts and counts them is looked at."""
    shown: list[str] = []

    def counted(subscription: Subscription, cid: int, account: str) -> SubscriptionSnapshot:
        shown.append(to_text(subscription.subject))
        return subscription_snapshot(subscription, cid, account)

    monkeypatch.setattr("tnats.broker.snapshot.subscription_snapshot", counted)
    monkeypatch.setattr("tnats.server.reports.subscription_snapshot", counted)

    async def scene(stage: Stage) -> None:
        for client in [await stage.connect() for _ in range(3)]:
            await client.ask(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
        (connection,) = ask(stage, "/connz?subs=1&limit=1&offset=1")["connections"]
        assert connection["subscriptions_list"] == shown == ["a", "b", "c"]
        shown.clear()
        report = ask(stage, "/subsz?subs=1&limit=2&offset=3")
        assert (report["total"], [one["subject"] for one in report["subscriptions_list"]]) == (9, ["a", "b"])
        assert shown == ["a", "b"]

    play(scene)


def test_accounts_are_told_of() -> None:
    """Connections and traffic by account; one without connections only when asked for."""

    async def scene(stage: Stage) -> None:
        assert ask(stage, "/accstatz")["account_statz"] == []
        assert [one["acc"] for one in ask(stage, "/accstatz?unused=1")["account_statz"]] == ["$G"]
        client = await stage.connect()
        await client.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
        (row,) = ask(stage, "/accstatz")["account_statz"]
        assert (row["conns"], row["num_subscriptions"]) == (1, 1)
        assert (row["sent"]["msgs"], row["received"]["bytes"]) == (1, 2)
        assert ask(stage, "/accountz")["accounts"] == ["$G"]
        assert ask(stage, "/accountz?acc=$G")["account_detail"]["client_connections"] == 1

    play(scene)


def test_health_of_a_server_without_jetstream() -> None:
    """It is well, whatever of JetStream is asked; contradictions in the question are 400, in JSON."""

    async def scene(stage: Stage) -> None:
        for target in ("/healthz", "/healthz?js-enabled-only=true", "/healthz?details=1"):
            assert ask(stage, target) == {"status": "ok"}
        status, text = refusal(stage, "/healthz?stream=x")
        assert (status, orjson.loads(text)["status"]) == (400, "error")
        status, text = refusal(stage, "/healthz?consumer=c&account=a&details=true")
        assert (status, orjson.loads(text)["errors"][0]["type"]) == (400, "BAD_REQUEST")
        assert ask(stage, "/jsz")["disabled"] is True

    play(scene)


@pytest.mark.parametrize(
    ("seconds_up", "text"),
    [(0, "0s"), (59, "59s"), (3_661, "1h1m1s"), (90_061, "1d1h1m1s"), (31_536_000, "1y0d0h0m0s")],
)
def test_uptime_is_told_in_days(seconds_up: int, text: str) -> None:
    """Days and years stand apart."""
    assert uptime(seconds_up * 10**9 + 999) == text
