// Figures made of trials: accuracy, means, quantiles, the Pareto front.

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

// What a policy came to. Trials without an outcome are in no mean; the bounds count them all wrong and all right, and
// with them the trials that were planned and not played. `told` are the intervals, which came with the data: they are
// those of the tables.
function standingOf(policy, trials, place, unplayed, told) {
  const ended = trials.filter((one) => one.status === "ended");
  const accuracy = mean(ended.map((one) => one.right));
  const right = sum(ended.map((one) => one.right));
  const solved = ended.filter((one) => one.right >= 1).length; // as in the tables: a part of an outcome solves nothing
  const all = trials.length + unplayed;
  const unknown = all - ended.length;
  const [middle = NaN, low, high] = (told?.cents ?? []).map((cents) => cents && cents * 1e7);
  return {
    policy,
    place,
    trials,
    ended,
    accuracy,
    unknown,
    unplayed,
    interval: told?.accuracy ?? [NaN, NaN],
    bounds: [right / all, (right + unknown) / all],
    cost: { middle, low: low ?? middle, high: high ?? middle },
    seconds: mean(ended.map((one) => one.seconds)),
    turns: mean(ended.map((one) => one.turns)),
    perSolved: solved ? sum(trials.map((one) => one.agentNano)) / solved : NaN,
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
