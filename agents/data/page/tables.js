// The tables of the figures: the policies, and the calls of each tool.

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
  return el(
    "td",
    { class: "num" },
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
    .map((one) =>
      el(
        "tr",
        {},
        el(
          "th",
          { scope: "row" },
          policyButton(one, choose),
          front.has(one) && el("small", { class: "tag" }, "on the front"),
        ),
        accuracyCell(one),
        el(
          "td",
          { class: "num" },
          money(one.cost.middle),
          one.ended.length > 1 && el("small", {}, `${money(one.cost.low)} to ${money(one.cost.high)}`),
        ),
        el("td", { class: "num" }, money(one.perSolved)),
        el("td", { class: "num" }, duration(one.seconds)),
        el("td", { class: "num" }, Number.isFinite(one.turns) ? number(one.turns) : "–"),
        trialsCell(one),
      ),
    );
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Policies" },
    el(
      "table",
      { class: "data" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((head, at) => el("th", { scope: "col", class: at ? "num" : null }, head)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
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
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Calls" },
    el(
      "table",
      { class: "data heat" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "tool"),
          standings.map((one) => el("th", { scope: "col", class: "num" }, one.policy)),
        ),
      ),
      el(
        "tbody",
        {},
        names.map((key) =>
          el(
            "tr",
            {},
            el(
              "th",
              { scope: "row" },
              el(
                "button",
                { type: "button", class: "link", on: { click: () => choose({ view: "trials", tool: key }) } },
                key,
              ),
              keys.get(key) && el("small", {}, keys.get(key)),
            ),
            standings.map((one) => heatCell(rate(one, key), most)),
          ),
        ),
      ),
    ),
  );
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
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Preferences" },
    el(
      "table",
      { class: "data" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, "preference"),
          policies.map((name) => el("th", { scope: "col", class: "num" }, name)),
        ),
      ),
      el(
        "tbody",
        {},
        [...rows.keys()].sort().map((key) =>
          el(
            "tr",
            {},
            head(rows.get(key)),
            policies.map((name) => preferenceCell(rows.get(key).find((one) => one.policy === name))),
          ),
        ),
      ),
    ),
  );
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
  const cell = el("td", { class: "num" }, rate ? three.format(Number(rate.toFixed(3))) : "·");
  cell.style.setProperty("--heat", `${Math.round(60 * Math.sqrt(rate / most))}%`);
  return cell;
}
