// Follows the state of the store. It builds all content as text, never as HTML.
"use strict";

const ROWS_MAX = 300; // The most rows that are drawn; page.rs has the same number.
const CHANGES_MAX = 50; // The most lines of the list of changes.
const ROWS_MS = 4; // How long rows are drawn in one frame, which also has to lay them out.
const LONG_HELD_S = 3600; // A hold of this age is marked; page.rs has the same number.

const locks = new Map(); // The locks in use, by name.
const rows = new Map(); // The rows that are drawn, by name.
const mayBreak = document.body.dataset.breaking === "true";
const find = (id) => document.getElementById(id);
const body = document.querySelector("#locks tbody");
let state = { at: "", complete: true, error: null, skipped: [] };
let names = []; // The names of the locks in use, in the order of the rows.
let drawing = null; // The rows that are still to be drawn.
let isDrawing = false;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Shows control and invisible characters as the command does.
function visible(text) {
  const code = (c) => "\\u{" + c.codePointAt(0).toString(16) + "}";
  const known = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  const hidden = new RegExp(
    "[\\0-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f" +
      "\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]", "gu");
  return text.replace(hidden, (c) => known[c] ?? code(c));
}

function processOf(entry) {
  return `[${entry.pid}]@${entry.host}`;
}

function claimant(entry) {
  const label = entry.label ? ` (${entry.label})` : "";
  return visible(entry.program + processOf(entry) + label);
}

// The formats of other libraries have no times.
function hasTime(entry) {
  return Date.parse(entry.since) > 0;
}

function secondsSince(since) {
  return Math.max(0, Math.floor((Date.now() - Date.parse(since)) / 1000));
}

function age(since) {
  const parts = [[86400, "d"], [3600, "h"], [60, "m"]];
  let left = secondsSince(since);
  let text = "";
  for (const [size, unit] of parts) {
    if (left >= size) text += `${Math.floor(left / size)}${unit} `;
    left %= size;
  }
  return (text + (left > 0 || text === "" ? `${left}s` : "")).trim();
}

function counted(count, one, many) {
  return `${count} ${count === 1 ? one : many}`;
}

function badge(text) {
  return element("span", text, { class: "badge warn" });
}

// Describes the processes that keep a hold whose own process does not. format.rs has the same
// texts.
function processText({ state, processes }) {
  if (state === "other_namespace") {
    return `of another PID namespace, process ${processes[0].pid} here`;
  }
  if (state !== "ended") return "whose processes are not visible here";
  const shown = processes.slice(0, 10).map(({ pid, program }) => `${pid} (${program})`).join(", ");
  const others = processes.length > 10 ? ` and ${processes.length - 10} others` : "";
  return `which has ended; its processes ${visible(shown)}${others} still hold it`;
}

// Shows what its user calls a claim first, then its process, what hinders it, and its age.
function entryItem(entry) {
  const item = document.createElement("li");
  const process = entry.label ? entry.program + processOf(entry) : processOf(entry);
  item.append(
    element("bdi", visible(entry.label || entry.program), { class: "label" }), " ",
    element("bdi", visible(process), { class: "who" }), " ",
  );
  if (entry.process) item.append(badge(processText(entry.process)), " ");
  else if (entry.connected === false) item.append(badge("connection missing"), " ");
  else if (entry.stopped) item.append(badge("stopped"), " ");
  else if (entry.command_stopped) item.append(badge("its command is stopped"), " ");
  if (hasTime(entry)) item.append(element("time", age(entry.since), { datetime: entry.since }));
  return item;
}

// Returns the tokens of a holder, after the word for them. A cohort has several.
function tokensOf(holder) {
  if (holder.token) return ["token", holder.token];
  return ["tokens", `${holder.first_token} to ${holder.last_token}`];
}

// Returns a token of a holder that names its hold.
function tokenOf(holder) {
  return holder.token ?? holder.last_token;
}

function holderItem(lock, holder) {
  const item = entryItem(holder);
  const [word, tokens] = tokensOf(holder);
  const isLong = hasTime(holder) && secondsSince(holder.since) >= LONG_HELD_S;
  if (isLong) item.append(" ", badge("long held"));
  item.append(" ", element("span", `${word} ${tokens}`, { class: "token" }));
  if (mayBreak) {
    const button = element("button", "Break…", { type: "button", class: "danger" });
    button.setAttribute("aria-label", `Break the hold of ${visible(lock.name)}, ${tokens}`);
    button.addEventListener("click", () => openBreak(lock, holder));
    item.append(" ", button);
  }
  return item;
}

