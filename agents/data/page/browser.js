// The list of trials, of which only the visible rows exist, and the transcript beside it.

const ROW_HEIGHT = 62;
const SPARE_ROWS = 6;

const browser = { shown: [], at: -1, drawn: "", filters: null };

// Who played it; of a rollout of a training run, what it got.
const playedAs = (trial) => (trial.training ? `reward ${signed(trial.training.reward)}` : trial.policy);
const leadOf = (trial) => {
  if (trial.training) return `step ${asText(trial.training.step)} · `;
  return trial.began ? `${trial.began} · ` : "";
};

function listRow(trial, place, count, selected, index) {
  const row = el(
    "div",
    {
      class: `row ${trial.outcome}`,
      id: `row-${place}`,
      role: "option",
      "aria-selected": String(selected),
      "aria-setsize": count,
      "aria-posinset": place + 1,
    },
    el("span", { class: "sign", title: OUTCOMES[trial.outcome].word }, OUTCOMES[trial.outcome].sign),
    el(
      "span",
      { class: "what" },
      el("span", { class: "task" }, trial.task),
      el("span", { class: "asked" }, leadOf(trial) + (trial.question ? asText(trial.question).replaceAll("\n", " ") : trial.cause)),
    ),
    el(
      "span",
      { class: "sums" },
      el("b", {}, money(trial.nano)),
      el("span", { class: "policy" }, swatch(index.policies.indexOf(trial.policy)), el("span", {}, playedAs(trial))),
    ),
  );
  row.style.transform = `translateY(${place * ROW_HEIGHT}px)`;
  return row;
}

function drawList(index) {
  const list = byId("list"),
    room = byId("list-room");
  const { shown, at } = browser;
  room.style.height = `${shown.length * ROW_HEIGHT}px`;
  const first = Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  const last = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW_HEIGHT) + SPARE_ROWS);
  const rows = [];
  for (let place = first; place < last; place++)
    rows.push(listRow(shown[place], place, shown.length, place === at, index));
  room.replaceChildren(...rows);
  if (at >= first && at < last) list.setAttribute("aria-activedescendant", `row-${at}`);
  else list.removeAttribute("aria-activedescendant");
}

function scrollToRow(place) {
  const list = byId("list");
  const top = place * ROW_HEIGHT;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + ROW_HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_HEIGHT - list.clientHeight;
}

function countWords(index) {
  const { shown } = browser;
  const all = index.plays.filter((one) => isListed(one, index.state.retried)).length;
  const counted = index.state.retried ? plural(all, "play", "plays") : plural(all, WORDS.one, WORDS.many);
  const words = shown.length === all ? counted : `${whole.format(shown.length)} of ${counted}`;
  return shown.length
    ? `${words} · ${money(sum(shown.map((one) => one.nano)))}`
    : `${words}. Clear a filter to see more.`;
}

function showList(index, state) {
  browser.at = browser.shown.findIndex((one) => one.key === state.at);
  byId("count").textContent = countWords(index);
  drawList(index);
}

// The trials that the filters leave, the one that is open, and its transcript.
function showTrials(index, state) {
  const filters = FILTERS.map((name) => state[name]).join("\n");
  if (filters !== browser.filters) {
    browser.filters = filters;
    browser.shown = shownTrials(index, state);
    showFilters(byId("filter-form"), index, state);
  }
  showList(index, state);
  if (browser.at >= 0) {
    scrollToRow(browser.at);
    drawList(index);
  }
  const open = index.byKey.get(state.at);
  document.body.classList.toggle("reading", Boolean(open));
  openTrial(open, index);
}

// Draws a transcript, unless another was asked for while this one was unpacked.
async function openTrial(trial, index) {
  const host = byId("detail");
  const wanted = trial?.key ?? "";
  if (browser.drawn === wanted && host.childElementCount) return;
  browser.drawn = wanted;
  if (!trial) {
    host.replaceChildren(
      el(
        "div",
        { class: "hint" },
        el("p", {}, `Choose a ${WORDS.one} to read its transcript.`),
        el(
          "p",
          {},
          el("kbd", {}, "j"),
          " and ",
          el("kbd", {}, "k"),
          " go through them, ",
          el("kbd", {}, "/"),
          " filters, ",
          el("kbd", {}, "?"),
          " lists all keys.",
        ),
      ),
    );
    return;
  }
  try {
    const transcript = await transcriptOf(trial);
    if (browser.drawn !== wanted) return;
    drawTrial(host, trial, transcript, index);
  } catch (error) {
    if (browser.drawn !== wanted) return;
    host.replaceChildren(el("p", { class: "note" }, `The transcript cannot be shown: ${error.message}`));
  }
  host.prepend(
    el("button", { type: "button", class: "back", on: { click: () => index.set({ at: "" }) } }, `← All ${WORDS.many}`),
  );
  host.scrollTop = 0;
}

function rowAt(event) {
  const row = event.target.closest(".row");
  return row ? browser.shown[Number(row.id.slice("row-".length))] : null;
}

function stepTrial(index, by) {
  if (index.state.view !== "trials") index.set({ view: "trials" });
  if (!browser.shown.length) return;
  const next = Math.max(0, Math.min(browser.shown.length - 1, browser.at < 0 ? 0 : browser.at + by));
  index.set({ view: "trials", at: browser.shown[next].key });
}

// To the next turn of the open transcript, or back.
function stepTurn(by) {
  const turns = [...byId("detail").querySelectorAll(".turn")];
  const at = turns.indexOf(document.activeElement);
  const turn = turns[at < 0 && by < 0 ? turns.length - 1 : Math.max(0, Math.min(turns.length - 1, at + by))];
  turn?.focus({ preventScroll: true });
  turn?.scrollIntoView({ block: "start" });
}
