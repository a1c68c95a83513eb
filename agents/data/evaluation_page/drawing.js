// What the figures are drawn with: axes, scales, labels that keep out of each other's way.

const COLOURS = 8;
const SHAPES = [
  (r) => drawn("circle", { r }),
  (r) => drawn("rect", { x: -r, y: -r, width: 2 * r, height: 2 * r, rx: 1.5 }),
  (r) => drawn("path", { d: `M0 ${-r * 1.35}L${r * 1.35} 0L0 ${r * 1.35}L${-r * 1.35} 0Z` }),
  (r) => drawn("path", { d: `M0 ${-r * 1.25}L${r * 1.2} ${r}L${-r * 1.2} ${r}Z` }),
];

const colourOf = (place) => `c${place % COLOURS}`;
const shapeOf = (place, r) => SHAPES[place % SHAPES.length](r);

// A small picture of a policy's mark, for tables and lists.
const swatch = (place) =>
  drawn(
    "svg",
    { class: `swatch ${colourOf(place)}`, width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
    shapeOf(place, 4.6),
  );

function scaleOf(from, to, first, last, log) {
  const of = log ? Math.log10 : (value) => value;
  const [a, b] = [of(from), of(to)];
  const at = (value) => first + ((of(value) - a) / (b - a || 1)) * (last - first);
  return at;
}

// Numbers that a log axis names: 1, 2 and 5 of each power of ten, or the powers alone where there are many.
function logTicks(from, to) {
  const decades = Math.log10(to / from);
  const steps = decades > 3.5 ? [1] : decades > 1.6 ? [1, 3] : [1, 2, 5];
  const ticks = [];
  for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++) {
    for (const step of steps) {
      const tick = step * 10 ** power;
      if (tick >= from * 0.999 && tick <= to * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

const label = (x, y, text, attributes) => drawn("text", { x, y, ...attributes }, text);
const line = (x1, y1, x2, y2, attributes) => drawn("line", { x1, y1, x2, y2, ...attributes });

const CHARACTER_WIDTH = 7;
const overlap = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

// How far a point is from a box.
const farFrom = (box, [x, y]) =>
  Math.hypot(Math.max(box.x - x, 0, x - box.x - box.w), Math.max(box.y - y, 0, y - box.y - box.h));

// Where a point's name stands: the first place around the point that touches nothing, and that is nearer to it than to
// any other point.
function placeLabel(text, x, y, taken, room, points) {
  const w = text.length * CHARACTER_WIDTH + 4,
    h = 15;
  const around = (d) => [
    [d, -d - 19],
    [d, d + 5],
    [-w - d, -d - 19],
    [-w - d, d + 5],
  ];
  const over = (d) => [
    [-w / 2, -d - 19],
    [-w / 2, d + 5],
  ];
  const places = [...around(4), [11, -8], [-11 - w, -8], ...over(8), ...around(14), ...over(18), ...around(26)];
  const boxes = places.map(([dx, dy]) => ({ x: x + dx, y: y + dy, w, h }));
  const inside = (box) =>
    box.x >= room.x && box.x + box.w <= room.x + room.w && box.y >= room.y && box.y + box.h <= room.y + room.h;
  const bare = (box) => inside(box) && !taken.some((other) => overlap(box, other));
  const own = (box) => points.every((point) => farFrom(box, [x, y]) <= farFrom(box, point));
  const box = boxes.find((each) => bare(each) && own(each)) ?? boxes.find(bare) ?? boxes.find(inside) ?? boxes[0];
  taken.push(box);
  return box;
}

function picture(width, height, about, ...children) {
  return drawn(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spelled(about) },
    ...children,
  );
}
