// The published adapter for the AI SDK of Vercel: tools that a model would call.

import assert from "node:assert/strict";
import { connect, require } from "./client.mjs";

const { VercelAIAdapter } = require("agent-backend/adapters");
const backend = connect();
for (const [place, shown] of [[backend, "made.txt"], [backend.scope("inner"), "inner/made.txt"]]) {
  const client = await new VercelAIAdapter(place).getMCPClient();
  const tools = await client.tools();
  assert.ok("exec" in tools && "write_file" in tools, Object.keys(tools).join());
  const call = (name, input) => tools[name].execute(input, { toolCallId: "1", messages: [] });
  await call("write_file", { path: "made.txt", content: "by the adapter" });
  assert.equal(await backend.read(shown), "by the adapter", shown);
  const read = await call("read_text_file", { path: "made.txt" });
  assert.equal(read.content[0].text, "by the adapter", JSON.stringify(read));
  await client.close();
}
await backend.destroy();
console.log("vercel");
// The adapter leaves a timer of 15 s behind.
process.exit(0);
