// The data of a server, in place of store.js: what it is doing, asked again and again, and the figures of it.

const WORDS = { one: "request", many: "requests", where: "key" };
const POLL_MS = 2000;
const STORED = "toolorchestra-key";
const MOST_ROWS = 12;

// -- asking ------------------------------------------------------------------------------------------------------------

let asking = null;

// A server's answer. Where it wants a key, the reader is asked for one; it is kept until the tab is closed.
async function ask(path) {
  for (;;) {
    const key = sessionStorage.getItem(STORED);
    const reply = await fetch(path, { cache: "no-store", headers: key ? { authorization: `Bearer ${key}` } : {} });
    const told = await reply.json();
    if (reply.ok) return told;
    const words = asText(told?.error?.message);
    if (reply.status !== 401 && reply.status !== 403) throw new Error(words || `status ${reply.status}`);
    asking ??= askForKey(key ? words : "").finally(() => (asking = null));
    await asking;
  }
}

function askForKey(words) {
  const key = el("input", {
    type: "password",
    required: true,
    pattern: "[!-~]+",
    autocomplete: "off",
    "aria-label": "Key",
    placeholder: "to-…",
  });
  const form = el("form", { method: "dialog" }, field("A key with admin = true", key), el("button", {}, "Watch"));
  const dialog = el(
    "dialog",
    { id: "key", "aria-labelledby": "key-title" },
    el("h2", { id: "key-title" }, "This server asks for a key"),
    words && el("p", { class: "note", role: "alert" }, words),
    form,
  );
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) =>
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(STORED, key.value);
      dialog.remove();
      done();
    }),
  );
}

// -- trials ------------------------------------------------------------------------------------------------------------

const nanoOf = (usd) => Math.round(Number(usd) * 1e9);
const namedKey = (name) => (name === "-" ? "no key" : name);

function statusOf(row) {
  if (row.state) return "running";
  if (row.ended === "failed") return "failed";
  return ["answered", "tool_calls"].includes(row.ended) ? "ended" : "cut";
}

// A request, told as a trial of an evaluation.
function requestOf(row, index, place) {
  const status = statusOf(row);
  const trial = trialOf(
    {
      env: namedKey(row.account),
      policy: row.model,
      task: row.request_id,
      trial: null,
      status,
      right: row.right,
      failure: row.failure,
      truncated_by: status === "cut" ? row.ended : "",
      question: row.question,
      calls: row.calls,
      turns: Number(row.turns) || 0,
      elapsed_ns: row.seconds * 1e9,
      nano_usd_by_role: Object.fromEntries(entriesOf(row.usd_by_role).map(([role, usd]) => [role, nanoOf(usd)])),
    },
    index,
    place,
  );
  trial.began = new Date(1000 * row.began).toLocaleTimeString();
  trial.cause ||= asText(row.state);
  return trial;
}

function take(index, told) {
  Object.assign(index, { told, roles: told.roles, agent_roles: told.agent_roles, taken: new Date() });
  index.plays = [...told.in_flight, ...told.latest].map((row, place) => requestOf(row, index, place));
  index.trials = index.plays;
}

async function readIndex() {
  const index = { live: true, draw: drawService, away: "" };
  take(index, await ask("v1/activity"));
  index.follow = () => follow(index);
  return index;
}

async function transcriptOf(trial) {
  const found = await ask(`v1/trajectories/${encodeURIComponent(trial.task)}`);
  const { preference, seed, price_sheet: sheet, outcome } = found;
  Object.assign(trial, { preference, seed, sheet, evidence: outcome?.evidence });
  return { ...found, messages: objectsOf(found.messages), charges: objectsOf(found.charges) };
}

// -- following ---------------------------------------------------------------------------------------------------------

async function follow(index) {
  const pulse = el("span", { id: "pulse", role: "status" }, "live");
  byId("theme").before(pulse);
  for (;;) {
    await new Promise((done) => setTimeout(done, POLL_MS));
    if (document.hidden) continue;
    const before = index.byKey.get(index.state.at);
    try {
      take(index, await ask("v1/activity"));
      index.away = "";
    } catch (error) {
      index.away = `No answer: ${asText(error.message)}. What is shown is of ${index.taken.toLocaleTimeString()}.`;
    }
    pulse.textContent = index.away ? "no answer" : "live";
    prepare(index);
    await refresh(index, before);
  }
}

// Draws what has changed, and leaves what the reader is at: the list's place, an open choice, the transcript's place.
async function refresh(index, before) {
  const { state } = index;
  if (state.view === "figures") return drawService(byId("figures"), index, state, index.choose);
  browser.shown = shownTrials(index, state);
  const form = byId("filter-form");
  if (!form.contains(document.activeElement)) showFilters(form, index, state);
  showList(index, state);
  const open = index.byKey.get(state.at);
  if (!open || (before?.outcome === open.outcome && before?.turns === open.turns)) return undefined;
  const top = byId("detail").scrollTop;
  browser.drawn = "";
  await openTrial(open, index);
  byId("detail").scrollTop = top;
  return undefined;
}

// -- figures -----------------------------------------------------------------------------------------------------------

