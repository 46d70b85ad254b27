// The console: views over the broker's own HTTP API. No framework, no build, no network beyond the broker.
// A view is `async (parts, keep) => node`; `keep` is the view's memory between two looks.

const main = document.querySelector("main");
const dialog = document.querySelector("#dialog");
const LOOK_MS = 2000;
const POINTS = 150;

// Small helpers

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name !== "value") node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  // Last: a select takes the value of an option that it has.
  if (attributes.value !== null && attributes.value !== undefined) node.value = attributes.value;
  return node;
}

const count = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: 1 });
const short = (value) =>
  Number(value).toLocaleString("en", { notation: Math.abs(value) >= 10000 ? "compact" : "standard", maximumFractionDigits: 1 });
const when = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ").replace("Z", "") : "–");
const path = (...parts) => parts.map(encodeURIComponent).join("/");
const link = (text, ...parts) => h("a", { href: "#/" + path(...parts) }, text);
const pill = (text) => h("span", { class: `pill ${text}` }, text);

// Values are bytes: text is shown as text, anything else as a dump; what could mislead the eye is written out.
const SHOWN_MAX = 64 << 10;
const bytesOf = (base64) => Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
const HIDING = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const plain = (text) => text.replace(HIDING, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
const hex = (bytes) => [...bytes].map((each) => each.toString(16).padStart(2, "0")).join(" ");

function textIn(bytes, more) {
  try {
    return plain(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: more }));
  } catch {
    return null;
  }
}

// The first words of a value: no more of it is decoded.
function preview(base64) {
  const bytes = bytesOf(base64.slice(0, 1200));
  return (textIn(bytes, base64.length > 1200) ?? hex(bytes.subarray(0, 100))).slice(0, 300);
}

function dump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = bytes.subarray(at, at + 16);
    const letters = String.fromCharCode(...[...part].map((each) => (each > 31 && each < 127 ? each : 46)));
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex(part).padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function save(bytes, name) {
  const where = URL.createObjectURL(new Blob([bytes]));
  h("a", { href: where, download: name.replaceAll(/[^\w.-]/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(where), 60000);
}

// A whole value, or as much of it as one reads on a page.
function payload(found) {
  const bytes = bytesOf(found.value);
  const cut = bytes.length > SHOWN_MAX;
  const part = cut ? bytes.subarray(0, SHOWN_MAX) : bytes;
  const text = textIn(part, cut);
  const says = [bytes.length === 1 ? "1 byte" : `${count(bytes.length)} bytes`, text === null ? "not text" : "", cut ? `the first ${count(SHOWN_MAX)} are shown` : ""];
  return [h("pre", { class: text === null ? "dump" : null, tabindex: "0", "aria-label": "value" }, text === null ? dump(part) : cut ? text : pretty(text)),
    h("p", { class: "payload soft" }, h("span", {}, says.filter(Boolean).join(", ")),
      bytes.length ? h("button", { class: "small", type: "button", onclick: () => save(bytes, found.message_id) }, "Save…") : null)];
}

// What went wrong is said where one looks: in the dialog, if one is open.
function toast(text, bad = false) {
  if (bad && dialog.open) {
    dialog.querySelector(".error")?.remove();
    dialog.querySelector(".foot").before(h("p", { class: "error", role: "alert" }, text));
    return;
  }
  const node = h("div", { class: bad ? "toast bad" : "toast" }, text);
  document.querySelector("#toasts").append(node);
  setTimeout(() => node.remove(), bad ? 8000 : 3500);
}

// The API

class Refused extends Error {}

async function api(method, where, body) {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(where, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const found = await answer.json();
  if (answer.ok) return found;
  if (answer.status === 401) askToken();
  throw new Refused([found.error.message, ...found.error.suggestions].join("; "));
}

const get = (...parts) => api("GET", "/v1/" + path(...parts));

function query(where, values) {
  const said = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return said.length ? `${where}?${new URLSearchParams(said)}` : where;
}

let asking = false;
function askToken() {
  if (asking) return;
  asking = true;
  form("This broker asks for a token", [field("token", "Token", { type: "password", autocomplete: "off" })], "Use it", async (said) => {
    sessionStorage.setItem("token", said.token);
  }).finally(() => (asking = false));
}

// Forms in the dialog

function field(name, label, attributes = {}) {
  const { choices, long, ...rest } = attributes;
  if (attributes.type === "checkbox") return h("label", { class: "check" }, h("input", { name, ...rest }), label);
  if (choices) return h("label", {}, label, h("select", { name, ...rest }, choices.map((each) => h("option", { value: each }, each || "–"))));
  return h("label", {}, label, long ? h("textarea", { name, ...rest }) : h("input", { name, ...rest }));
}

function values(node) {
  const found = Object.fromEntries(new FormData(node));
  for (const box of node.querySelectorAll("input[type=checkbox]")) found[box.name] = box.checked;
  return found;
}

function form(title, fields, verb, act, danger = false) {
  return new Promise((resolve) => {
    const go = async (event) => {
      event.preventDefault();
      const button = event.target.querySelector("button.main");
      button.disabled = true;
      try {
        await act(values(event.target));
        dialog.close();
        look();
      } catch (error) {
        toast(error.message, true);
      }
      button.disabled = false;
    };
    dialog.replaceChildren(
      h("h2", {}, title),
      h("form", { onsubmit: go }, ...fields,
        h("div", { class: "foot" },
          h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"),
          h("button", { class: danger ? "main danger" : "main" }, verb))),
    );
    dialog.onclose = resolve;
    open();
  });
}

const confirm = (title, text, verb, act) => form(title, [h("div", {}, text)], verb, act, true);

function show(title, ...content) {
  dialog.replaceChildren(h("h2", {}, title), ...content,
    h("div", { class: "foot" }, h("button", { onclick: () => dialog.close(), autofocus: true }, "Close")));
  dialog.onclose = null;
  open();
}

// A long one begins at its beginning, wherever the button is that has the focus.
function open() {
  dialog.showModal();
  dialog.scrollTop = 0;
}

// Tables and charts

// Columns with `by` can be sorted by; `keep` remembers which was chosen.
function table(rows, columns, nothing, keep) {
  if (!rows.length) return h("div", { class: "nothing" }, nothing);
  const kind = (column) => ["number", "wide", "line"].filter((each) => column[each]).join(" ") || null;
  const sorted = keep?.sort && columns.find((column) => column.by && column.title === keep.sort.title);
  if (sorted) {
    const way = keep.sort.down ? -1 : 1;
    rows = [...rows].sort((one, other) => way * (sorted.by(one) < sorted.by(other) ? -1 : sorted.by(one) > sorted.by(other) ? 1 : 0));
  }
  const title = (column) => {
    if (!keep || !column.by) return h("th", { class: kind(column), scope: "col" }, column.title);
    const mine = column === sorted;
    const choose = () => { keep.sort = { title: column.title, down: mine ? !keep.sort.down : Boolean(column.number) }; look(); };
    return h("th", { class: kind(column), scope: "col", "aria-sort": mine ? (keep.sort.down ? "descending" : "ascending") : null },
      h("button", { class: "sort", onclick: choose }, column.title));
  };
  return h("div", { class: "table" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map(title))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: kind(column), "data-title": column.title }, textual(column.cell(row)))))))));
}

