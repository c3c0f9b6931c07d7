// A zoomable flame graph on one canvas.
//
// spec is what torchbench_magic/views/drawing/flame.py writes: columns with one entry per frame, a parent before its
// children, children in the order in which they ran. Text from it only ever becomes a text node or pixels.

import { h, number, segments } from "./makers.js";
import { byKind, link } from "./chosen.js";
import { inside, mounted } from "./canvas.js";
import { usablePattern } from "./pattern.js";

const ROW = 19, AXIS = 22, LEAST = 0.5, MOST_ROWS = 600, SIGHT = 560; // px; rows drawn at most; px of the scrolled box
const HUES = ["line", "torch", "python", "backward", "memory", "other"];

const FLAME_CSS = `
.fg{--other:color-mix(in srgb,#7b8087 20%,var(--bg))}
.seg{margin-left:4px}
input{width:196px}
.body{display:flex;gap:20px;align-items:flex-start;flex-wrap:wrap}.pane{flex:1 1 420px;min-width:0;max-height:${SIGHT}px;overflow-y:auto;overflow-x:hidden}
canvas{cursor:pointer}
aside{flex:0 1 236px;min-width:200px;border-left:1px solid var(--rule2);padding-left:14px;font-size:12.5px;overflow-wrap:anywhere;min-height:150px}
.path{font-size:11.5px;line-height:16px;margin-bottom:6px;color:var(--ink2)}.name{font-weight:600}
aside table{border-collapse:collapse;margin:8px 0;width:100%;font-size:12.5px}aside td{height:21px;line-height:21px;padding:0 8px 0 0;text-align:right;white-space:nowrap}
aside td:first-child{text-align:left;color:var(--ink2)}aside td:last-child{color:var(--ink2);font-size:11.5px;padding-right:0}
.notes{font-size:11.5px;line-height:17px}
${HUES.map((hue) => `.b-${hue}{background:var(--${hue})}`).join("")}
@media print{.pane{max-height:none}}`;

// ---- small makers -------------------------------------------------------------------------------------------

export const labelled = (label, names, pressed, choose) => h("span", {}, label, segments(label, names, pressed, choose));

export function percent(share) {
  if (!share) return "·";
  return share < 0.0005 ? "<0.1 %" : `${(100 * share).toFixed(1)} %`;
}

function ticks(span) { // positions of an axis from 0 to span, at most six
  const rough = span / 5, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((n) => n * power >= rough) * power;
  const places = Math.max(0, -Math.floor(Math.log10(step)));
  return Array.from({ length: Math.floor(span / step + 1e-9) + 1 }, (_, at) => [at * step, (at * step).toFixed(places)]);
}

// ---- the frames ---------------------------------------------------------------------------------------------

class Tree {
  constructor(spec) {
    const n = spec.parent.length;
    this.n = n;
    this.spec = spec;
    this.parent = Int32Array.from(spec.parent);
    this.depth = new Int32Array(n);
    this.first = new Int32Array(n).fill(-1); // first child, in the order that is shown
    this.next = new Int32Array(n).fill(-1);
    this.previous = new Int32Array(n).fill(-1);
    this.x = new Float64Array(n);
    for (let i = 0; i < n; i++) if (this.parent[i] >= 0) this.depth[i] = this.depth[this.parent[i]] + 1;
    this.children = Array.from({ length: n }, () => null);
    for (let i = 0; i < n; i++) if (this.parent[i] >= 0) (this.children[this.parent[i]] ??= []).push(i);
    this.roots = [];
    for (let i = 0; i < n; i++) if (this.parent[i] < 0) this.roots.push(i);
    this.text = Array.from(spec.name, (at) => spec.names[at]);
    this.keys = (spec.keys ?? []).map((key, at) => key.replace(/^(\w+:)\*$/, (_, kind) => kind + spec.names[at])); // op:*: as the name
  }

  // Place every frame: each child beside the former, from the left edge of its parent.
  lay(metric, largestFirst) {
    const w = this.w = Float64Array.from(this.spec.metrics[metric].total), { x } = this;
    const order = (list) => (largestFirst ? [...list].sort((a, b) => w[b] - w[a] || a - b) : list);
    const place = (list, left) => {
      let before = -1;
      for (const i of order(list)) {
        x[i] = left;
        left += w[i];
        this.previous[i] = before;
        this.next[i] = -1;
        if (before >= 0) this.next[before] = i;
        before = i;
      }
      return left;
    };
    this.span = place(this.roots, 0);
    for (let i = 0; i < this.n; i++) if (this.children[i]) { // a parent comes before its children
      place(this.children[i], x[i]);
      this.first[i] = order(this.children[i])[0];
    }
    const levels = [];
    for (let i = 0; i < this.n; i++) if (w[i] > 0) (levels[this.depth[i]] ??= []).push(i);
    this.levels = levels.map((level) => Int32Array.from(level.sort((a, b) => x[a] - x[b])));
  }

