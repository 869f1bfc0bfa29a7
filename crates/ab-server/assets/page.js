// Keeps the server-rendered pages current: one event stream per page, rows built as text nodes, never as HTML.
"use strict";

const MARKS = { thought: "·", prompt: "›", tool: "⚙", fileEdit: "✎", log: "▪", status: "○", delivery: "✓",
  approvalRequested: "?", approvalDecided: "!", plan: "☰", note: "▪", diffStat: "±" };

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function counts(added, removed) {
  return [element("span", { class: "plus" }, ` +${added}`), element("span", { class: "minus" }, ` −${removed}`)];
}

/// The words of an event, as nodes; null for events that have no row.
function words(event) {
  switch (event.type) {
    case "thought": return [event.thought];
    case "prompt": return [event.prompt];
    case "log": case "note": return [event.message];
    case "tool": return [event.tool_name];
    case "fileEdit": return [event.file_path, ...counts(event.lines_added, event.lines_removed)];
    case "plan": return [event.entries.map((entry) =>
      `${{ completed: "☑", in_progress: "◐", pending: "☐" }[entry.status]} ${entry.content}`).join("\n")];
    case "status": return [event.message ? `${event.status}: ${event.message}` : event.status];
    case "approvalRequested": return [`Waits for you: ${event.title}`];
    case "approvalDecided": return [`Approval ${event.status}${event.reason ? `: ${event.reason}` : ""}`];
    case "delivery": return [event.changed ? (event.branch ? `Delivered to branch ${event.branch}` : "Patch ready") : "Nothing changed, nothing delivered"];
    default: return null;
  }
}

function row(event) {
  const said = words(event);
  if (said === null) return null;
  const item = element("li", { "data-type": event.type.startsWith("approval") ? "approval" : event.type },
    element("span", { class: "mark", "aria-hidden": "true" }, MARKS[event.type] ?? "▪"),
    element("span", { class: "what" }, ...said),
    element("time", { datetime: event.ts }, new Date(event.ts).toLocaleTimeString()));
  if (event.level) item.dataset.level = event.level;
  if (event.tool_execution_id && event.type === "tool") {
    item.dataset.call = event.tool_execution_id;
    item.dataset.tool = event.tool_status === "error" ? "failed" : event.tool_status;
    const detail = [event.tool_input, event.tool_output].filter(Boolean).join("\n\n");
    if (detail) item.append(element("details", {}, element("summary", {}, "details"), element("pre", {}, detail)));
  }
  return item;
}

function show(list, event) {
  const made = row(event);
  if (made === null) return;
  const earlier = made.dataset.call && list.querySelector(`[data-call="${CSS.escape(made.dataset.call)}"]`);
  const atEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
  if (earlier) {
    const open = earlier.querySelector("details")?.open;
    if (open && made.querySelector("details")) made.querySelector("details").open = true;
    earlier.replaceWith(made);
  } else {
    list.append(made);
  }
  if (atEnd && list.classList.contains("activity")) window.scrollTo(0, document.body.scrollHeight);
}

function setStatus(pill, event) {
  const waiting = event.status === "running" && event.activity === "awaitingApproval";
  pill.dataset.status = waiting ? "waiting" : event.status;
  pill.textContent = waiting ? "waiting for you" : event.status;
}

/// Parts of the page that only the server renders: fetched again and put in place of the old ones.
let refreshing = false;
async function refresh(...ids) {
  if (refreshing) return;
  refreshing = true;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const id of ids) {
      const [old, next] = [document.getElementById(id), fresh.getElementById(id)];
      if (old && next) old.replaceWith(next);
    }
  } catch { /* the stream reconnects by itself; the next event asks again */ }
  finally { refreshing = false; }
}

function live(state) {
  const sign = document.getElementById("live");
  if (!sign) return;
  sign.dataset.state = state;
  sign.textContent = state === "lost" ? "reconnecting…" : "live";
}

function follow(url, take) {
  const source = new EventSource(url);
  source.onopen = () => { live("open"); if (page.feed) refresh("feed", "inbox-count"); };
  source.onerror = () => live("lost");
  source.onmessage = (message) => take(JSON.parse(message.data), source);
}

const page = document.body.dataset;
if (page.session && page.ended === "false") {
  const list = document.getElementById("activity");
  follow(`/api/v1/sessions/${page.session}/events?after=${page.cursor}`, (event, source) => {
    show(list, event);
    if (event.type === "status") {
      setStatus(document.querySelector("#status"), event);
      if (["stopped", "completed", "failed", "cancelled"].includes(event.status)) {
        source.close();
        live("open");
        document.getElementById("live").textContent = "";
      }
      refresh("asks", "actions", "changes");
    }
    if (event.type.startsWith("approval")) refresh("asks", "inbox-count");
    if (event.type === "fileEdit" || event.type === "delivery") refresh("changes");
  });
} else if (page.feed) {
  follow("/api/v1/events", (event) => {
    const card = document.getElementById(`session-${event.sessionId}`);
    if (!card || event.type === "status" || event.type.startsWith("approval")) refresh("feed", "inbox-count");
    else {
      const list = card.querySelector(".rows");
      const said = words(event);
      if (said === null) return;
      list.append(element("li", {}, `${MARKS[event.type] ?? "▪"} `, ...said));
      while (list.children.length > 3) list.firstChild.remove();
    }
  });
}

for (const moment of document.querySelectorAll("time[datetime]")) {
  const at = new Date(moment.getAttribute("datetime"));
  moment.title = at.toLocaleString();
  moment.textContent = moment.closest(".activity") ? at.toLocaleTimeString() : moment.title;
}
