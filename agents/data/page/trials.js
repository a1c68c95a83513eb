// Trials: rows of the data with what the page asks of them again and again.

const listOf = (value) => (Array.isArray(value) ? value : []);
const objectsOf = (value) => listOf(value).filter((one) => one && typeof one === "object");
const entriesOf = (value) => (value && typeof value === "object" && !Array.isArray(value) ? Object.entries(value) : []);

const OUTCOMES = {
  right: { sign: "✓", word: "right" },
  partly: { sign: "◐", word: "partly right" },
  wrong: { sign: "✗", word: "wrong" },
  failed: { sign: "!", word: "failed" },
  cut: { sign: "⊘", word: "cut" },
  answered: { sign: "✓", word: "answered" },
  running: { sign: "…", word: "in flight" },
};

function outcomeOf(row) {
  if (row.status !== "ended") return row.status;
  if (typeof row.right !== "number") return "answered";
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
