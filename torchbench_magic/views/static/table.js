// Draws a result of torchbench_magic: sentence, insights, tables, doubts, footer.
// One function, two who call it:
//   page.js, for an HTML output
//   widget.js, anywidget's render(): the same drawing from a model that Python can change
//
// spec is what torchbench_magic/views/carriers/document_json.py writes. Text from it only ever becomes a text node or an attribute
// set by name, never markup. All is drawn in a shadow root: the notebook's own styles do not reach it, its colour
// variables do, and the static table in the light DOM disappears behind it.

import { THEME, h, segments, textScale } from "./makers.js";
import { usablePattern } from "./pattern.js";

const ROW = 22, HEADING = 27, DETAIL_ROW = 20; // px, as in CSS
const MANY = 300; // rows from which only those in sight are in the DOM
const SIGHT = 484; // px of the scrolled box then
const SLOW_FILTER = 400; // ms after which a filter gives up
const RIGHT = new Set(["number", "range", "line"]), CODE = new Set(["code", "source", "line"]);

const CSS = `
.tb{--torch:#2468b0;--python:#d28a1a;--backward:#c583c4;--memory:#2ca184;--other:#7b8087;--more:#cf4f2c;--hover:transparent}
@supports (color:color-mix(in srgb,red,blue)){.tb{ /* pulled towards the theme's ink: darker on paper, lighter on night */
 --torch:color-mix(in srgb,#2468b0 84%,var(--ink0));--python:color-mix(in srgb,#d28a1a 84%,var(--ink0));
 --backward:color-mix(in srgb,#c583c4 84%,var(--ink0));--memory:color-mix(in srgb,#2ca184 84%,var(--ink0));
 --other:color-mix(in srgb,#7b8087 84%,var(--bg));--more:color-mix(in srgb,#cf4f2c 84%,var(--ink0));
 --hover:color-mix(in srgb,var(--brand) 9%,transparent)}}
.controls .sentence{color:var(--ink1);font-size:13px;flex:1 1 auto;min-width:0;max-width:100%;overflow-wrap:anywhere}
.controls>.seg:last-child{margin-left:auto}.side{margin:0;min-height:0}
.subject{font-family:var(--mono);font-size:12px;font-weight:600}
.figure{font-size:15px;font-weight:600;margin:0 14px;white-space:nowrap}.folded .code{color:var(--ink1)}
input{width:210px}
.no-histogram .histogram,.no-interval .interval,.no-bar .bar{display:none}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th.text,th.code{overflow:hidden;text-overflow:ellipsis}
.pane{overflow-x:auto}.hint{position:sticky;left:0;width:fit-content}
.scrolls :is(td,th).verdict{position:sticky;right:0;background:var(--bg);box-shadow:-1px 0 var(--rule2);padding-left:6px}.pane.many{max-height:${SIGHT + 40}px;overflow-y:auto}
table{border-collapse:collapse;width:100%;table-layout:fixed;font-size:12.5px}table.dense{font-size:12px}
col.code{font-family:var(--mono);font-size:12px}
th{font-weight:400;color:var(--ink2);text-align:left;vertical-align:bottom;padding:0 8px 4px 0;line-height:15px;font-size:11.5px;white-space:nowrap}
thead{box-shadow:inset 0 -1px var(--rule1)}.many thead{position:sticky;top:0;background:var(--bg);z-index:1}
th small{display:block;font-size:11px;white-space:nowrap}th.r{text-align:right}th.axis{padding:0}
th button:hover,th[aria-sort=ascending],th[aria-sort=descending]{color:var(--ink1)}
th i{display:inline-block;border:3.5px solid transparent;margin:0 0 2px 4px}
[aria-sort=descending] i{border-top:4.5px solid var(--ink1);border-bottom:0}[aria-sort=ascending] i{border-bottom:4.5px solid var(--ink1);border-top:0}
[aria-sort=none] i{display:none}
.key{display:inline-flex;gap:5px;align-items:center;margin-right:7px}.key b{width:9px;height:9px;display:inline-block}
td{height:${ROW}px;line-height:${ROW}px;padding:0 8px 0 0;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;vertical-align:middle}
td:last-child,th:last-child{padding-right:0}
td.r{text-align:right;overflow:visible}td.code,td.source{font-family:var(--mono);font-size:12px}
td.line{color:var(--ink2);font-family:var(--mono);font-size:11.5px}
td.picture{padding:0;overflow:hidden}td svg,th svg{display:block}
td.source{padding-left:14px;position:relative;border-left:1px solid var(--rule2);white-space:pre}
td .pad{visibility:hidden;user-select:none}
td .note{color:var(--ink2);margin-left:4px}td.source .note{margin-left:12px;font:11.5px var(--ui)}
.strong{font-weight:600}td.faster{color:var(--torch)}td.slower{color:var(--more)}
.k{color:var(--torch)}.s{color:var(--memory)}@supports (color:color-mix(in srgb,red,blue)){.s{color:color-mix(in srgb,#2ca184 70%,var(--ink0))}}.c{color:var(--ink2)}
tbody tr.first>td,tfoot tr:first-child>td{border-top:1px solid var(--rule2)}tfoot tr:first-child>td{border-top-color:var(--rule1)}
tfoot td{overflow:visible}tfoot td.source{font:inherit;padding-left:0;border-left:0;white-space:normal;line-height:17px}
tbody tr.row:hover>td{background:var(--hover)}tbody tr.selected>td{background:var(--sel)}
tr.heading td{height:${HEADING}px;line-height:30px;color:var(--ink2);font-size:11.5px;border-bottom:1px solid var(--rule2)}
tr.heading span+span{margin-left:24px}
tr.sums td{font-weight:600}tr.sums td.code{font-family:var(--ui);font-size:12.5px}tr.sums .note{font-weight:400;margin-left:8px}
td.code.quiet,tfoot td.code{font-family:var(--ui)}
tr.sums:not(:first-child)>td{border-top:1px solid var(--rule2)}tr.sums~tr.row>td:first-child{padding-left:14px}
select{font:12px/20px var(--ui);color:var(--ink1);background:var(--bg);border:1px solid var(--rule1);border-radius:3px;height:24px;max-width:260px}
.open{position:absolute;left:2px;top:6px;width:10px;height:10px}td:not(.source) .open{position:relative;display:inline-block;left:0;top:1px;margin-right:4px}
.open::before{content:"";position:absolute;left:1px;top:1px;border:4px solid transparent;border-left:5px solid var(--rule1);border-right:0}
.open:hover::before{border-left-color:var(--ink2)}.open[aria-expanded=true]::before{transform:rotate(90deg);border-left-color:var(--ink2)}
td.detail{height:auto;padding:0;white-space:normal}.detail>div{padding:4px 0 8px 10px;margin-left:34px;border-left:2px solid var(--brand)}
.detail th{font-size:11px}.detail thead{box-shadow:inset 0 -1px var(--rule2)}.detail td{height:${DETAIL_ROW}px;line-height:${DETAIL_ROW}px;font-size:12px}.detail td.code{font-size:11.5px}
.under:empty,.under:has(>:only-child:empty){display:none}.under{margin:6px 0 0;font-size:11.5px;line-height:17px;color:var(--ink2)}
.doubt{margin:8px 0 0;padding:1px 0 1px 9px;border-left:3px solid var(--more);font-size:12.5px;line-height:19px;overflow-wrap:anywhere}
.more{margin:6px 0 0;font-size:11.5px;line-height:17px;color:var(--ink2)}.more .doubt{color:var(--ink1)}
.foot .code{font-size:11px}
.insight{margin:2px 0 4px;font-size:12.5px;line-height:19px;overflow-wrap:anywhere}.insight p{margin:0 0 0 14px;color:var(--ink2)}
summary{cursor:pointer;list-style:none;padding-left:14px;position:relative}summary::-webkit-details-marker{display:none}
summary::before{content:"";position:absolute;left:1px;top:7px;border:4px solid transparent;border-left:5px solid var(--ink2);border-right:0}details[open]>summary::before{transform:rotate(90deg)}
summary .quiet{font-size:12.5px}.folded .inside{padding:8px 0 0 14px}.folded .doubt{margin-left:14px}
svg text{fill:var(--ink2);font:11px var(--ui)}svg text.one{fill:var(--ink1)}
.tick{stroke:var(--rule2)}.axisline{stroke:var(--rule1)}.band{fill:var(--ink2);opacity:.22}
.hollow{fill:var(--bg);stroke:var(--ink2);stroke-width:1.5}
.f-torch,.f-faster{fill:var(--torch)}.f-python{fill:var(--python)}.f-backward{fill:var(--backward)}.f-memory{fill:var(--memory)}
.f-other{fill:var(--other)}.f-slower{fill:var(--more)}.f-ink,.f-{fill:var(--ink2)}
.s-faster{stroke:var(--torch)}.s-slower{stroke:var(--more)}.s-{stroke:var(--ink2)}
.b-torch{background:var(--torch)}.b-python{background:var(--python)}.b-backward{background:var(--backward)}.b-memory{background:var(--memory)}.b-other{background:var(--other)}
@media print{.pane.many{max-height:none}}`;

