// The view of the figures: what was run, and a card for each figure.

const SIMULATED =
  "Simulated: experts and latencies are those of the embedded worlds. Nothing here measures a real model.";

function card(title, about, ...children) {
  return el(
    "section",
    { class: "card" },
    el("h2", {}, title),
    about && el("p", { class: "about" }, about),
    ...children,
  );
}

// One card for each figure; those that depend on their width are drawn again when it changes.
function drawFigures(host, index, state, choose) {
  const trials = index.trials.filter((one) => !state.scope || one.where === state.scope);
  const places = new Map(index.policies.map((policy, place) => [policy, place]));
  const groups = groupBy(trials, (one) => one.policy);
  const standings = index.policies
    .filter((one) => groups.has(one))
    .map((one) => {
      const played = groups.get(one);
      const told = index.intervals?.[state.scope ?? ""]?.[one];
      return standingOf(one, played, places.get(one), unplayedOf(index, one, state.scope, played.length), told);
    });
  const width = cardWidth(host);
  const { training } = index;
  const [left, right] = training
    ? trainingCards(index, standings, width, choose)
    : evaluationCards(index, standings, width, choose);
  host.replaceChildren(
    training ? trainingLead(training) : "",
    trials.length || !training ? overview(index, trials, state, choose) : "",
    unknownNote(standings) ?? "",
    index.manifest?.simulated === true ? el("p", { class: "note calm" }, SIMULATED) : "",
    ...index.notes.map((note) => el("p", { class: "note" }, note)),
    el("div", { class: "grid" }, el("div", { class: "column" }, left), el("div", { class: "column" }, right)),
    manifestCard(index),
  );
}

const evaluationCards = (index, standings, width, choose) => [
  [
    card("Accuracy and cost", planeWords(standings), plane(standings, width, choose)),
    ...spreadCards(standings, width),
    ...preferenceCards(index, standings),
  ],
  [card("Policies", null, policyTable(standings, choose)), ...moneyCards(index, standings, width, choose, "")],
];

const spreadCards = (standings, width) => [
  card(
    "Cost of a trial",
    "The agent's own, on a log scale. Full ring: p50. Hollow ring: p95. Bar: the most.",
    tails(standings, width, (one) => one.agentNano, money, 1000),
  ),
  card(
    "Time of a trial",
    "By the episode's own clock.",
    tails(standings, width, (one) => one.seconds, duration, 0.001),
  ),
];

const sentence = (words) => words[0].toUpperCase() + words.slice(1);

const moneyCards = (index, standings, width, choose, of) => [
  card("Where the money went", sentence(`${of}mean cost of a trial by role.`), roleBars(index, standings, width)),
  card("Calls", sentence(`${of}calls of each tool in a trial, on average.`), callTable(standings, choose)),
];

const FOLLOWING =
  "Controllability: how much of what a preference names has changed in its favour, on the same tasks. Cents and seconds: the " +
  "share saved. Calls: by how much the share of favoured tools has grown. Below 0 the opposite was done.";

function preferenceCards(index, standings) {
  const shown = new Set(standings.map((one) => one.policy));
  const effects = objectsOf(index.controllability).filter(
    (one) => shown.has(one.policy) && (!index.state.scope || isOf(index.state.scope, one)),
  );
  return effects.length ? [card("Following preferences", FOLLOWING, preferenceTable(index, effects))] : [];
}

// Whether a scope is of the environment that preferences were compared in: its own, or that of one preference.
const isOf = (scope, effect) => {
  const place = effect.split ? ` · ${effect.split}` : "";
  return scope.replace(/, preference=[^,·]*?(?=,| · |$)/, "") === effect.env + place;
};

// How wide a picture in a card is: as page.css lays the cards out.
function cardWidth(host) {
  const room = host.clientWidth - 2 * parseFloat(getComputedStyle(host).paddingLeft);
  const column = matchMedia("(max-width: 1040px)").matches ? room : (room - 20) / 2;
  return Math.floor(column) - (matchMedia("(max-width: 899px)").matches ? 30 : 42);
}

// -- the head ------------------------------------------------------------------------------------------------------

// Figures in a line, each with its word.
const factsLine = (facts) =>
  el(
    "div",
    { class: "facts" },
    facts.map(([value, word]) => el("div", { class: "fact" }, el("b", {}, value), el("span", {}, word))),
  );

function overview(index, trials, state, choose) {
  const counts = groupBy(trials, (one) => one.outcome);
  const facts = [
    [whole.format(trials.length), trials.length === 1 ? "trial" : "trials"],
    [whole.format(new Set(trials.map((one) => one.aim)).size), "tasks"],
    plural(new Set(trials.map((one) => one.policy)).size, "policy", "policies").split(" "),
    [money(sum(trials.map((one) => one.nano))), "the whole bill"],
    [duration(sum(trials.map((one) => one.seconds))), "of episodes' time"],
  ];
  return el(
    "div",
    { class: "overview" },
    factsLine(facts),
    el(
      "div",
      { class: "scope" },
      scopeSelect(index, state, choose),
      outcomeChips(counts, (outcome) => choose({ view: "trials", outcome, env: state.scope })),
    ),
  );
}

// How many came to each outcome, each a button.
const outcomeChips = (counts, open) =>
  el(
    "div",
    { class: "counts" },
    Object.keys(OUTCOMES)
      .filter((one) => counts.has(one))
      .map((one) =>
        el(
          "button",
          { type: "button", class: `chip ${one}`, on: { click: () => open(one) } },
          `${OUTCOMES[one].sign} ${whole.format(counts.get(one).length)} ${OUTCOMES[one].word}`,
        ),
      ),
  );

function unknownNote(standings) {
  const unknown = sum(standings.map((one) => one.unknown));
  if (!unknown) return null;
  const words =
    `${plural(unknown, "trial has", "trials have")} no outcome, as they failed, were cut or were not played. ` +
    "They are in no mean; the dashed bounds count them all wrong and all right.";
  return el("p", { class: "note unknown" }, words);
}

function scopeSelect(index, state, choose) {
  const options = index.wheres.length > 1 ? ["", ...index.wheres] : index.wheres;
  const select = el(
    "select",
    { on: { change: (event) => choose({ scope: event.target.value }) } },
    options.map((one) =>
      el("option", { value: one, selected: one === state.scope }, spelled(one) || "all environments"),
    ),
  );
  return el("label", { class: "field" }, el("span", {}, "Environment"), select);
}

function manifestCard(index) {
  if (index.manifest === null) return el("p", { class: "about made" }, `toolorchestra ${index.version}`);
  return el(
    "details",
    { class: "card made" },
    el("summary", {}, `What was run · toolorchestra ${index.version}`),
    el("pre", {}, asText(index.manifest)),
  );
}
