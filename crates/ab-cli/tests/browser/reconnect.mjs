// The page is reached through a proxy whose connections break in the middle of a session. Every line is there once, in order.
import net from "node:net";
import { assert, link, login, open, stage, task } from "./stage.mjs";

const port = Number(new URL(link).port);
const sockets = new Set();
let broken = false;
const proxy = net.createServer((near) => {
  if (broken) return near.destroy();
  const far = net.connect(port, "127.0.0.1");
  for (const [socket, other] of [[near, far], [far, near]]) {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => { sockets.delete(socket); other.destroy(); });
    socket.pipe(other);
  }
});
await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
const through = link.replace(`:${port}/`, `:${proxy.address().port}/`);

await stage(async (browser) => {
  const page = await open(browser);
  await login(page, through);
  const id = await task("Count");
  await page.goto(`${new URL(through).origin}/ui/sessions/${id}`);
  const lines = page.locator(".row[data-kind=message] .what");
  await lines.nth(20).waitFor();
  broken = true;
  for (const socket of sockets) socket.destroy();
  await page.locator("#connection[data-state=lost]").waitFor();
  broken = false;
  await page.locator("#head .pill").getByText("completed").waitFor();
  const told = (await lines.allTextContents()).join("\n").split("\n");
  assert.deepEqual(told, Array.from({ length: 300 }, (_, at) => `line ${at + 1}`));
  assert.deepEqual(page.faults, []);
});
proxy.close();
for (const socket of sockets) socket.destroy();