// ---- small makers -------------------------------------------------------------------------------------------

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const line = (runs) => runs.map((run) => (typeof run === "string" ? run : h("span", { class: run[1] }, run[0])));

const keys = (legend) => legend.map(([meaning, word]) => h("span", { class: "key" }, h("b", { class: `b-${meaning}` }), word));

// A cell of the spec: text, or [text, value, tone, note, flat, picture] without its empty end.
const unpack = (cell) => (Array.isArray(cell) ? cell : [cell]);
const cellText = (cell) => (Array.isArray(cell) ? cell[0] : cell);
const FLAT = 4;

// The unseen end that puts a number's decimal point under the others (torchbench_magic.units.padding).
function padding(text, places) {
  if (!places || !/^(·|[<>]?[+−]?[<>]?[\d\u202f]+(\.\d+)?)$/.test(text)) return "";
  const point = text.indexOf("."), shown = point < 0 ? 0 : text.length - point - 1;
  return shown >= places ? "" : (shown ? "" : ".") + "0".repeat(places - shown);
}

// ---- pictures in cells --------------------------------------------------------------------------------------

// Pixels of drawn columns; less where the output is narrow, so that no number falls off its end.
const WIDE = { bar: 88, change: 152, interval: 150, dots: 110, histogram: 94 };
const NARROW = { bar: 64, change: 96, interval: 104, dots: 80, histogram: 88 };
const ENOUGH = 800, ENOUGH_FOR_INTERVALS = 900; // the words of a verdict stand beside them
const GIVES_WAY = new Set(["code", "text"]), LEAST_NAME = 170, NARROW_ROOM = 760, LEAST_NARROW = 64; // px that a name keeps
const SLACK = { source: 12, verdict: 3 }; // characters that a last column can do without
const YIELDS = ["histogram", "interval", "bar"]; // kinds whose figures stand in other columns, the least missed first
let WIDTHS = WIDE; // of the table that is being drawn
const hasIntervals = (spec) => spec.tables.some((table) => table.columns.some((column) => column.kind === "interval"));
const isNarrow = (el, spec) => el.clientWidth > 0 && el.clientWidth < (hasIntervals(spec) ? ENOUGH_FOR_INTERVALS : ENOUGH) * textScale();

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

