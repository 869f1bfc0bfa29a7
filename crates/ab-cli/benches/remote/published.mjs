// The published client, timed from inside: the same calls to our daemon and to its own, in turn.
//
//   node published.mjs OURS PEER TOKEN ROOT SMALL LARGE ROUNDS
//
// Prints a figure for each row, daemon and round: milliseconds, or MB a second for large files.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.AB_PEERS}/npm/`);
const { RemoteFilesystemBackend } = require("agent-backend");

const [ours, peer, authToken, rootDir, small, large, rounds] = process.argv.slice(2);
const ports = { ours: Number(ours), peer: Number(peer) };

const now = () => Number(process.hrtime.bigint()) / 1e6;
const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const create = (port) =>
  new RemoteFilesystemBackend({ rootDir, host: "127.0.0.1", port, authToken });

// The median time of so many calls, one after the other.
async function typical(count, call) {
  const times = [];
  for (let n = 0; n < count; n++) {
    const begun = now();
    await call();
    times.push(now() - begun);
  }
  return median(times);
}

const connected = {};
for (const [who, port] of Object.entries(ports)) {
  connected[who] = create(port);
  const text = await connected[who].read(small);
  assert.equal(text.length, 1024, `${who} serves the files`);
}
const bytes = await connected.ours.read(large, { encoding: "buffer" });
const megabytes = bytes.length / 1e6;

const rows = {
  connect: async (who) => {
    const opened = [];
    const time = await typical(20, async () => {
      const backend = create(ports[who]);
      opened.push(backend);
      await backend.ensureSSHConnection();
    });
    for (const backend of opened) await backend.destroy();
    return time;
  },
  stat: (who) => typical(500, () => connected[who].stat(small)),
  read: (who) => typical(500, () => connected[who].read(small)),
  exec: (who) => typical(100, () => connected[who].exec("true")),
  large_read: async (who) => {
    const read = () => connected[who].read(large, { encoding: "buffer" });
    return (megabytes / (await typical(3, read))) * 1e3;
  },
  large_write: async (who) => {
    const write = () => connected[who].write(`written-${who}.bin`, bytes);
    return (megabytes / (await typical(3, write))) * 1e3;
  },
};

const figures = {};
for (const [name, measure] of Object.entries(rows)) {
  figures[name] = { ours: [], peer: [] };
  // What is compiled while it runs has its time before the first round.
  for (const who of Object.keys(ports)) await measure(who);
  for (let round = 0; round < Number(rounds); round++)
    for (const who of Object.keys(ports)) figures[name][who].push(await measure(who));
}
for (const who of Object.keys(ports)) {
  const back = await connected[who].read(`written-${who}.bin`, { encoding: "buffer" });
  assert.ok(bytes.equals(back), `${who} has what was written`);
  await connected[who].destroy();
}
console.log(JSON.stringify(figures));
// The client leaves timers behind.
process.exit(0);
