// The MCP clients that the published client makes: for the root, for a scope, and by transport.

import assert from "node:assert/strict";
import { connect, published, require } from "./client.mjs";

const text = (result) => result.content[0].text;
const call = (client, name, args) => client.callTool({ name, arguments: args });

const backend = connect();
const client = await backend.getMCPClient();
const names = (await client.listTools()).tools.map((tool) => tool.name);
for (const name of ["read_text_file", "write_file", "edit_file", "exec", "grep", "directory_tree"])
  assert.ok(names.includes(name), `${name} in ${names}`);
await call(client, "write_file", { path: "made.txt", content: "by a tool\n" });
assert.equal(await backend.read("made.txt"), "by a tool\n", "SFTP sees what a tool wrote");
await backend.write("other.txt", "by SFTP\n");
assert.equal(text(await call(client, "read_text_file", { path: "other.txt" })), "by SFTP\n");
const ran = await call(client, "exec", { command: "cat made.txt" });
assert.match(text(ran), /by a tool/, "exec by a tool");

const scoped = backend.scope("inner");
await scoped.write("own.txt", "of the scope\n");
const inner = await scoped.getMCPClient();
assert.equal(text(await call(inner, "read_text_file", { path: "own.txt" })), "of the scope\n");
const outside = await call(inner, "read_text_file", { path: "../made.txt" });
assert.equal(outside.isError, true, `a scope's tools stay inside: ${JSON.stringify(outside)}`);
const listed = text(await call(inner, "list_directory", { path: "." }));
assert.match(listed, /own\.txt/);
assert.doesNotMatch(listed, /made\.txt/);

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const raw = new Client({ name: "raw", version: "0" });
await raw.connect(await backend.getMCPTransport());
assert.equal(text(await call(raw, "read_text_file", { path: "made.txt" })), "by a tool\n");

const wrong = new published.RemoteFilesystemBackend({ ...backend.config, authToken: "wrong" });
await assert.rejects(wrong.getMCPClient(), /401|Unauthorized/, "a wrong token");
await wrong.destroy();
await backend.destroy();
console.log("tools");