function intervalHead(axis) {
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

function source(text, spans) {
  const nodes = [];
  let at = 0;
  for (const [start, end, meaning] of spans ?? []) {
    nodes.push(text.slice(at, start), h("span", { class: meaning }, text.slice(start, end)));
    at = end;
  }
  nodes.push(text.slice(at));
  return nodes;
}

// ---- one table ----------------------------------------------------------------------------------------------

class TableView {
  constructor(spec, state, changed) {
    this.spec = spec;
    this.changed = changed;
    this.state = state;
    this.axis = state.axis ?? 0;
    this.widths = WIDTHS;
    this.rows = [];
    spec.groups.forEach((group, inGroup) => group.rows.forEach((given) => {
      const id = this.rows.length;
      this.rows.push(Array.isArray(given) ? { cells: given, group: inGroup, id } : { ...given, group: inGroup, id });
    }));
    this.searched = spec.columns.flatMap((column, at) => (["text", "code", "source", "verdict"].includes(column.kind) ? [at] : []));
    this.opened = this.rows.find((row) => row.detail && row.key && spec.opened?.includes(row.key))?.id ?? null;
    this.drawn = new Map(); // id of a row -> its <tr>, so that focus survives repainting
    this.build();
    this.update();
  }

  get shownAxis() { return this.spec.columns.find((column) => column.kind === "interval")?.axes?.[this.axis]; }

  build() {
    const { spec } = this;
    this.body = h("tbody");
    this.heads = spec.columns.map((column, at) => this.head(column, at));
    const columns = spec.columns.map((column, at) => this.columnWidth(column, at === spec.columns.length - 1));
    this.columns = columns;
    this.shown = columns.length;
    this.table = h("table", { class: spec.columns.length > 8 ? "dense" : "", "aria-label": spec.name, "aria-colcount": spec.columns.length },
      h("colgroup", {}, ...columns.map((column) => column.element)),
      spec.headless ? null : h("thead", {}, h("tr", { "aria-rowindex": 1 }, ...this.heads)),
      this.body,
      spec.totals ? h("tfoot", {}, ...spec.totals.map((row) => this.row({ ...(Array.isArray(row) ? { cells: row } : row), total: true }))) : null);
    this.leaveOut(0);
    this.hint = h("p", { class: "under hint", hidden: true }, "scroll sideways for more columns");
    this.pane = h("div", { class: "pane", role: "group", "aria-label": spec.name, onscroll: () => requestAnimationFrame(() => this.paint()) }, this.table, this.hint);
    this.status = h("span", { role: "status" });
    new ResizeObserver(() => this.fit()).observe(this.pane);
    this.body.addEventListener("keydown", (event) => this.walk(event));
  }

  // Widths are given in ch of the column's own font, so that they hold in whatever font the notebook has.
  columnWidth(column, last) {
    const element = h("col", { class: `${column.kind}${CODE.has(column.kind) && column.kind !== "code" ? " code" : ""}` });
    let ch = 0, px = WIDTHS[column.kind] ?? 9;
    if (!WIDTHS[column.kind]) {
      const body = column.kind === "number" ? this.digits(column) : column.chars;
      ch = Math.max(body, Math.max(column.label.length, column.unit.length) * 0.95 + (RIGHT.has(column.kind) ? 0.5 : 1));
      if (column.kind === "source") px += 20;
      else if (this.rows.some((row) => row.detail) && column === this.spec.columns[this.opener]) px += 14; // its button
    }
    if (last && !WIDTHS[column.kind] && !RIGHT.has(column.kind)) ch = Math.min(ch, column.kind === "source" ? 36 : 14); // it takes what is left
    else element.style.width = `calc(${ch.toFixed(1)}ch + ${px}px)`;
    return { element, ch, px };
  }

  // Before a number falls off the end give way: what is drawn and stands beside as figures, then columns of names, the
  // widest first; their titles have the whole name. What is wider all the same is scrolled, which a line says.
  fit() {
    const room = this.pane.clientWidth;
    if (room === this.room || !room) return;
    this.room = room;
    this.hint.hidden = true;
    this.columns.forEach((column) => { column.element.style.width = column.full ?? column.element.style.width; });
    const before = this.shown;
    this.leaveOut(0);
    for (let left = 1; left <= YIELDS.length && this.table.offsetWidth > room; left++) this.leaveOut(left);
    this.fitNames(room);
    if (this.shown !== before) { // what spans all columns spans fewer
      this.drawn.clear();
      this.paint();
    }
    this.hint.hidden = this.table.offsetWidth <= room;
    this.pane.classList.toggle("scrolls", !this.hint.hidden);
    if (this.axes) this.axes.hidden = this.table.classList.contains("no-interval");
    if (!this.hint.hidden) this.pane.tabIndex = 0;
    else if (!this.pane.classList.contains("many")) this.pane.removeAttribute("tabindex");
  }

  leaveOut(count) { // the first `count` kinds of YIELDS
    const out = new Set(YIELDS.slice(0, count));
    const shown = this.spec.columns.filter((column) => !out.has(column.kind)).length;
    YIELDS.forEach((kind) => this.table.classList.toggle(`no-${kind}`, out.has(kind)));
    const [ch, px] = this.columns.reduce(([ch, px], column, at) => (out.has(this.spec.columns[at].kind) ? [ch, px] : [ch + column.ch, px + column.px]), [0, 0]);
    this.least = `${ch.toFixed(1)}ch + ${px}px`;
    this.table.style.minWidth = `calc(${this.least})`;
    this.shown = shown;
  }

  fitNames(room) {
    if (this.table.offsetWidth <= room) return;
    this.least += ` - ${SLACK[this.spec.columns.at(-1).kind] ?? 0}ch`;
    this.table.style.minWidth = `calc(${this.least})`;
    const over = this.table.offsetWidth - room, leastName = room < NARROW_ROOM ? LEAST_NARROW : LEAST_NAME;
    if (over <= 0) return;
    const names = this.columns.map((column, at) => ({ column, px: this.heads[at].offsetWidth, kind: this.spec.columns[at].kind }))
      .filter(({ column, kind }) => GIVES_WAY.has(kind) && column.element.style.width).sort((one, other) => other.px - one.px);
    let gained = 0;
    for (const { column, px } of names) {
      const part = Math.min(over - gained, Math.max(px - leastName * textScale(), 0));
      if (part <= 0) continue;
      column.full ??= column.element.style.width;
      column.element.style.width = `calc(${column.full} - ${part}px)`;
      gained += part;
    }
    this.table.style.minWidth = `calc(${this.least} - ${gained}px)`;
  }

  showPlaces(column, at) { // a line number alone says too little once its group is gone
    const { element, ch, px } = this.columns[at];
    this.columns[at].full = undefined;
    this.room = 0; // it is another table to fit
    const longest = this.rows.reduce((most, row) => Math.max(most, (unpack(row.cells[at])[FLAT] ?? "").length), 0);
    element.style.width = `calc(${this.flat ? Math.max(ch, longest) : ch.toFixed(1)}ch + ${px}px)`;
    this.fit();
  }

  digits(column) { // characters of the longest number, its unseen end included
    const at = this.spec.columns.indexOf(column);
    let most = 1;
    const look = (cells) => {
      const text = cellText(cells[at]) ?? "";
      if (text.length + 0.9 * (1 + (column.places ?? 0)) <= most) return; // cannot be longer
      let marks = 0;
      for (let i = 0; i < text.length; i++) if (text[i] === "." || text[i] === "\u202f") marks++;
      most = Math.max(most, text.length - 0.5 * marks + padding(text, column.places).length * 0.9);
    };
    for (const row of this.rows) look(row.cells);
    for (const row of this.spec.totals ?? []) look(row.cells ?? row);
    return most;
  }

  head(column, at) {
    const right = RIGHT.has(column.kind) ? "r" : "";
    if (column.kind === "interval") return h("th", { scope: "col", class: "axis interval" }, intervalHead(column.axes[this.axis]), h("span", { class: "unseen" }, "drawn"));
    if (column.kind === "change") {
      const middle = WIDTHS.change / 2, [less, more] = column.legend.map((one) => one[1]);
      return h("th", { scope: "col", class: "axis" }, h("span", { class: "unseen" }, `${less} or ${more}`), svg("svg", { width: WIDTHS.change, height: 15, "aria-hidden": "true" },
        svg("text", { x: middle - 6, y: 11, "text-anchor": "end" }, less), svg("text", { x: middle + 6, y: 11 }, more)));
    }
    if (column.kind === "source" && column.legend) return h("th", { scope: "col" }, ...keys(column.legend));
    const unit = column.unit ? h("small", {}, column.unit) : null;
    if (!column.label && !unit) return h("td", { class: column.kind }); // a header without words is none
    if (column.kind === "histogram" || column.kind === "dots" || !column.label) return h("th", { scope: "col", class: `${right} ${column.kind}` }, column.label, unit);
    return h("th", { scope: "col", class: `${right} ${column.kind}`, "aria-sort": "none" },
      h("button", { type: "button", onclick: () => this.sort(at) }, column.label, h("i")), unit);
  }

  // One click: numbers from the largest, text from a; a second: the other way; a third: the natural order.
  sort(at) {
    const first = ["number", "range", "bar"].includes(this.spec.columns[at].kind) ? -1 : 1, now = this.state.sort;
    const natural = this.spec.sorted?.[0] === this.spec.columns[at].name ? this.spec.sorted[1] : 0;
    if (now?.[0] !== at) this.state.sort = [at, natural ? -natural : first];
    else if (now[1] === first && !natural) this.state.sort = [at, -first];
    else this.state.sort = null;
    this.update();
    this.changed();
  }

  filter(text) {
    this.state.filter = text;
    const message = this.update();
    this.changed();
    return message;
  }

  matching(pattern) {
    const started = performance.now(), kept = [];
    for (const row of this.rows) {
      const group = this.spec.groups[row.group];
      if (this.searched.some((at) => pattern.test(cellText(row.cells[at]) ?? "")) || (group.title && pattern.test(group.title))) kept.push(row);
      if (performance.now() - started > SLOW_FILTER) throw new Error("this pattern takes too long");
    }
    return kept;
  }

  longestText() { // of those that the filter looks at
    const texts = this.rows.flatMap((row) => this.searched.map((at) => cellText(row.cells[at]) ?? ""));
    return [...texts, ...this.spec.groups.map((group) => group.title ?? "")].reduce((most, text) => Math.max(most, text.length), 0);
  }

  update() {
    let rows = this.rows;
    if (this.state.filter) {
      try {
        rows = this.matching(usablePattern(this.state.filter, this.longest ??= this.longestText()));
      } catch (error) { // keep the last view and say why
        this.status.textContent = `not a usable pattern: ${error.message.replace(/^Invalid regular expression: /, "")}`;
        return error.message;
      }
    }
    const sort = this.state.sort;
    this.flat = Boolean(sort);
    if (sort) rows = this.sorted(rows, ...sort);
    this.items = [];
    let previous = null;
    for (const row of rows) {
      const first = !this.flat && previous !== null && row.group !== previous;
      if (!this.flat && row.group !== previous && this.spec.groups[row.group].title) {
        this.items.push({ heading: this.spec.groups[row.group], height: HEADING, id: `g${row.group}` });
      }
      this.items.push({ row, first: first && !this.spec.groups[row.group].title, lead: this.flat || row.group !== previous, height: ROW, id: row.id });
      if (this.opened === row.id) this.items.push({ detail: row, height: 46 + DETAIL_ROW * row.detail.groups.reduce((sum, group) => sum + group.rows.length, 0), id: `d${row.id}` });
      previous = row.group;
    }
    this.spec.columns.forEach((column, at) => column.kind === "line" && this.showPlaces(column, at));
    const [column, direction] = sort ?? (this.spec.sorted ? [this.spec.columns.findIndex((c) => c.name === this.spec.sorted[0]), this.spec.sorted[1]] : [-1, 0]);
    this.heads.forEach((head, at) => {
      if (head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", at !== column ? "none" : direction > 0 ? "ascending" : "descending");
    });
    this.status.textContent = this.state.filter ? `${rows.length} of ${this.rows.length} rows` : this.spec.hidden;
    this.table.setAttribute("aria-rowcount", this.items.length + (this.spec.headless ? 0 : 1) + (this.spec.totals?.length ?? 0));
    const isMany = this.items.length > MANY;
    this.pane.classList.toggle("many", isMany);
    if (isMany) this.pane.tabIndex = 0; else if (this.hint.hidden) this.pane.removeAttribute("tabindex"); // it scrolls: by keyboard too
    this.drawn.clear();
    this.paint();
    return "";
  }

  sorted(rows, at, direction) {
    const numeric = rows.some((row) => unpack(row.cells[at])[1] !== undefined && unpack(row.cells[at])[1] !== null);
    const keys = new Map(rows.map((row) => {
      const cell = unpack(row.cells[at]);
      return [row, numeric ? cell[1] ?? null : (cell[FLAT] || cell[0] || null)];
    }));
    return [...rows].sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      if (x === null || y === null) return (x === null) - (y === null) || a.id - b.id; // what is not known stays last
      return (numeric ? direction * (x - y) : direction * (x < y ? -1 : x > y ? 1 : 0)) || a.id - b.id;
    });
  }

  paint() {
    WIDTHS = this.widths;
    const focused = this.body.getRootNode().activeElement;
    let from = 0, to = this.items.length, before = 0, after = 0;
    if (this.items.length > MANY) {
      const top = this.pane.scrollTop - 10 * ROW, bottom = this.pane.scrollTop + SIGHT + 10 * ROW;
      let y = 0;
      from = to = -1;
      this.items.forEach((item, at) => {
        if (y + item.height < top) before = y + item.height;
        else if (y > bottom) after += item.height;
        else { if (from < 0) from = at; to = at + 1; }
        y += item.height;
      });
    }
    const pad = (height) => (height ? [h("tr", { "aria-hidden": "true", class: "pad", style: `height:${height}px` })] : []);
    this.body.replaceChildren(...pad(before), ...this.items.slice(from, to).map((item, nth) => this.item(item, from + nth)), ...pad(after));
    if (focused && focused !== this.body.getRootNode().activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  item(item, at) {
    let tr = this.drawn.get(item.id);
    if (!tr) {
      tr = item.heading ? this.heading(item.heading) : item.detail ? this.detail(item.detail) : this.row(item.row, item);
      this.drawn.set(item.id, tr);
    }
    tr.setAttribute("aria-rowindex", at + 2);
    return tr;
  }

  heading(group) {
    if (group.sums) {
      const [title, ...sums] = this.spec.columns.map((column, at) => this.cell(column, { cells: group.sums, total: true }, at, true));
      title.replaceChildren(group.title, group.note ? h("span", { class: "note" }, group.note) : "");
      return h("tr", { class: "sums" }, title, ...sums);
    }
    return h("tr", { class: "heading" }, h("td", { colspan: this.shown }, h("span", {}, group.title), group.note ? h("span", {}, group.note) : null));
  }

  row(row, { first = false, lead = true } = {}) {
    WIDTHS = this.widths;
    const selected = row.key && this.state.selected?.includes(row.key);
    const tr = h("tr", { class: ["row", first ? "first" : "", selected || this.opened === row.id ? "selected" : ""].join(" ").trim() });
    if (this.isRemark(row)) {
      const td = this.cell(this.spec.columns[0], row, 0, lead);
      td.colSpan = this.shown;
      tr.append(td);
    } else this.spec.columns.forEach((column, at) => tr.append(this.cell(column, row, at, lead)));
    if (this.state.selectable && row.key && !row.total) {
      tr.tabIndex = 0;
      tr.setAttribute("aria-selected", String(Boolean(selected)));
      tr.addEventListener("click", (event) => this.select(row.key, event.ctrlKey || event.metaKey));
    }
    return tr;
  }

  isRemark(row) { // words about rows that are not shown, and no number
    const [first, ...others] = row.cells.map(unpack);
    return first[2] === "quiet" && !row.total && others.every(([text, , , note, , picture]) => !text && !note && !picture);
  }

  cell(column, row, at, lead) {
    const [text = "", , tone = "", note = "", flat = "", picture] = unpack(row.cells[at]);
    const td = h("td", { class: [column.kind, RIGHT.has(column.kind) ? "r" : "", WIDTHS[column.kind] ? "picture" : "", tone].join(" ").trim() });
    if (column.leading && !lead) return td;
    if (WIDTHS[column.kind]) {
      if (column.kind === "interval" && (picture || !row.total)) td.append(interval(picture ?? [null], tone === "quiet" ? "" : tone, column.axes[this.axis], text));
      else if (column.kind === "change") td.append(change(picture ?? [0]));
      else if (picture) td.append({ bar, dots, histogram }[column.kind](picture));
      return td;
    }
    const read = this.flat && flat ? flat : text;
    if (column.kind === "source") td.append(...source(read, picture));
    else td.append(read);
    if (column.kind === "number") {
      const pad = padding(read, column.places);
      if (pad) td.append(h("span", { class: "pad", "aria-hidden": "true" }, pad));
    } else if (read.length + note.length > 12) td.title = note ? `${read}  ${note}` : read;
    if (note) td.append(h("span", { class: "note" }, note));
    if (row.detail && at === this.opener) td.prepend(this.expander(row));
    return td;
  }

  get opener() {
    const at = this.spec.columns.findIndex((column) => column.kind === "source");
    return at < 0 ? 0 : at;
  }

  expander(row) {
    const name = unpack(row.cells[0]);
    return h("button", { type: "button", class: "open", "aria-expanded": String(this.opened === row.id), "aria-label": `${row.detail.name.replace(/ of a line$/, "")} of ${name[FLAT] || name[0]}`, onclick: (event) => {
      event.stopPropagation();
      this.opened = this.opened === row.id ? null : row.id; // one at a time
      this.update();
      this.body.querySelector(".open[aria-expanded=true]")?.focus({ preventScroll: true });
    } });
  }

  detail(row) {
    const inner = new TableView(row.detail, {}, () => {});
    return h("tr", { class: "opened" }, h("td", { class: "detail", colspan: this.shown }, h("div", {}, inner.pane, inner.spec.hidden ? h("p", { class: "under" }, inner.spec.hidden) : null)));
  }

  select(key, more = false) { // one row; with Ctrl, one more
    const before = this.state.selected ?? [], rest = before.filter((other) => other !== key);
    this.state.selected = [...(more ? rest : []), ...(before.includes(key) ? [] : [key])];
    this.drawn.clear();
    this.paint();
    this.changed();
  }

  walk(event) { // arrows go from row to row, Enter and Space select, Escape closes the detail
    if (event.key === "Escape" && this.opened !== null) {
      const closed = this.opened;
      this.opened = null;
      this.update();
      this.drawn.get(closed)?.querySelector(".open")?.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const stops = [...this.body.querySelectorAll(this.state.selectable ? "tr[tabindex]" : ".open")];
      const next = stops[stops.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
      if (!next) return;
      next.focus();
    } else if ((event.key === "Enter" || event.key === " ") && event.target.matches("tr[tabindex]")) {
      const at = this.items.find((item) => this.drawn.get(item.id) === event.target);
      this.select(at.row.key, event.ctrlKey || event.metaKey);
      this.drawn.get(at.id)?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  choose(axis) {
    this.axis = this.state.axis = axis;
    const at = this.spec.columns.findIndex((column) => column.kind === "interval");
    this.heads[at].replaceChildren(intervalHead(this.spec.columns[at].axes[axis]));
    this.drawn.clear();
    this.paint();
    this.changed();
  }
}

// ---- the document -------------------------------------------------------------------------------------------

const FILTER_FROM = 3; // rows from which a filter is of use

// The controls of one table: what stands left (filter, status), what stands right (the switch of its axis).
function controls(spec, view, ownFilter) {
  const axes = spec.columns.find((column) => column.kind === "interval")?.axes ?? [];
  const right = axes.length > 1 ? [view.axes = segments("ratio axis", axes.map((axis) => axis.name), view.axis, (at) => view.choose(at))] : [];
  if (!ownFilter || spec.headless || view.rows.length < FILTER_FROM) return { left: [], right, under: [h("p", { class: "under" }, view.status)] };
  const input = h("input", { type: "search", placeholder: "filter, regex", value: view.state.filter ?? "", spellcheck: "false", "aria-label": `filter ${spec.name} by regular expression`,
    oninput(event) { event.target.setAttribute("aria-invalid", String(Boolean(view.filter(event.target.value)))); } });
  return { left: [input, view.status], right, under: [] };
}

function draw(spec, state, on) {
  state.tables ??= {};
  const changed = () => on(state);
  const views = spec.tables.map((table) => {
    const own = (state.tables[table.name] ??= {});
    table.opened = spec.opened; // keys of rows whose detail Python opens
    own.selectable = Boolean(spec.selectable);
    const view = new TableView(table, own, changed), { left, right, under } = controls(table, view, !spec.selectable);
    const legend = table.columns.filter((column) => column.legend && !["source", "change"].includes(column.kind)).map((column) => h("p", { class: "under" }, ...keys(column.legend)));
    return { name: table.name, left: h("span", { class: "controls side" }, ...left), right: h("span", { class: "side" }, ...right), box: h("div", {}, view.pane, ...legend, ...under) };
  });
  (spec.drawn ?? []).forEach((name, at) => { // pictures with a module of their own, in the light DOM
    views.push({ name, left: h("span"), right: h("span"), box: h("div", {}, h("slot", { name: `drawn-${at}` })) });
  });
  const sentence = h("span", { class: "sentence" }, ...line(spec.sentence));
  const show = (at) => {
    state.view = at;
    if (spec.tables[at]?.sentence) sentence.replaceChildren(...line(spec.tables[at].sentence));
    views.forEach((view, other) => [view.left, view.right, view.box].forEach((part) => { part.hidden = other !== at; }));
  };
  show(Math.min(state.view ?? 0, Math.max(views.length - 1, 0)));
  const switches = views.map((view) => view.right).filter((part) => part.hasChildNodes());
  if (spec.choice && views.length > 1) {
    const options = views.map((view, at) => h("option", { value: at, selected: at === state.view }, view.name));
    switches.push(h("select", { "aria-label": "which alternative", onchange(event) { show(Number(event.target.value)); changed(); } }, ...options));
  } else if (views.length > 1) switches.push(segments("view", views.map((view) => view.name), state.view, (at) => { show(at); changed(); }));
  const filters = views.map((view) => view.left).filter((part) => part.hasChildNodes());
  const doubts = spec.doubts.map((doubt) => h("p", { class: "doubt" }, ...line(doubt))), more = spec.moreDoubts ?? [];
  if (more.length) doubts.push(h("details", { class: "more" }, h("summary", {}, `${more.length} more warning${more.length > 1 ? "s" : ""}`), ...more.map((doubt) => h("p", { class: "doubt" }, ...line(doubt)))));
  const insights = (spec.insights ?? []).map(([first, ...under]) => h("details", { class: "insight" }, h("summary", {}, ...line(first)), ...under.map((one) => h("p", {}, ...line(one)))));
  const footer = spec.footer.length ? [h("p", { class: "foot" }, ...spec.footer.flatMap((one, at) => [at ? " " : "", ...line(one)]))] : [];
  const boxes = views.map((view) => view.box), picture = h("slot", { name: "picture" });
  if (spec.folded) {
    return h("div", { class: "themed tb folded" }, h("details", {}, h("summary", {}, sentence), h("div", { class: "inside" }, ...insights, ...boxes, ...footer)), ...doubts);
  }
  const bar = filters.length ? [h("div", { class: "controls" }, ...filters, h("span", { class: "space" }), ...switches)] : [];
  return h("div", { class: "themed tb" }, h("div", { class: "controls" }, sentence, ...(bar.length ? [] : switches)), ...insights, ...(spec.pictureFirst ? [picture] : []), ...bar, ...boxes, ...(spec.pictureFirst ? [] : [picture]), ...doubts, ...footer);
}

// Draw spec into the shadow root of el. on(state) is told of every choice: sort, filter, view, axis, selection.
export function mount(el, spec, on = () => {}) {
  const state = spec.state ?? {};
  let narrow = isNarrow(el, spec);
  const drawn = () => {
    WIDTHS = narrow ? NARROW : WIDE;
    const box = draw(spec, state, on);
    if (textScale() !== 1) box.style.zoom = textScale();
    return [h("style", {}, THEME + CSS), box];
  };
  const first = drawn(); // before the shadow root, so that an error leaves the static table
  const root = el.shadowRoot ?? el.attachShadow({ mode: "open" });
  el.setAttribute("data-lm-suppress-shortcuts", "true"); // typing in the filter is not a notebook's shortcut
  root.replaceChildren(...first);
  const watch = new ResizeObserver(() => {
    if (isNarrow(el, spec) === narrow || root.activeElement) return; // who types or walks is not disturbed
    narrow = !narrow;
    root.replaceChildren(...drawn());
  });
  watch.observe(el);
  return () => { watch.disconnect(); root.replaceChildren(); };
}
