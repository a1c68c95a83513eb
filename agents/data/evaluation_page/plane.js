// The accuracy-cost plane: each policy with its intervals, and the front of those that no other beats.

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
    { class: `point ${colourOf(one.place)}`, on: { click: () => choose({ view: "trials", policy: one.policy }) } },
    drawn("title", {}, `${spelled(one.policy)}: ${percent(one.accuracy)}, ${money(one.cost.middle)} a trial`),
    drawn("g", { transform: `translate(${px} ${py})` }, shapeOf(one.place, 6.5)),
    label(box.x + 2, box.y + 12, name, { class: "name" }),
  );
}