const textual = (content) => (["string", "number"].includes(typeof content) ? h("span", {}, String(content)) : content);
// Long words of somebody else's: two lines of them, and all when the pointer rests there.
const brief = (text) => h("span", { class: "brief", title: text.length > 60 ? text : null }, plain(text));

const svg = (tag, attributes, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

// The next number that is easy to read on an axis.
const round = (most) => {
  const size = 10 ** Math.floor(Math.log10(most));
  return size * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * size >= most);
};

// Lines over time, a point each `every` seconds and the last one now; what was then is shown under the pointer.
function chart(title, lines, unit, every) {
  const many = Math.max(...lines.map((line) => line.points.length));
  const top = round(1.05 * Math.max(1, ...lines.flatMap((line) => line.points)));
  const x = (at) => (at / Math.max(1, many - 1)) * 100;
  const y = (value) => 60 - (value / top) * 58;
  const ago = (at) => (at === many - 1 ? "now" : `${lasting((many - 1 - at) * every)} ago`);
  const figures = lines.map(() => h("b", {}));
  const time = h("span", { class: "soft" });
  const pointer = svg("line", { class: "pointer", y1: 2, y2: 60, visibility: "hidden" });
  const tell = (at) => {
    lines.forEach((line, place) => (figures[place].textContent = short(line.points[at] ?? 0) + unit));
    time.textContent = at === many - 1 ? "" : ago(at);
  };
  tell(many - 1);
  const picture = svg("svg", { viewBox: "0 0 100 60", preserveAspectRatio: "none", role: "img", "aria-label": title },
    ...[60, 31, 2].map((at) => svg("line", { x1: 0, x2: 100, y1: at, y2: at })), pointer);
  for (const line of many > 1 ? lines : []) {
    const points = line.points.map((value, at) => `${x(at)},${y(value)}`).join(" L");
    if (line === lines[0]) picture.append(svg("path", { class: "area", fill: line.colour, d: `M0,60 L${points} L100,60 Z` }));
    picture.append(svg("path", { class: "line", stroke: line.colour, d: `M${points}` }));
  }
  picture.addEventListener("pointermove", (event) => {
    if (many < 2) return;
    const at = Math.round(((event.clientX - picture.getBoundingClientRect().left) / picture.clientWidth) * (many - 1));
    for (const [name, value] of [["x1", x(at)], ["x2", x(at)], ["visibility", "visible"]]) pointer.setAttribute(name, value);
    tell(Math.min(many - 1, Math.max(0, at)));
  });
  picture.addEventListener("pointerleave", () => { pointer.setAttribute("visibility", "hidden"); tell(many - 1); });
  return h("section", { class: "card chart" }, h("h2", {}, title, " ", time),
    h("div", { class: "legend" }, lines.map((line, place) => h("span", {}, h("i", { style: `background:${line.colour}` }), `${line.name} `, figures[place]))),
    h("div", { class: "plot" }, h("span", { class: "top" }, short(top) + unit), picture, many > 1 ? null : h("span", { class: "nothing" }, "In a moment there is something to see.")),
    h("div", { class: "scale" }, h("span", {}, many > 1 ? ago(0) : ""), h("span", {}, "now")));
}

const figure = (value, text, bad = false) => h("div", { class: bad ? "figure bad" : "figure" }, h("b", {}, value), h("span", {}, text));
const head = (title, crumbs, ...actions) =>
  h("div", { class: "head" }, crumbs ? h("div", { class: "crumb" }, crumbs) : null, h("h1", {}, title), h("span", { class: "space" }), ...actions);
const card = (title, ...content) => h("section", { class: "card" }, title ? h("h2", {}, title) : null, ...content);

// What a page has seen of a topic or group since it was opened: the broker keeps the history of the whole only.
function push(keep, values) {
  keep.seen ??= Object.fromEntries(Object.keys(values).map((name) => [name, []]));
  for (const [name, value] of Object.entries(values)) {
    keep.seen[name].push(value);
    if (keep.seen[name].length > POINTS) keep.seen[name].shift();
  }
  return keep.seen;
}

const TRENDS = { growing: " ↗", shrinking: " ↘", steady: "" };
const capacity = (each) => h("span", { class: "line", title: `its lag is ${each.trend}` }, pill(each.status), TRENDS[each.trend],
  each.catch_up_seconds ? ` ${lasting(each.catch_up_seconds)} to go` : "");

// Views

async function overview(parts, keep) {
  const [stats, dead, health] = await Promise.all([api("GET", "/v1/stats?recent=120&history=180&top=16"), get("dlq"), api("GET", "/health")]);
  setCount("dead", dead.total);
  const { totals, recent, history, recent_seconds: every } = stats;
  const rates = (name) => recent.map((each) => each[name] / every);
  const rate = (name) => short(rates(name).at(-1) ?? 0);
  const busiest = Object.entries(stats.topics).filter(([name]) => !name.endsWith(".dlq")).sort((a, b) => b[1].published.one + b[1].delivered.one - a[1].published.one - a[1].delivered.one).slice(0, 8);
  const behind = Object.entries(stats.groups).sort((a, b) => b[1].lag - a[1].lag).slice(0, 8);
  const line = (name, colour, points) => ({ name, colour: `var(--${colour})`, points });
  return [
    head("Overview", null, h("span", { class: "soft" }, `broker ${health.broker} · version ${health.version} · up ${lasting(health.uptime_seconds)}`)),
    health.recommendations.length ? h("section", { class: "card attention" }, h("h2", {}, "Needs attention"), h("ul", {}, health.recommendations.map((each) => h("li", {}, each)))) : null,
    h("div", { class: "figures" },
      figure(rate("published"), "in / s"), figure(rate("delivered"), "out / s"), figure(rate("settled"), "acked / s"),
      figure(short(totals.messages), "messages kept"), figure(short(totals.lag), "lag"), figure(short(totals.in_flight), "in flight"),
      figure(short(dead.total), "dead letters", dead.total > 0), figure(short(totals.connections), "connections")),
    h("div", { class: "grid two" },
      chart("Messages", [line("in", "one", rates("published")), line("out", "two", rates("delivered")), line("acked", "three", rates("settled"))], "/s", every),
      chart("Waiting", [line("lag", "two", recent.map((each) => each.lag)), line("in flight", "one", recent.map((each) => each.in_flight))], "", every),
      chart("Trouble", [line("failed", "three", rates("failed")), line("dead letters", "bad", rates("dead_letters")), line("refused", "two", rates("refused"))], "/s", every),
      chart("The last hours", [line("in", "one", history.map((each) => each.published)), line("acked", "three", history.map((each) => each.settled))], "/min", 60)),
    h("div", { class: "grid two" },
      card("Busiest topics", table(busiest, [
        { title: "topic", wide: true, cell: ([name]) => link(name, "topics", name) }, { title: "messages", number: true, cell: ([, each]) => short(each.depth) },
        { title: "in/s", number: true, cell: ([, each]) => short(each.published.one) }, { title: "out/s", number: true, cell: ([, each]) => short(each.delivered.one) },
        { title: "capacity", cell: ([, each]) => capacity(each.capacity) },
      ], "No topics yet: publish something, or make one.")),
      card("Groups furthest behind", table(behind, [
        { title: "group", wide: true, cell: ([name]) => link(name, "groups", name) }, { title: "lag", number: true, cell: ([, each]) => short(each.lag) },
        { title: "in flight", number: true, cell: ([, each]) => short(each.in_flight) }, { title: "acked/s", number: true, cell: ([, each]) => short(each.settled.one) },
      ], "No groups yet: they appear when a consumer names one."))),
  ];
}

