// A transcript: what was asked, each turn with its thought, calls, results and charges, and how it was graded.

const LONG_TEXT = 1600;

// A text that may be very long: its beginning, and the rest when it is asked for.
function longText(value, kind) {
  const text = asText(value);
  const box = put(el("pre", { class: kind ?? null }), text.length > LONG_TEXT * 1.25 ? text.slice(0, LONG_TEXT) : text);
  if (text.length <= LONG_TEXT * 1.25) return box;
  const more = el("button", { type: "button", class: "more" }, `Show all ${whole.format(text.length)} characters`);
  more.addEventListener("click", () => {
    box.replaceChildren();
    put(box, text);
    more.remove();
  });
  return el("div", { class: "long" }, box, more);
}

// -- reading an assistant's text, as the environment does ------------------------------------------------------------

function thoughtOf(text) {
  const lead = text.trimStart();
  const begins = lead.startsWith("<think>");
  const at = text.indexOf("</think>");
  if (at < 0 || (!begins && text.slice(0, at).includes("<tool_call>"))) return ["", text];
  return [
    text
      .slice(0, at)
      .replace(/^\s*<think>/, "")
      .trim(),
    text.slice(at + "</think>".length),
  ];
}

function callOf(body) {
  try {
    const call = JSON.parse(body);
    if (call && typeof call === "object" && !Array.isArray(call))
      return { name: asText(call.name), args: call.arguments, body };
  } catch {
    // It is shown as it was written.
  }
  return { name: "", args: null, body };
}

function readAssistant(text) {
  const [thought, rest] = thoughtOf(text);
  const calls = [];
  const said = rest.replace(/<tool_call>([\s\S]*?)(?:<\/tool_call>|$)/g, (_, body) => {
    calls.push(callOf(body));
    return "\n";
  });
  return { thought, calls, said: said.trim() };
}

// The messages before the first turn, and each turn's own.
function turnsOf(transcript) {
  const messages = transcript.messages;
  const assistants = messages.flatMap((one, at) => (one.role === "assistant" ? [at] : []));
  const count = Number(transcript.totals?.turns) || assistants.length;
  const starts = assistants.slice(Math.max(0, assistants.length - count));
  const opening = messages.slice(0, starts[0] ?? messages.length);
  const turns = starts.map((start, place) => ({
    number: place + 1,
    said: messages[start],
    results: messages.slice(start + 1, starts[place + 1]),
    charges: [],
  }));
  for (const charge of transcript.charges)
    turns[Math.min(turns.length, Math.max(1, charge.turn || 1)) - 1]?.charges.push(charge);
  return { opening, turns };
}

const NO_TRANSCRIPT = "No transcript of this trial was recorded.";
const SET_ASIDE =
  "This play was set aside, as its trial was to be played again. It is in no figure. Its bill is kept, its transcript is not.";

// -- the page of a trial ---------------------------------------------------------------------------------------------

function drawTrial(host, trial, transcript, index) {
  const parts = [trialHead(trial), verdict(trial)];
  if (transcript) parts.push(...conversation(trial, transcript, index));
  else parts.push(el("p", { class: "note" }, trial.retried ? SET_ASIDE : NO_TRANSCRIPT), rowBill(trial, index));
  if (transcript?.failed) parts.push(foldedText("What failed", transcript.failed.traceback || transcript.failed));
  host.replaceChildren(...parts);
}

const chip = (outcome) =>
  el("span", { class: `chip ${outcome}` }, `${OUTCOMES[outcome].sign} ${OUTCOMES[outcome].word}`);