  keyOf(i) { return this.keys[this.spec.name[i]] ?? ""; }

  at(level, value) { // the frame of a level that holds a place; -1 for none
    const row = this.levels[level];
    if (!row) return -1;
    let low = 0, high = row.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.x[row[middle]] <= value) low = middle; else high = middle - 1;
    }
    const found = row[low];
    return this.x[found] <= value && value < this.x[found] + this.w[found] ? found : -1;
  }

  path(i) {
    const above = [];
    for (let p = this.parent[i]; p >= 0; p = this.parent[p]) above.unshift(p);
    return above;
  }
}

// ---- the drawing --------------------------------------------------------------------------------------------

export class FlameGraph {
  constructor(spec, state, on) {
    this.spec = spec;
    this.state = state;
    this.on = on;
    this.tree = new Tree(spec);
    this.metric = Math.min(state.metric ?? 0, spec.metrics.length - 1);
    this.largest = Boolean(state.largest);
    this.zoom = state.zoom ?? -1; // -1: everything
    this.selected = state.selected ?? (this.tree.n ? 0 : -1);
    this.back = [];
    this.matches = null; // of each frame, whether it stands out: one that was searched for, or chosen in another view
    this.build();
    this.tree.lay(this.metric, this.largest);
  }

  build() {
    const { spec } = this;
    this.canvas = h("canvas", { tabindex: 0, role: "img", "aria-describedby": "said" });
    this.canvas.setAttribute("aria-label", `${spec.title}: flame graph of ${this.tree.n} frames. Enter zooms, Escape goes back, arrows walk; the table below lists the largest`);
    this.pen = this.canvas.getContext("2d");
    this.said = h("span", { role: "status", id: "said" });
    this.facts = h("aside", {});
    this.search = h("input", { type: "search", placeholder: "find, regex", spellcheck: "false", "aria-label": "find in the flame graph by regular expression", oninput: () => this.find(this.search.value) });
    this.swatches = HUES.map((hue) => h("i", { class: `b-${hue}` }));
    const controls = [this.search, ...this.beside(), this.said, h("span", { class: "space" })];
    if (spec.metrics.length > 1) controls.push(labelled("width", spec.metrics.map((metric) => metric.name), this.metric, (at) => this.measure(at)));
    controls.push(labelled("order", ["as run", "largest first"], Number(this.largest), (at) => { this.largest = this.state.largest = Boolean(at); this.tree.lay(this.metric, this.largest); this.draw(); this.on(this.state); }));
    controls.push(h("button", { type: "button", class: "quiet", onclick: () => { this.back = []; this.go(-1); } }, "reset zoom"));
    const used = new Set(Array.from(spec.kind, (at) => spec.kinds[at][0]));
    const keys = spec.kinds.filter(([hue], at) => used.has(hue) && spec.kinds.findIndex(([other]) => other === hue) === at)
      .map(([hue, word]) => h("span", { class: "key" }, h("i", { class: `b-${hue}` }), word));
    this.pane = h("div", { class: "pane" }, this.canvas);
    this.box = h("div", { class: "themed hued fg" },
      h("span", { hidden: true }, ...this.swatches),
      spec.sentence ? h("p", { class: "sentence" }, spec.sentence) : null,
      h("div", { class: "controls" }, ...controls),
      h("div", { class: "body" }, this.pane, this.facts),
      ...this.below(),
      h("p", { class: "foot" }, ...keys, spec.note),
      h("details", {}, h("summary", {}, this.still), h("slot")));
    this.canvas.addEventListener("mousemove", (event) => this.tell(this.under(event)));
    this.canvas.addEventListener("mouseleave", () => this.tell(-1));
    this.canvas.addEventListener("click", (event) => {
      const found = this.under(event);
      if (found < 0) return;
      this.select(found, false);
      this.go(found);
      this.pass(found);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  get still() { return "in words"; } // what stands in the light DOM

  beside() { return []; } // more controls, and what stands below the picture: of other kinds

  below() { return []; }

  get unit() { return this.spec.metrics[this.metric]; }

  measure(at) {
    this.metric = this.state.metric = at;
    this.tree.lay(at, this.largest);
    if (this.zoom >= 0 && !this.tree.w[this.zoom]) this.zoom = -1;
    if (this.marked) this.mark(...this.marked); else this.draw();
    this.on(this.state);
  }

  go(i, remember = true) {
    if (i === this.zoom || (i >= 0 && !this.tree.w[i])) return;
    if (remember) this.back.push(this.zoom);
    this.zoom = this.state.zoom = i;
    this.draw();
    this.on(this.state);
  }

  select(i, draw = true) {
    this.selected = this.state.selected = i;
    if (draw) { this.draw(); this.on(this.state); }
    this.tell(i);
    const { text, w, span } = this.tree;
    this.said.textContent = `${text[i]}: ${number(w[i], this.unit.places)} ${this.unit.unit}, ${percent(w[i] / span)}`;
  }

  key(event) {
    const { tree } = this, at = this.selected;
    const steps = { ArrowUp: () => tree.parent[at], ArrowDown: () => tree.first[at], ArrowLeft: () => tree.previous[at], ArrowRight: () => tree.next[at], Home: () => tree.roots[0] };
    if (event.key === "Enter") { this.go(at); this.pass(at); }
    else if (event.key === " ") this.pass(at);
    else if (event.key === "Escape") {
      if (!this.back.length && this.zoom < 0) return;
      this.go(this.back.length ? this.back.pop() : -1, false);
    } else if (steps[event.key]) {
      const to = steps[event.key]();
      if (to >= 0 && to !== undefined) this.select(to);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  find(pattern) {
    this.search.removeAttribute("aria-invalid");
    if (!pattern) return this.unmark();
    let tester;
    try {
      tester = usablePattern(pattern, this.longest ??= this.spec.names.reduce((most, name) => Math.max(most, name.length), 0));
    } catch (error) { // keep the last view and say why
      this.search.setAttribute("aria-invalid", "true");
      this.said.textContent = `not a usable pattern: ${error.message.replace(/^Invalid regular expression: /, "")}`;
      return undefined;
    }
    const known = this.spec.names.map((name) => tester.test(name)), { n } = this.tree;
    return this.mark((i) => known[this.spec.name[i]], (count, share) => (count ? `${count} of ${n} frames match, ${share}` : `none of ${n} frames matches: a part of a name is enough, such as ${this.spec.names.at(-1)}`));
  }

  mark(isOne, words) { // let frames stand out, and say how many and their share: what is inside one adds nothing to it
    const { tree } = this, inside = new Uint8Array(tree.n);
    this.marked = [isOne, words];
    this.matches = new Uint8Array(tree.n);
    let count = 0, sum = 0;
    for (let i = 0; i < tree.n; i++) {
      const p = tree.parent[i];
      inside[i] = p >= 0 && (inside[p] || this.matches[p]) ? 1 : 0;
      if (!isOne(i)) continue;
      this.matches[i] = 1;
      count++;
      if (!inside[i]) sum += tree.w[i];
    }
    this.said.textContent = words(count, percent(sum / tree.span));
    this.draw();
  }

  unmark() {
    this.marked = this.matches = null;
    this.said.textContent = "";
    this.draw();
  }

  // What is chosen in another view: operations (on the lines that are chosen too), else functions, modules, lines.
  follow(keys, label) {
    if (!keys.length) return this.unmark();
    const kinds = byKind(keys), kind = ["op", "frame", "module", "line"].find((one) => kinds[one]), { tree } = this, line = [];
    for (let i = 0; i < tree.n; i++) line[i] = tree.keyOf(i).startsWith("line:") ? tree.keyOf(i) : line[tree.parent[i]];
    const isOne = (i) => kinds[kind].has(tree.keyOf(i)) && (kind !== "op" || !kinds.line || kinds.line.has(line[i]));
    return this.mark(isOne, (count, share) => `${label}: ${count ? `${count} frame${count > 1 ? "s" : ""}, ${share}` : "no frame of it"}`);
  }

  pass(i) { // what is chosen here, to other views: an operation with its line, a function with its lines
    const { tree } = this, own = tree.keyOf(i), isLine = (frame) => tree.keyOf(frame).startsWith("line:");
    const around = own.startsWith("op:") ? tree.path(i).filter(isLine).slice(-1) : own.startsWith("frame:") ? (tree.children[i] ?? []).filter(isLine) : [];
    this.choose(own ? [...new Set([own, ...around.map((frame) => tree.keyOf(frame))])] : [], tree.text[i]);
  }

  view() { // left edge and width of what is shown, in units of the metric
    const { tree, zoom } = this;
    return zoom < 0 ? [0, tree.span] : [tree.x[zoom], tree.w[zoom]];
  }

  under(event) {
    const [x0, span] = this.view(), { x, y } = inside(event, this.canvas);
    return this.tree.at(Math.floor(y / ROW), x0 + (x / (this.canvas.clientWidth || 1)) * span);
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return; // not in sight: drawn when it is
    const { tree, pen } = this, [x0, span] = this.view(), k = width / (span || 1), end = x0 + span;
    const visible = []; // [frame, left, width in px], by level
    let deepest = 0, narrow = 0;
    for (let level = 0; level < Math.min(tree.levels.length, MOST_ROWS); level++) {
      const row = tree.levels[level];
      if (!row) break;
      let low = 0, high = row.length;
      while (low < high) { // the first that ends after the left edge
        const middle = (low + high) >> 1;
        if (tree.x[row[middle]] + tree.w[row[middle]] <= x0) low = middle + 1; else high = middle;
      }
      for (; low < row.length && tree.x[row[low]] < end; low++) {
        const i = row[low], a = Math.max(tree.x[i], x0), b = Math.min(tree.x[i] + tree.w[i], end);
        if ((b - a) * k < LEAST) { narrow++; continue; }
        visible.push(i, (a - x0) * k, (b - a) * k);
        deepest = level;
      }
    }
    const height = (deepest + 1) * ROW + (this.unit.axis ? AXIS : 2), ratio = globalThis.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(this.box), ink = style.color, quiet = getComputedStyle(this.facts).borderLeftColor;
    const paints = Object.fromEntries(HUES.map((hue, at) => [hue, getComputedStyle(this.swatches[at]).backgroundColor]));
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    const each = pen.measureText("abcdefghij:_.0123456789").width / 23;
    for (let at = 0; at < visible.length; at += 3) {
      const i = visible[at], left = visible[at + 1], wide = visible[at + 2], y = tree.depth[i] * ROW;
      pen.globalAlpha = this.matches && !this.matches[i] ? 0.25 : 1;
      pen.fillStyle = paints[this.spec.kinds[this.spec.kind[i]][0]] ?? paints.other;
      pen.fillRect(left, y, Math.max(wide - 1, LEAST), ROW - 1);
      const room = Math.floor((wide - 8) / each);
      if (room >= 3) {
        let text = tree.text[i].length > room ? `${tree.text[i].slice(0, room - 1)}…` : tree.text[i];
        while (text.length > 2 && pen.measureText(text).width > wide - 7) text = `${text.slice(0, -2)}…`;
        pen.fillStyle = ink;
        pen.fillText(text, left + 4, y + ROW / 2);
      }
      if (i === this.selected) {
        pen.globalAlpha = 1;
        pen.strokeStyle = ink;
        pen.lineWidth = 1.5;
        pen.strokeRect(left + 0.75, y + 0.75, Math.max(wide - 2.5, 1), ROW - 2.5);
      }
    }
    pen.globalAlpha = 1;
    if (this.unit.axis && span > 0) {
      const y = (deepest + 1) * ROW + 1.5;
      pen.strokeStyle = quiet;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(0, y);
      pen.lineTo(width, y);
      const marks = ticks(span);
      marks.forEach(([value]) => { pen.moveTo(value * k, y); pen.lineTo(value * k, y + 4); });
      pen.stroke();
      pen.fillStyle = ink;
      pen.globalAlpha = 0.7;
      marks.forEach(([value, label], nth) => {
        pen.textAlign = nth ? (value * k > width - 16 ? "right" : "center") : "left";
        pen.fillText(nth === marks.length - 1 ? `${label} ${this.unit.unit}` : label, value * k, y + 12);
      });
      pen.textAlign = "left";
      pen.globalAlpha = 1;
    }
    Object.assign(this.canvas.dataset, { drawn: visible.length / 3, narrow, zoom: this.zoom, selected: this.selected });
  }

  tell(hovered) {
    const i = hovered >= 0 ? hovered : this.selected, { tree, spec } = this;
    if (i < 0) return this.facts.replaceChildren();
    if (i === this.told && this.toldMetric === this.metric) return undefined;
    [this.told, this.toldMetric] = [i, this.metric];
    const above = tree.path(i), row = (...cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell)));
    const own = this.unit.self?.[i], share = (value) => percent(value / tree.span);
    const written = (value, { places, unit }) => `${number(value, places)} ${value ? unit : ""}`.trim();
    const rows = [row("total", written(tree.w[i], this.unit), share(tree.w[i]))];
    if (own !== undefined) rows.push(row("self", written(own, this.unit), share(own)));
    for (const fact of spec.facts ?? []) {
      const value = fact.values[i];
      if (value && fact.name !== this.unit.name) rows.push(row(fact.name, written(value, fact), ""));
    }
    const notes = spec.notes?.[i] ?? [];
    return this.facts.replaceChildren(
      h("div", { class: "path" }, above.map((p) => tree.text[p]).join(" › ")),
      h("div", { class: "code name" }, tree.text[i]),
      h("table", {}, ...rows),
      ...notes.map((text) => h("div", { class: "code notes" }, text)));
  }
}

// mount(el, spec, on) of a kind of flame graph.
export function mounting(Kind) {
  return (el, spec, on = () => {}) => {
    const flame = new Kind(spec, spec.state ?? {}, on);
    flame.tell(flame.selected);
    if (spec.links) link(el, spec.links);
    return mounted(el, flame, FLAME_CSS + (flame.css ?? ""));
  };
}
