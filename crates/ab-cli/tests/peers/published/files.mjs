// Every call of the published client that is about files.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect, fails, root } from "./client.mjs";

const backend = connect();
const states = [];
backend.onStatusChange((change) => states.push(change.to));
assert.equal(await backend.read("there.txt"), "here\n", "a file that was there");
assert.deepEqual(states, ["connecting", "connected"], "the first call connects");

// Write makes the directories; an absolute path below the root is the same file.
await backend.write("a/b/text.txt", "zwölf Boxkämpfer 🥊\r\n");
assert.equal(await backend.read("a/b/text.txt"), "zwölf Boxkämpfer 🥊\r\n", "what was written");
assert.equal(await backend.read(`${root}/a/b/text.txt`), "zwölf Boxkämpfer 🥊\r\n", "by host path");
assert.equal(await backend.readFile("/a/b/text.txt"), "zwölf Boxkämpfer 🥊\r\n", "from the root");
await backend.writeFile("a/b/text.txt", "shorter");
assert.equal(await backend.read("a/b/text.txt"), "shorter", "what was there is replaced");

const bytes = randomBytes(5 * 1024 * 1024 + 17);
await backend.write("big.bin", bytes);
const back = await backend.read("big.bin", { encoding: "buffer" });
assert.ok(Buffer.isBuffer(back) && bytes.equals(back), `5 MiB came back as ${back.length} bytes`);

const odd = ["two words.txt", "quote'd.txt", "ünï.txt", "-dash", "#hash", "a&b;c", "*"];
for (const name of odd) {
  await backend.write(`odd names/${name}`, name);
  assert.equal(await backend.read(`odd names/${name}`), name, `the file ${name}`);
}
assert.deepEqual((await backend.readdir("odd names")).sort(), odd.sort(), "odd names are listed");

await backend.mkdir("plain");
await backend.mkdir("deep/er/est", { recursive: true });
await backend.mkdir("deep/er/est", { recursive: true });
assert.deepEqual(await backend.readdir("deep/er"), ["est"], "a directory in a directory");
assert.deepEqual(await backend.readdir("plain"), [], "an empty directory");
const top = (await backend.readdir("")).sort();
const expected = ["a", "big.bin", "deep", "odd names", "plain", "there.txt"];
assert.deepEqual(top, expected, "the root by an empty path");
assert.deepEqual((await backend.readdir(".")).sort(), expected, "the root by a dot");
const listed = await backend.readdirWithStats(".");
const kinds = Object.fromEntries(listed.map(({ name, stats }) => [name, stats.isDirectory()]));
assert.equal(kinds.plain, true, "a directory with its attributes");
assert.equal(kinds["big.bin"], false, "a file with its attributes");
const big = listed.find(({ name }) => name === "big.bin").stats;
assert.equal(big.size, bytes.length, "the size in a listing");

// More names than fit one answer.
await backend.exec("mkdir many && cd many && seq -f 'file-%04g' 1 1500 | xargs touch");
assert.equal((await backend.readdir("many")).length, 1500, "a long listing");

assert.equal(await backend.exists("big.bin"), true, "exists, of a file");
assert.equal(await backend.exists("plain"), true, "exists, of a directory");
assert.equal(await backend.exists("nothing"), false, "exists, of nothing");
const stat = await backend.stat("big.bin");
assert.ok(stat.isFile() && !stat.isDirectory(), "the kind of a file");
assert.equal(stat.size, bytes.length, "the size of a file");
assert.equal(stat.mode & 0o777, 0o644, `the mode of a file: ${stat.mode.toString(8)}`);
assert.ok(Math.abs(stat.mtime * 1000 - Date.now()) < 60_000, `changed just now: ${stat.mtime}`);
assert.ok((await backend.stat("plain")).isDirectory(), "the kind of a directory");

await backend.write("one", "1");
await backend.write("two", "2");
await backend.rename("one", "two");
assert.equal(await backend.read("two"), "1", "rename replaces a file");
assert.equal(await backend.exists("one"), false, "the old name is gone");
await backend.rename("two", "new/place/three");
assert.equal(await backend.read("new/place/three"), "1", "rename makes directories");
await backend.rename("new", "moved");
assert.equal(await backend.read("moved/place/three"), "1", "rename moves a directory");

await backend.touch("touched/empty");
assert.equal((await backend.stat("touched/empty")).size, 0, "touch makes an empty file");

await backend.rm("touched/empty");
await backend.rm("moved", { recursive: true });
await backend.rm("many", { recursive: true, force: true });
await backend.rm("was never there", { force: true });
await backend.rm("odd names", { recursive: true, force: true });
assert.deepEqual(await backend.readdir("touched"), [], "rm of a file");
assert.equal(await backend.exists("moved"), false, "rm of a directory");

await fails(backend.read("nothing"), "READ_FAILED", /Failed to read file: nothing/, "read");
await fails(backend.stat("nothing"), "READ_FAILED", /Failed to stat path/, "stat");
await fails(backend.readdir("nothing"), "LS_FAILED", /no such file/i, "readdir");
await fails(backend.mkdir("plain"), "WRITE_FAILED", /plain/, "mkdir of what is there");
await fails(backend.rename("nothing", "x"), "WRITE_FAILED", /rename/, "rename");
await fails(backend.rm("nothing"), "EXEC_FAILED", /No such file/, "rm");
await fails(backend.read("plain"), "READ_FAILED", /plain/, "read of a directory");
await fails(backend.rm("deep"), "EXEC_FAILED", /directory/i, "rm of a directory, without recursive");

// As many as the client lets through: with more it goes round in circles by itself.
const numbers = [...Array(50).keys()];
await Promise.all(numbers.map((number) => backend.write(`at once/${number}`, `${number}`)));
const read = await Promise.all(numbers.map((number) => backend.read(`at once/${number}`)));
assert.deepEqual(read, numbers.map(String), "50 files at once");

await backend.destroy();
assert.equal(backend.status, "destroyed");
console.log("files");
