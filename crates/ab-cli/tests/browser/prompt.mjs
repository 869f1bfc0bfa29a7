// A person keeps a session open, decides in the inbox with the task in view, prompts the agent again, and finishes.
import { api, assert, login, open, origin, repository, stage } from "./stage.mjs";

await stage(async (browser) => {
  const page = await open(browser);
  await login(page);
  const body = { prompt: "Make two files", repo: { url: repository }, agent: { type: "scripted" }, keepOpen: true };
  const { id } = await api("/api/v1/tasks", { method: "POST", body: JSON.stringify(body) });

  // The card in the inbox says what is asked, and for which task.
  await page.goto(`${origin}/ui/inbox`);
  const card = page.locator(".ask");
  await card.waitFor();
  const text = await card.textContent();
  assert.match(text, /wants to change files.*Task: Make two files.*scripted.*Change the file.*make it <so>/s);
  await card.getByRole("button", { name: "Approve" }).click();
  await card.waitFor({ state: "detached" });

  // What the reader types stays while the page goes on.
  await page.goto(`${origin}/ui/sessions/${id}`);
  const next = page.getByLabel("What shall the agent do next?");
  await next.fill("Now the second");
  await page.locator("#head .pill").getByText("waiting for a prompt").waitFor();
  await page.getByRole("button", { name: "Finish" }).waitFor();
  assert.equal(await next.inputValue(), "Now the second");
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await page.locator(".row[data-kind=message]").getByText("The second is done.").waitFor();
  await page.locator(".row").getByText("Now the second").waitFor();
  await page.waitForFunction(() => document.getElementById("next-prompt")?.value === "");

  // Finishing delivers, and an ended session takes no prompt.
  await page.getByRole("button", { name: "Finish" }).click();
  await page.locator("#head .pill").getByText("completed").waitFor();
  await next.waitFor({ state: "detached" });
  const session = await api(`/api/v1/sessions/${id}`);
  assert.equal(session.changes.files_changed, 2);
  assert.match(session.vcs.deliveredBranch, /^ah\/make-two-files/);
  assert.deepEqual(page.faults, []);
});
