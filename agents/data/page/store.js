// The data: compressed parts in the page, each opened when it is first looked at.

const KEPT_PARTS = 12;
const opened = new Map();

async function unpack(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let at = 0; at < characters.length; at++) bytes[at] = characters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const blocksOf = (name) => document.querySelectorAll(`script[data-part="${name}"]`);

// The values of a part. The last ones that were looked at are kept.
function part(name, place) {
  const key = `${name} ${place}`;
  const found = opened.get(key) ?? unpack(blocksOf(name)[place].textContent);
  opened.delete(key);
  opened.set(key, found);
  if (opened.size > KEPT_PARTS) opened.delete(opened.keys().next().value);
  return found;
}

async function shared(value) {
  if (!Array.isArray(value?.shared)) return value;
  return (await part("shared", value.shared[0]))[value.shared[1]];
}

// The transcript of a trial; null where there is none.
async function transcriptOf(trial) {
  if (!trial.at) return null;
  const found = { ...(await part("transcripts", trial.at[0]))[trial.at[1]] };
  found.tools = await shared(found.tools);
  found.messages = objectsOf(found.messages);
  found.charges = objectsOf(found.charges);
  if (found.messages.length) {
    found.messages[0] = { ...found.messages[0], content: await shared(found.messages[0].content) };
  }
  return found;
}

const listOf = (value) => (Array.isArray(value) ? value : []);
const objectsOf = (value) => listOf(value).filter((one) => one && typeof one === "object");
const entriesOf = (value) => (value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : []);

// -- trials ----------------------------------------------------------------------------------------------------------

const OUTCOMES = {
  right: { sign: "✓", word: "right" },
  partly: { sign: "◐", word: "partly right" },
  wrong: { sign: "✗", word: "wrong" },
  failed: { sign: "!", word: "failed" },
  cut: { sign: "⊘", word: "cut" },
};

function outcomeOf(row) {
  if (row.status !== "ended") return row.status;
  if (row.right >= 1) return "right";
  return row.right > 0 ? "partly" : "wrong";
}

const HEAD = 60;

function causeOf(row, outcome) {
  if (row.failure) return spelled(row.failure).split(/[\n(]/)[0].slice(0, HEAD).trim();
  if (row.truncated_by) return `stopped by ${spelled(row.truncated_by)}`;
  return outcome === "wrong" ? "wrong answer" : "";
}

const sumOf = (mapping, keys) =>
  entriesOf(mapping).reduce((sum, [key, value]) => sum + (!keys || keys.includes(key) ? Number(value) || 0 : 0), 0);

// A row of the index with what the page asks of it again and again.
function trialOf(row, index, place) {
  const trial = { env: "", split: "", policy: "", task: "", trial: 0, turns: 0, elapsed_ns: 0, ...row, place };
  for (const name of ["env", "split", "policy", "task"]) trial[name] = asText(trial[name]);
  trial.outcome = outcomeOf(trial);
  trial.cause = causeOf(trial, trial.outcome);
  trial.agentNano = sumOf(trial.nano_usd_by_role, index.agent_roles);
  trial.nano = sumOf(trial.nano_usd_by_role);
  trial.seconds = trial.elapsed_ns / 1e9;
  trial.where = trial.split ? `${trial.env} · ${trial.split}` : trial.env;
  trial.key = [trial.env, trial.split, trial.policy, trial.task, trial.trial].join("|");
  if (trial.retried) trial.key += `|set aside ${trial.retried}`;
  trial.pair = [trial.where, trial.policy, trial.task].join("|");
  trial.aim = [trial.where, trial.task].join("|");
  trial.words = [
    trial.task,
    trial.policy,
    trial.where,
    trial.question,
    trial.failure,
    trial.truncated_by,
    ...entriesOf(trial.groups).map(([, value]) => value),
  ]
    .map(asText)
    .join("\n")
    .toLowerCase();
  return trial;
}

function markUnsolved(trials) {
  const solved = new Set();
  for (const trial of trials) if (trial.outcome === "right") solved.add(trial.pair).add(trial.aim);
  for (const trial of trials) {
    trial.neverByPolicy = !solved.has(trial.pair);
    trial.neverByAny = !solved.has(trial.aim);
  }
}

async function readIndex() {
  const index = await unpack(blocksOf("index")[0].textContent);
  index.plays = index.trials.map((row, place) => trialOf(row, index, place));
  const tested = index.plays.some((one) => !one.training && !one.retried);
  // What figures are made of. Rollouts of training are by weights that change.
  index.trials = index.plays.filter((one) => !one.retried && !(tested && one.training));
  markUnsolved(index.plays);
  return index;
}
