// Commands of the published client, which writes `HOME='…' cd "…" && ` in front of each.

import assert from "node:assert/strict";
import { connect, fails, root } from "./client.mjs";

const backend = connect();
assert.equal(await backend.exec("echo hello"), "hello", "exec");
assert.equal(await backend.exec("pwd"), root, "commands begin in the root");
assert.equal(await backend.exec("cat there.txt | tr a-z A-Z"), "HERE", "a pipe");
assert.equal(await backend.exec("cd sub && pwd"), `${root}/sub`, "a command's own cd");
assert.equal(await backend.exec("pwd", { cwd: `${root}/sub` }), `${root}/sub`, "the option cwd");
assert.equal(await backend.exec("echo ok", { env: { A: "it's" } }), "ok", "the option env");
assert.equal(await backend.exec("cat <<EOF\none\ntwo\nEOF"), "one\ntwo", "a here document");
assert.equal(await backend.exec("echo $((6 * 7)) $(echo in)"), "42 in", "substitutions");
const bytes = await backend.exec("printf 'a\\nb'", { encoding: "buffer" });
assert.ok(bytes.equals(Buffer.from("a\nb")), "output as bytes");
const long = await backend.exec("yes 0123456789abcdef | head -n 200000");
assert.equal(long.length, 17 * 200_000 - 1, "3.4 MB of output, but for the last line's end");
await backend.exec("echo made > made.txt");
assert.equal(await backend.read("made.txt"), "made\n", "files and commands see the same");

await fails(backend.exec("exit 3"), "EXEC_FAILED", /exit code 3/, "an exit code");
await fails(backend.exec("echo why >&2; exit 1"), "EXEC_FAILED", /exit code 1: why/, "its reason");
await fails(backend.exec("no-such-program"), "EXEC_FAILED", /exit code 127/, "no program");
await fails(backend.exec("cat nothing"), "EXEC_FAILED", /No such file/, "a failing program");
// The client takes a death without a status for success.
await fails(backend.exec("kill -KILL $$"), "EXEC_FAILED", /exit code 137/, "a command that is killed");

// The client's own list is off, so that the daemon's guard answers.
await fails(backend.exec("sudo ls"), "EXEC_FAILED", /exit code 126/, "sudo");
await fails(backend.exec("rm -rf /"), "EXEC_FAILED", /exit code 126/, "removal of everything");
// Leaving the workspace is the sandbox's business: only the way to it is there.
assert.match(await backend.exec("cd .. && ls"), /^[^\n]+$/, "nothing beside the workspace is seen");

const numbers = [...Array(50).keys()];
const said = await Promise.all(numbers.map((number) => backend.exec(`echo ${number}`)));
assert.deepEqual(said, numbers.map(String), "50 commands at once");
const mixed = numbers.slice(0, 25).flatMap((number) => [
  backend.exec(`echo ${number}`),
  backend.write(`mixed-${number}`, `${number}`),
]);
await Promise.all(mixed);
assert.equal(await backend.exec("cat mixed-* | wc -c"), "40", "commands among writes");
for (let number = 0; number < 40; number += 1)
  assert.equal(await backend.exec("cd . && echo on"), "on", `command ${number}`);
await backend.destroy();
console.log("commands");
