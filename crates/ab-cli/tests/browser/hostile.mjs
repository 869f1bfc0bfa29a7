// Whatever an agent prints is text in the page: live, after a reload, in the list and in the inbox.
import { assert, fits, login, open, origin, stage, task } from "./stage.mjs";

/// Elements that the page never makes of an agent's text.
const FOREIGN = "main img, main script, main style, main base, main iframe, main b, main i, main svg[onload]";

async function harmless(page) {
  assert.equal(await page.locator(FOREIGN).count(), 0);
  assert.notEqual(await page.title(), "owned");
  assert.doesNotMatch(await page.locator("main").innerText(), /[\u001b\u202e]/);
  await fits(page);
}

await stage(async (browser) => {
  const page = await open(browser, { viewport: { width: 390, height: 844 } });
  await login(page);
  const id = await task("<script>document.title='owned'</script>");
  await page.goto(`${origin}/ui/sessions/${id}`);
  await page.locator(".ask").waitFor();
  await harmless(page);
  const shown = await page.locator("main").innerText();
  for (const text of ["<img src=x onerror=", "red", "\\u{202e}gnp.exe", "</li></ol><base", "<b>Approve</b>", "<i>rm</i>"]) {
    assert.ok(shown.includes(text), `no ${text} in the page`);
  }
  await page.reload();
  await harmless(page);
  await page.goto(`${origin}/ui/inbox`);
  await page.locator(".ask").getByText("<i>rm</i>").waitFor();
  await harmless(page);
  await page.locator(".ask").getByRole("button", { name: "Approve" }).click();
  await page.getByText("Nothing waits for you.").waitFor();
  await page.goto(`${origin}/ui/sessions/${id}`);
  await page.locator("#head .pill").getByText("completed").waitFor();
  await page.locator("details.diff .a").getByText("+<script>alert(1)</script> \\u{202e}␍").waitFor();
  await harmless(page);
  const size = (await page.content()).length;
  assert.ok(size < 4_000_000, `the page has ${size} characters`);
  await page.goto(`${origin}/ui`);
  await page.locator(".session").waitFor();
  await harmless(page);
  assert.deepEqual(page.faults, []);
});
