// The charts: policies on the plane of accuracy and cost, bars, spreads, and curves over steps; and what they are drawn
// with: scales, ticks, labels that keep out of each other's way.

const COLOURS = 8;
const SHAPES = [
  (r) => drawn("circle", { r }),
  (r) => drawn("rect", { x: -r, y: -r, width: 2 * r, height: 2 * r, rx: 1.5 }),
  (r) => drawn("path", { d: `M0 ${-r * 1.35}L${r * 1.35} 0L0 ${r * 1.35}L${-r * 1.35} 0Z` }),
  (r) => drawn("path", { d: `M0 ${-r * 1.25}L${r * 1.2} ${r}L${-r * 1.2} ${r}Z` }),
];

const colourOf = (place) => `c${place % COLOURS}`;
const shapeOf = (place, r) => SHAPES[place % SHAPES.length](r);

// A small picture of a policy's mark, for tables and lists.
const swatch = (place) =>
  drawn(
    "svg",
    { class: `swatch ${colourOf(place)}`, width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    shapeOf(place, 4.6),
  );

function scaleOf(from, to, first, last, log) {
  const of = log ? Math.log10 : (value) => value;
  const [a, b] = [of(from), of(to)];
  const at = (value) => first + ((of(value) - a) / (b - a || 1)) * (last - first);
  return at;
}

// Numbers that a log axis names: 1, 2 and 5 of each power of ten, or the powers alone where there are many.
function logTicks(from, to) {
  const decades = Math.log10(to / from);
  const steps = decades > 3.5 ? [1] : decades > 1.6 ? [1, 3] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++) {
    for (const step of steps) {
      const tick = step * 10 ** power;
      if (tick >= from * 0.999 && tick <= to * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

const NAME_CHARACTERS = 12;
const shortName = (name) => {
  const text = spelled(name);
  return text.length > NAME_CHARACTERS ? `${text.slice(0, NAME_CHARACTERS - 1)}…` : text;
};
const label = (x, y, text, attributes) => drawn("text", { x, y, ...attributes }, text);
const line = (x1, y1, x2, y2, attributes) => drawn("line", { x1, y1, x2, y2, ...attributes });

const CHARACTER_WIDTH = 7;
const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

// How far a point is from a box.
const farFrom = (box, [x, y]) =>
  Math.hypot(Math.max(box.x - x, 0, x - box.x - box.w), Math.max(box.y - y, 0, y - box.y - box.h));

// Where a point's name stands: the first place around the point that touches nothing, and that is nearer to it than to
// any other point.
function placeLabel(text, x, y, taken, room, points) {
  const w = text.length * CHARACTER_WIDTH + 4,
    h = 15;
  const around = (d) => [
    [d, -d - 19],
    [d, d + 5],
    [-w - d, -d - 19],
    [-w - d, d + 5],
  ];
  const over = (d) => [
    [-w / 2, -d - 19],
    [-w / 2, d + 5],
  ];
  const places = [...around(4), [11, -8], [-11 - w, -8], ...over(8), ...around(14), ...over(18), ...around(26)];
  const boxes = places.map(([dx, dy]) => ({ x: x + dx, y: y + dy, w, h }));
  const inside = (box) =>
    box.x >= room.x && box.x + box.w <= room.x + room.w && box.y >= room.y && box.y + box.h <= room.y + room.h;
  const bare = (box) => inside(box) && !taken.some((other) => overlap(box, other));
  const own = (box) => points.every((point) => farFrom(box, [x, y]) <= farFrom(box, point));
  const box = boxes.find((each) => bare(each) && own(each)) ?? boxes.find(bare) ?? boxes.find(inside) ?? boxes[0];
  taken.push(box);
  return box;
}

function picture(width, height, about, ...children) {
  return drawn(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spelled(about) },
    ...children,
  );
}

// -- the plane of accuracy and cost: each policy with its intervals, and the front of those that no other beats -------

function planeWords(standings) {
  const words =
    "Up and to the left is better. Whiskers are 95% intervals over tasks; the line joins what no other policy beats.";
  return sameTasks(standings)
    ? words
    : `${words} These policies did not all play the same tasks: choose one environment to compare them.`;
}

function costRange(standings) {
  const costs = standings.flatMap((one) => [one.cost.low, one.cost.middle, one.cost.high]).filter((one) => one > 0);
  const least = standings.map((one) => one.cost.middle).filter((one) => one > 0);
  if (!least.length) return [1e6, 1e8];
  const [low, high] = [Math.max(Math.min(...costs), Math.min(...least) / 4), Math.max(...costs)];
  return low * 1.8 > high ? [low / 2, high * 2] : [low / 1.35, high * 1.35];
}

function plane(standings, width, choose) {
  const known = standings.filter((one) => one.ended.length);
  if (!known.length) return el("p", {}, "No trial has an outcome.");
  const height = Math.max(300, Math.min(430, width * 0.72));
  const room = { x: 46, y: 12, w: width - 58, h: height - 62 };
  const [low, high] = costRange(known);
  const x = scaleOf(low, high, room.x, room.x + room.w, true);
  const atCost = (cost) => Math.max(room.x + 4, cost > 0 ? x(Math.max(cost, low)) : room.x + 4);
  const y = scaleOf(0, 1, room.y + room.h, room.y + 24);
  const taken = [...known.flatMap((one) => takenBy(one, atCost, y)), ...frontBoxes(known, atCost, y, room)];
  const points = known.map((one) => [atCost(one.cost.middle), y(one.accuracy)]);
  const about =
    "Accuracy against mean cost of a trial. " +
    known.map((one) => `${one.policy}: ${percent(one.accuracy)} at ${money(one.cost.middle)}`).join("; ");
  return picture(
    width,
    height,
    about,
    planeAxes(room, x, y, low, high),
    frontLine(known, atCost, y, room),
    known.map((one) => whiskers(one, atCost, y)),
    known.map((one) => planePoint(one, { atCost, y, taken, room, choose, points })),
  );
}

// Boxes that no name may cover: a point and its whiskers.
function takenBy(one, atCost, y) {
  const [px, py] = [atCost(one.cost.middle), y(one.accuracy)];
  const [left, right] = [atCost(one.cost.low), atCost(one.cost.high)];
  const [top, bottom] = [y(one.interval[1]), y(one.interval[0])];
  return [
    { x: px - 8, y: py - 8, w: 16, h: 16 },
    { x: left, y: py - 1, w: right - left, h: 2 },
    { x: px - 1, y: top, w: 2, h: bottom - top },
  ];
}

function planeAxes(room, x, y, low, high) {
  const bottom = room.y + room.h;
  return drawn(
    "g",
    { class: "axes" },
    [0, 0.2, 0.4, 0.6, 0.8, 1]
      .map((share) => [
        line(room.x, y(share), room.x + room.w, y(share), { class: share ? "rule" : "base" }),
        label(room.x - 8, y(share) + 4, `${Math.round(share * 100)}%`, { "text-anchor": "end" }),
      ])
      .flat(),
    logTicks(low, high)
      .map((tick) => [
        line(x(tick), room.y, x(tick), bottom, { class: "rule faint" }),
        label(x(tick), bottom + 18, money(tick), { "text-anchor": "middle" }),
      ])
      .flat(),
    label(room.x + room.w / 2, bottom + 42, "mean cost of a trial (the agent's own, log scale)", {
      "text-anchor": "middle",
      class: "axis-name",
    }),
  );
}

function frontLine(known, atCost, y, room) {
  const front = paretoFront(known);
  let path = "";
  front.forEach((one, place) => {
    const [px, py] = [atCost(one.cost.middle), y(one.accuracy)];
    path += place ? `H${px}V${py}` : `M${px} ${room.y + room.h}V${py}`;
  });
  const area = `${path}H${room.x + room.w}`;
  return drawn(
    "g",
    { class: "front" },
    drawn("path", { d: `${area}V${room.y + room.h}Z`, class: "front-area" }),
    drawn("path", { d: area, class: "front-line" }),
  );
}

// The upright parts of the line, as boxes that no name may cover.
const frontBoxes = (known, atCost, y, room) =>
  paretoFront(known).map((one, place, front) => {
    const below = place ? y(front[place - 1].accuracy) : room.y + room.h;
    return { x: atCost(one.cost.middle) - 1, y: y(one.accuracy), w: 2, h: below - y(one.accuracy) };
  });

function whiskers(one, atCost, y) {
  const [px, py] = [atCost(one.cost.middle), y(one.accuracy)];
  return drawn(
    "g",
    { class: `whiskers ${colourOf(one.place)}` },
    one.unknown > 0 && line(px, y(one.bounds[0]), px, y(one.bounds[1]), { class: "bounds" }),
    line(px, y(one.interval[0]), px, y(one.interval[1])),
    line(atCost(one.cost.low), py, atCost(one.cost.high), py),
  );
}

function planePoint(one, { atCost, y, taken, room, choose, points }) {
  const [px, py] = [atCost(one.cost.middle), y(one.accuracy)];
  const name = spelled(one.policy).slice(0, 28);
  const box = placeLabel(name, px, py, taken, room, points);
  return drawn(
    "g",
    {
      class: `point ${colourOf(one.place)}`,
      on: one.trials.length ? { click: () => choose({ view: "trials", policy: one.policy }) } : {},
    },
    drawn("title", {}, `${spelled(one.policy)}: ${percent(one.accuracy)}, ${money(one.cost.middle)} a trial`),
    drawn("g", { transform: `translate(${px} ${py})` }, shapeOf(one.place, 6.5)),
    label(box.x + 2, box.y + 12, name, { class: "name" }),
  );
}

// -- bars of cost by role ----------------------------------------------------------------------------------------------

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
  const names = 120,
    figures = 74,
    step = hasApart ? 46 : 34;
  const room = width - names - figures;
  const groups = standings.map((one, place) => {
    const y = 6 + place * step;
    const bars = [roleBar(costs[place], index.agent_roles, names, y, room, most)];
    if (hasApart) bars.push(roleBar(costs[place], apart, names, y + 21, room, most, 9));
    return [
      label(names - 10, y + 15, shortName(one.policy), { "text-anchor": "end", class: "strong" }),
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

// -- how cost and time spread over the trials --------------------------------------------------------------------------

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
  const names = 120,
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
      apart(logTicks(low, high), x)
        .map((tick) => [
          line(x(tick), 0, x(tick), height - 24, { class: "rule faint" }),
          label(x(tick), height - 8, words(tick), { "text-anchor": "middle" }),
        ])
        .flat(),
    ),
    rows,
  );
}

const TICK_WIDTH = 48;

// Ticks whose words do not touch those of the one before.
const apart = (ticks, x) =>
  ticks.reduce((kept, tick) => (kept.length && x(tick) - x(kept.at(-1)) < TICK_WIDTH ? kept : [...kept, tick]), []);

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
    label(names - 10, base + 4, shortName(one.policy), { "text-anchor": "end", class: "strong" }),
    bars,
    line(names, base, width - 14, base, { class: "base" }),
    drawn("circle", { cx: at(middle), cy: base, r: 4.5, class: "ring" }),
    drawn("circle", { cx: at(p95), cy: base, r: 4.5, class: "ring hollow" }),
    line(at(top1), base - 7, at(top1), base + 7, { class: "most" }),
    label(width - 14, base + 17, `p50 ${words(middle)} · p95 ${words(p95)} · max ${words(top1)}`, {
      "text-anchor": "end",
      class: "small",
    }),
  );
}

// -- curves over steps -------------------------------------------------------------------------------------------------

// Round numbers from below the lowest value to above the highest.
function linearTicks(low, high) {
  if (!(high > low)) return linearTicks(low - 0.5 * (Math.abs(low) || 1), low + 0.5 * (Math.abs(low) || 1));
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((size) => size * power).find((size) => size >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9);
  const count = Math.ceil(high / step - 1e-9) - first;
  return Array.from({ length: count + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

const pathOf = (points) => "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

// Lines over the steps of a training, with the intervals and the single values behind them.
function curve({ title, unit, lines }, width) {
  const height = Math.max(190, Math.min(260, Math.round(width * 0.5)));
  const room = { x: 46, y: 24, w: width - 58, h: height - 66 };
  const values = lines.flatMap((one) => [...one.points, ...one.faint, ...one.band].flatMap(([, ...ys]) => ys));
  const steps = lines.flatMap((one) => one.points.map(([step]) => step));
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const ticks = linearTicks(Math.min(...values), Math.max(...values));
  const x = scaleOf(first, last, room.x + 4, room.x + room.w - 4);
  const y = scaleOf(ticks[0], ticks[ticks.length - 1], room.y + room.h, room.y);
  const ends = lines.map((one) => `${one.name}: ${number(one.points[0][1])} to ${number(one.points.at(-1)[1])}`);
  return picture(
    width,
    height,
    `${title}. ${ends.join("; ")}`,
    curveAxes(room, x, y, ticks, linearTicks(first, last), [first, last], unit),
    lines.map((one) => curveLine(one, x, y)),
  );
}

function curveAxes(room, x, y, ticks, steps, [first, last], unit) {
  const bottom = room.y + room.h;
  return drawn(
    "g",
    { class: "axes" },
    ticks.map((tick) => line(room.x, y(tick), room.x + room.w, y(tick), { class: "rule" })),
    ticks.map((tick) => label(room.x - 8, y(tick) + 4, number(tick), { "text-anchor": "end" })),
    steps
      .filter((step) => Number.isInteger(step) && step >= first && step <= last)
      .map((step) => label(x(step), bottom + 18, number(step), { "text-anchor": "middle" })),
    label(2, 12, unit),
    label(room.x + room.w / 2, bottom + 38, "step", { "text-anchor": "middle", class: "axis-name" }),
  );
}

function curveLine(one, x, y) {
  const at = ([step, value]) => [x(step), y(value)];
  const above = one.band.map(([step, , high]) => at([step, high]));
  const below = one.band.map(([step, low]) => at([step, low])).reverse();
  const points = one.points.map(at);
  const dots = !one.dashed && points.length <= 12 ? points : [];
  return drawn(
    "g",
    { class: `${colourOf(one.place)} curve${one.dashed ? " dashed" : ""}` },
    above.length > 0 && drawn("path", { d: pathOf([...above, ...below]), class: "band" }),
    one.faint.map(at).map(([cx, cy]) => drawn("circle", { cx, cy, r: 1.4, class: "single" })),
    drawn("path", { d: pathOf(points), class: "way" }),
    dots.map(([cx, cy]) => drawn("circle", { cx, cy, r: 3, class: "single strong" })),
  );
}

const curveLegend = (lines) =>
  el(
    "ul",
    { class: "legend" },
    lines.map((one) => el("li", {}, swatch(one.place), one.name)),
  );
