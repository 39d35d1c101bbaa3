// A newcomer with the official JavaScript clients: streams, pull and push consumers, ordered reading.
// node consumers.mjs PORT
import assert from "node:assert/strict";
import { connect, nanos, deadline } from "@nats-io/transport-node";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";

const nc = await connect({ port: Number(process.argv[2]) });
const jsm = await jetstreamManager(nc);
const js = jetstream(nc);

await jsm.streams.add({ name: "ORDERS", subjects: ["orders.>"] });
for (let number = 1; number <= 20; number++) {
  const ack = await js.publish(`orders.${number % 2 ? "odd" : "even"}`, `order ${number}`, { msgID: `id-${number}` });
  assert.equal(ack.seq, number);
}
assert.equal((await js.publish("orders.odd", "again", { msgID: "id-1" })).duplicate, true);

// pull: fetch, next, consume, with every word of an acknowledgement
await jsm.consumers.add("ORDERS", {
  durable_name: "worker",
  ack_policy: AckPolicy.Explicit,
  ack_wait: nanos(1000),
  max_deliver: 3,
  filter_subject: "orders.odd",
});
const worker = await js.consumers.get("ORDERS", "worker");
const seen = [];
for await (const message of await worker.fetch({ max_messages: 5, expires: 2000 })) {
  seen.push(message.seq);
  assert.equal(await message.ackAck(), true);
}
assert.deepEqual(seen, [1, 3, 5, 7, 9]);
const one = await worker.next({ expires: 2000 });
one.nak(100);
const again = await worker.next({ expires: 2000 });
assert.equal(again.seq, 13);
again.term("no use");
const back = await worker.next({ expires: 2000 });
assert.deepEqual([back.seq, back.info.deliveryCount], [15, 1]);
back.working();
back.ack();
let count = 0;
const messages = await worker.consume({ max_messages: 10 });
for await (const message of messages) {
  message.ack();
  count++;
  if (message.info.pending === 0 && count >= 3) break;
}
assert.equal(count, 3); // 11 came back, 17 and 19 were left
await nc.flush();
const info = await worker.info();
assert.deepEqual([info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq], [0, 0, 19]);
assert.equal(await worker.next({ expires: 1000 }), null);

// push, with flow control and heartbeats
await jsm.consumers.add("ORDERS", {
  name: "pushed",
  deliver_subject: "to.me",
  ack_policy: AckPolicy.None,
  deliver_policy: DeliverPolicy.StartSequence,
  opt_start_seq: 11,
  flow_control: true,
  idle_heartbeat: nanos(1000),
});
const pushed = await js.consumers.getPushConsumer("ORDERS", "pushed");
const got = [];
for await (const message of await pushed.consume()) {
  got.push(message.seq);
  if (message.seq === 20) break;
}
assert.deepEqual(got, [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);

// ordered reading, twice: nothing is left behind
for (let round = 0; round < 2; round++) {
  const ordered = await js.consumers.get("ORDERS", { filter_subjects: ["orders.even"] });
  const found = [];
  for await (const message of await ordered.fetch({ max_messages: 10, expires: 2000 })) found.push(message.seq);
  assert.deepEqual(found, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
  await ordered.delete();
}
const names = [];
for await (const consumer of jsm.consumers.list("ORDERS")) names.push(consumer.name);
assert.deepEqual(names.sort(), ["pushed", "worker"]);

// pausing and going on
const until = new Date(Date.now() + 60_000);
assert.equal((await jsm.consumers.pause("ORDERS", "worker", until)).paused, true);
assert.equal((await jsm.consumers.resume("ORDERS", "worker")).paused, false);

// priority groups: a pinned client
await jsm.consumers.add("ORDERS", {
  durable_name: "pinned",
  ack_policy: AckPolicy.Explicit,
  priority_groups: ["jobs"],
  priority_policy: "pinned_client",
  priority_timeout: nanos(5000),
});
const pinned = await js.consumers.get("ORDERS", "pinned");
const first = await pinned.next({ expires: 2000, group: "jobs" });
assert.ok(first.headers.get("Nats-Pin-Id"));
first.ack();
await jsm.consumers.unpin("ORDERS", "pinned", "jobs");

await assert.rejects(jsm.consumers.info("ORDERS", "nobody"), /consumer not found/);
assert.equal(await jsm.consumers.delete("ORDERS", "worker"), true);
assert.equal(await jsm.streams.delete("ORDERS"), true);
await nc.close();
console.log("done");
