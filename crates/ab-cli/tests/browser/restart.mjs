// Questions that a session and a run asked before the server was killed are approved after its restart, and the work goes on.
import { api, assert, login, open, origin, stage } from "./stage.mjs";

const { SESSION: session, RUN: run, SPACE: space } = process.env;

await stage(async (browser) => {
  const page = await open(browser);
  await login(page);
  await page.locator("#inbox-count[data-count='2']").waitFor();

  // The question of the run: what is shown is the whole command and the rule.
  await page.goto(`${origin}/ui/inbox`);
  const ofRun = page.locator(".ask").filter({ hasText: "rm -rf data" });
  await ofRun.waitFor();
  assert.match(await ofRun.textContent(), /shell\.approvalRequired/);
  assert.ok((await ofRun.textContent()).includes(`Space: tidy up · ${space} · run ${run}`));
  await ofRun.getByRole("button", { name: "Approve" }).click();
  await ofRun.waitFor({ state: "detached" });
  for (let shown = null; shown?.status !== "completed";) {
    shown = (await api(`/v1/runs/${run}`)).data;
    assert.ok(["awaiting_approval", "running", "completed"].includes(shown.status), JSON.stringify(shown));
    if (shown.status === "completed") assert.equal(shown.events.length, 4, JSON.stringify(shown));
  }

  // The question of the session, on its own page.
  await page.goto(`${origin}/ui/sessions/${session}`);
  const ask = page.locator(".ask");
  await ask.waitFor();
  assert.match(await ask.textContent(), /Write the notes.*notes <b>.*As the agent describes it/s);
  await ask.getByRole("button", { name: "Approve" }).click();
  await page.locator("#head .pill").getByText("completed").waitFor();
  await page.locator(".row[data-kind=message]").getByText("It is written.").waitFor();
  await page.locator(".row[data-kind=approval]").getByText("Approved by").waitFor();
  const { items } = await api("/v1/approvals?status=approved");
  assert.equal(items.length, 2);
  for (const { decidedBy, usedAt } of items) {
    assert.deepEqual([decidedBy.kind, decidedBy.via, Boolean(usedAt)], ["person", "web", true]);
  }
  assert.deepEqual(page.faults, []);
});
