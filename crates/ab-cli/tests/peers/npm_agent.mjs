// An agent written with @agentclientprotocol/sdk. It asks before it writes a prompt into a file.
//
//   node npm_agent.mjs NODE_MODULES

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [modules] = process.argv.slice(2);
// The package offers itself to import only.
const entry = join(modules, "@agentclientprotocol/sdk/dist/v1/stable/acp.js");
const { PROTOCOL_VERSION, RequestError, agent, methods, ndJsonStream } = await import(pathToFileURL(entry));

const FILE = "MADE.md";
const directories = new Map();
const waiting = new Map();

async function turn({ params: { sessionId, prompt }, client }) {
  const directory = directories.get(sessionId);
  if (directory === undefined) throw RequestError.invalidParams({ sessionId });
  const tell = (update) => client.notify(methods.client.session.update, { sessionId, update });
  const say = (text) =>
    tell({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  const text = prompt.map((block) => block.text ?? "").join("");
  if (text === "hang") {
    await say("I wait.");
    await new Promise((resolve) => waiting.set(sessionId, resolve));
    return { stopReason: "cancelled" };
  }
  const path = join(directory, FILE);
  const toolCall = {
    toolCallId: "write",
    title: `Write ${FILE}`,
    kind: "edit",
    status: "pending",
    content: [{ type: "diff", path, oldText: null, newText: text }],
  };
  await tell({ sessionUpdate: "tool_call", ...toolCall });
  const { outcome } = await client.request(methods.client.session.requestPermission, {
    sessionId,
    toolCall,
    options: [
      { optionId: "yes", name: "Write it", kind: "allow_once" },
      { optionId: "no", name: "Leave it", kind: "reject_once" },
    ],
  });
  const isAllowed = outcome.outcome === "selected" && outcome.optionId === "yes";
  if (isAllowed) writeFileSync(path, text);
  await tell({
    sessionUpdate: "tool_call_update",
    toolCallId: "write",
    status: isAllowed ? "completed" : "failed",
  });
  await say(isAllowed ? "It is written." : "Then not.");
  return { stopReason: "end_turn" };
}

const connection = agent({ name: "npm-agent" })
  .onRequest(methods.agent.initialize, () => ({
    protocolVersion: PROTOCOL_VERSION,
    agentCapabilities: { loadSession: false },
  }))
  .onRequest(methods.agent.session.new, ({ params }) => {
    const sessionId = `session-${directories.size + 1}`;
    directories.set(sessionId, params.cwd);
    return { sessionId };
  })
  .onRequest(methods.agent.session.prompt, turn)
  .onNotification(methods.agent.session.cancel, ({ params }) => waiting.get(params.sessionId)?.())
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
await connection.closed;
