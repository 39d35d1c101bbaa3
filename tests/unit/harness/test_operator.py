"""What the operator of a real cluster makes of answers, with a client that only says what it is told to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tnats.client import TimedOut
from tnats.harness.real import operator as module
from tnats.harness.real.operator import Answer, Operator
from tnats.runtime.sim.world import Settings, World, run_world

SUCCESS = {"success": True}
REFUSED = {"error": {"err_code": 10075, "description": "not now"}}
NOT_A_MEMBER = {"error": {"err_code": 10044, "description": "server is not a member of the cluster"}}


class FakeCluster:
    """So many nodes of five run, one more with each request."""

    def __init__(self, running_count: int) -> None:
        self.nodes = [
            SimpleNamespace(name=f"n{number}", server=SimpleNamespace(url=f"{number}", system_url=f"{number}"))
            for number in range(1, 6)
        ]
        self.running_count = running_count

    def running(self) -> list[Any]:
        return self.nodes[: self.running_count]


def removal(answers: list[dict[str, Any] | None], running_count: int, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """What a removal comes to with these answers, one a request; None: there is no answer."""
    found: Answer = asked("$JS.API.SERVER.REMOVE", lambda it: it.remove("n9-0"), answers, running_count, monkeypatch)
    return found


def asked(
    wanted: str,
    ask_operator: Callable[[Operator], Awaitable[Any]],
    answers: list[dict[str, Any] | None],
    running_count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """The same of any request about a peer, whose subject must be `wanted`."""
    cluster: Any = FakeCluster(running_count)

    class FakeClient:
        async def request(self, subject: str, data: bytes, *, timeout_s: float) -> Any:
            assert (subject, json.loads(data)) == (wanted, {"peer": "n9-0"})
            cluster.running_count = min(5, cluster.running_count + 1)
            answer = answers.pop(0) if answers else None
            if answer is None:
                raise TimedOut("no answer")
            return SimpleNamespace(data=json.dumps(answer).encode())

    @asynccontextmanager
    async def connect(url: str, *, runtime: Any) -> AsyncIterator[FakeClient]:
        yield FakeClient()

    monkeypatch.setattr(module, "connect", connect)
    found: list[Any] = []

    async def main(world: World) -> None:
        async def ask(runtime: Any) -> None:
            found.append(await ask_operator(Operator(runtime, cluster)))

        node = world.node("harness")
        node.start(ask)
        await node.wait_ended()

    run_world(1, main, Settings(buggify=False)).unwrap()
    return found[0]


def test_one_node_after_the_other_is_asked_until_one_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence and refusal are no end; how many ran is counted after the answer, to be fair."""
    assert removal([None, REFUSED, SUCCESS], 1, monkeypatch) == Answer("n2 answered success", True, 4)


def test_who_is_no_member_any_more_has_been_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an earlier request whose answer was lost; nothing is known then of how many ran."""
    found = removal([None, NOT_A_MEMBER], 1, monkeypatch)
    assert (found.is_success, found.running_count) == (True, 5)


def test_what_is_never_confirmed_tells_the_last_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bounded time."""
    found = removal([REFUSED], 2, monkeypatch)
    assert (found.is_success, found.text.endswith("no answer")) == (False, True)


@pytest.mark.parametrize(
    ("answers", "running_count", "text"),
    [
        ([SUCCESS], 1, "n1 answered success"),
        ([REFUSED, SUCCESS], 2, "n1 answered not now"),
        ([None, SUCCESS], 2, "n1 answered TimedOut: no answer"),
        ([SUCCESS], 0, "no node to ask"),
    ],
)
def test_a_stream_is_told_once_to_go_on_without_a_server(
    answers: list[dict[str, Any] | None], running_count: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the first node that runs, whatever it answers."""
    subject = "$JS.API.STREAM.PEER.REMOVE.s"
    assert asked(subject, lambda it: it.remove_from_stream("s", "n9-0"), answers, running_count, monkeypatch) == text
