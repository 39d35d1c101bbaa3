// A newcomer with the official JavaScript clients: streams, and all that can be published to them.
// node streams.mjs PORT
import assert from "node:assert/strict";
import { connect, headers, nanos, delay } from "@nats-io/transport-node";
import { startFastIngest } from "@nats-io/jetstream/internal";
import { DiscardPolicy, JetStreamApiError, RetentionPolicy, StorageType, jetstream, jetstreamManager } from "@nats-io/jetstream";

const nc = await connect({ port: Number(process.argv[2]) });
const jsm = await jetstreamManager(nc);
const js = jetstream(nc);

async function collect(iterator) {
  const found = [];
  for await (const one of iterator) found.push(one);
  return found;
}

async function refused(promise, code) {
  await assert.rejects(promise, (error) => error instanceof JetStreamApiError && error.code === code);
}

// administration: add, info, update, names, list, find, purge, delete a message, delete
let info = await jsm.streams.add({ name: "S", subjects: ["s.>"], allow_direct: true, storage: StorageType.Memory });
assert.equal(info.config.storage, "memory");
for (let number = 1; number <= 12; number++) await js.publish(`s.${number % 3}`, `${number}`);
info = await jsm.streams.info("S", { subjects_filter: ">" });
assert.deepEqual(info.state.subjects, { "s.0": 4, "s.1": 4, "s.2": 4 });
assert.equal(await jsm.streams.deleteMessage("S", 5, false), true);
info = await jsm.streams.info("S", { deleted_details: true });
assert.deepEqual(info.state.deleted, [5]);
assert.equal((await jsm.streams.purge("S", { filter: "s.1", keep: 1 })).purged, 3);
info = await jsm.streams.update("S", { max_msgs_per_subject: 2 });
assert.equal(info.state.messages, 5);
assert.equal(await jsm.streams.find("s.x"), "S");
assert.deepEqual(await collect(jsm.streams.names("s.0")), ["S"]);
assert.deepEqual((await collect(jsm.streams.list())).map((one) => one.config.name), ["S"]);
await refused(jsm.streams.add({ name: "T", subjects: ["s.1"] }), 10065);

// reading: stored messages, direct gets of one, of a batch, of the last of each subject
assert.equal((await jsm.streams.getMessage("S", { last_by_subj: "s.2" })).string(), "11");
assert.equal(await jsm.streams.getMessage("S", { seq: 5 }), null);
assert.equal((await jsm.direct.getMessage("S", { next_by_subj: "s.0", seq: 10 })).seq, 12);
const batch = await collect(await jsm.direct.getBatch("S", { seq: 9, batch: 10 }));
assert.deepEqual(batch.map((one) => one.seq), [9, 10, 11, 12]);
const last = await collect(await jsm.direct.getLastMessagesFor("S", { multi_last: ["s.>"] }));
assert.deepEqual(last.map((one) => one.string()), ["10", "11", "12"]);

// expectations and roll-ups
await jsm.streams.update("S", { allow_rollup_hdrs: true });
await refused(js.publish("s.0", "x", { expect: { lastSequence: 5 } }), 10071);
await refused(js.publish("s.0", "x", { expect: { streamName: "T" } }), 10060);
await js.publish("s.0", "x", { expect: { lastSubjectSequence: 12, lastSequence: 12 } });
const rollup = headers();
rollup.set("Nats-Rollup", "all");
await js.publish("s.0", "alone", { headers: rollup });
assert.equal((await jsm.streams.info("S")).state.messages, 1);

// messages that end, delete markers
await jsm.streams.add({ name: "TTL", subjects: ["ttl.>"], allow_direct: true, max_msgs_per_subject: 1, subject_delete_marker_ttl: nanos(60_000) });
await js.publish("ttl.x", "soon gone", { ttl: "1s" });
await refused(js.publish("ttl.x", "", { ttl: "soon" }), 10165);
let marker;
for (let tries = 0; tries < 50; tries++) {
  marker = await jsm.direct.getMessage("TTL", { last_by_subj: "ttl.x" });
  if (marker.header.get("Nats-Marker-Reason")) break;
  await delay(100);
}
assert.equal(marker.header.get("Nats-Marker-Reason"), "MaxAge");

