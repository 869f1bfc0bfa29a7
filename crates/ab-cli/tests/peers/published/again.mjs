// The daemon ends and another begins at the same port: the client finds it by itself.
//
// A line on standard output says that the daemon may go.

import assert from "node:assert/strict";
import { connect } from "./client.mjs";

// As often as it takes.
const reconnection = { initialDelayMs: 20, maxDelayMs: 100, maxRetries: 0 };
const backend = connect({ reconnection });
await backend.write("before.txt", "before");
const closed = [];
backend.wsTransport.on("close", (code, reason) => code && closed.push([code, reason]));
const back = new Promise((resolve) => {
  const states = [];
  backend.onStatusChange((change) => {
    states.push(change.to);
    if (change.to === "connected") resolve(states);
  });
});
console.log("connected");
const states = await back;
assert.equal(states[0], "disconnected", `${states}`);
assert.ok(states.includes("reconnecting"), `${states}`);
assert.deepEqual(closed, [[1000, "Server shutting down"]], "the daemon said why it went");
assert.equal(await backend.read("before.txt"), "before", "files after the restart");
assert.equal(await backend.exec("echo after"), "after", "commands after the restart");
await backend.destroy();
console.log("again");
