// The published SDK of sandbox-agent, and the client of ACP over HTTP below it, on the agent gateway.
//
//   node sandbox_agent.mjs URL TOKEN ROOT
//
// ROOT is the served directory. Its scenario has the turns that are named below.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [baseUrl, token, root] = process.argv.slice(2);
const modules = `${process.env.AB_PEERS}/npm/node_modules`;
// Both packages offer themselves to import only.
const load = (name) => import(pathToFileURL(`${modules}/${name}/dist/index.js`));
const { SandboxAgent } = await load("sandbox-agent");
const { AcpHttpClient, PROTOCOL_VERSION } = await load("acp-http-client");

/** Waits until `found` gives something. */
async function until(what, found) {
  const deadline = Date.now() + 30_000;
  for (;;) {
    const value = await found();
    if (value) return value;
    assert.ok(Date.now() < deadline, `${what} did not come`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const texts = (updates) =>
  updates
    .filter((update) => update.sessionUpdate === "agent_message_chunk")
    .map((update) => update.content.text)
    .join("");

async function refused(promise, status, code) {
  const error = await promise.then(() => assert.fail("it was not refused"), (error) => error);
  assert.equal(error.status, status, error.message);
  assert.equal(error.problem.type, `urn:sandbox-agent:error:${code}`);
}

// --- sandbox-agent ---------------------------------------------------------------------------------

const sandbox = await SandboxAgent.connect({ baseUrl, token });
assert.equal((await sandbox.getHealth()).status, "ok");
assert.ok((await sandbox.listAgents()).agents.some((agent) => agent.installed));
assert.equal((await sandbox.getAgent("mock")).installed, true);
assert.equal((await sandbox.installAgent("mock", {})).already_installed, true);

const session = await sandbox.createSession({ agent: "mock", cwd: root });
const updates = [];
session.onEvent((event) => {
  if (event.payload.method === "session/update") updates.push(event.payload.params.update);
});
let asked = 0;
session.onPermissionRequest((request) => {
  asked += 1;
  void session.respondPermission(request.id, "once");
});
// Turn 1: asks, writes and reports.
const first = await session.prompt([{ type: "text", text: "Write it down" }]);
assert.equal(first.stopReason, "end_turn");
assert.equal(asked, 1);
assert.equal(readFileSync(`${root}/made.txt`, "utf8"), "Write it down\n");
await until("the report", () => texts(updates).includes("It is written."));
const { servers } = await sandbox.listAcpServers();
assert.equal(servers.length, 1);
assert.equal(servers[0].status, "running");

// Files.
await sandbox.mkdirFs({ path: `${root}/made` });
const body = new Uint8Array(3 * 1024 * 1024).fill(7);
const written = await sandbox.writeFsFile({ path: `${root}/made/large` }, body);
assert.deepEqual(written, { path: `${root}/made/large`, bytesWritten: body.length });
assert.deepEqual(new Uint8Array(await sandbox.readFsFile({ path: "made/large" })), body);
const listed = await sandbox.listFsEntries({ path: "made" });
assert.deepEqual(listed.map(({ name, entryType, size }) => ({ name, entryType, size })), [
  { name: "large", entryType: "file", size: body.length },
]);
const moved = await sandbox.moveFs({ from: "made/large", to: "made/below/small" });
assert.deepEqual(moved, { from: `${root}/made/large`, to: `${root}/made/below/small` });
assert.equal((await sandbox.statFs({ path: "made/below" })).entryType, "directory");
const tar = readFileSync(`${root}/batch.tar`);
const batch = await sandbox.uploadFsBatch(tar, { path: "unpacked" });
assert.deepEqual(batch.paths.sort(), [`${root}/unpacked/a`, `${root}/unpacked/a/b.txt`]);
assert.equal(readFileSync(`${root}/unpacked/a/b.txt`, "utf8"), "packed\n");
await refused(sandbox.deleteFsEntry({ path: "made" }), 409, "conflict");
await sandbox.deleteFsEntry({ path: "made", recursive: true });
await refused(sandbox.statFs({ path: "made" }), 400, "invalid_request");
await refused(sandbox.readFsFile({ path: "/etc/hostname" }), 403, "permission_denied");

// Configuration.
const server = { type: "local", command: "npx", args: ["-y", "server"] };
const named = { directory: root, mcpName: "one" };
await sandbox.setMcpConfig(named, server);
assert.deepEqual(await sandbox.getMcpConfig(named), server);
await sandbox.deleteMcpConfig(named);
await refused(sandbox.getMcpConfig(named), 404, "session_not_found");
const skills = { sources: [{ type: "github", source: "owner/repo", skills: ["a"], ref: "main" }] };
const skill = { directory: root, skillName: "one" };
await sandbox.setSkillsConfig(skill, skills);
assert.deepEqual(await sandbox.getSkillsConfig(skill), skills);
await sandbox.deleteSkillsConfig(skill);

const disposing = Date.now();
await sandbox.dispose();
assert.ok(Date.now() - disposing < 1_900, "dispose waited for its own deadline");
const authorization = { authorization: `Bearer ${token}` };
const left = await (await fetch(`${baseUrl}/v1/acp`, { headers: authorization })).json();
assert.deepEqual(left.servers, []);

// --- acp-http-client -------------------------------------------------------------------------------

/** A client on the server `id`, with its streams of events, which `cut` ends. */
async function connect(id, permission = "allow_once") {
  const streams = [];
  const state = { updates: [], lastEventIds: [], gaps: 0, cut: () => streams.pop()?.abort() };
  const fetcher = async (url, init) => {
    if (init?.method !== "GET") return fetch(url, init);
    await state.hold;
    const abort = new AbortController();
    init.signal.addEventListener("abort", () => abort.abort());
    const response = await fetch(url, { ...init, signal: abort.signal });
    if (!response.ok) return response;
    state.lastEventIds.push(init.headers.get("last-event-id"));
    streams.push(abort);
    // A stream that is cut ends; it does not fail.
    const reader = response.body.getReader();
    const body = new ReadableStream({
      async pull(controller) {
        const { done, value } = await reader.read().catch(() => ({ done: true }));
        if (done) return controller.close();
        if (new TextDecoder().decode(value).includes("event: gap")) state.gaps += 1;
        controller.enqueue(value);
      },
    });
    return new Response(body, { status: response.status, headers: response.headers });
  };
  const client = new AcpHttpClient({
    baseUrl,
    token,
    fetch: fetcher,
    transport: { path: `/v1/acp/${id}`, bootstrapQuery: { agent: "mock" } },
    client: {
      sessionUpdate: async ({ update }) => void state.updates.push(update),
      requestPermission: async ({ options }) => {
        const option = options.find((option) => option.kind === permission);
        return { outcome: { outcome: "selected", optionId: option.optionId } };
      },
    },
  });
  await client.initialize({ protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await client.newSession({ cwd: root, mcpServers: [] });
  const prompt = (text) => client.prompt({ sessionId, prompt: [{ type: "text", text }] });
  return { client, sessionId, prompt, state };
}

const { client, sessionId, prompt, state } = await connect("cut");
assert.equal((await prompt("one")).stopReason, "end_turn");
// Turn 2: says that it hangs, and hangs until it is cancelled.
const hanging = prompt("two");
await until("the second turn", () => texts(state.updates).includes("hanging"));
state.cut();
await client.cancel({ sessionId });
assert.equal((await hanging).stopReason, "cancelled");
await until("another stream", () => state.lastEventIds.some((id) => id !== null));
assert.equal(state.gaps, 0);
// Turn 3: more events than the server keeps, while the client reads none.
const before = state.lastEventIds.length;
let release;
state.hold = new Promise((resolve) => (release = resolve));
state.cut();
await prompt("three");
release();
await until("a stream across the gap", () => state.lastEventIds.length > before && state.gaps > 0);
await until("the end of the flood", () => texts(state.updates).endsWith("flooded"));
// Turn 4: the agent exits. The client also reports the end of its connection to nobody in particular.
process.on("unhandledRejection", (error) => assert.equal(error.status, 502));
const crashed = Date.now();
await assert.rejects(prompt("four"));
assert.ok(Date.now() - crashed < 10_000, "the prompt of an agent that exited waited");
const listing = await (await fetch(`${baseUrl}/v1/acp`, { headers: authorization })).json();
const entry = listing.servers.find((server) => server.serverId === "cut");
assert.deepEqual([entry.status, entry.exitCode], ["exited", 7]);
await fetch(`${baseUrl}/v1/acp/cut`, { method: "DELETE", headers: authorization });

// A refusal reaches the agent.
const denied = await connect("denied", "reject_once");
assert.equal((await denied.prompt("one")).stopReason, "end_turn");
await until("the refusal", () => texts(denied.state.updates).includes("Then not."));
await denied.client.disconnect();

console.log("everything");
