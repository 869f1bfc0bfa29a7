// A wrong token: the client is told so, and does not come again.

import assert from "node:assert/strict";
import { connect, fails } from "./client.mjs";

// It would come again at once, if it did.
const reconnection = { initialDelayMs: 1, maxDelayMs: 1, maxRetries: 5 };
const states = [];
for (const authToken of ["wrong", undefined]) {
  const backend = connect({ authToken, reconnection });
  backend.onStatusChange((change) => states.push(change.to));
  await fails(backend.exec("true"), "AUTH_FAILED", /4001 Unauthorized/, `exec with ${authToken}`);
  assert.equal(backend.status, "disconnected");
}
// Node ends when nothing is left to do: an attempt that was on its way would have been made.
process.on("exit", () => {
  const attempts = states.filter((state) => state !== "disconnected");
  assert.deepEqual(attempts, ["connecting", "connecting"], "one attempt for each");
  console.log("refused");
});