function trialHead(trial) {
  const preference = trial.preference?.sentence;
  const facts = [
    ["policy", trial.policy],
    [WORDS.where, trial.where],
    typeof trial.trial === "number" && ["trial", String(trial.trial + 1)],
    trial.began && ["began", trial.began],
    ...trainingFacts(trial.training),
    trial.retried && ["retried", `play ${asText(trial.retried)} of those set aside`],
    ["turns", String(trial.turns)],
    ["time", duration(trial.seconds)],
    ["agent's bill", money(trial.agentNano)],
    trial.nano > trial.agentNano && ["judge and user", money(trial.nano - trial.agentNano)],
    asText(trial.seed) && ["seed", asText(trial.seed)],
    trial.sheet && ["prices", trial.sheet],
    trial.estimated > 0 && ["estimated charges", String(trial.estimated)],
    trial.over_budget_usd > 0 && ["over budget", money(trial.over_budget_usd * 1e9)],
    ...entriesOf(trial.groups).map(([name, value]) => [name, asText(value)]),
  ].filter(Boolean);
  return el(
    "header",
    { class: "trial-head" },
    el("h2", {}, chip(trial.outcome), el("span", { class: "task" }, trial.task)),
    el(
      "dl",
      { class: "facts-line" },
      facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
    preference && el("p", { class: "preference" }, el("b", {}, "The user's preference"), el("span", {}, preference)),
  );
}

const signed = (value) => (typeof value === "number" ? three.format(value) : "none");

// Of a rollout that a training run has dumped.
function trainingFacts(training) {
  if (!training) return [];
  const parts = entriesOf(training.parts).map(([name, value]) => `${name} ${signed(value)}`);
  return [
    ["step", asText(training.step)],
    ["group", asText(training.group)],
    ["rollout", asText(training.rollout)],
    ["reward", signed(training.reward) + (parts.length > 1 ? ` (${parts.join(", ")})` : "")],
    ["advantage", signed(training.advantage)],
    training.left_out && ["taught nothing", asText(training.left_out)],
  ];
}

// What was expected and given, and whatever else the grader said.
function verdict(trial) {
  const evidence = Object.fromEntries(entriesOf(trial.evidence));
  const { expected, answer, ...others } = evidence;
  const given = "answer" in evidence;
  const rest = Object.entries(others);
  return el(
    "section",
    { class: `verdict ${trial.outcome}`, "aria-label": "Outcome" },
    el(
      "h3",
      {},
      gradeWords(trial),
      trial.truncated_by && el("small", {}, ` · stopped by ${trial.truncated_by}`),
    ),
    trial.failure && longText(trial.failure, "failure"),
    (expected !== undefined || given) &&
      el("div", { class: "pair" }, answerBox("Expected", expected), answerBox("Given", answer)),
    rest.length > 0 &&
      el(
        "dl",
        { class: "evidence" },
        rest.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, longText(value)))),
      ),
  );
}

function gradeWords(trial) {
  if (typeof trial.right === "number") return `Graded ${number(trial.right)}`;
  const { word } = OUTCOMES[trial.outcome];
  if (trial.outcome === "answered") return sentence(word);
  if (trial.outcome === "running") return `${sentence(word)}: ${trial.cause}`;
  return `No outcome: ${trial.cause || word}`;
}

const answerBox = (name, value) =>
  el("div", {}, el("h4", {}, name), longText(value === null || value === undefined ? "(none)" : value));

function foldedText(title, value) {
  const fold = el("details", { class: "fold" }, el("summary", {}, title));
  fold.addEventListener("toggle", () => {
    if (fold.open && fold.childElementCount === 1) fold.append(longText(value));
  });
  return fold;
}

function conversation(trial, transcript, index) {
  const { opening, turns } = turnsOf(transcript);
  const total = sum(transcript.charges.map((charge) => Number(charge.nano_usd) || 0));
  const names = listOf(transcript.tools)
    .map((tool) => tool?.function?.name)
    .filter(Boolean);
  let spent = 0;
  const cards = turns.map((turn) => {
    const before = spent;
    spent += sum(turn.charges.map((charge) => Number(charge.nano_usd) || 0));
    return turnCard(turn, before, spent, total, index);
  });
  return [
    el(
      "section",
      { class: "opening", "aria-label": "Opening" },
      opening.map(openingMessage),
      (transcript.images ?? []).map(questionPicture),
      names.length > 0 &&
        foldedText(`${plural(names.length, "tool", "tools")}: ${names.map(spelled).join(", ")}`, transcript.tools),
    ),
    ...cards,
    ...(turns.length || !transcript.charges.length ? [] : [unsaidBill(transcript, total, index)]),
  ];
}

// The bill of a transcript without turns: nothing came of the first yet, or texts are not kept.
const unsaidBill = (transcript, total, index) =>
  el(
    "section",
    { class: "turn", "aria-label": "Bill" },
    el("header", {}, el("h3", {}, "Bill"), runningBill(0, total, total)),
    !transcript.messages.length && el("p", { class: "about" }, "No messages were kept."),
    chargeTable(transcript.charges, index),
  );

// A picture that goes with the question. The page's policy lets nothing be fetched for one.
const questionPicture = (url) => el("img", { class: "picture", src: asText(url), alt: "The picture that goes with the question" });

function openingMessage(message) {
  if (message.role === "system") return foldedText("System message", message.content);
  return el(
    "div",
    { class: `message ${message.role === "user" ? "user" : ""}` },
    el("h4", {}, message.role),
    longText(message.content, "prose"),
  );
}

function turnCard(turn, before, spent, total, index) {
  const { thought, calls, said } = readAssistant(asText(turn.said.content));
  return el(
    "section",
    { class: "turn", tabindex: "-1", "aria-label": `Turn ${turn.number}` },
    el("header", {}, el("h3", {}, `Turn ${turn.number}`), runningBill(before, spent, total)),
    el(
      "div",
      { class: "turn-body" },
      el(
        "div",
        { class: "exchange" },
        thought && el("div", { class: "message thought" }, el("h4", {}, "thought"), longText(thought, "prose")),
        said &&
          el(
            "div",
            { class: "message said" },
            el("h4", {}, calls.length ? "said beside the calls" : "said"),
            longText(said, "prose"),
          ),
        !said && !calls.length && el("div", { class: "message said" }, el("h4", {}, "said nothing")),
        calls.map(callBox),
        turn.results.map(resultBox),
      ),
      chargeTable(turn.charges, index),
    ),
  );
}