function held(lock) {
  if (lock.kind === null) return "";
  if (lock.capacity !== null) return `${lock.held} of ${lock.capacity}`;
  const whole = lock.holders.some((holder) => holder.share === "exclusive");
  if (whole) return "writer";
  return lock.held === 1 ? "1 reader" : `${lock.held} readers`;
}

function cell(label, content) {
  const made = element("td", "", { role: "cell", "data-label": label });
  made.append(content);
  return made;
}

function list(tag, items) {
  const made = document.createElement(tag);
  made.append(...items);
  return made;
}

function newRow(lock) {
  const row = element("tr", "", { role: "row" });
  const name = element("th", "", { role: "rowheader", scope: "row" });
  name.append(element("bdi", visible(lock.name)));
  const external = lock.external_holders.map((holder) => {
    const item = document.createElement("li");
    item.append(element("bdi", visible(`${holder.program}[${holder.pid}]`)), ", flock");
    return item;
  });
  const use = document.createElement("span");
  use.append(held(lock));
  if (lock.waiters.length > 0) {
    use.append(" ", element("span", `${lock.waiters.length} waiting`, { class: "badge" }));
  }
  const holders = lock.holders.map((holder) => holderItem(lock, holder)).concat(external);
  row.append(
    name,
    cell("Kind", lock.kind ?? ""),
    cell("Held", use),
    cell("Holders", list("ul", holders)),
    cell("Waiters", list("ol", lock.waiters.map(entryItem))),
  );
  return row;
}

// Draws the latest state, however many changes have come since the last frame.
function draw() {
  drawing = null;
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(drawFrame);
}

// Draws rows for a few milliseconds, and the rest of them in the next frames.
function drawFrame() {
  const begun = performance.now();
  drawing ??= beginDrawing();
  while (drawing.left.length > 0 && performance.now() - begun < ROWS_MS) {
    drawing.before = drawRow(drawing.left.pop(), drawing.before);
  }

  isDrawing = drawing.left.length > 0;
  if (isDrawing) requestAnimationFrame(drawFrame);
}

// Removes rows that are no longer shown, and returns the names to draw, the first one last.
function beginDrawing() {
  const prefix = find("prefix").value;
  const shown = prefix === "" ? names : names.filter((name) => name.startsWith(prefix));
  const drawn = shown.slice(0, ROWS_MAX);
  const kept = new Set(drawn);
  for (const [name, row] of rows) {
    if (kept.has(name)) continue;
    row.element.remove();
    rows.delete(name);
  }

  drawSummary(shown, drawn.length);
  return { left: drawn.reverse(), before: null };
}

// Draws the row of a name behind another row, and returns it.
function drawRow(name, before) {
  const lock = locks.get(name);
  let row = rows.get(name);
  if (row?.lock !== lock) {
    const fresh = newRow(lock);
    if (row) replace(row.element, fresh);
    row = { lock, element: fresh };
    rows.set(name, row);
  }

  const next = before ? before.nextSibling : body.firstChild;
  if (next !== row.element) body.insertBefore(row.element, next);
  return row.element;
}

// Replaces a row, marks it for a moment, and keeps the focus on its button.
function replace(old, fresh) {
  const focused = [...old.querySelectorAll("button")].indexOf(document.activeElement);
  old.replaceWith(fresh);
  if (focused >= 0) fresh.querySelectorAll("button")[focused]?.focus();
  fresh.classList.add("changed");
  setTimeout(() => fresh.classList.remove("changed"), 1500);
}

function drawSummary(shown, drawn) {
  const waiters = shown.reduce((sum, name) => sum + locks.get(name).waiters.length, 0);
  const limit = shown.length > drawn ? `, the first ${drawn} are shown` : "";
  const counts =
    `${counted(shown.length, "lock", "locks")} in use, ${counted(waiters, "waiter", "waiters")}`;
  find("summary").textContent = `${counts}, at ${localTime(state.at)}${limit}`;
  const prefix = visible(find("prefix").value);
  const none = prefix === "" ? "No lock is in use." : `No lock in use begins with ${prefix}`;
  find("empty").textContent = shown.length === 0 ? none : "";

  const problems = state.error ? [`The store cannot be read: ${state.error}`] : [];
  if (!state.error && !state.complete) problems.push("There are more locks than these.");
  const text = problems.concat(state.skipped).map(visible).join("\n");
  if (find("problem").textContent !== text) find("problem").textContent = text;
}

