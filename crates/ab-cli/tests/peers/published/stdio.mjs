// The published adapter for the AI SDK of Vercel over backends that are no daemon's: it starts the
// agent-backend that it finds, and speaks to it by standard input and output.

import assert from "node:assert/strict";
import { published, require, root } from "./client.mjs";

const { VercelAIAdapter } = require("agent-backend/adapters");
const { LocalFilesystemBackend, MemoryBackend } = published;
const local = new LocalFilesystemBackend({ rootDir: root, isolation: "software" });

for (const backend of [local, new MemoryBackend({ rootDir: "/memory" })]) {
  const started = [];
  const make = backend.getMCPTransport.bind(backend);
  backend.getMCPTransport = async (...args) => {
    started.push(await make(...args));
    return started.at(-1);
  };
  const client = await new VercelAIAdapter(backend).getMCPClient();
  const tools = await client.tools();
  const call = (name, input) => tools[name].execute(input, { toolCallId: "1", messages: [] });
  await call("write_file", { path: "made.txt", content: "by the adapter" });
  const read = await call("read_text_file", { path: "made.txt" });
  assert.equal(read.content[0].text, "by the adapter", JSON.stringify(read));
  if (backend === local) assert.equal(await local.read("made.txt"), "by the adapter");

  // What it holds ends with the backend: the client, and the process that it started.
  const [transport] = started;
  assert.equal(transport.constructor.name, "StdioClientTransport");
  const { pid } = transport;
  process.kill(pid, 0);
  await backend.destroy();
  assert.throws(() => process.kill(pid, 0), { code: "ESRCH" }, "the server has ended");
  await assert.rejects(call("read_text_file", { path: "made.txt" }), "the client is closed");
}
console.log("stdio");
// The adapter leaves a timer of 15 s behind.
process.exit(0);