function drawService(host, index, state, choose) {
  const ended = index.trials.filter((one) => one.outcome !== "running");
  const groups = groupBy(ended, (one) => one.policy);
  const standings = [...groups].map(([policy, trials]) => ({ policy, trials, place: index.policies.indexOf(policy) }));
  const width = cardWidth(host);
  const latest = `The latest ${plural(ended.length, "request", "requests")} that ended. `;
  const none = el("p", {}, "None has ended yet.");
  const cards = [
    [
      flightCard(index, choose),
      card(
        "Time of a request",
        `${latest}Full ring: p50. Hollow ring: p95. Bar: the most.`,
        ended.length ? tails(standings, width, (one) => one.seconds, duration, 0.001) : none,
      ),
      card(
        "Where the money went",
        `${latest}Mean cost by role.`,
        ended.length ? roleBars(index, standings, width) : none,
      ),
    ],
    [keysCard(index), rolesCard(index), callsCard(index), wrongCard(index)],
  ];
  changeTo(host, [
    serviceFacts(index, choose),
    index.away ? el("p", { class: "note" }, index.away) : null,
    el("div", { class: "grid" }, ...cards.map((column) => el("div", { class: "column" }, column))),
  ]);
}

// Puts children into an element, and leaves those that are as they were: so a table keeps its place and its focus.
function changeTo(host, wanted) {
  const children = wanted.filter(Boolean);
  while (host.childElementCount > children.length) host.lastElementChild.remove();
  children.forEach((child, place) => {
    const there = host.children[place];
    if (!there) host.append(child);
    else if (child.matches(".grid, .column") && there.className === child.className)
      changeTo(there, [...child.children]);
    else if (!there.isEqualNode(child)) there.replaceWith(child);
  });
}

function serviceFacts(index, choose) {
  const { told } = index;
  const { requests, usd } = told.totals;
  const facts = [
    [whole.format(told.active), "running"],
    [whole.format(told.waiting), "waiting"],
    [whole.format(sum(requests.map((one) => one.count))), "requests ended"],
    [money(nanoOf(sum(usd.map((one) => one.count)))), "billed"],
  ];
  const counts = groupBy(index.trials, (one) => one.outcome);
  return el(
    "div",
    { class: "overview" },
    factsLine([...facts, ["", `since ${new Date(1000 * told.started).toLocaleString()}`]]),
    el("div", { class: "scope" }, outcomeChips(counts, (outcome) => choose({ view: "trials", outcome }))),
  );
}

const listed = (title, head, rows, none) => (rows.length ? textTable({ title, head, rows }) : el("p", {}, none));

function flightCard(index, choose) {
  const running = index.trials.filter((one) => one.outcome === "running");
  const open = (one) =>
    el(
      "button",
      { type: "button", class: "link", on: { click: () => choose({ view: "trials", at: one.key }) } },
      one.policy,
    );
  const rows = running
    .slice(0, MOST_ROWS)
    .map((one) => [[open(one), one.cause], one.where, duration(Math.round(one.seconds)), money(one.nano)]);
  const more = running.length - rows.length;
  return card(
    "In flight",
    more > 0 ? `The latest ${MOST_ROWS}; ${whole.format(more)} more are under Trajectories.` : null,
    listed("In flight", ["model", "key", "time", "so far"], rows, "Nothing is asked at the moment."),
  );
}

// Who asks without a key is listed where that is allowed.
const hasAsked = (one, _, all) => one.name !== "-" || all.length === 1 || one.usd > 0;

const keysCard = (index) =>
  card(
    "Keys",
    "All that was ever spent. Set aside: what requests in flight may spend, and what lost ones might have spent.",
    listed(
      "Keys",
      ["key", "spent", "set aside", "limit"],
      index.told.keys.filter(hasAsked).map((one) => [
        namedKey(one.name),
        money(nanoOf(one.usd)),
        money(nanoOf(one.held_usd)),
        typeof one.limit_usd === "number" ? money(nanoOf(one.limit_usd)) : "none",
      ]),
    ),
  );

// What each key was billed for each role since the server started.
function rolesCard(index) {
  const { usd } = index.told.totals;
  const roles = index.roles.filter((role) => usd.some((one) => one.role === role));
  const rows = [...groupBy(usd, (one) => one.key)].map(([key, of]) => [
    namedKey(key),
    ...roles.map((role) => money(nanoOf(sum(of.filter((one) => one.role === role).map((one) => one.count))))),
    money(nanoOf(sum(of.map((one) => one.count)))),
  ]);
  return card(
    "Billed by role",
    "Since the server started.",
    listed("Billed by role", ["key", ...roles, "all"], rows, "Nothing was billed yet."),
  );
}

function callsCard(index) {
  const rows = index.told.totals.calls
    .sort((a, b) => b.count - a.count)
    .map((one) => [[one.tool, one.model], whole.format(one.count)]);
  return card(
    "Calls by tool and model",
    "Since the server started.",
    listed("Calls", ["tool", "calls"], rows, "No tool was called yet."),
  );
}

function wrongCard(index) {
  const { requests, refused } = index.told.totals;
  const rows = [
    ...requests.filter((one) => !["answered", "tool_calls"].includes(one.ended)).map((one) => [[one.ended, one.policy], one.count]),
    ...refused.map((one) => [[one.code, "refused"], one.count]),
  ].sort((a, b) => b[1] - a[1]);
  const causes = counted(index.trials.filter((one) => one.outcome === "failed").map((one) => one.cause));
  return card(
    "What went wrong",
    "Requests that failed, were cut or were not taken, since the server started.",
    listed(
      "What went wrong",
      ["how", "requests"],
      rows.map(([how, count]) => [how, whole.format(count)]),
      "Nothing.",
    ),
    causes.length > 0 && el("h4", {}, "Why the latest failed"),
    causes.length > 0 && listed("Why the latest failed", ["cause", "requests"], causes.map(([why, count]) => [why, whole.format(count)])),
  );
}