// Every time of the page is that of the reader's clock.
function localTime(at) {
  return at === "" ? "an unknown time" : new Date(at).toLocaleTimeString();
}

function note(name, text) {
  const changes = find("changes");
  const item = document.createElement("li");
  item.append(
    element("time", localTime(state.at), { datetime: state.at }), " ",
    element("bdi", name, { class: "label" }), `: ${text}`,
  );
  changes.prepend(item);
  while (changes.children.length > CHANGES_MAX) changes.lastChild.remove();
}

function waiterOf(entry) {
  return `${claimant(entry)} ${entry.since}`;
}

// Describes who has begun to wait for a lock, who was granted it, and who released it.
function describe(before, after) {
  const name = visible((after ?? before).name);
  const tokens = new Set((before?.holders ?? []).map(tokenOf));
  const present = new Set((after?.holders ?? []).map(tokenOf));
  for (const holder of before?.holders ?? []) {
    if (present.has(tokenOf(holder))) continue;
    const known = after?.ended?.token === tokenOf(holder);
    const reason = known ? `: ${visible(after.ended.reason)}` : "";
    note(name, `${claimant(holder)} no longer holds it${reason}`);
  }
  for (const holder of after?.holders ?? []) {
    if (!tokens.has(tokenOf(holder))) {
      note(name, `granted to ${claimant(holder)}, ${tokensOf(holder).join(" ")}`);
    }
  }

  const waiting = new Set((before?.waiters ?? []).map(waiterOf));
  for (const waiter of after?.waiters ?? []) {
    if (!waiting.has(waiterOf(waiter))) note(name, `${claimant(waiter)} waits`);
  }
}

// Returns the names: most waiters first, then the oldest hold. page.rs has the same order.
function inOrder() {
  const compare = (a, b) => (a < b ? -1 : Number(a > b));
  const times = (lock) => lock.holders.filter(hasTime).map((holder) => holder.since);
  const oldest = (lock) => times(lock).sort()[0] ?? "~"; // Without a time it comes last.
  const keys = [...locks.values()].map((lock) => [lock.waiters.length, oldest(lock), lock.name]);
  keys.sort((a, b) => b[0] - a[0] || compare(a[1], b[1]) || compare(a[2], b[2]));
  return keys.map((key) => key[2]);
}

function take(message) {
  const { at, complete, error, skipped } = message;
  state = { at, complete, error, skipped };
}

function showAll(message) {
  take(message);
  // The rows of the first reply, which the server has drawn.
  if (rows.size === 0) body.replaceChildren();
  locks.clear();
  for (const lock of message.locks) locks.set(lock.name, lock);
  names = inOrder();
  draw();
}

function showChanges(message) {
  take(message);
  for (const lock of message.changed) {
    describe(locks.get(lock.name), lock);
    locks.set(lock.name, lock);
  }
  for (const name of message.removed) {
    describe(locks.get(name), undefined);
    locks.delete(name);
  }
  names = inOrder();
  draw();
}

function openBreak(lock, holder) {
  const dialog = find("break");
  const [word, tokens] = tokensOf(holder);
  find("break-text").textContent =
    `${visible(lock.name)} is held by ${claimant(holder)} with ${word} ${tokens}. ` +
    "It loses the lock. This alone does not stop its work.";
  find("break-error").textContent = "";
  dialog.querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    sendBreak(lock.name, tokenOf(holder));
  };
  dialog.showModal();
}

async function sendBreak(name, token) {
  const request = {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ name, token }),
  };
  try {
    const reply = await fetch("break", request);
    if (reply.ok) find("break").close();
    else find("break-error").textContent = await reply.text();
  } catch (error) {
    find("break-error").textContent = String(error);
  }
}

function tick() {
  for (const time of document.querySelectorAll("#locks time")) {
    const text = age(time.dateTime);
    if (time.textContent !== text) time.textContent = text;
  }
}

find("break-cancel").addEventListener("click", () => find("break").close());
find("prefix").addEventListener("input", draw);
document.querySelector("form[role=search]").addEventListener("submit", (event) => {
  event.preventDefault();
  draw();
});

setInterval(tick, 1000);

const events = new EventSource("locks");
events.addEventListener("locks", (event) => showAll(JSON.parse(event.data)));
events.addEventListener("change", (event) => showChanges(JSON.parse(event.data)));
events.addEventListener("error", () => {
  state = { ...state, error: "leasehold serve does not reply" };
  draw();
});
