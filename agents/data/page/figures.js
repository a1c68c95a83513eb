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
  const trials = index.trials.filter((one) => (!state.scope || one.where === state.scope) && isShown(state, one.policy));
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
    storyOf(training, standings),
    trials.length || !training ? overview(index, trials, state, choose) : "",
    training?.facts.length ? runFacts(training) : "",
    unknownNote(standings) ?? "",
    index.manifest?.simulated === true ? el("p", { class: "note calm" }, SIMULATED) : "",
    ...index.notes.map((note) => el("p", { class: "note" }, note)),
    el("div", { class: "grid" }, el("div", { class: "column" }, left), el("div", { class: "column" }, right)),
    manifestCard(index),
  );
}

const evaluationCards = (index, standings, width, choose) => [
  [
    told(card("Accuracy and cost", planeWords(standings), plane(standings, width, choose)), 1),
    ...spreadCards(standings, width),
    ...preferenceCards(index, standings),
  ],
  [
    told(card("Policies", null, policyTable(standings, choose)), 2),
    ...exampleCards(standings, choose),
    ...moneyCards(index, standings, width, choose, ""),
  ],
];

// A card of the story, which a phone shows first and in this order.
function told(section, place) {
  section.classList.add(`told${place}`);
  return section;
}

// What a run came to, in a sentence: a training's own, or the trained policies', and the best policy and the cheapest that nobody beats.
function storyOf(training, standings) {
  if (training) return training.lead ? el("p", { class: "lead" }, training.lead) : "";
  const front = paretoFront(standings);
  const said = (one) => `${spelled(one.policy)} solves ${percent(one.accuracy)} of its tasks at ${money(one.cost.middle)} a trial`;
  const trained = standings.filter((one) => one.policy.startsWith("checkpoint:"));
  const shown = new Set([...trained, front.at(-1), front[0]]);
  return front.length ? el("p", { class: "lead" }, `${[...shown].map(said).join("; ")}.`) : "";
}

// Three trials of the policy that solves most: one that came off, one that did not, and the most expensive.
function exampleCards(standings, choose) {
  const [best] = [...standings].filter((one) => one.ended.length).sort((a, b) => b.accuracy - a.accuracy);
  const known = best?.ended.filter((one) => one.at) ?? [];
  const middling = [...known].sort((a, b) => a.turns - b.turns);
  const first = (outcome) => middling.filter((one) => one.outcome === outcome);
  const half = (some) => some[Math.floor(some.length / 2)];
  const dearest = [...known].sort((a, b) => b.nano - a.nano);
  const chosen = new Set([half(first("right")), half(first("wrong")), ...dearest].filter(Boolean));
  const three = [...chosen].slice(0, 3);
  if (!three.length) return [];
  const about = `Of ${spelled(best.policy)}: open one to read each turn with its bill.`;
  return [told(card("Three transcripts", about, el("div", { class: "examples" }, three.map((one) => example(one, choose)))), 3)];
}

const example = (one, choose) =>
  el(
    "button",
    { type: "button", class: `example ${one.outcome}`, on: { click: () => choose({ view: "trials", at: one.key }) } },
    el("span", { class: "sign", title: OUTCOMES[one.outcome].word }, OUTCOMES[one.outcome].sign),
    el("span", {}, asText(one.question).split("\n").at(-1) || one.task),
    el("b", {}, money(one.nano)),
  );

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
      policyChoice(index, state, choose),
      outcomeChips(counts, (outcome) => choose({ view: "trials", outcome, env: state.scope })),
    ),
  );
}

const isShown = (state, policy) => !state.without.split("\n").includes(policy);

// Which policies are beside each other: each is a button that takes it out or puts it back.
function policyChoice(index, state, choose) {
  if (index.policies.length < 2) return null;
  const flip = (policy) => {
    const left = index.policies.filter((one) => isShown(state, one) === (one === policy));
    if (left.length < index.policies.length) choose({ without: left.join("\n") });
  };
  const button = (policy, place) =>
    el(
      "button",
      { type: "button", class: "chip choice", "aria-pressed": String(isShown(state, policy)), on: { click: () => flip(policy) } },
      swatch(place),
      policy,
    );
  return el("div", { class: "counts", role: "group", "aria-label": "Policies to compare" }, index.policies.map(button));
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
