// What every script needs: a browser, a page that reports its errors, and requests to the API.
import assert from "node:assert/strict";

const { chromium } = await import(process.env.PLAYWRIGHT);

export { assert };
export const link = process.env.LINK;
export const origin = new URL(link).origin;
export const repository = process.env.REPOSITORY;

/// Longer waits count as failures.
const PATIENCE = 60_000;

/// Runs `act` with a browser, and says that it passed.
export async function stage(act) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"],
  });
  try {
    await act(browser);
  } finally {
    await browser.close();
  }
  console.log("passed");
}

/// A page with its own cookies. Errors of its scripts and violations of its policy are in `page.faults`.
export async function open(browser, options = {}) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(error.message));
  page.on("dialog", (dialog) => { page.faults.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  page.on("console", (message) => {
    // The browser reports every answer with an error status, those that a script asks for too.
    const expected = message.text().startsWith("Failed to load resource: the server responded")
      || message.text().includes("net::ERR_");
    if (["error", "warning"].includes(message.type()) && !expected) page.faults.push(message.text());
  });
  return page;
}

/// Opens the page by a link.
export async function login(page, by = link) {
  await page.goto(by);
  await page.waitForURL("**/ui");
}

export async function api(path, options = {}) {
  const headers = { authorization: `Bearer ${process.env.TOKEN}`, accept: "application/json", "content-type": "application/json" };
  const answer = await fetch(`http://127.0.0.1:${new URL(link).port}${path}`, { headers, ...options });
  return answer.status === 204 ? null : answer.json();
}

/// Gives the agent a task; the id of its session.
export async function task(prompt) {
  const body = JSON.stringify({ prompt, repo: { url: repository }, agent: { type: "scripted" } });
  const made = await api("/api/v1/tasks", { method: "POST", body });
  assert.ok(made.id, JSON.stringify(made));
  return made.id;
}

/// The page is as wide as the screen.
export async function fits(page) {
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(over, 0, `${page.url()} is ${over} pixels too wide`);
}
