// Cells of a table: their short forms in the specification, and those that are drawn.

import { h } from "./makers.js";
import { ROW } from "./table_style.js";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const line = (runs) => runs.map((run) => (typeof run === "string" ? run : h("span", { class: run[1] }, run[0])));

export const keys = (legend) => legend.map(([meaning, word]) => h("span", { class: "key" }, h("b", { class: `b-${meaning}` }), word));

// A cell of the spec: text, or [text, value, tone, note, flat, picture] without its empty end.
export const unpack = (cell) => (Array.isArray(cell) ? cell : [cell]);
export const cellText = (cell) => (Array.isArray(cell) ? cell[0] : cell);
export const FLAT = 4;

// The unseen end that puts a number's decimal point under the others (torchbench_magic.units.padding).
export function padding(text, places) {
  if (!places || !/^(·|[<>]?[+−]?[<>]?[\d\u202f]+(\.\d+)?)$/.test(text)) return "";
  const point = text.indexOf("."), shown = point < 0 ? 0 : text.length - point - 1;
  return shown >= places ? "" : (shown ? "" : ".") + "0".repeat(places - shown);
}

// Pixels of drawn columns; less where the output is narrow, so that no number falls off its end.
export const WIDE = { bar: 88, change: 152, interval: 150, dots: 110, histogram: 94 };
export const NARROW = { bar: 64, change: 96, interval: 104, dots: 80, histogram: 88 };
let WIDTHS = WIDE; // of the table that is being drawn
export const widthsNow = () => WIDTHS;
export function drawWith(widths) { WIDTHS = widths; }

function bar(picture) { // [parts, thin]: shares of the longest bar; thin is what is shown a second time
  const width = WIDTHS.bar - 6, drawing = svg("svg", { width: WIDTHS.bar, height: ROW, "aria-hidden": "true" });
  [[picture[0], picture[1].length ? 5 : 7, 8], [picture[1], 14.5, 3]].forEach(([parts, y, height]) => {
    let x = 0;
    for (const [meaning, share] of parts) {
      const w = Math.max(share * width, 1);
      drawing.append(svg("rect", { class: `f-${meaning}`, x: x.toFixed(1), y, width: w.toFixed(1), height }));
      x += w;
    }
  });
  return drawing;
}

function change(picture) { // [share]: a bar from the middle; to the right is more
  const middle = WIDTHS.change / 2, w = Math.max(Math.abs(picture[0]) * (middle - 4), 1), drawing = svg("svg", { width: WIDTHS.change, height: ROW, "aria-hidden": "true" });
  drawing.append(svg("line", { class: "axisline", x1: middle, x2: middle, y1: 0, y2: ROW }));
  if (picture[0]) drawing.append(svg("rect", { class: picture[0] > 0 ? "f-slower" : "f-faster", x: (picture[0] > 0 ? middle : middle - w).toFixed(1), y: 7, width: w.toFixed(1), height: 8 }));
  return drawing;
}

function dots(picture) { // [places, one]: shares of the width; one is where the ratio 1 lies
  const [places, one] = picture, drawing = svg("svg", { width: WIDTHS.dots, height: ROW, "aria-hidden": "true" });
  const at = (share) => 5 + share * (WIDTHS.dots - 10), middle = ROW / 2;
  drawing.append(svg("line", { class: "tick", x1: at(0), x2: at(1), y1: middle, y2: middle }));
  if (one !== null) drawing.append(svg("line", { class: "axisline", x1: at(one), x2: at(one), y1: 2, y2: ROW - 2 }));
  for (const share of places) drawing.append(svg("circle", { class: "hollow", cx: at(share).toFixed(1), cy: middle, r: 2.5 }));
  return drawing;
}

const place = (axis, value) => {
  const f = axis.log ? Math.log : (x) => x;
  return 6 + ((f(value) - f(axis.low)) / (f(axis.high) - f(axis.low))) * (WIDTHS.interval - 16);
};