const lasting = (seconds) => {
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const at = units.findIndex(([, size]) => seconds >= size);
  if (at < 0) return "0s";
  return units.slice(at, at + 2).map(([name, size], place) => `${Math.floor((place ? seconds % units[at][1] : seconds) / size)}${name}`).join(" ");
};

const filterBox = (keep, text) =>
  h("input", { type: "search", id: "filter", placeholder: text, "aria-label": text, value: keep.filter ?? "", style: "max-width:16rem",
    oninput: (event) => { keep.filter = event.target.value; look(); } });

const ROWS = 500;

async function topics(parts, keep) {
  if (parts.length) return topic(parts[0], keep);
  const { topics: rows, total } = await api("GET", query("/v1/topics", { contains: keep.filter, limit: ROWS }));
  return [
    head("Topics", null, filterBox(keep, "Filter by name  ( / )"), h("button", { class: "main", onclick: newTopic, "data-key": "n" }, "New topic")),
    card(null, table(rows, [
      { title: "name", wide: true, by: (row) => row.name, cell: (row) => link(row.name, "topics", row.name) },
      { title: "partitions", number: true, by: (row) => row.partitions, cell: (row) => h("span", { class: "line" }, row.partitions + (row.lanes ? " × 5 lanes" : "")) },
      { title: "messages", number: true, by: (row) => row.messages, cell: (row) => count(row.messages) },
      { title: "in/s", number: true, by: (row) => row.publish_rate, cell: (row) => count(row.publish_rate) },
      { title: "out/s", number: true, by: (row) => row.deliver_rate, cell: (row) => count(row.deliver_rate) },
      { title: "lag", number: true, by: (row) => row.capacity.lag, cell: (row) => count(row.capacity.lag) },
      { title: "capacity", cell: (row) => capacity(row.capacity) },
    ], keep.filter ? "None matches." : "No topics yet: publish something, or make one.", keep),
    total > rows.length ? h("div", { class: "soft" }, `The first ${count(rows.length)} of ${count(total)} by name: filter to see others.`) : null),
  ];
}

const newTopic = () => form("New topic", [
  field("name", "Name, levels divided by dots", { required: true, pattern: "[A-Za-z0-9_\\-]+([.\\/][A-Za-z0-9_\\-]+)*", autofocus: true }),
  field("partitions", "Partitions", { type: "number", min: 1, max: 1000, value: 1 }),
  field("lanes", "Five lanes, by priority", { type: "checkbox" }),
  field("lease", "Time for a delivery (30s)", { placeholder: "30s" }), field("hours", "Keep for hours (168)", { type: "number", min: 0 }),
], "Make it", async (said) => {
  const body = { name: said.name, partitions: Number(said.partitions), lanes: said.lanes };
  if (said.lease) body.lease = said.lease;
  if (said.hours) body.retention = { hours: Number(said.hours) };
  await api("POST", "/v1/topics", body);
  toast(`${said.name} is there`);
  location.hash = "#/" + path("topics", said.name);
});

// What is stored never changes: a page is asked for again only where something may have come to it, or gone from it.
const PAGE = 20;
async function browsed(keep, found, asked) {
  const ends = JSON.stringify(found.logs.map((log) => [log.start, keep.page?.messages.length === PAGE ? 0 : log.end]));
  if (keep.asked !== asked || keep.ends !== ends) Object.assign(keep, { page: await api("GET", asked), asked, ends });
  return keep.page;
}

const DURATIONS = ["lease", "lease_max", "ttl", "lag_critical_time"];
const NUMBERS = ["max_retries", "bytes_max_hard", "lag_warning", "lag_critical"];
const SWITCHES = ["compact", "retain_on_ack", "dead_letters", "expired_to_dead_letters"];
const words = (name) => name.replaceAll("_", " ");

