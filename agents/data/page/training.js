// The figures of training runs: what the test came to, the curves that matter, and tables that came as texts.

// A player as the plane wants it. The test's means and intervals came with the data; trials are of the trained policy.
function playerStanding(one, place, trials) {
  const [accuracy, ...interval] = one.accuracy;
  const [middle, low, high] = one.cents.map((cents) => cents * 1e7);
  return {
    policy: one.policy,
    place,
    trials,
    ended: { length: one.tasks },
    accuracy,
    interval,
    unknown: 0,
    bounds: interval,
    cost: { middle, low, high },
  };
}

const runFacts = (training) =>
  el(
    "dl",
    { class: "overview facts-line" },
    training.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );

const TESTED = "The episodes of the test that were kept: ";

function trainingCards(index, standings, width, choose) {
  const { about, tables } = index.training;
  const shown = (one) => isShown(index.state, one.policy ?? one.name);
  const players = index.training.players.filter(shown);
  const curves = index.training.curves.map((one) => ({ ...one, lines: one.lines.filter(shown) })).filter((one) => one.lines.length);
  const places = new Map(index.policies.map((policy, place) => [policy, place]));
  const own = new Map(standings.map((one) => [one.policy, one.trials]));
  const tested = players.map((one) => playerStanding(one, places.get(one.policy), own.get(one.policy) ?? []));
  const [spread, time] = spreadCards(standings, width);
  const played = standings.length ? [spread, time] : [];
  const of = players.length ? TESTED : "Rollouts of training: ";
  const spent = standings.length ? moneyCards(index, standings, width, choose, of) : [];
  return [
    [
      ...(tested.length ? [told(card("Accuracy and cost", about, plane(tested, width, choose)), 2)] : []),
      ...curves.slice(0, 1).map((one) => told(curveCard(one, width), 1)),
      ...curves.filter((_, place) => place && place % 2 === 0).map((one) => curveCard(one, width)),
      ...played,
    ],
    [
      ...exampleCards(standings, choose),
      ...tables.map((one) => card(one.title, one.about, textTable(one))),
      ...curves.filter((_, place) => place % 2 === 1).map((one) => curveCard(one, width)),
      ...spent,
    ],
  ];
}

const curveCard = (one, width) =>
  card(one.title, one.about, curve(one, width), one.lines.length > 1 && curveLegend(one.lines));

// A table whose cells are texts, some with a smaller one below.
function textTable({ title, head, rows }) {
  const cell = (value) => (Array.isArray(value) ? [value[0], el("small", {}, value[1])] : [value]);
  const cells = rows.map(([first, ...others]) => [
    el("th", { scope: "row" }, ...cell(first)),
    ...others.map((value) => el("td", { class: "num" }, ...cell(value))),
  ]);
  return dataTable(title, head, cells, "texts");
}
