"""What an operator does to a cluster while it is troubled: removes peers, makes and removes streams, asks who leads."""

from __future__ import annotations

import json
from typing import Any

import trio

from tnats.client import ClientError, connect
from tnats.client.jetstream import JetStream, StreamConfig
from tnats.harness.real.cluster import Cluster
from tnats.limits import SECOND_NS
from tnats.records import frozen
from tnats.runtime.api import Runtime

REMOVE_SUBJECT = "$JS.API.SERVER.REMOVE"
STREAM_REMOVE_SUBJECT = "$JS.API.STREAM.PEER.REMOVE"
REMOVE_S = 20.0
"""For so long the removal is asked for again until somebody answers."""
NOT_A_MEMBER = 10044
ANSWER_S = 2.0
PAUSE_NS = SECOND_NS // 5


@frozen
class Answer:
    """To a removal: what it was, and how many nodes ran, before or after it, whichever were more."""

    text: str
    is_success: bool = False
    running_count: int = 0


class Operator:
    """Acts through nodes that run."""

    def __init__(self, runtime: Runtime, cluster: Cluster) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._decoy_count = 0

    async def remove(self, server_name: str) -> Answer:
        """Ask for the removal of a server from the group that keeps the list of streams, through one node after the
        other, until one confirms it; otherwise returns the last answer.
        """
        answer = Answer("no node to ask")
        with trio.move_on_after(REMOVE_S):
            while True:
                for node in self._cluster.running():
                    running_count = len(self._cluster.running())
                    try:
                        body = await self._ask(node.server.system_url, REMOVE_SUBJECT, server_name)
                    except ClientError as exc:
                        answer = Answer(f"{node.name} answered {type(exc).__name__}: {exc}")
                        continue
                    refused = refusal(body)
                    if not refused:
                        running_count = max(running_count, len(self._cluster.running()))
                        return Answer(f"{node.name} answered success", is_success=True, running_count=running_count)
                    text = f"{node.name} answered {refused}"
                    # an earlier request was heard, its answer was not
                    if body.get("error", {}).get("err_code") == NOT_A_MEMBER:
                        return Answer(text, is_success=True, running_count=len(self._cluster.nodes))
                    answer = Answer(text)
                await self._runtime.clock.sleep_ns(PAUSE_NS)
        return answer

    async def remove_from_stream(self, stream: str, server_name: str) -> str:
        """Ask once, through one node, that a stream has no replica on a server any more; returns the answer."""
        for node in self._cluster.running():
            try:
                body = await self._ask(node.server.url, f"{STREAM_REMOVE_SUBJECT}.{stream}", server_name)
            except ClientError as exc:
                return f"{node.name} answered {type(exc).__name__}: {exc}"
            return f"{node.name} answered {refusal(body) or 'success'}"
        return "no node to ask"

    async def _ask(self, url: str, subject: str, server_name: str) -> dict[str, Any]:
        """The answer to a request about a peer. Raises ClientError."""
        async with connect(url, runtime=self._runtime) as client:
            reply = await client.request(subject, json.dumps({"peer": server_name}).encode(), timeout_s=ANSWER_S)
        body: dict[str, Any] = json.loads(reply.data)
        return body

    async def decoys(self, count: int) -> int:
        """Make and remove so many streams; returns how many it did."""
        done_count = 0
        for node in self._cluster.running():
            try:
                async with connect(node.server.url, runtime=self._runtime) as client:
                    js = JetStream(client, timeout_s=ANSWER_S)
                    for _ in range(count - done_count):
                        self._decoy_count += 1
                        name = f"decoy-{self._decoy_count}"
                        config = StreamConfig(name, subjects=[name], num_replicas=len(self._cluster.nodes))
                        await (await js.create_stream(config)).delete()
                        done_count += 1
                    return done_count
            except ClientError:
                continue
        return done_count


def refusal(body: dict[str, Any]) -> str:
    """Why the JetStream API refused; empty if it did not."""
    return "" if body.get("success") else str(body.get("error", {}).get("description", "refused"))