async function topic(name, keep) {
  const where = "/v1/" + path("topics", name);
  const [found, { subscribers }] = await Promise.all([api("GET", where), api("GET", `${where}/subscribers`)]);
  const said = (keep.browse ??= { partition: 0, offset: Math.max(0, found.logs[0].end - 20), priority: found.lanes ? "normal" : "" });
  const page = await browsed(keep, found, query(`${where}/messages`, { limit: PAGE, ...said }));
  const browse = (change) => { Object.assign(said, change); look(); };
  const settings = found.settings;
  const seen = push(keep, { in: found.publish_rate, out: found.deliver_rate, lag: found.capacity.lag });
  return [
    head(found.name, link("Topics", "topics"),
      h("span", { class: "soft" }, capacity(found.capacity)),
      h("button", { class: "main", onclick: () => publish(found), "data-key": "n" }, "Publish"),
      h("button", { onclick: () => configure(found) }, "Settings"),
      h("button", { class: "danger", onclick: () => confirm(`Delete ${found.name}?`, `${count(found.messages)} messages go with it` +
        (subscribers.length ? `, and ${subscribers.length} subscribers lose it.` : "."), "Delete", async () => {
        await api("DELETE", `${where}?force=true`);
        location.hash = "#/topics";
      }) }, "Delete")),
    h("div", { class: "grid two" },
      chart("Messages, average of a minute", [{ name: "in", colour: "var(--one)", points: seen.in }, { name: "out", colour: "var(--two)", points: seen.out }], "/s", LOOK_MS / 1000),
      chart("Lag of the group furthest behind", [{ name: "lag", colour: "var(--two)", points: seen.lag }], "", LOOK_MS / 1000)),
    card("Messages",
      h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); const asked = values(event.target);
        browse({ partition: Number(asked.partition), priority: asked.priority ?? "", offset: asked.since ? null : Number(asked.offset), since: asked.since || null }); } },
        field("partition", "Partition", { type: "number", min: 0, max: found.partitions - 1, value: said.partition }),
        found.lanes ? field("priority", "Lane", { choices: ["critical", "high", "normal", "low", "background"], value: said.priority }) : null,
        field("offset", "From offset", { type: "number", min: 0, value: said.offset ?? "" }),
        field("since", "or since (5m, 2026-01-31T12:00)", { value: said.since ?? "" }),
        h("button", {}, "Browse")),
      table(page.messages, [
        { title: "offset", number: true, cell: (each) => h("button", { class: "link mono", onclick: () => message(each) }, String(each.offset)) },
        { title: "time (UTC)", cell: (each) => h("span", { class: "soft line" }, when(each.timestamp)) }, { title: "key", line: true, cell: (each) => plain(each.key ?? "") },
        { title: "value", line: true, cell: (each) => h("code", {}, preview(each.value)) },
      ], "Nothing here."),
      h("div", { class: "foot" },
        h("button", { class: "small", disabled: !page.start && !said.offset, onclick: () => browse({ offset: Math.max(page.start, (page.messages[0]?.offset ?? page.end) - 20), since: null }) }, "‹ Older"), " ",
        h("button", { class: "small", disabled: page.next === undefined, onclick: () => browse({ offset: page.next, since: null }) }, "Newer ›"), " ",
        h("span", { class: "soft" }, `offsets ${count(page.start)} to ${count(page.end)}`))),
    h("div", { class: "grid" },
      card("Partitions", table(found.logs, [
        { title: "partition", cell: (log) => log.partition + (log.lane ? ` · ${log.lane}` : "") }, { title: "start", number: true, cell: (log) => count(log.start) },
        { title: "end", number: true, cell: (log) => count(log.end) }, { title: "messages", number: true, cell: (log) => count(log.end - log.start) }], "")),
      card("Subscribers", table(subscribers, [
        { title: "client", cell: (each) => each.client }, { title: "group", cell: (each) => (each.group ? link(each.group, "groups", each.group) : "–") },
        { title: "pattern", cell: (each) => h("code", {}, each.pattern) }, { title: "in flight", number: true, cell: (each) => `${each.in_flight} / ${each.max_inflight}` }], "Nobody reads it now.")),
      card("Settings", h("dl", {}, ["retention", "sync", ...DURATIONS, ...NUMBERS, ...SWITCHES].flatMap((key) => [h("dt", {}, words(key)),
        h("dd", {}, key === "retention" ? `${settings.retention.hours} h, ${settings.retention.bytes || "any"} bytes, ${settings.retention.count || "any"} messages` : String(settings[key]))])))),
  ];
}

const publish = (found) => form(`Publish to ${found.name}`, [
  field("text", "Message", { long: true, autofocus: true }), field("key", "Key"), field("headers", "Headers, name=value a line", { long: true, style: "min-height:3rem" }),
  found.lanes ? field("priority", "Priority", { choices: ["normal", "critical", "high", "low", "background"] }) : null,
  h("div", { class: "grid" }, field("delay", "Delay (5s)"), field("ttl", "Expires after (1h)")),
].filter(Boolean), "Publish", async (said) => {
  const body = { text: said.text };
  for (const name of ["key", "delay", "ttl", "priority"]) if (said[name]) body[name] = said[name];
  const lines = said.headers.split("\n").filter(Boolean);
  if (lines.length) body.headers = Object.fromEntries(lines.map((line) => [line.split("=", 1)[0], line.slice(line.indexOf("=") + 1)]));
  const stored = await api("POST", "/v1/" + path("topics", found.name, "publish"), body);
  toast(`${stored.message_id} is stored`);
});

const configure = (found) => form(`Settings of ${found.name}`, [
  ...DURATIONS.map((name) => field(name, words(name), { value: found.settings[name] })),
  ...NUMBERS.map((name) => field(name, words(name), { type: "number", min: 0, value: found.settings[name] })),
  field("hours", "keep for hours (0: no limit)", { type: "number", min: 0, step: "any", value: found.settings.retention.hours }),
  field("sync", "sync", { choices: ["always", "interval", "os"], value: found.settings.sync }),
  ...SWITCHES.map((name) => field(name, words(name), { type: "checkbox", checked: found.settings[name] })),
], "Save", async (said) => {
  const body = { sync: said.sync, retention: { hours: Number(said.hours) } };
  for (const name of DURATIONS) body[name] = said[name];
  for (const name of NUMBERS) body[name] = Number(said[name]);
  for (const name of SWITCHES) body[name] = said[name];
  await api("PATCH", "/v1/" + path("topics", found.name), body);
  toast("Saved");
});

function message(found) {
  show(found.message_id, h("dl", {}, h("dt", {}, "time"), h("dd", {}, `${when(found.timestamp)} UTC`), h("dt", {}, "key"), h("dd", {}, found.key ?? "–"),
    ...Object.entries(found.headers).flatMap(([name, value]) => [h("dt", {}, plain(name)), h("dd", {}, plain(value))])),
  ...payload(found), h("p", {}, h("a", { href: "#/" + path("trace", found.message_id), onclick: () => dialog.close() }, "Where is it now?")));
}

// A message taken here is leased like anybody's: settled by a button, or given back uncounted when the dialog is closed.
const MEMBER = `console-${crypto.getRandomValues(new Uint32Array(1))[0].toString(16)}`;

async function take(name, patterns) {
  const where = "/v1/" + path("groups", name);
  await api("POST", `${where}/join`, { consumerId: MEMBER, topics: patterns });
  const leave = () => api("POST", `${where}/leave`, { member: MEMBER }).then(look, () => {});
  const { messages: [found] } = await api("POST", `${where}/poll`, { member: MEMBER, max: 1, timeout: "2s" });
  if (!found) {
    await leave();
    toast(`Nothing in ${name} waits to be taken now`);
    return;
  }
  const settle = (verb, text) => async () => {
    const reason = dialog.querySelector("[name=reason]").value;
    try {
      await api("POST", `${where}/${verb}`, { receipts: [found.receipt], ...(verb === "ack" || !reason ? {} : { reason }) });
    } catch (error) { return toast(error.message, true); }
    toast(text);
    dialog.close();
  };
  show(found.message_id, h("dl", {}, ...[["group", name], ["try", found.attempt], ["key", found.key ?? "–"], ["yours until", `${when(found.deadline)} UTC`]].flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, String(value))])),
    ...payload(found), field("reason", "Reason, where it is not acknowledged"),
    h("div", { class: "row" }, h("button", { class: "main", onclick: settle("ack", "Acknowledged") }, "Acknowledge"),
      h("button", { onclick: settle("nack", "It is tried again") }, "Try again"), h("button", { class: "danger", onclick: settle("reject", "It goes to the dead letters") }, "Reject")));
  dialog.onclose = leave;
}