function interval(picture, tone, axis, text) { // [ratio, low, high, mark] on an axis round 1
  const [ratio, low, high, mark] = picture, drawing = svg("svg", { width: WIDTHS.interval, height: ROW, "aria-hidden": "true" });
  for (const [value] of axis.ticks) drawing.append(svg("line", { class: "tick", x1: place(axis, value), x2: place(axis, value), y1: 0, y2: ROW }));
  const left = place(axis, 1 - axis.band), right = place(axis, 1 + axis.band), one = place(axis, 1), middle = ROW / 2;
  const band = Math.max(right - left, 1);
  drawing.append(svg("rect", { class: "band", x: (left + right - band) / 2, width: band, y: 0, height: ROW }),
    svg("line", { class: "axisline", x1: one, x2: one, y1: 0, y2: ROW }));
  if (ratio === null || ratio === undefined) return drawing;
  if (mark === "baseline") {
    drawing.append(svg("rect", { class: "f-ink", x: one - 2.5, y: middle - 2.5, width: 5, height: 5 }));
  } else if (ratio < axis.low || ratio > axis.high) { // outside: an arrow with the number
    const less = ratio < axis.low, end = WIDTHS.interval - 2;
    drawing.append(svg("path", { class: `f-${tone}`, d: less ? `M2 ${middle}l6-4v8z` : `M${end} ${middle}l-6-4v8z` }),
      svg("text", { x: less ? 12 : end - 10, y: middle + 4, "text-anchor": less ? "start" : "end" }, text));
  } else {
    const x = place(axis, ratio);
    if (low !== null && high !== null && low !== undefined) {
      const from = Math.max(place(axis, Math.max(low, axis.low)), 0), to = place(axis, Math.min(high, axis.high));
      if (to - from > 6) { // narrower than its dot needs no whiskers
        const ends = (low >= axis.low ? `M${from} ${middle - 4}v8` : "") + (high <= axis.high ? `M${to} ${middle - 4}v8` : "");
        drawing.append(svg("path", { class: `s-${tone}`, fill: "none", "stroke-width": 1.5, d: `M${from} ${middle}H${to}${ends}` }));
      }
    }
    drawing.append(svg("circle", { class: mark === "open" ? "hollow" : `f-${tone}`, cx: x, cy: middle, r: 3 }));
  }
  return drawing;
}

export function intervalHead(axis) {
  const drawing = svg("svg", { width: WIDTHS.interval, height: 19, "aria-hidden": "true" });
  const taken = []; // from 1 outwards, those that have room
  for (const [value, label] of [...axis.ticks].sort((a, b) => Math.abs(Math.log(a[0])) - Math.abs(Math.log(b[0])))) {
    const x = place(axis, value), half = 3.5 * label.length;
    if (taken.some(([other, size]) => Math.abs(other - x) < size + half)) continue;
    taken.push([x, half]);
    drawing.append(svg("text", { x: place(axis, value), y: 12, "text-anchor": "middle", class: value === 1 ? "one" : "" }, label));
  }
  return drawing;
}

function histogram(picture) { // [counts, more, median's bin]: relative to the row's own median
  const [counts, more, centre] = picture, drawing = svg("svg", { width: WIDTHS.histogram, height: ROW, "aria-hidden": "true" });
  const end = WIDTHS.histogram - 22, step = end / counts.length, top = Math.max(...counts, 1);
  drawing.append(svg("line", { class: "tick", x1: 0, x2: end, y1: 18.5, y2: 18.5 }));
  counts.forEach((count, at) => {
    if (!count) return;
    const height = Math.max(1, (14 * count) / top);
    drawing.append(svg("rect", { class: "f-ink", opacity: ".75", x: (at * step).toFixed(1), y: (18 - height).toFixed(1), width: (step - 0.5).toFixed(1), height: height.toFixed(1) }));
  });
  drawing.append(svg("path", { class: "axisline", d: `M${(centre * step).toFixed(1)} 2v18` }));
  if (more) drawing.append(svg("path", { class: "f-ink", d: `M${end + 2} 14l4 2.5-4 2.5z` }));
  return drawing;
}

export function source(text, spans) {
  const nodes = [];
  let at = 0;
  for (const [start, end, meaning] of spans ?? []) {
    nodes.push(text.slice(at, start), h("span", { class: meaning }, text.slice(start, end)));
    at = end;
  }
  nodes.push(text.slice(at));
  return nodes;
}

// What a cell of a drawn column shows; null: nothing.
export function picture(column, [text = "", , tone = "", , , given], axis, isTotal) {
  if (column.kind === "interval") return given || !isTotal ? interval(given ?? [null], tone === "quiet" ? "" : tone, column.axes[axis], text) : null;
  if (column.kind === "change") return change(given ?? [0]);
  return given ? { bar, dots, histogram }[column.kind](given) : null;
}
