// The tables of the figures: the policies, and the calls of each tool. Their heads sort them.

// What a cell is sorted by: its number as it was before it became words, or the number in its first text.
function rankOf(cell) {
  const text = cell.dataset.value ?? cell.firstChild?.textContent ?? "";
  const value = parseFloat(text);
  return Number.isNaN(value) ? text.toLowerCase() : value;
}

const byRank = (a, b) =>
  typeof a === typeof b ? (a < b ? -1 : Number(a > b)) : typeof a === "number" ? -1 : 1;

function sortBy(body, at, head) {
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...body.children].sort((a, b) => byRank(rankOf(a.children[at]), rankOf(b.children[at])));
  body.replaceChildren(...(down ? rows.reverse() : rows));
}

// A table in a frame that says where there is more of it than fits.
function dataTable(title, heads, rows, kind) {
  const body = el("tbody", {}, rows.map((cells) => el("tr", {}, cells)));
  const head = (words, at) =>
    el(
      "th",
      { scope: "col", class: at ? "num" : null, "aria-sort": "none" },
      el(
        "button",
        { type: "button", class: "sort", on: { click: (event) => sortBy(body, at, event.target.closest("th")) } },
        words,
      ),
    );
  const table = el("table", { class: `data ${kind}` }, el("thead", {}, el("tr", {}, heads.map(head))), body);
  const frame = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, table);
  const tell = () => frame.classList.toggle("onward", frame.scrollWidth - frame.clientWidth - frame.scrollLeft > 4);
  frame.addEventListener("scroll", tell, { passive: true });
  new ResizeObserver(tell).observe(frame);
  return el("div", { class: "framed" }, frame, el("p", { class: "swipe", "aria-hidden": "true" }, "more columns →"));
}

const numberCell = (value, words, ...more) =>
  el("td", { class: "num", "data-value": Number.isFinite(value) ? value : "" }, words, ...more);

const policyButton = (one, choose) =>
  el(
    "button",
    {
      type: "button",
      class: "link",
      title: "its trajectories",
      on: { click: () => choose({ view: "trials", policy: one.policy }) },
    },
    swatch(one.place),
    el("span", {}, one.policy),
  );

function accuracyCell(one) {
  if (!one.ended.length) return el("td", { class: "num" }, "–");
  const [low, high] = one.interval.map((share) => (100 * share).toFixed(0));
  const [worst, best] = one.bounds.map((share) => (100 * share).toFixed(1));
  return numberCell(
    one.accuracy,
    el("b", {}, percent(one.accuracy)),
    el("small", {}, `${low} to ${high}`),
    one.unknown > 0 && el("small", { class: "bounds-words" }, `bounds ${worst} to ${best}`),
  );
}

function trialsCell(one) {
  const failed = one.trials.filter((trial) => trial.status === "failed").length;
  const cut = one.unknown - one.unplayed - failed;
  return el(
    "td",
    { class: "num" },
    whole.format(one.trials.length),
    failed > 0 && el("small", {}, `${failed} failed`),
    cut > 0 && el("small", {}, `${cut} cut`),
    one.unplayed > 0 && el("small", {}, `${one.unplayed} not played`),
  );
}

function policyTable(standings, choose) {
  const front = new Set(paretoFront(standings));
  const heads = ["policy", "accuracy", "cost a trial", "per solved", "time", "turns", "trials"];
  const rows = [...standings]
    .sort((a, b) => (b.accuracy || 0) - (a.accuracy || 0))
    .map((one) => [
        el(
          "th",
          { scope: "row", "data-value": one.policy },
          policyButton(one, choose),
          front.has(one) && el("small", { class: "tag" }, "on the front"),
        ),
        accuracyCell(one),
        numberCell(
          one.cost.middle,
          money(one.cost.middle),
          one.ended.length > 1 && el("small", {}, `${money(one.cost.low)} to ${money(one.cost.high)}`),
        ),
        numberCell(one.perSolved, money(one.perSolved)),
        numberCell(one.seconds, duration(one.seconds)),
        numberCell(one.turns, Number.isFinite(one.turns) ? number(one.turns) : "–"),
        trialsCell(one),
    ]);
  return dataTable("Policies", heads, rows, "");
}

function callTable(standings, choose) {
  const keys = new Map();
  for (const one of standings)
    for (const trial of one.trials) {
      for (const [key] of entriesOf(trial.calls))
        keys.set(key, keys.get(key) ?? entriesOf(trial.models).find(([name]) => name === key)?.[1]);
    }
  if (!keys.size) return el("p", {}, "No tool was called.");
  const rate = (one, key) => mean(one.trials.map((trial) => Number(trial.calls?.[key]) || 0));
  const names = [...keys.keys()].sort();
  const most = Math.max(...names.flatMap((key) => standings.map((one) => rate(one, key))));
  const rows = names.map((key) => [
    el(
      "th",
      { scope: "row", "data-value": key },
      el("button", { type: "button", class: "link", on: { click: () => choose({ view: "trials", tool: key }) } }, key),
      keys.get(key) && el("small", {}, keys.get(key)),
    ),
    ...standings.map((one) => heatCell(rate(one, key), most)),
  ]);
  return dataTable("Calls", ["tool", ...standings.map((one) => one.policy)], rows, "heat");
}

const UNITS = { usd: (value) => money(value * 1e7), seconds: duration, calls: percent };
const points = (share) => (Number.isFinite(share) ? `${share > 0 ? "+" : ""}${(100 * share).toFixed(1)}` : "–");

const NAMED = { usd: "money saved", seconds: "time saved", calls: "calls moved to favoured tools" };

// How far each policy followed each kind of preference, in each thing that it names: a row for each, a column a policy.
function preferenceTable(index, effects) {
  const places = new Set(effects.map((one) => `${one.env} · ${one.split}`));
  const policies = index.policies.filter((name) => effects.some((one) => one.policy === name));
  const rows = groupBy(effects, (one) => [one.preference, one.measure, one.env, one.split, one.reference].join("\n"));
  const head = ([one]) =>
    el(
      "th",
      { scope: "row" },
      one.preference,
      el("small", {}, NAMED[one.measure] ?? one.measure),
      places.size > 1 && el("small", {}, [one.env, one.split].filter(Boolean).join(" · ")),
      el("small", {}, one.reference === "none" ? "against no preference" : `against “${one.reference}”`),
    );
  const cells = [...rows.keys()].sort().map((key) => [
    head(rows.get(key)),
    ...policies.map((name) => preferenceCell(rows.get(key).find((one) => one.policy === name))),
  ]);
  return dataTable("Preferences", ["preference", ...policies], cells, "");
}

function preferenceCell(one) {
  if (!one) return el("td", { class: "num" }, "·");
  const [low, high] = listOf(one.interval).map((end) => points(end ?? NaN));
  const unit = UNITS[one.measure] ?? number;
  return el(
    "td",
    { class: "num" },
    el("b", {}, points(one.followed ?? NaN) + (one.measure === "calls" ? " points" : " %")),
    el("small", {}, `${low} to ${high}`),
    el("small", {}, `${unit(one.before)} → ${unit(one.after)}`),
    el("small", {}, `accuracy ${points(one.points)} · ${plural(one.tasks, "task", "tasks")}`),
  );
}

function heatCell(rate, most) {
  const cell = numberCell(rate, rate ? three.format(Number(rate.toFixed(3))) : "·");
  cell.style.setProperty("--heat", `${Math.round(60 * Math.sqrt(rate / most))}%`);
  return cell;
}