const consume = () => form("Consume", [
  field("group", "Group (it is made if there is none)", { required: true, autofocus: true }), field("topics", "Topics or patterns, divided by spaces", { required: true }),
], "Take a message", async (said) => { setTimeout(() => take(said.group, said.topics.split(/\s+/).filter(Boolean)).catch((error) => toast(error.message, true))); });

const standing = (row) => (row.state === "empty" && row.lag ? h("span", { class: "pill silent", title: "It has messages and nobody to read them" }, "nobody reads") : pill(row.state));

async function groups(parts, keep) {
  if (parts.length) return group(parts[0], keep);
  const { groups: rows } = await get("groups");
  const shown = rows.filter((row) => row.name.includes(keep.filter ?? ""));
  return [
    head("Groups", null, filterBox(keep, "Filter by name  ( / )"), h("button", { class: "main", onclick: consume, "data-key": "n" }, "Consume…")),
    card(null, table(shown, [
      { title: "name", wide: true, by: (row) => row.name, cell: (row) => link(row.name, "groups", row.name) },
      { title: "state", by: (row) => row.state, cell: (row) => standing(row) },
      { title: "mode", by: (row) => row.mode + row.strategy, cell: (row) => h("span", { class: "line" }, `${row.mode} · ${row.strategy}`) },
      { title: "members", number: true, by: (row) => row.members, cell: (row) => row.members },
      { title: "lag", number: true, by: (row) => row.lag, cell: (row) => count(row.lag) }, { title: "in flight", number: true, by: (row) => row.in_flight, cell: (row) => count(row.in_flight) },
      { title: "retrying", number: true, by: (row) => row.retrying, cell: (row) => count(row.retrying) }, { title: "acked/s", number: true, by: (row) => row.settle_rate, cell: (row) => count(row.settle_rate) },
      { title: "reads", cell: (row) => h("code", {}, brief(row.patterns.join(", "))) },
    ], rows.length ? "None matches." : "No groups yet: they appear when a consumer names one.", keep)),
  ];
}

async function group(name, keep) {
  const where = "/v1/" + path("groups", name);
  const [found, lag, members, pending] = await Promise.all(["", "/lag", "/members", "/pending"].map((end) => api("GET", where + end)));
  const act = (text, verb, run) => async () => { try { await run(); toast(text); look(); } catch (error) { toast(error.message, true); } };
  const shared = found.mode === "shared";
  const seen = push(keep, { lag: found.lag, held: found.in_flight, acked: found.settle_rate });
  return [
    head(found.name, link("Groups", "groups"), standing(found), h("span", { class: "pill" }, `${found.mode} · ${found.strategy}`), h("span", { class: "soft" }, "reads ", h("code", {}, found.patterns.join(", "))),
      h("button", { onclick: () => take(name, found.patterns).catch((error) => toast(error.message, true)), "data-key": "n" }, "Take a message"),
      h("button", { onclick: () => reset(where, lag) }, "Reset…"),
      found.mode === "partitioned" ? h("button", { onclick: act("A new plan is made", "", () => api("POST", `${where}/rebalance`)) }, "Rebalance")
        : null,
      found.members ? null : h("button", { onclick: () => form("Strategy", [field("strategy", "Strategy", { value: found.strategy,
        choices: ["round-robin", "least-loaded", "range", "partitioned-round-robin", "sticky", "cooperative-sticky"] })], "Save", (said) => api("PATCH", where, said)) }, "Strategy")),
    h("div", { class: "figures" }, figure(short(found.lag), "lag", standing(found).textContent === "nobody reads"), figure(short(found.in_flight), "in flight"), figure(short(found.retrying), "waiting for a retry"), figure(short(found.settle_rate), "acked / s"),
      figure(found.members, "members"), figure(found.generation, "generation")),
    h("div", { class: "grid two" },
      chart("Waiting", [{ name: "lag", colour: "var(--two)", points: seen.lag }, { name: "in flight", colour: "var(--one)", points: seen.held }], "", LOOK_MS / 1000),
      chart("Acked, average of a minute", [{ name: "acked", colour: "var(--three)", points: seen.acked }], "/s", LOOK_MS / 1000)),
    card("Members", table(members.members, [
      { title: "member", cell: (each) => h("code", {}, each.id) }, { title: "address", cell: (each) => each.address }, { title: "health", cell: (each) => pill(each.health) },
      { title: "seen", number: true, line: true, cell: (each) => `${each.seen_seconds_ago.toFixed(1)} s ago` }, { title: "in flight", number: true, cell: (each) => each.in_flight },
      { title: "oldest", number: true, cell: (each) => `${each.oldest_pending_seconds.toFixed(1)} s` }, { title: "mean", number: true, cell: (each) => `${count(each.mean_processing_ms)} ms` },
      { title: "errors", number: true, cell: (each) => `${(each.error_rate * 100).toFixed(1)}%` }, ...(shared ? [] : [{ title: "partitions", number: true, cell: (each) => each.assignments.length }]),
      { title: "", cell: (each) => h("div", { class: "actions" }, h("button", { class: "small danger", onclick: () => confirm(`Take ${each.id} out?`,
        "Its connection is closed and what it holds goes to others.", "Take out", () => api("DELETE", `${where}/members/${encodeURIComponent(each.id)}`)) }, "Take out")) },
    ], "Nobody is in it now; its place is kept.")),
    h("div", { class: "grid" },
      card("Lag by partition", table(lag.partitions.sort((one, other) => other.lag - one.lag).slice(0, LAGS), [
        { title: "topic", cell: (row) => link(row.topic, "topics", row.topic) }, { title: "partition", number: true, cell: (row) => row.partition + (row.lane ? ` · ${row.lane}` : "") },
        { title: "settled to", number: true, cell: (row) => count(row.floor) }, { title: "end", number: true, cell: (row) => count(row.end) },
        { title: "lag", number: true, cell: (row) => count(row.lag) }, { title: "age", number: true, cell: (row) => lasting(row.lag_seconds) }, ...(shared ? [] : [{ title: "member", cell: (row) => row.member ?? "–" }]),
      ], "It reads nothing yet."), lag.partitions.length > LAGS ? h("div", { class: "soft" }, `The ${LAGS} furthest behind of ${count(lag.partitions.length)}.`) : null),
      card(`Under way (${count(pending.total)})`, table(pending.pending, [
        { title: "range", cell: (row) => h("code", {}, `${row.topic}:${row.partition}:${row.first}${row.last > row.first ? "–" + row.last : ""}`) }, { title: "state", cell: (row) => pill(row.state) },
        { title: "member", cell: (row) => row.member }, { title: "attempt", number: true, cell: (row) => row.attempt }, { title: "due in", number: true, cell: (row) => `${row.seconds.toFixed(0)} s` },
      ], "Nothing is under way."))),
  ];
}