// schedules
await jsm.streams.add({ name: "CLOCK", subjects: ["clock.>"], allow_msg_schedules: true, allow_direct: true });
const soon = new Date(Date.now() + 700);
await js.publish("clock.once", "once", { schedule: { specification: soon, target: "clock.out.once" } });
await js.publish("clock.every", "every", { schedule: { specification: { every: "1s" }, target: "clock.out.every" } });
await js.publish("clock.cron", "cron", {
  schedule: { specification: { cron: "* * * * * *" }, target: "clock.out.cron", timezone: "Europe/Berlin", rollup: "sub" },
});
await refused(js.publish("clock.bad", "", { schedule: { specification: "@never", target: "clock.out" } }), 10189);
await delay(2300);
const fired = (await jsm.streams.info("CLOCK", { subjects_filter: "clock.out.>" })).state.subjects;
assert.equal(fired["clock.out.once"], 1);
assert.equal(fired["clock.out.cron"], 1);
assert.ok(fired["clock.out.every"] >= 2);
await js.publish("clock.stop", "", { cancelSchedule: { scheduleSubject: "clock.every" } });
assert.equal(await jsm.direct.getMessage("CLOCK", { last_by_subj: "clock.every" }), null);

// atomic and fast batches
await jsm.streams.add({ name: "BATCH", subjects: ["batch.>"], allow_atomic: true, allow_batched: true });
const atomic = await js.startBatch("batch.a", "1");
atomic.add("batch.a", "2");
await atomic.add("batch.b", "3", { ack: true });
assert.equal((await jsm.streams.info("BATCH")).state.messages, 0);
const done = await atomic.commit("batch.a", "4");
assert.deepEqual([done.seq, done.count], [4, 4]);
const fast = await startFastIngest(nc, "batch.f", "1", { ackInterval: 5 });
for (let number = 2; number < 40; number++) await fast.add("batch.f", `${number}`);
await fast.ping();
const ingested = await fast.last("batch.f", "40");
assert.deepEqual([ingested.seq, ingested.count], [44, 40]);

// counters
await jsm.streams.add({ name: "HITS", subjects: ["hits.>"], allow_msg_counter: true, allow_direct: true });
for (const [increment, total] of [["5", "5"], ["-2", "3"], ["10000000000000000000000", "10000000000000000000003"]]) {
  const counted = headers();
  counted.set("Nats-Incr", increment);
  assert.equal((await js.publish("hits.page", "", { headers: counted })).val, total);
}
assert.deepEqual((await jsm.direct.getMessage("HITS", { last_by_subj: "hits.page" })).json(), { val: "10000000000000000000003" });

// republishing, with a transform of subjects
await jsm.streams.add({
  name: "AGAIN",
  subjects: ["again.>"],
  subject_transform: { src: "again.*", dest: "again.to.{{wildcard(1)}}" },
  republish: { src: "again.to.>", dest: "copy.>", headers_only: true },
});
const copies = nc.subscribe("copy.>", { max: 1 });
await nc.flush();
await js.publish("again.x", "four");
for await (const copy of copies) {
  assert.equal(copy.subject, "copy.x");
  assert.deepEqual([copy.data.length, copy.headers.get("Nats-Msg-Size"), copy.headers.get("Nats-Stream")], [0, "4", "AGAIN"]);
}

// limits that refuse, denial, sealing
await jsm.streams.add({ name: "FULL", subjects: ["full"], max_msgs: 1, discard: DiscardPolicy.New, retention: RetentionPolicy.Limits });
await js.publish("full", "x");
await refused(js.publish("full", "x"), 10077);
await jsm.streams.update("FULL", { sealed: true });
await refused(js.publish("full", "x"), 10109);
await refused(jsm.streams.purge("FULL"), 10109);
assert.equal(await jsm.streams.delete("FULL"), true);
await refused(jsm.streams.info("FULL"), 10059);

await nc.close();
console.log("done");
