// A person signs in, gives a task, watches it, approves, and sees the result, without loading a page again.
import { api, assert, link, login, open, origin, repository, stage } from "./stage.mjs";

await stage(async (browser) => {
  const page = await open(browser);
  await login(page);
  await page.getByText("No session yet").waitFor();
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.domain], [true, "Strict", new URL(origin).hostname]);

  // The link is spent, and other names of this machine do not know the cookie.
  const stranger = await open(browser);
  assert.equal((await stranger.goto(link)).status(), 401);
  await stranger.getByText("agent-backend webui").waitFor();
  const { port } = new URL(origin);
  const elsewhere = await page.context().newPage();
  for (const name of ["localhost", "127.0.0.1"]) {
    assert.equal((await elsewhere.goto(`http://${name}:${port}/ui`)).status(), 401, name);
  }
  await elsewhere.close();

  // A list that is open meanwhile.
  const list = await page.context().newPage();
  await list.goto(`${origin}/ui`);
  await list.locator("#connection[data-state=live]").waitFor();
  await list.evaluate(() => { window.same = true; });

  // The form says beside the field what is wrong.
  await page.getByRole("link", { name: "New task" }).click();
  await page.getByLabel("What shall the agent do?").fill("Make it better");
  await page.getByLabel("Repository").fill("nowhere/at/all");
  await page.getByRole("button", { name: "Start" }).click();
  const field = page.getByLabel("Repository");
  assert.equal(await field.getAttribute("aria-invalid"), "true");
  const problem = page.locator(`#${await field.getAttribute("aria-describedby")}`);
  assert.notEqual(await problem.textContent(), "");
  assert.equal(await page.getByLabel("What shall the agent do?").inputValue(), "Make it better");
  await field.fill(repository);
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForURL("**/ui/sessions/*");
  await page.evaluate(() => { window.same = true; });

  // Rows and the question appear by themselves, here and in the list.
  await page.locator(".row[data-kind=thought]").getByText("I look at the file.").waitFor();
  const ask = page.locator(".ask");
  await ask.waitFor();
  assert.match(await ask.textContent(), /wants to run a command.*Run the tests.*make <test>/s);
  await page.locator("#inbox-count[data-count='1']").waitFor();
  assert.match(await page.title(), /^\(1\) Make it better/);
  await list.locator(".session .pill").getByText("waiting for you").waitFor();

  // The agent goes on after the approval.
  await ask.getByRole("button", { name: "Approve" }).click();
  await page.locator("#head .pill").getByText("completed").waitFor();
  await page.locator(".row[data-kind=message]").getByText("It is better now.").waitFor();
  await page.locator(".row[data-kind=approval]").getByText("Approved by").waitFor();
  await page.locator("#result").getByText("Delivered").waitFor();
  assert.equal(await ask.count(), 0);
  assert.equal(await page.locator(".plan [data-state=good]").count(), 2);
  const diff = page.locator("details.diff");
  await diff.locator(".a").getByText("+# A better project").waitFor();
  await diff.locator(".r").getByText("-# A project").waitFor();
  await diff.locator("summary").click();
  assert.equal(await diff.locator("pre").isVisible(), false, "a file can be closed");
  await list.locator(".session .pill").getByText("completed").waitFor();
  assert.deepEqual([await page.evaluate(() => window.same), await list.evaluate(() => window.same)], [true, true]);

  // A page that is loaded again shows the same rows.
  const rows = () => page.locator(".row .what").allTextContents();
  const live = await rows();
  await page.reload();
  assert.deepEqual(await rows(), live);
  const { items } = await api("/v1/approvals?status=pending");
  assert.deepEqual(items, []);
  assert.deepEqual([...page.faults, ...stranger.faults], []);
});
