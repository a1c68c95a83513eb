// What is shown: the filters, kept in the address so that a copy of it shows the same.

const FILTERS = ["q", "env", "policy", "outcome", "cause", "tool", "solved", "above", "retried", "step", "left"];
const EMPTY = { view: "figures", scope: "", without: "", at: "", ...Object.fromEntries(FILTERS.map((name) => [name, ""])) };

function readAddress() {
  const state = { ...EMPTY };
  for (const [name, value] of new URLSearchParams(location.hash.slice(1))) if (name in EMPTY) state[name] = value;
  if (!["figures", "trials"].includes(state.view)) state.view = "figures";
  return state;
}

function writeAddress(state) {
  const changed = Object.entries(state).filter(([name, value]) => value !== EMPTY[name]);
  history.replaceState(null, "", `#${new URLSearchParams(changed)}`);
}

// Why a rollout of a training run taught nothing; "" of other trials.
const leftOut = (trial) => (trial.training ? spelled(trial.training.left_out) || TAUGHT : "");
const TAUGHT = "it was learnt from";

const TESTS = {
  env: (trial, value) => trial.where === value,
  policy: (trial, value) => trial.policy === value,
  outcome: (trial, value) => trial.outcome === value,
  cause: (trial, value) => trial.cause === value,
  tool: (trial, value) => Number(trial.calls?.[value]) > 0,
  above: (trial, value) => trial.nano > Number(value) * 1e7,
  solved: (trial, value) => (value === "any" ? trial.neverByAny : trial.neverByPolicy),
  step: (trial, value) => asText(trial.training?.step) === value,
  left: (trial, value) => leftOut(trial) === value,
  q: (trial, value) =>
    value
      .toLowerCase()
      .split(/\s+/)
      .every((word) => trial.words.includes(word)),
};

// Plays that were set aside are listed when they are asked for: alone, or with the trials.
const isListed = (trial, retried) => (retried === "with" ? true : retried === "" ? !trial.retried : Boolean(trial.retried));

function shownTrials(index, state) {
  const set = FILTERS.filter((name) => name in TESTS && state[name].trim() !== "");
  return index.plays.filter(
    (trial) =>
      isListed(trial, state.retried.trim()) && set.every((name) => TESTS[name](trial, state[name].trim())),
  );
}

function counted(values) {
  const counts = new Map();
  for (const value of values) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

const countedOptions = (values, word) =>
  counted(values).map(([value, count]) => [value, `${word ? word(value) : spelled(value)} (${whole.format(count)})`]);

// Which of each filter's values are there, with how many trials the other filters leave of each.
const CHOICES = {
  policy: (trials) => countedOptions(trials.map((one) => one.policy)),
  env: (trials) => countedOptions(trials.map((one) => one.where)),
  outcome: (trials) =>
    countedOptions(
      trials.map((one) => one.outcome),
      (one) => OUTCOMES[one]?.word ?? one,
    ),
  cause: (trials) => countedOptions(trials.map((one) => one.cause)),
  tool: (trials) => countedOptions(trials.flatMap((one) => entriesOf(one.calls).map(([key]) => key))),
  solved: () => [
    ["policy", "failed in all trials"],
    ["any", "failed by every policy"],
  ],
  step: (trials) => countedOptions(trials.map((one) => asText(one.training?.step))).sort((a, b) => a[0] - b[0]),
  left: (trials) => countedOptions(trials.map(leftOut)),
  retried: (trials) => {
    const count = trials.filter((one) => one.retried).length;
    return [
      ["only", `alone (${whole.format(count)})`],
      ["with", "with the trials"],
    ];
  },
};

// What the first choice of a filter says; "any" where nothing is said here.
const hasStep = (index) => index.plays.some((one) => one.training);

const UNSET = { retried: "not listed" };

// Filters that only some runs have something for.
const NEEDED = {
  solved: (index) => !index.live,
  retried: (index) => index.plays.some((one) => one.retried),
  step: hasStep,
  left: hasStep,
};

// The form: each control writes its part of the state.
function drawFilters(form, index) {
  const { set } = index;
  const select = (name, title) =>
    field(title, el("select", { name, on: { change: (event) => set({ [name]: event.target.value }) } }));
  const typed = (name, attributes) =>
    el("input", { name, ...attributes, on: { input: (event) => set({ [name]: event.target.value }) } });
  form.replaceChildren(
    field(
      "Text",
      typed("q", { type: "search", placeholder: "task, question, failure …   /", spellcheck: "false" }),
      "wide",
    ),
    select("policy", "Policy"),
    select("env", sentence(WORDS.where)),
    select("outcome", "Outcome"),
    select("cause", "Cause"),
    select("tool", "Tool used"),
    select("solved", "Solved"),
    select("retried", "Retried plays"),
    select("step", "Step of training"),
    select("left", "Learnt from"),
    field(
      "Cost above, ¢",
      typed("above", { type: "number", min: "0", step: "any", inputmode: "decimal", placeholder: "0" }),
    ),
    el("button", { type: "button", class: "clear", on: { click: () => set(CLEARED) } }, "Clear"),
  );
  for (const [name, has] of Object.entries(NEEDED)) form.elements[name].closest("label").hidden = !has(index);
  form.addEventListener("submit", (event) => event.preventDefault());
}

const CLEARED = Object.fromEntries(FILTERS.map((name) => [name, ""]));

const field = (title, control, kind) => el("label", { class: `field ${kind ?? ""}` }, el("span", {}, title), control);

// The controls as the state has them. An address may name what is not there: it is added, so that it can be seen.
function showFilters(form, index, state) {
  for (const name of FILTERS) {
    const control = form.elements[name];
    if (name in CHOICES) fillSelect(control, choicesOf(name, index, state), state[name], UNSET[name] ?? "any");
    if (control.value !== state[name]) control.value = state[name];
    control.classList.toggle("set", state[name] !== "");
  }
}

function choicesOf(name, index, state) {
  const others = { ...state, [name]: name === "retried" ? "with" : "" };
  return CHOICES[name](shownTrials(index, others));
}

function fillSelect(control, choices, chosen, unset) {
  const options = [["", unset], ...choices];
  if (!options.some(([value]) => value === chosen)) options.push([chosen, `${spelled(chosen)} (0)`]);
  control.replaceChildren(
    ...options.map(([value, words]) => el("option", { value, selected: value === chosen }, words)),
  );
}
