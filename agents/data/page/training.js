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

function trainingLead(training) {
  return el(
    "div",
    { class: "overview lead" },
    training.lead && el("p", {}, training.lead),
    training.facts.length > 0 &&
      el(
        "dl",
        { class: "facts-line" },
        training.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
      ),
  );
}

const TESTED = "The episodes of the test that were kept: ";

function trainingCards(index, standings, width, choose) {
  const { players, about, curves, tables } = index.training;
  const places = new Map(index.policies.map((policy, place) => [policy, place]));
  const own = new Map(standings.map((one) => [one.policy, one.trials]));
  const tested = players.map((one) => playerStanding(one, places.get(one.policy), own.get(one.policy) ?? []));
  const [spread, time] = spreadCards(standings, width);
  const played = standings.length ? [spread, time] : [];
  const of = players.length ? TESTED : "Rollouts of training: ";
  const spent = standings.length ? moneyCards(index, standings, width, choose, of) : [];
  return [
    [
      ...(tested.length ? [card("Accuracy and cost", about, plane(tested, width, choose))] : []),
      ...curves.filter((_, place) => place % 2 === 0).map((one) => curveCard(one, width)),
      ...played,
    ],
    [
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
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": title },
    el(
      "table",
      { class: "data" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          head.map((name, at) => el("th", { scope: "col", class: at ? "num" : null }, name)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map(([first, ...others]) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, ...cell(first)),
            others.map((value) => el("td", { class: "num" }, ...cell(value))),
          ),
        ),
      ),
    ),
  );
}
