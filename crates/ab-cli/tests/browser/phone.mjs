// A small screen, in the dark: nothing is wider than the screen, and a session can be stopped.
import { assert, fits, login, open, origin, stage, task } from "./stage.mjs";

await stage(async (browser) => {
  const phone = { viewport: { width: 390, height: 844 }, colorScheme: "dark", hasTouch: true, isMobile: true };
  const page = await open(browser, phone);
  await login(page);
  await fits(page);
  const id = await task(`Wait ${"for a very long time ".repeat(10)}${"x".repeat(200)}`);
  await page.locator(`#session-${id}`).waitFor();
  await fits(page);
  for (const path of ["/ui/new", "/ui/inbox", "/ui/sessions/01HVZ6K9T1N8S6M3V3Q3F0X5B7"]) {
    await page.goto(`${origin}${path}`);
    await fits(page);
  }
  await page.goto(`${origin}/ui/sessions/${id}`);
  await page.locator(".row").getByText("I wait.").waitFor();
  await fits(page);
  const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(background, "rgb(15, 18, 23)", "the colours follow the system");
  await page.getByRole("button", { name: "Stop" }).tap();
  await page.locator("#head .pill").getByText("stopped").waitFor();
  assert.equal(await page.getByRole("button", { name: "Stop" }).count(), 0);
  await fits(page);
  assert.deepEqual(page.faults, []);
});