const LAGS = 100;
const reset = (where, lag) => form("Reset the group's place", [
  h("div", { class: "soft" }, "What its members hold is taken from them; attempts begin anew."),
  field("to", "To: earliest, latest, an offset, a time, or how long ago (5m)", { required: true, value: "earliest", autofocus: true }),
  field("topic", "Only in topic", { choices: ["", ...new Set(lag.partitions.map((row) => row.topic))] }),
], "Reset", async (said) => {
  const body = { to: said.to };
  if (said.topic) body.topic = said.topic;
  const moved = await api("POST", `${where}/offsets`, body);
  toast(`${moved.offsets.length} partitions moved`);
}, true);

async function dead(parts, keep) {
  if (parts.length) return deadOf(parts[0], keep);
  const [{ topics: rows, total }, { replays }] = await Promise.all([get("dlq"), get("replays")]);
  setCount("dead", total);
  return [
    head("Dead letters", null),
    card(null, table(rows.filter((row) => row.messages), [
      { title: "topic", wide: true, cell: (row) => link(row.topic, "dead", row.topic) }, { title: "dead letters", number: true, cell: (row) => count(row.messages) },
    ], "None. Messages whose tries are used up come here.")),
    jobs(replays),
  ];
}

function jobs(replays) {
  const change = (job, state) => async () => { try { await api("PATCH", `/v1/replays/${job.id}`, { state }); look(); } catch (error) { toast(error.message, true); } };
  return card("Replays", table(replays.slice(0, 20), [
    { title: "job", number: true, cell: (job) => job.id }, { title: "topic", cell: (job) => link(job.topic, "dead", job.topic) }, { title: "to", cell: (job) => Object.keys(job.targets).join(", ") },
    { title: "state", cell: (job) => h("span", {}, pill(job.state), " ", h("span", { class: "soft" }, job.reason)) },
    { title: "progress", wide: true, cell: (job) => h("span", {}, h("progress", { max: job.total, value: job.done }), `${count(job.done)} of ${count(job.total)}`) },
    { title: "", cell: (job) => h("div", { class: "actions" },
      job.state === "running" ? h("button", { class: "small", onclick: change(job, "paused") }, "Pause") : null, job.state === "paused" ? h("button", { class: "small", onclick: change(job, "running") }, "Go on") : null,
      ["running", "paused"].includes(job.state) ? h("button", { class: "small danger", onclick: () => confirm(`Abort replay ${job.id}?`, "What it has not published stays here.", "Abort", () => api("DELETE", `/v1/replays/${job.id}`)) }, "Abort") : null) },
  ], "No replay yet."));
}

async function deadOf(name, keep) {
  const where = "/v1/" + path("dlq", name);
  const said = (keep.filters ??= { reason: "", group: "", newer_than: "" });
  const [page, { replays }] = await Promise.all([api("GET", query(where, { limit: 50, offset: keep.offset ?? 0, ...said })), get("replays")]);
  return [
    head(name, link("Dead letters", "dead"),
      h("button", { class: "main", disabled: !page.total, onclick: () => replay(where, said, page.total) }, "Replay…"),
      h("button", { class: "danger", disabled: !page.total, onclick: () => purge(where, said) }, "Purge…")),
    card(`${count(page.total)} dead letters`,
      h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); keep.filters = values(event.target); keep.offset = 0; look(); } },
        field("reason", "Died of", { choices: ["", "processing", "poison", "timeout", "rejected", "expired", "unspecified"], value: said.reason }), field("group", "In group", { value: said.group }),
        field("newer_than", "Since (1h)", { value: said.newer_than }), h("button", {}, "Filter")),
      table(page.entries, [
        { title: "message", cell: (each) => h("button", { class: "link mono", onclick: () => letter(where, each) }, each.original_id || String(each.offset)) },
        { title: "died (UTC)", cell: (each) => h("span", { class: "soft line" }, when(each.died)) }, { title: "group", cell: (each) => brief(each.group) }, { title: "reason", line: true, cell: (each) => each.reason },
        { title: "tries", number: true, cell: (each) => each.attempts }, { title: "error", wide: true, cell: (each) => brief(each.error) },
        { title: "", cell: (each) => h("div", { class: "actions" }, h("button", { class: "small", onclick: () => replay(where, { offsets: [each.offset] }, 1) }, "Replay")) },
      ], "None matches."),
      page.next !== undefined || keep.offset ? h("div", {}, h("button", { class: "small", disabled: !keep.offset, onclick: () => { keep.offset = 0; look(); } }, "‹ First"), " ",
        h("button", { class: "small", disabled: page.next === undefined, onclick: () => { keep.offset = page.next; look(); } }, "Next ›")) : null),
    jobs(replays.filter((job) => job.topic === name)),
  ];
}

function letter(where, each) {
  show(each.original_id || each.message_id,
    h("dl", {}, ...[["reason", each.reason], ["error", each.error], ["group", each.group], ["tries", each.attempts], ["died", `${when(each.died)} UTC`], ["removed", `${when(each.remove_at)} UTC`], ["key", each.key ?? "–"],
      ...Object.entries(each.headers)].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, String(value))])),
    ...payload(each),
    each.history.length ? h("div", {}, h("h2", {}, "What was tried"), table(each.history, [
      { title: "member", cell: (one) => h("code", {}, one.member || "–") }, { title: "delivered (UTC)", line: true, cell: (one) => when(one.delivered) },
      { title: "held", number: true, cell: (one) => `${count((one.ended - one.delivered) / 1000)} s` }, { title: "result", cell: (one) => one.result }, { title: "error", wide: true, cell: (one) => brief(one.error) },
    ], "")) : null);
}

const chosen = (said) => Object.fromEntries(Object.entries(said).filter(([, value]) => value.length));

async function replay(where, said, total) {
  try {
    const plan = await api("POST", `${where}/replay`, { ...chosen(said), dry_run: true });
    await form("Replay dead letters", [
      h("div", {}, `${count(plan.total)} of ${count(total)} are published again, in their original order: `, Object.entries(plan.targets).map(([name, many]) => `${count(many)} to ${name}`).join(", "), "."),
      field("to", "Into another topic instead"), field("rate", "Messages a second (0: as fast as it goes)", { type: "number", min: 0, max: 10000, value: 0 }),
      field("pause_lag", "Wait while consumers are so many behind (0: never)", { type: "number", min: 0, value: 0 }),
      field("pause_deaths", "Pause when so many died again (0: never)", { type: "number", min: 0, value: 0 }),
    ], "Replay", async (asked) => {
      const job = await api("POST", `${where}/replay`, { ...chosen(said), to: asked.to, rate: Number(asked.rate), pause_lag: Number(asked.pause_lag), pause_deaths: Number(asked.pause_deaths) });
      toast(`Replay ${job.id} is under way`);
    });
  } catch (error) {
    toast(error.message, true);
  }
}

