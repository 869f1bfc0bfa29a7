// Keeps an open page current. The event stream only says that something happened; the server renders the page, and
// this script replaces the parts marked with data-live. So the script itself never turns text of agents into HTML.
"use strict";

/// Milliseconds between two updates, and between two updates of the changes, which cost the server a git process.
const PAUSE = 150, CHANGES_PAUSE = 2000;
/// Maximum number of rows of an activity list. Older ones are removed from the open page.
const MOST_ROWS = 2000;
/// Events after which the changes may differ: a command may change any file.
const CHANGING = new Set(["fileEdit", "diffStat", "tool", "status"]);

const page = document.body.dataset;
const wait = (time) => new Promise((done) => setTimeout(done, time));

/// Updates relative times, and sets the tooltip of all times in the reader's own format.
function tellTimes(root) {
  const now = Date.now();
  for (const moment of root.querySelectorAll("time[datetime]")) {
    const at = new Date(moment.getAttribute("datetime"));
    moment.title = at.toLocaleString();
    if (!moment.classList.contains("ago")) continue;
    const seconds = Math.max(0, Math.floor((now - at) / 1000));
    moment.textContent = seconds < 60 ? `${seconds} s ago` : seconds < 3600 ? `${Math.floor(seconds / 60)} min ago`
      : seconds < 86400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86400)} d ago`;
  }
}

/// Keeps parts open or closed as the reader left them.
function keepOpen(old, fresh) {
  for (const closed of [fresh, ...fresh.querySelectorAll("details")]) {
    const known = closed.matches("details") && closed.id && (old.id === closed.id ? old : old.querySelector(`[id="${CSS.escape(closed.id)}"]`));
    if (known) closed.open = known.open;
  }
}

/// Replaces `old` by `fresh` unless they are equal. The focus stays on the element with the same id.
function swap(old, fresh) {
  keepOpen(old, fresh);
  if (old.isEqualNode(fresh)) return;
  const focused = old.contains(document.activeElement) && document.activeElement.id;
  old.replaceWith(fresh);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

const PLACING = {
  swap,
  /// Replaces children with the same id; uses the order of the server.
  keyed(old, fresh) {
    const children = [...fresh.children].map((child) => {
      const known = child.id && document.getElementById(child.id);
      if (!known || known.parentElement !== old) return child;
      keepOpen(known, child);
      return known.isEqualNode(child) ? known : child;
    });
    if (children.length === old.children.length && children.every((child, at) => child === old.children[at])) return;
    const focused = old.contains(document.activeElement) && document.activeElement.id;
    old.replaceChildren(...children);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  },
  /// Appends rows. A row whose id already exists replaces that row.
  append(old, fresh) {
    for (const row of [...fresh.children]) {
      const known = row.id && document.getElementById(row.id);
      if (known) swap(known, row); else old.append(row);
    }
    while (old.children.length > MOST_ROWS) old.firstElementChild.remove();
  },
};

function tellConnection(state, words) {
  const sign = document.getElementById("connection");
  if (!sign || sign.dataset.state === state) return;
  sign.dataset.state = state;
  sign.textContent = words;
}

/// Fetches the current page, after the cursor if it has one.
async function fetchPage(parameters) {
  const url = new URL(location.href);
  url.hash = "";
  if (page.cursor) url.searchParams.set("after", page.cursor);
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const answer = await fetch(url, { headers: { accept: "text/html" } });
  if (answer.status === 401) {
    close();
    delete page.stream;
    tellConnection("out", "signed out: run agent-backend webui");
    return null;
  }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  tellTimes(fresh);
  return fresh;
}

function place(parts) {
  for (const part of [...parts]) {
    const old = document.getElementById(part.id);
    if (old) PLACING[part.dataset.live](old, part);
  }
}

/// Fetches new parts and inserts them. Returns true if there is more.
async function load() {
  const fresh = await fetchPage({});
  if (!fresh) return false;
  place(fresh.querySelectorAll("[data-live]"));
  document.title = fresh.title;
  tellCount();
  page.cursor = fresh.body.dataset.cursor ?? "";
  if (page.stream && !fresh.body.dataset.stream) {
    delete page.stream;
    close();
    tellConnection("ended", "");
    updateChanges();
  }
  return fresh.body.dataset.more === "true";
}

async function loadChanges() {
  const fresh = await fetchPage({ changes: "true" });
  if (fresh) place(fresh.querySelectorAll("#changes, #files"));
  return false;
}

/// Calls `act` until nothing has happened during the last call, one call at a time and with a pause after each.
function updater(act, pause) {
  let [busy, again] = [false, false];
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    while (again) {
      again = false;
      try {
        if (await act()) again = true;
      } catch {
        // The stream reconnects by itself, and then requests an update.
        if (page.stream) tellConnection("lost", "reconnecting…");
        break;
      }
      await wait(pause);
    }
    busy = false;
  };
}
const update = updater(load, PAUSE);
const updateChanges = page.cursor ? updater(loadChanges, CHANGES_PAUSE) : () => {};

let source = null;
function open() {
  if (source || !page.stream) return;
  const url = new URL(page.stream, location.href);
  if (page.cursor) url.searchParams.set("after", page.cursor);
  source = new EventSource(url);
  source.onopen = () => { tellConnection("live", "live"); update(); updateChanges(); };
  source.onerror = () => {
    if (source && source.readyState === EventSource.CLOSED) {
      // The server answered with an error, or with 204 because the stream has ended: find out which.
      source = null;
      if (page.stream) setTimeout(() => update().then(open), 3000);
    }
    if (page.stream) tellConnection("lost", "reconnecting…");
  };
  source.onmessage = (message) => {
    update();
    if (CHANGING.has(JSON.parse(message.data).type)) updateChanges();
  };
}
function close() { source?.close(); source = null; }

/// The browser allows six connections to a server; a hidden page needs none.
document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else open(); });

/// Buttons respond at once, and the page keeps its scroll position.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form.act")) return;
  event.preventDefault();
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const [pressed, said] = [event.submitter, (form.closest(".actions") ?? form).querySelector(".said")];
  const name = pressed.textContent;
  const body = new URLSearchParams(new FormData(form, pressed));
  const buttons = [...form.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  pressed.textContent = pressed.dataset.busy;
  let problem = null;
  try {
    const answer = await fetch(form.action, { method: "POST", body, redirect: "manual", headers: { accept: "application/json" } });
    if (answer.type !== "opaqueredirect" && !answer.ok) {
      problem = (await answer.json().catch(() => null))?.message ?? `the server answered ${answer.status}`;
    }
  } catch { problem = "the server cannot be reached"; }
  if (problem !== null) {
    for (const button of buttons) button.disabled = false;
    pressed.textContent = name;
    if (said) said.textContent = problem;
  }
  update();
});

/// Shows the number of open questions in the title of the tab.
function tellCount() {
  const count = document.getElementById("inbox-count")?.dataset.count ?? "0";
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = count === "0" ? title : `(${count}) ${title}`;
}

tellTimes(document);
tellCount();
setInterval(() => tellTimes(document), 10_000);
if (!document.hidden) open();
