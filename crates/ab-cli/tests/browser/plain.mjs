// Without scripts, links and forms do everything.
import { assert, login, open, repository, stage } from "./stage.mjs";

/// Loads the page again until it shows something.
async function until(page, locator) {
  for (let left = 60; left > 0 && (await locator.count()) === 0; left -= 1) await page.reload();
  await locator.first().waitFor();
}

await stage(async (browser) => {
  const page = await open(browser, { javaScriptEnabled: false });
  await login(page);
  await page.getByRole("link", { name: "New task" }).click();
  await page.getByLabel("What shall the agent do?").fill("Make it better");
  await page.getByLabel("Repository").fill(repository);
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForURL("**/ui/sessions/*");
  await until(page, page.locator(".ask"));
  await page.getByRole("link", { name: "Inbox" }).click();
  await page.getByText("make <test>").waitFor();
  await page.getByRole("button", { name: "Deny" }).click();
  await page.waitForURL("**/ui/sessions/*");
  await until(page, page.locator("#head .pill").getByText("completed"));
  await page.getByText("Then not.").waitFor();
  await page.getByText("This session changed nothing.").waitFor();
  assert.match(await page.locator(".meta .ago").first().textContent(), /^\d+ (s|min) ago$/);
  await page.getByRole("link", { name: "Sessions", exact: true }).first().click();
  await page.locator(".session .pill").getByText("completed").waitFor();
  assert.deepEqual(page.faults, []);
});