async function purge(where, said) {
  try {
    const plan = await api("POST", `${where}/purge`, { ...chosen(said), dry_run: true });
    await confirm("Purge dead letters?", `${count(plan.messages)} are removed for good.`, "Purge", async () => {
      const done = await api("POST", `${where}/purge`, chosen(said));
      toast(`${count(done.messages)} removed`);
    });
  } catch (error) {
    toast(error.message, true);
  }
}

async function connections(parts, keep) {
  const { connections: rows, total } = await get("connections");
  const shown = rows.filter((row) => `${row.client} ${row.address} ${row.groups}`.includes(keep.filter ?? ""));
  return [
    head("Connections", null, filterBox(keep, "Filter  ( / )")),
    card(null, table(shown, [
      { title: "session", number: true, by: (row) => row.session, cell: (row) => row.session }, { title: "client", wide: true, by: (row) => row.client, cell: (row) => row.client },
      { title: "address", by: (row) => row.address, cell: (row) => h("code", {}, row.address) },
      { title: "seen", number: true, line: true, by: (row) => row.seen_seconds_ago, cell: (row) => `${row.seen_seconds_ago.toFixed(1)} s ago` },
      { title: "groups", cell: (row) => row.groups.flatMap((name, at) => [at ? ", " : "", link(name, "groups", name)]) },
      { title: "subscriptions", number: true, by: (row) => row.subscriptions, cell: (row) => row.subscriptions }, { title: "in flight", number: true, by: (row) => row.in_flight, cell: (row) => count(row.in_flight) },
    ], rows.length ? "None matches." : "Nobody is connected.", keep), total > rows.length ? h("div", { class: "soft" }, `The first ${rows.length} of ${total}.`) : null),
  ];
}

async function settings(parts, keep) {
  const { settings: rows } = await api("GET", "/admin/config");
  const shown = rows.filter((row) => row.key.includes(keep.filter ?? ""));
  const change = (row) => form(`Change ${row.key}`, [h("div", {}, row.says), field("value", "Value, until the next start", { value: row.value, autofocus: true })], "Change it", async (said) => {
    await api("PATCH", "/admin/config", { settings: { [row.key]: said.value } });
    toast(`${row.key} is ${said.value}`);
  });
  return [
    head("Settings", null, filterBox(keep, "Filter by key  ( / )")),
    card(null, table(shown, [
      { title: "key", cell: (row) => h("code", {}, row.key) }, { title: "value", cell: (row) => h("b", {}, row.value || "–") },
      { title: "to change", cell: (row) => (row.changeable ? h("button", { class: "small", "aria-label": `Change ${row.key}`, onclick: () => change(row) }, "Change…") : h("span", { class: "soft line" }, "takes a restart")) },
      { title: "from", cell: (row) => h("span", { class: row.origin === "default" ? "soft" : "pill" }, row.origin) }, { title: "what for", wide: true, cell: (row) => h("span", { class: "soft" }, row.says) },
    ], "None matches.")),
  ];
}

const DEEP_MS = 30000;
const DOES = {
  normal: "The broker does everything.", throttled: "Confirms are held back, less important messages are refused.", "read-only": "No messages are taken; delivery goes on.",
  maintenance: "Like read-only, and /ready says no, so that balancers send nobody here.", emergency: "No new connections either; those that are there are served.",
};

async function health(parts, keep) {
  // A deep look writes a message: now and then is enough.
  const deep = Date.now() - (keep.deepAt ?? 0) > DEEP_MS;
  const [found, level] = await Promise.all([api("GET", `/health?deep=${deep}`), api("GET", "/admin/level").catch(() => null)]);
  if (deep) { keep.deepAt = Date.now(); keep.deep = found.components.at(-1); } else found.components.push(keep.deep);
  const change = () => form("Change the level", [
    field("level", "The broker does", { choices: Object.keys(DOES), value: found.level }),
    h("dl", {}, ...Object.entries(DOES).flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
    field("reason", "Why (clients are told)", { value: "an operator asked for it" }),
  ], "Change it", async (said) => { await api("PUT", "/admin/level", said); toast(`The level is ${said.level}`); });
  const reload = async () => {
    try {
      const done = await api("POST", "/admin/reload");
      toast(`Read again. Changed: ${done.changed.join(", ") || "nothing"}.${done.needs_restart.length ? ` Takes a restart: ${done.needs_restart.join(", ")}.` : ""}`);
    } catch (error) { toast(error.message, true); }
  };
  return [
    head("Health", null, pill(found.status),
      h("button", { class: found.level === "normal" ? null : "main", onclick: change }, "Level…"),
      h("button", { onclick: reload }, "Reload"),
      h("button", { onclick: async () => { await api("POST", "/admin/checkpoint"); toast("A checkpoint is being written"); } }, "Checkpoint")),
    card("Components", table(found.components, [{ title: "component", cell: (row) => row.name }, { title: "status", cell: (row) => pill(row.status) }, { title: "what it says", wide: true, cell: (row) => row.says }], "")),
    card(`Level: ${found.level}`, h("p", {}, DOES[found.level]), level?.asked.length ? table(level.asked, [
      { title: "asked by", cell: (row) => row.source }, { title: "level", cell: (row) => pill(row.level) }, { title: "why", wide: true, cell: (row) => row.reason }], "") : null),
    card("Broker", h("dl", {}, ...[["id", found.broker], ["version", found.version], ["up", lasting(found.uptime_seconds)], ["stored to", `lsn ${count(found.stored_lsn)}`]]
      .flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])), h("p", {}, h("a", { href: "/docs" }, "HTTP API"), " · ", h("a", { href: "/metrics" }, "metrics")),
      sessionStorage.getItem("token") ? h("button", { class: "small", onclick: () => { sessionStorage.removeItem("token"); look(); } }, "Forget the token") : null),
  ];
}