function runningBill(before, spent, total) {
  const meter = el(
    "span",
    { class: "meter", "aria-hidden": "true" },
    el("i", { class: "before" }),
    el("i", { class: "now" }),
  );
  meter.children[0].style.width = `${total ? (100 * before) / total : 0}%`;
  meter.children[1].style.width = `${total ? (100 * (spent - before)) / total : 0}%`;
  return el(
    "p",
    { class: "bill" },
    el("span", {}, `+ ${money(spent - before)}`),
    meter,
    el("b", {}, money(spent)),
    el("span", { class: "sub" }, "so far"),
  );
}

function callBox(call) {
  if (!call.name)
    return el("div", { class: "message call" }, el("h4", {}, "a call that could not be read"), longText(call.body));
  const args = entriesOf(call.args);
  const plain = args.every(
    ([, value]) => typeof value !== "object" && asText(value).length < 60 && !asText(value).includes("\n"),
  );
  return el(
    "div",
    { class: "message call" },
    el(
      "h4",
      {},
      "call ",
      el("code", {}, call.name),
      plain && args.map(([name, value]) => el("code", { class: "argument" }, `${name}: ${asText(value)}`)),
    ),
    !plain &&
      el(
        "dl",
        { class: "arguments" },
        args.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, longText(value)))),
      ),
  );
}

function resultBox(message) {
  const name =
    message.role === "tool" || !message.role
      ? ["result ", message.name && el("code", {}, message.name)]
      : [asText(message.role)];
  return el(
    "div",
    { class: `message result ${message.role === "user" ? "user" : ""}` },
    el("h4", {}, ...name),
    longText(message.content),
  );
}

// -- charges ---------------------------------------------------------------------------------------------------------

const TOKEN_WORDS = [
  ["input", "in"],
  ["cached", "cached"],
  ["output", "out"],
  ["reasoning", "reasoning"],
];

// What a row alone says of its bill: by role, and by model.
function rowBill(trial, index) {
  const line = (name, kind, more, nano) =>
    el(
      "li",
      {},
      el("span", { class: `patch ${kind}` }),
      el("span", { class: "who" }, el("b", {}, name), el("small", {}, more)),
      el("span", { class: "num" }, money(Number(nano))),
    );
  const roles = entriesOf(trial.nano_usd_by_role).map(([role, nano]) => {
    const counts = listOf(entriesOf(trial.tokens).find(([name]) => name === role)?.[1]);
    const tokens = Object.fromEntries(TOKEN_WORDS.map(([name], place) => [name, Number(counts[place]) || 0]));
    return line(role, `role-${index.roles.includes(role) ? role : "other"}`, usedWords({ tokens }), nano);
  });
  const models = entriesOf(trial.nano_usd_by_model).map(([model, nano]) => line(model, "", "", nano));
  if (!roles.length) return el("p", { class: "charges none" }, "No charges.");
  return el(
    "section",
    { class: "turn row-bill", "aria-label": "Bill" },
    el("header", {}, el("h3", {}, "Bill"), el("p", { class: "bill" }, el("b", {}, money(trial.nano)))),
    el("div", { class: "charges" }, el("ul", {}, roles)),
    models.length > 0 && el("div", { class: "charges" }, el("h4", {}, "by model"), el("ul", {}, models)),
  );
}

function usedWords(charge) {
  const tokens = TOKEN_WORDS.filter(([name]) => charge.tokens?.[name] > 0).map(
    ([name, word]) => `${whole.format(charge.tokens[name])} ${word}`,
  );
  if (charge.units > 0) tokens.push(plural(charge.units, "unit", "units"));
  if (charge.seconds > 0) tokens.push(duration(charge.seconds));
  return (charge.estimated && tokens.length ? "about " : "") + tokens.join(" · ");
}

function chargeTable(charges, index) {
  if (!charges.length) return el("p", { class: "charges none" }, "No charges.");
  return el(
    "div",
    { class: "charges" },
    el(
      "ul",
      {},
      charges.map((charge) =>
        el(
          "li",
          {},
          el("span", {
            class: `patch role-${index.roles.includes(charge.role) ? charge.role : "other"}`,
            title: asText(charge.role),
          }),
          el(
            "span",
            { class: "who" },
            el("b", {}, charge.item),
            el("small", {}, [charge.role, charge.tool].filter(Boolean).map(asText).join(" · ")),
            el("small", {}, usedWords(charge)),
          ),
          el("span", { class: "num" }, money(Number(charge.nano_usd))),
        ),
      ),
    ),
  );
}
