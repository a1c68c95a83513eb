// Elements, texts and numbers. Data goes into the page as text alone; nothing here or below reads it as HTML.

// Characters that are not seen, or that turn the direction of writing: a line would read otherwise than it is.
const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u115f\\u1160\\u180e\\u200b-\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\ud800-\\udfff\\u{e0000}-\\u{e007f}]",
  "gu",
);

const codeOf = (character) => "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

// A value as text: a string as it is, anything else as JSON.
function asText(value) {
  if (typeof value === "string") return value.replaceAll("\r\n", "\n");
  return value === undefined || value === null ? "" : JSON.stringify(value, null, 1);
}

// As text with its unseen characters spelled: for attributes and options, which hold no elements.
const spelled = (value) => asText(value).replace(UNSEEN, (one) => `⟨${codeOf(one)}⟩`);

// Append text to an element, with its unseen characters as marks that can be seen.
function put(parent, value) {
  const text = asText(value);
  let from = 0;
  for (const found of text.matchAll(UNSEEN)) {
    parent.append(text.slice(from, found.index), unseenMark(found[0]));
    from = found.index + found[0].length;
  }
  parent.append(text.slice(from));
  return parent;
}

function unseenMark(character) {
  const mark = document.createElement("span");
  mark.className = "unseen";
  mark.title = "a character that is not seen";
  mark.textContent = codeOf(character);
  return mark;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value !== null && value !== undefined && value !== false)
      node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) put(node, String(child));
  }
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const drawn = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const byId = (id) => document.getElementById(id);

// -- numbers ---------------------------------------------------------------------------------------------------------

const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const dollars = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

const number = (value) => (Math.abs(value) >= 1000 ? whole : three).format(value);
const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(1)}%` : "–");

// Nano-dollars in words: cents below a dollar, as most trials cost less.
function money(nano) {
  if (!Number.isFinite(nano)) return "–";
  return Math.abs(nano) >= 1e9 ? `$${dollars.format(nano / 1e9)}` : `${three.format(nano / 1e7)} ¢`;
}

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds > 0 && seconds < 0.1) return `${three.format(1000 * seconds)} ms`;
  if (seconds < 120) return `${three.format(seconds)} s`;
  if (seconds < 7200) return `${three.format(seconds / 60)} min`;
  return `${three.format(seconds / 3600)} h`;
}

const plural = (count, one, many) => `${whole.format(count)} ${count === 1 ? one : many}`;
