// Bars of cost by role, and how cost and time spread over the trials.

const APART_TITLE = "judge and simulated user: the experiment's cost, not the agent's";

function roleBars(index, standings, width) {
  const apart = index.roles.filter((role) => !index.agent_roles.includes(role));
  const costs = standings.map((one) =>
    Object.fromEntries(
      index.roles.map((role) => [role, mean(one.trials.map((t) => sumOf(t.nano_usd_by_role, [role])))]),
    ),
  );
  const totals = (roles) => costs.map((cost) => sum(roles.map((role) => cost[role])));
  const hasApart = Math.max(0, ...totals(apart)) > 0;
  const most = Math.max(1, ...totals(index.agent_roles), ...totals(apart));
  const names = 96,
    figures = 74,
    step = hasApart ? 46 : 34;
  const room = width - names - figures;
  const groups = standings.map((one, place) => {
    const y = 6 + place * step;
    const bars = [roleBar(costs[place], index.agent_roles, names, y, room, most)];
    if (hasApart) bars.push(roleBar(costs[place], apart, names, y + 21, room, most, 9));
    return [
      label(names - 10, y + 15, spelled(one.policy).slice(0, 13), { "text-anchor": "end", class: "strong" }),
      ...bars,
    ];
  });
  const about =
    "Mean cost of a trial by role. " +
    standings
      .map((one, at) => `${one.policy}: ${index.roles.map((role) => `${role} ${money(costs[at][role])}`).join(", ")}`)
      .join("; ");
  return el(
    "div",
    {},
    picture(width, 10 + standings.length * step, about, groups.flat(2)),
    el(
      "ul",
      { class: "legend" },
      [...index.agent_roles, ...(hasApart ? apart : [])].map((role) =>
        el(
          "li",
          {},
          el("span", { class: `patch role-${role}` }),
          role,
          apart.includes(role) && el("small", { title: APART_TITLE }, " (apart)"),
        ),
      ),
    ),
  );
}

function roleBar(cost, roles, x, y, room, most, height = 20) {
  let at = x;
  const parts = roles
    .filter((role) => cost[role] > 0)
    .map((role) => {
      const w = (cost[role] / most) * room;
      const bar = drawn(
        "rect",
        { x: at, y, width: Math.max(0.75, w - 1), height, rx: 2, class: `role-${role}` },
        drawn("title", {}, `${role}: ${money(cost[role])}`),
      );
      at += w;
      return bar;
    });
  return drawn(
    "g",
    {},
    parts,
    label(at + 7, y + height / 2 + 4, money(sum(roles.map((role) => cost[role]))), {
      class: height < 12 ? "small" : "",
    }),
  );
}

// -- tails ---------------------------------------------------------------------------------------------------------

// A row for each policy: how its trials spread on a log axis, with the median, p95 and the most.
function tails(standings, width, measure, words, least) {
  const values = standings.map((one) => one.trials.map(measure).sort((a, b) => a - b));
  const positive = values.flat().filter((value) => value > 0);
  if (!positive.length) return el("p", {}, "Nothing was counted: every value is 0.");
  const low = Math.max(
    least,
    quantile(
      [...positive].sort((a, b) => a - b),
      0.002,
    ) / 1.3,
  );
  const high = Math.max(Math.max(...positive.slice(0, 1e5)) * 1.2, low * 2);
  const names = 96,
    step = 68,
    height = standings.length * step + 30;
  const x = scaleOf(low, high, names, width - 14, true);
  const at = (value) => x(Math.max(value, low));
  const rows = standings.map((one, place) => tailRow(one, values[place], at, place * step, names, width, words));
  const about = standings
    .map((one, place) => `${one.policy}: ${tailFigures(values[place]).map(words).join(", ")}`)
    .join("; ");
  return picture(
    width,
    height,
    `Median, 95th percentile and most. ${about}`,
    drawn(
      "g",
      { class: "axes" },
      logTicks(low, high)
        .map((tick) => [
          line(x(tick), 0, x(tick), height - 24, { class: "rule faint" }),
          label(x(tick), height - 8, words(tick), { "text-anchor": "middle" }),
        ])
        .flat(),
    ),
    rows,
  );
}

const tailFigures = (sorted) => [quantile(sorted, 0.5), quantile(sorted, 0.95), sorted[sorted.length - 1]];

const BINS = 48;

function tailRow(one, sorted, at, top, names, width, words) {
  const base = top + 40,
    span = width - 14 - names;
  const counts = new Array(BINS).fill(0);
  for (const value of sorted)
    counts[Math.max(0, Math.min(BINS - 1, Math.floor(((at(value) - names) / span) * BINS)))]++;
  const most = Math.max(...counts),
    w = span / BINS;
  const bars = counts.map(
    (count, bin) =>
      count > 0 &&
      drawn("rect", {
        x: names + bin * w + 0.5,
        width: w - 1,
        y: base - 28 * Math.sqrt(count / most),
        height: 28 * Math.sqrt(count / most),
        rx: 1,
        class: "bin",
      }),
  );
  const [middle, p95, top1] = tailFigures(sorted);
  return drawn(
    "g",
    { class: colourOf(one.place) },
    label(names - 10, base + 4, spelled(one.policy).slice(0, 13), { "text-anchor": "end", class: "strong" }),
    bars,
    line(names, base, width - 14, base, { class: "base" }),
    drawn("circle", { cx: at(middle), cy: base, r: 4.5, class: "ring" }),
    drawn("circle", { cx: at(p95), cy: base, r: 4.5, class: "ring hollow" }),
    line(at(top1), base - 7, at(top1), base + 7, { class: "most" }),
    label(names, base + 17, `p50 ${words(middle)} · p95 ${words(p95)} · max ${words(top1)}`, { class: "small" }),
  );
}
