// Puts the page together: the two views, the theme, the keys.

const THEMES = ["system", "light", "dark"];

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = `Theme: ${name}`;
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
}

function show(index) {
  const { state } = index;
  const figures = state.view === "figures";
  byId("figures").hidden = !figures;
  byId("trials").hidden = figures;
  document.body.classList.toggle("browsing", !figures);
  byId("show-figures").setAttribute("aria-pressed", String(figures));
  byId("show-trials").setAttribute("aria-pressed", String(!figures));
  if (figures) return (index.draw ?? drawFigures)(byId("figures"), index, state, index.choose);
  return showTrials(index, state);
}

// From a figure to the trials behind it: the filters that were set before are dropped.
function chooser(index) {
  return (wanted) => index.set(wanted.view ? { ...CLEARED, env: index.state.scope, at: "", ...wanted } : wanted);
}

const typing = (target) => ["INPUT", "SELECT", "TEXTAREA"].includes(target.tagName);

function keysOf(index) {
  const trials = () => index.state.view === "trials";
  return {
    j: () => stepTrial(index, 1),
    k: () => stepTrial(index, -1),
    n: () => trials() && stepTurn(1),
    p: () => trials() && stepTurn(-1),
    "/": () => {
      index.set({ view: "trials" });
      byId("filters").open = true;
      byId("filter-form").elements.q.focus();
    },
    1: () => index.set({ view: "figures" }),
    2: () => index.set({ view: "trials" }),
    x: () => index.set(CLEARED),
    t: nextTheme,
    "?": () => byId("help").showModal(),
  };
}

function listenToKeys(index) {
  const keys = keysOf(index);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
    if (event.key === "Escape" && typing(event.target)) return event.target.blur();
    if (typing(event.target) || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  byId("list").addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!by) return;
    event.preventDefault();
    stepTrial(index, by);
  });
}

function listen(index) {
  byId("show-figures").addEventListener("click", () => index.set({ view: "figures" }));
  byId("show-trials").addEventListener("click", () => index.set({ view: "trials" }));
  byId("theme").addEventListener("click", nextTheme);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("main").focus();
  });
  byId("list").addEventListener("scroll", () => drawList(index), { passive: true });
  byId("list").addEventListener("click", (event) => {
    const trial = rowAt(event);
    if (trial) index.set({ at: trial.key });
  });
  addEventListener("hashchange", () => {
    index.state = readAddress();
    show(index);
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (index.state.view === "trials") drawList(index);
    else if (innerWidth !== width) show(index);
    width = innerWidth;
  });
  listenToKeys(index);
}

// What follows from the trials that there are.
function prepare(index) {
  index.wheres = [...new Set(index.trials.map((one) => one.where))].sort();
  const players = index.training?.players ?? [];
  index.policies = [...new Set([...players, ...index.trials].map((one) => one.policy))];
  index.byKey = new Map(index.plays.map((one) => [one.key, one]));
}

async function start() {
  setTheme("system");
  const index = await readIndex();
  prepare(index);
  index.state = readAddress();
  index.set = (change) => {
    index.state = { ...index.state, ...change };
    writeAddress(index.state);
    show(index);
  };
  index.choose = chooser(index);
  if (innerWidth < 900) byId("filters").open = false;
  drawFilters(byId("filter-form"), index);
  listen(index);
  byId("loading").hidden = true;
  show(index);
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
  index.follow?.();
}

start().catch((error) => {
  const words =
    typeof DecompressionStream === "undefined"
      ? "This browser is too old for the page: it has no DecompressionStream."
      : `The page could not be opened: ${error.message}`;
  byId("loading").textContent = words;
  throw error;
});
