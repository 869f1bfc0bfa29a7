// The published client's pool: one connection for each key.

import assert from "node:assert/strict";
import { config, published } from "./client.mjs";

const { BackendPoolManager, RemoteFilesystemBackend } = published;
const pool = new BackendPoolManager({ backendClass: RemoteFilesystemBackend, defaultConfig: config });
const kept = [];
for (const key of ["alice", "bob", "alice"]) {
  await pool.withBackend({ key }, async (backend) => {
    await backend.scope(key).write("mine.txt", key);
    kept.push(backend);
  });
}
assert.ok(kept[0] === kept[2], "a key finds its connection again");
assert.ok(kept[0] !== kept[1], "another key has another");
const { totalBackends, activeBackends, idleBackends } = pool.getStats();
assert.deepEqual([totalBackends, activeBackends, idleBackends], [2, 0, 2], "two, both at rest");

const work = (number) =>
  pool.withBackend({ key: "alice" }, async (backend) => {
    await backend.write(`pool/${number}`, `${number}`);
    return backend.exec(`cat pool/${number}`);
  });
const numbers = [...Array(20).keys()];
assert.deepEqual(await Promise.all(numbers.map(work)), numbers.map(String), "20 users of one");

await pool.destroyAll();
assert.deepEqual(kept.map((backend) => backend.status), Array(3).fill("destroyed"));
assert.equal(pool.getStats().totalBackends, 0);
// The pool opens a connection anew for a key that it has forgotten.
assert.equal(await pool.withBackend({ key: "bob" }, (backend) => backend.read("bob/mine.txt")), "bob");
await pool.destroyAll();
console.log("pool");
