// The official TypeScript clients: every call of calls.json, then progress and cancellation.
//
//   node client.mjs 1 --stdio PROGRAM ARGUMENT...
//   node client.mjs 2 --http URL TOKEN
//
// The first argument is the generation of the SDK: 1 speaks up to 2025-11-25, 2 asks for 2026-07-28.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [generation, kind, ...place] = process.argv.slice(2);
const require = createRequire(`${process.env.AB_PEERS}/npm/`);
const generations = { 1: first, 2: second };
const sdk = generations[generation]();
// Before 2026-07-28 a call over HTTP is cancelled by a message of its own, which cannot say whose call
// it means outside of a session: there a caller cancels by leaving.
const leaves = generation === "1" && kind === "--http" && !place[0].includes("session=");
const { calls } = JSON.parse(readFileSync(new URL("calls.json", import.meta.url)));

function first() {
  const name = "@modelcontextprotocol/sdk/client";
  const { Client } = require(`${name}/index.js`);
  const { StdioClientTransport } = require(`${name}/stdio.js`);
  const { StreamableHTTPClientTransport } = require(`${name}/streamableHttp.js`);
  const client = new Client({ name: "sdk 1", version: "0" });
  const call = (params, options) => client.callTool(params, undefined, options);
  const version = () => "handshake";
  return { client, call, version, StdioClientTransport, StreamableHTTPClientTransport };
}

function second() {
  const name = "@modelcontextprotocol/client";
  const { Client, StreamableHTTPClientTransport } = require(name);
  const { StdioClientTransport } = require(`${name}/stdio`);
  const negotiation = { versionNegotiation: { mode: "auto" } };
  const client = new Client({ name: "sdk 2", version: "0" }, negotiation);
  const call = (params, options) => client.callTool(params, options);
  const version = () => client.getNegotiatedProtocolVersion();
  return { client, call, version, StdioClientTransport, StreamableHTTPClientTransport };
}

function transport() {
  if (kind === "--stdio") {
    const [command, ...args] = place;
    return new sdk.StdioClientTransport({ command, args, stderr: "inherit" });
  }
  const [url, token] = place;
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  return new sdk.StreamableHTTPClientTransport(new URL(url), { requestInit });
}

const kept = {};
const known = (value) => (typeof value === "string" && value[0] === "$" ? kept[value.slice(1)] : value);

async function tool(name, args, options, by = sdk) {
  const filled = Object.fromEntries(Object.entries(args).map(([key, value]) => [key, known(value)]));
  return by.call({ name, arguments: filled }, options);
}

async function make(call) {
  const result = await tool(call.tool, call.arguments);
  const told = `${JSON.stringify(call)}\nanswered ${JSON.stringify(result)}`;
  const [block] = result.content;
  assert.equal(result.isError ?? false, "refused" in call, told);
  if (call.refused) assert.equal(result._meta["agent-backend/error"].code, call.refused, told);
  if (call.block) assert.equal(block.type, call.block, told);
  if (call.text !== undefined) assert.equal(block.text, call.text, told);
  for (const part of call.says ?? []) assert.ok(block.text.includes(part), `${part} not in ${told}`);
  for (const [name, value] of Object.entries(call.value ?? {}))
    assert.deepEqual(result.structuredContent[name], value, told);
  for (const [name, field] of Object.entries(call.keep ?? {}))
    kept[name] = result.structuredContent[field];
}

// The command ends when it is told to, and it is told when there was progress.
async function progress() {
  await tool("exec", { command: "mkfifo go" });
  const heard = [];
  let told;
  const onprogress = (note) => {
    heard.push(note);
    told ??= tool("exec", { command: "echo on > go" });
  };
  const result = await tool("exec", { command: "cat go" }, { onprogress });
  assert.equal(result.structuredContent.stdout, "on\n");
  await told;
  assert.ok(heard[0].progress > 0 && heard[0].message.includes("bytes said"), JSON.stringify(heard));
}

// Both ends of the pipe are open before the call is cancelled; its other end says when it is gone.
async function cancellation() {
  await tool("exec", { command: "mkfifo held" });
  const watch = await tool("exec", { command: "cat held", background: true });
  const { processId } = watch.structuredContent;
  const caller = leaves ? generations[generation]() : sdk;
  if (leaves) await caller.client.connect(transport());
  const abort = new AbortController();
  const command = "exec 3> held; echo open >&3; sleep 1000";
  const held = tool("exec", { command }, { signal: abort.signal }, caller);
  const refused = assert.rejects(held);
  const open = await tool("process_output", { processId, wait: 60 });
  assert.equal(open.structuredContent.content, "open\n");
  if (leaves) await caller.client.close();
  else abort.abort("enough");
  await refused;
  const cursor = open.structuredContent.nextCursor;
  const gone = await tool("process_output", { processId, cursor, wait: 60 });
  assert.equal(gone.structuredContent.running, false, JSON.stringify(gone));
}

await sdk.client.connect(transport());
const { tools } = await sdk.client.listTools();
const called = new Set(calls.map((call) => call.tool));
assert.deepEqual(tools.map((tool) => tool.name).sort(), [...called].sort(), "every tool is called");
for (const call of calls) await make(call);
await assert.rejects(tool("no_such_tool", {}), /no_such_tool/);
await progress();
await cancellation();
console.log(`every tool, ${sdk.version()}`);
await sdk.client.close();
