"""Reads each replica of a stream by itself, through a consumer whose only copy the cluster has placed on that node.

Direct gets are answered by any replica, and where the cluster puts a consumer with one replica is drawn: so consumers
are made until every node has got one. Such a consumer reads the store of the node that it lives on.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from tnats.client import Client, ClientError
from tnats.client.jetstream import AckPolicy, Consumer, ConsumerConfig, JetStream
from tnats.harness.checkers.evidence import Evidence, Replica, Stored
from tnats.harness.real.processes import ServerProcess
from tnats.harness.workloads.jetstream import STREAM, decode
from tnats.limits import SECOND_NS

TIMEOUT_S = 3.0
"""Short, since a request that would place a consumer on a node that is not well may never be answered."""
FETCH_COUNT = 500
SILENCES_MAX = 3
"""Empty answers in a row, though messages are pending, after which reading ends."""
TRIES_PER_NODE = 16
"""With five nodes, eighty draws miss one of them once in ten million times."""
PLACE_S = 40.0
RETRY_NS = SECOND_NS // 5
"""Pause after a request that failed: while nobody leads each is refused at once, and an election takes seconds."""


async def read_replicas(client: Client, servers: Mapping[str, ServerProcess], evidence: Evidence) -> list[Replica]:
    """What each of `servers` (by node) holds of the stream. A failure to read is noted, not raised."""
    js = JetStream(client, timeout_s=TIMEOUT_S)
    consumers: dict[str, Consumer] = {}
    failure = "no consumer was placed on it"
    try:
        consumers = await place_consumers(js, {server.server_name: node for node, server in servers.items()})
    except ClientError as exc:
        failure = f"{type(exc).__name__}: {exc}"
    replicas = []
    for node, server in servers.items():
        replica = Replica(
            node, {}, failure="" if node in consumers else failure, health=(await server.health()).complaint
        )
        if node in consumers:
            await read_through(consumers[node], replica)
            acked = {int(operation.told("seq")) for operation in evidence.acked()}
            replica.missing = dict.fromkeys(sorted(acked - replica.messages.keys()), "")
        replicas.append(replica)
    return replicas


async def place_consumers(js: JetStream, nodes: Mapping[str, str]) -> dict[str, Consumer]:
    """A consumer on each node (`nodes` by the servers' names), as far as they can be had. Raises ClientError."""
    placed: dict[str, Consumer] = {}
    config = ConsumerConfig(
        ack_policy=AckPolicy.NONE, num_replicas=1, mem_storage=True, inactive_threshold_ns=300 * SECOND_NS
    )
    failure: ClientError | None = None
    with trio.move_on_after(PLACE_S):
        for _ in range(TRIES_PER_NODE * len(nodes)):
            try:
                consumer = await js.stream(STREAM).create_consumer(config)
                info = await consumer.info()
            except ClientError as exc:
                failure = exc
                await js.client.runtime.clock.sleep_ns(RETRY_NS)
                continue
            node = nodes.get(info.cluster.leader if info.cluster is not None else "")
            if node is not None:
                placed.setdefault(node, consumer)
            if len(placed) == len(nodes):
                return placed
    if not placed and failure is not None:
        raise failure
    return placed


async def read_through(consumer: Consumer, replica: Replica) -> None:
    """Everything that the consumer delivers, until nothing is pending."""
    silence_count = 0
    try:
        while silence_count < SILENCES_MAX:
            batch = await consumer.fetch(FETCH_COUNT, no_wait=True)
            for message in batch:
                about = message.metadata
                stored = Stored(decode(message.data), message.subject, about.time_ns)
                replica.messages[about.stream_sequence] = stored
            if batch and batch[-1].metadata.pending_count:
                silence_count = 0
                continue
            info = await consumer.info()
            if not info.num_pending:
                break
            silence_count += not batch
        else:
            replica.failure = "its consumer says that messages are pending, and delivers none"
    except ClientError as exc:
        replica.failure = f"{type(exc).__name__}: {exc}"
    replica.last_seq = max(replica.messages, default=0)
