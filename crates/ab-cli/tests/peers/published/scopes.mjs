// Scoped backends of the published client: a directory as if it were all.

import assert from "node:assert/strict";
import { connect, fails, root } from "./client.mjs";

const backend = connect();
const alice = backend.scope("users/alice");
const bob = backend.scope("users/bob", { env: { WHO: "bob" } });
assert.deepEqual((await backend.listActiveScopes()).sort(), ["users/alice", "users/bob"]);

await alice.write("notes/a.txt", "alice's");
await bob.write("notes/a.txt", "bob's");
assert.equal(await alice.read("notes/a.txt"), "alice's", "a scope's own file");
assert.equal(await bob.read("/notes/a.txt"), "bob's", "another scope's, from its root");
assert.equal(await backend.read("users/bob/notes/a.txt"), "bob's", "the same from above");
assert.equal(await alice.read(`${root}/users/alice/notes/a.txt`), "alice's", "by its host path");
assert.deepEqual(await alice.readdir(""), ["notes"], "a scope's root");
assert.equal(await alice.exec("pwd"), `${root}/users/alice`, "commands begin in the scope");
assert.equal(await alice.exec("cat notes/a.txt"), "alice's", "and see its files");
assert.equal(await bob.exec("echo ok"), "ok", "a scope with variables");

const nested = alice.scope("notes");
assert.equal(await nested.read("a.txt"), "alice's", "a scope in a scope");
await nested.mkdir("x/y", { recursive: true });
await nested.rename("a.txt", "x/b.txt");
await nested.touch("empty");
assert.equal((await alice.stat("notes/x/b.txt")).size, 7, "stat");
assert.equal(await alice.exists("notes/a.txt"), false, "exists");
assert.deepEqual((await nested.readdirWithStats("")).map(({ name }) => name).sort(), ["empty", "x"]);
await nested.rm("x", { recursive: true });
assert.deepEqual(await nested.readdir(""), ["empty"], "rm");

for (const path of ["../bob/notes/a.txt", "../../there.txt"])
  await fails(alice.read(path), "PATH_ESCAPE_ATTEMPT", /./, path);
await alice.destroy();
assert.deepEqual(await backend.listActiveScopes(), ["users/bob"], "a scope that ended");
assert.equal(await bob.read("notes/a.txt"), "bob's", "ends nothing else");
await backend.destroy();
console.log("scopes");
