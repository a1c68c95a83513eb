// The data: compressed parts in the page, each opened when it is first looked at.

const WORDS = { one: "trial", many: "trials", where: "environment" };
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
  found.images = await Promise.all((found.images ?? []).map(shared));
  found.messages = objectsOf(found.messages);
  found.charges = objectsOf(found.charges);
  if (found.messages.length) {
    found.messages[0] = { ...found.messages[0], content: await shared(found.messages[0].content) };
  }
  return found;
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
