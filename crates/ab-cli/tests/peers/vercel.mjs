// The MCP client of the AI SDK of Vercel, with its own transport: a call that is aborted ends its
// command. The client closes the request; it sends no cancellation.
//
//   node vercel.mjs URL TOKEN

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [url, token] = process.argv.slice(2);
const require = createRequire(`${process.env.AB_PEERS}/npm/`);
const { createMCPClient } = require("@ai-sdk/mcp");
const headers = { Authorization: `Bearer ${token}` };
const client = await createMCPClient({ transport: { type: "http", url, headers } });
const tools = await client.tools();
const call = (name, input, options) =>
  tools[name].execute(input, { toolCallId: "1", messages: [], ...options });

// The pipe that the command holds open says when it is there and when it is gone.
await call("exec", { command: "mkfifo held" });
const watch = await call("exec", { command: "cat held", background: true });
const { processId } = watch.structuredContent;
const abort = new AbortController();
const command = "exec 3> held; echo open >&3; sleep 1000";
const held = call("exec", { command, timeout: 1000 }, { abortSignal: abort.signal });
const refused = assert.rejects(held);
const open = await call("process_output", { processId, wait: 60 });
assert.equal(open.structuredContent.content, "open\n");
abort.abort("enough");
await refused;
const cursor = open.structuredContent.nextCursor;
const gone = await call("process_output", { processId, cursor, wait: 60 });
assert.equal(gone.structuredContent.running, false, JSON.stringify(gone));
await client.close();
console.log("aborted");
