// Figures made of trials: accuracy with its interval, means, quantiles, the Pareto front.

const Z = 1.959964;

// Wilson's 95% interval of a share seen in so many tasks.
function wilson(share, count) {
  if (!count) return [0, 1];
  const z2 = (Z * Z) / count;
  const middle = (share + z2 / 2) / (1 + z2);
  const half = (Z * Math.sqrt((share * (1 - share)) / count + z2 / (4 * count))) / (1 + z2);
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => (values.length ? sum(values) / values.length : NaN);

function quantile(sorted, share) {
  if (!sorted.length) return NaN;
  const at = share * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
}

function groupBy(values, key) {
  const groups = new Map();
  for (const value of values) {
    const name = key(value);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(value);
  }
  return groups;
}

// Each task's mean over its trials: trials of one task are alike, so it is tasks that are counted in an interval.
const byTask = (trials, measure) => [...groupBy(trials, (one) => one.aim).values()].map((of) => mean(of.map(measure)));

// The mean of a measure with its 95% interval over tasks.
function meanWithInterval(trials, measure) {
  const means = byTask(trials, measure);
  const middle = mean(means);
  if (means.length < 2) return { middle, low: middle, high: middle };
  const variance = sum(means.map((one) => (one - middle) ** 2)) / (means.length - 1);
  const half = Z * Math.sqrt(variance / means.length);
  return { middle, low: Math.max(0, middle - half), high: middle + half };
}

// What a policy came to. Trials without an outcome are in no mean; the bounds count them all wrong and all right, and
// with them the trials that were planned and not played.
function standingOf(policy, trials, place, unplayed) {
  const ended = trials.filter((one) => one.status === "ended");
  const accuracy = mean(ended.map((one) => one.right));
  const right = sum(ended.map((one) => one.right));
  const all = trials.length + unplayed;
  const unknown = all - ended.length;
  const tasks = new Set(ended.map((one) => one.aim)).size;
  return {
    policy,
    place,
    trials,
    ended,
    accuracy,
    unknown,
    unplayed,
    interval: tasks ? wilson(accuracy, tasks) : [NaN, NaN],
    bounds: [right / all, (right + unknown) / all],
    cost: meanWithInterval(ended, (one) => one.agentNano),
    seconds: mean(ended.map((one) => one.seconds)),
    turns: mean(ended.map((one) => one.turns)),
    perSolved: right ? sum(trials.map((one) => one.agentNano)) / right : NaN,
  };
}

// How many trials of a policy the manifest had planned in a scope, beyond those that there are rows of.
function unplayedOf(index, policy, scope, played) {
  const planned = listOf(index.manifest?.planned).filter(Array.isArray).filter(
    ([env, split, name]) => name === policy && (!scope || (split ? `${env} · ${split}` : env) === scope),
  );
  return Math.max(0, sum(planned.map((one) => Number(one[3]) || 0)) - played);
}

// Those that no other policy beats: none is as good for less, none is better for as little.
function paretoFront(standings) {
  const known = standings.filter((one) => one.ended.length);
  const beats = (one, other) =>
    one.accuracy >= other.accuracy &&
    one.cost.middle <= other.cost.middle &&
    (one.accuracy > other.accuracy || one.cost.middle < other.cost.middle);
  return known.filter((one) => !known.some((other) => beats(other, one))).sort((a, b) => a.cost.middle - b.cost.middle);
}

// Whether every policy has played the same tasks: else their figures are not to be compared.
function sameTasks(standings) {
  const sets = standings.map((one) => [...new Set(one.trials.map((trial) => trial.aim))].sort().join("\n"));
  return new Set(sets).size <= 1;
}
