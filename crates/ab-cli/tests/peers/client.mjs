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

// A command that goes on until it is ended, and a process that reads the other end of its pipe, which
// says when the command is there and when it is gone.
async function hold(pipe, options, caller = sdk) {
  await tool("exec", { command: `mkfifo ${pipe}` });
  const watch = await tool("exec", { command: `cat ${pipe}`, background: true });
  const { processId } = watch.structuredContent;
  const command = `exec 3> ${pipe}; echo open >&3; sleep 1000`;
  const refused = assert.rejects(tool("exec", { command, timeout: 1000 }, options, caller));
  const open = await tool("process_output", { processId, wait: 60 });
  assert.equal(open.structuredContent.content, "open\n");
  const cursor = open.structuredContent.nextCursor;
  const running = async (wait) => {
    const said = await tool("process_output", { processId, cursor, wait });
    return said.structuredContent.running;
  };
  return { refused, running };
}

async function ended(held) {
  await held.refused;
  assert.equal(await held.running(60), false, "the command goes on");
}

async function cancellation() {
  const abort = new AbortController();
  const held = await hold("aborted", { signal: abort.signal });
  abort.abort("enough");
  await ended(held);
  const hopeful = new AbortController();
  const onprogress = () => hopeful.abort("enough");
  await ended(await hold("hopeful", { signal: hopeful.signal, onprogress }));
  await ended(await hold("late", { timeout: 1000 }));
}

// Two clients whose calls have the same id: each ends only its own, by a cancellation or by leaving.
async function two() {
  const [one, other] = [generations[generation](), generations[generation]()];
  for (const caller of [one, other]) await caller.client.connect(transport());
  const abort = new AbortController();
  const first = await hold("first", { signal: abort.signal }, one);
  const second = await hold("second", {}, other);
  abort.abort("enough");
  await ended(first);
  assert.equal(await second.running(0), true, "the call of another client has ended");
  await other.client.close();
  await ended(second);
  await one.client.close();
}

await sdk.client.connect(transport());
const { tools } = await sdk.client.listTools();
const called = new Set(calls.map((call) => call.tool));
assert.deepEqual(tools.map((tool) => tool.name).sort(), [...called].sort(), "every tool is called");
for (const call of calls) await make(call);
await assert.rejects(tool("no_such_tool", {}), /no_such_tool/);
await progress();
await cancellation();
if (kind === "--http") await two();
console.log(`every tool, ${sdk.version()}`);
await sdk.client.close();
