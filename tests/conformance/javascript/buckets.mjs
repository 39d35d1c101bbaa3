// A newcomer with the official JavaScript clients: key-value buckets and object stores.
// node buckets.mjs PORT
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { connect } from "@nats-io/transport-node";
import { jetstreamManager } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";

const nc = await connect({ port: Number(process.argv[2]) });
const kvm = new Kvm(nc);
const objm = new Objm(nc);
const jsm = await jetstreamManager(nc);

const kv = await kvm.create("users", { history: 5, markerTTL: 2000 });
assert.equal(await kv.put("ada", "1"), 1);
assert.equal(await kv.create("bob", "b"), 2);
await assert.rejects(kv.create("bob", "c"), /wrong last sequence/);
assert.equal(await kv.update("ada", "2", 1), 3);
await assert.rejects(kv.update("ada", "3", 1), /wrong last sequence/);
const entry = await kv.get("ada");
assert.deepEqual([entry.string(), entry.revision, entry.operation], ["2", 3, "PUT"]);
assert.equal((await kv.get("ada", { revision: 1 })).string(), "1");
assert.equal(await kv.get("nobody"), null);

const watched = [];
const watcher = await kv.watch({ key: ">", ignoreDeletes: false });
const watching = (async () => {
  for await (const found of watcher) {
    watched.push(`${found.key} ${found.operation} ${found.string()}`);
    if (found.key === "last") break;
  }
})();
await kv.delete("bob");
await kv.purge("ada");
await kv.put("last", "!");
await watching;
assert.deepEqual(watched.filter((text) => !text.startsWith("ada PUT 1")).slice(-3), ["bob DEL ", "ada PURGE ", "last PUT !"]);

const history = [];
for await (const found of await kv.history({ key: "bob" })) history.push(found.operation);
assert.deepEqual(history, ["PUT", "DEL"]);
for (const key of ["a.1", "a.2", "b.1"]) await kv.put(key, key);
const listed = async (filter) => {
  const keys = [];
  for await (const key of await kv.keys(filter)) keys.push(key);
  return keys.sort();
};
assert.deepEqual(await listed("a.>"), ["a.1", "a.2"]);
assert.deepEqual(await listed("*.1"), ["a.1", "b.1"]);
assert.deepEqual(await listed(), ["a.1", "a.2", "b.1", "last"]);
await kv.create("shortlived", "x", "1s");
await new Promise((resolve) => setTimeout(resolve, 2500));
assert.equal((await kv.get("shortlived"))?.operation ?? "PURGE", "PURGE");
await kv.purgeDeletes(0);
const status = await kv.status();
assert.deepEqual([status.bucket, status.history], ["users", 5]);

await kvm.create("copies", { mirror: { name: "users" } });
const mirror = await kvm.open("copies");
const sizes = async () => [(await kv.status()).values, (await mirror.status()).values];
for (let left = 50; left && new Set(await sizes()).size > 1; left--) await new Promise((resolve) => setTimeout(resolve, 100));
assert.equal(new Set(await sizes()).size, 1);
const names = [];
for await (const bucket of await kvm.list()) names.push(bucket.bucket);
assert.deepEqual(names.sort(), ["copies", "users"]);
assert.equal(await mirror.destroy(), true);
assert.equal(await kv.destroy(), true);

// objects
const store = await objm.create("files", { description: "of a newcomer", compression: true });
const content = randomBytes(3_000_001);
const info = await store.putBlob({ name: "big", description: "random", headers: undefined }, content);
assert.deepEqual([info.size, info.chunks], [3_000_001, 23]);
const digest = createHash("sha256").update(content).digest("base64url");
assert.equal(info.digest.replace(/=+$/, ""), `SHA-256=${digest}`);
assert.deepEqual(Buffer.from(await store.getBlob("big")), content);
await store.putBlob({ name: "big" }, randomBytes(1000));
const subjects = (await jsm.streams.info("OBJ_files", { subjects_filter: "$O.files.C.>" })).state.subjects;
assert.equal(Object.keys(subjects).length, 1);
await store.link("alias", await store.info("big"));
assert.equal((await store.getBlob("alias")).length, 1000);
const other = await objm.create("others");
await other.linkStore("elsewhere", store);
assert.equal((await other.info("elsewhere")).options.link.bucket, "files");
await store.update("big", { name: "renamed", description: "moved" });
assert.equal((await store.info("renamed")).description, "moved");
assert.deepEqual((await store.list()).map((one) => one.name).sort(), ["alias", "renamed"]);
const changes = await store.watch({ includeHistory: true });
const changed = [];
for await (const one of changes) {
  if (one === null || changed.push(one.name) >= 2) break;
}
assert.ok(changed.includes("renamed"));
assert.equal((await store.delete("renamed")).success, true);
assert.equal(await store.get("renamed"), null);
await store.seal();
await assert.rejects(store.putBlob({ name: "late" }, content), /sealed/);
assert.equal((await store.status()).sealed, true);
assert.equal(await other.destroy(), true);
await nc.close();
console.log("done");