async function trace(parts) {
  const found = await get("trace", parts[0] ?? "");
  return [
    found.message ? head(found.message.message_id, link(found.message.topic, "topics", found.message.topic), h("button", { onclick: () => message(found.message) }, "Show it"))
      : head(parts[0] ?? "", "not stored any more"),
    card("Where it is", table(found.groups, [
      { title: "group", cell: (row) => link(row.group, "groups", row.group) }, { title: "state", cell: (row) => pill(row.state) },
      { title: "member", cell: (row) => row.member || "–" }, { title: "tries", number: true, cell: (row) => (row.state === "settled" ? "–" : row.attempts) },
    ], "No group reads its topic.")),
    card(found.complete ? "Its life" : "Its life, as far as it is still known", table(found.life, [
      { title: "at (UTC)", cell: (row) => when(row.at) }, { title: "what", cell: (row) => row.what.replaceAll("_", " ") },
      { title: "message", cell: (row) => row.message_id }, { title: "group", cell: (row) => row.group ?? "" }, { title: "member", cell: (row) => row.member ?? "" },
      { title: "try", number: true, cell: (row) => row.attempt ?? "" },
      { title: "", wide: true, cell: (row) => [row.reason, row.error, row.due && `due ${when(row.due)}`, row.other && `${row.what === "published" ? "from" : "to"} ${row.other}`].filter(Boolean).join(", ") },
    ], "Nothing is known any more.")),
    found.message ? card("Message", ...payload(found.message)) : null,
  ];
}

// Moving around

const VIEWS = { overview, topics, groups, dead, connections, settings, health, trace };
const SECTIONS = [["overview", "Overview"], ["topics", "Topics"], ["groups", "Groups"], ["dead", "Dead letters"], ["connections", "Connections"], ["settings", "Settings"], ["health", "Health"]];
const titleOf = (name) => SECTIONS.find(([each]) => each === name)?.[1] ?? "Message";
const counts = {};

for (const [name, title] of SECTIONS) {
  counts[name] = h("span", { class: "count", hidden: true });
  document.querySelector("nav").append(h("a", { href: name === "overview" ? "#/" : `#/${name}`, "data-view": name }, title, counts[name]));
}

function setCount(name, many) {
  counts[name].hidden = !many;
  counts[name].textContent = short(many);
}

let here = null;
let keep = {};
let looking = 0;
let timer = 0;

async function look() {
  clearTimeout(timer);
  const mine = ++looking;
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  const name = parts[0] in VIEWS ? parts.shift() : "overview";
  const moved = here !== location.hash;
  if (moved) {
    keep = {};
    here = location.hash;
    scrollTo(0, 0);
    if (dialog.open) dialog.close();
    document.title = `${parts[0] ?? titleOf(name)} · Dovetail`;
    get("dlq").then((found) => setCount("dead", found.total), () => {});
    for (const each of document.querySelectorAll("nav a")) each.toggleAttribute("aria-current", each.dataset.view === name);
    document.querySelector("nav a[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  }
  try {
    const found = await VIEWS[name](parts, keep);
    if (mine !== looking) return;
    paint(found, moved);
    state("ok");
  } catch (error) {
    if (mine !== looking) return;
    if (!(error instanceof Refused)) state("unreachable");
    // Without an answer the page stays as it was; a refusal says that it is not true any more.
    if (moved || error instanceof Refused) paint([head("This can't be shown", parts.length && name !== "trace" ? link(titleOf(name), name) : null), card(null, error instanceof Refused ? error.message : "It is here as soon as the broker answers.")], moved);
  }
  timer = setTimeout(look, LOOK_MS);
}

// What somebody types into, presses, has marked or comes back to stays as it is, and the next look shows what is new.
let pressed = false;
addEventListener("pointerdown", () => (pressed = true));
for (const name of ["pointerup", "pointercancel", "blur"]) addEventListener(name, () => setTimeout(() => (pressed = false)));
const marks = () => { const chosen = getSelection(); return chosen.type === "Range" && main.contains(chosen.anchorNode); };

// What a link or button is about: its place may be another one after the next look.
const about = (node) => [node.tagName, node.getAttribute("href"), node.getAttribute("aria-label"), node.textContent, node.closest("tr")?.cells[0].textContent].join("|");

function paint(found, moved) {
  const busy = main.contains(document.activeElement) ? document.activeElement : null;
  if (!moved && (busy?.closest("form.row") || pressed || dialog.open || marks())) return;
  const place = busy?.id === "filter" ? busy.selectionStart : null;
  const focused = busy && busy !== main && place === null ? about(busy) : null;
  const scrolled = [...main.querySelectorAll(".table")].map((each) => each.scrollLeft);
  main.replaceChildren(...found.filter(Boolean));
  main.querySelectorAll(".table").forEach((each, at) => (each.scrollLeft = moved ? 0 : (scrolled[at] ?? 0)));
  if (place !== null && main.querySelector("#filter")) {
    main.querySelector("#filter").focus();
    main.querySelector("#filter").setSelectionRange(place, place);
  } else if (busy) {
    const same = [...main.querySelectorAll("a, button")].find((each) => about(each) === focused);
    (same ?? main).focus({ preventScroll: true });
  }
}

const clock = () => new Date().toTimeString().slice(0, 8);
let answered = clock();

async function state(reached) {
  const node = document.querySelector("#health");
  const banner = document.querySelector("#banner");
  banner.hidden = reached === "ok";
  if (reached === "ok") answered = clock();
  else {
    banner.textContent = `The broker does not answer. What you see is from ${answered}; it is asked again every ${LOOK_MS / 1000} s.`;
    node.className = "pill failed";
    node.textContent = "unreachable";
    return;
  }
  const found = await api("GET", "/health").catch(() => null);
  const says = found ? (found.level === "normal" ? found.status : found.level) : "unreachable";
  node.className = `pill ${found ? says : "failed"}`;
  node.textContent = says;
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

document.querySelector("#find").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = values(event.target).id.trim();
  if (id) location.hash = "#/" + path("trace", id);
});

const THEMES = ["", "light", "dark"];
const setTheme = (theme) => { document.documentElement.dataset.theme = theme; localStorage.setItem("theme", theme); };
setTheme(localStorage.getItem("theme") ?? new URLSearchParams(location.search).get("theme") ?? "");
document.querySelector("#theme").addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  setTheme(next);
  toast(`Colours: ${next || "as the system has it"}`);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || event.target.matches("input, textarea, select")) return;
  const section = SECTIONS[Number(event.key) - 1];
  if (section) location.hash = section[0] === "overview" ? "#/" : `#/${section[0]}`;
  else if (event.key === "/") (main.querySelector("#filter") ?? document.querySelector("#find input")).focus();
  else if (event.key === "n") main.querySelector("[data-key=n]")?.click();
  else if (event.key === "?") show("Keys", h("dl", {}, ...[["1 – 7", "sections"], ["/", "filter, or find a message"], ["n", "new topic, publish, or take a message"], ["Esc", "close"]]
    .flatMap(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])));
  else return;
  event.preventDefault();
});

window.addEventListener("hashchange", look);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : look()));
look();
