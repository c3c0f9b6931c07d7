// A timeline on one canvas: rows of bars per thread and stream.
//
// spec is what torchbench_magic/profiling/pictures/timeline.py writes: columns with one entry per bar, in ticks. Text
// from it only ever becomes a text node or pixels.

import { h, number } from "./makers.js";
import { byKind } from "./chosen.js";
import { inside, mounted } from "./canvas.js";

const ROW = 16, GAP = 8, AXIS = 22, LABEL = 132, LEAST = 0.6, SIGHT = 480; // px
export const MOST_ROWS_OF_TABLE = 12;

const TIMELINE_CSS = `
.tl{--other:color-mix(in srgb,#7b8087 40%,var(--bg))}
.pane{max-height:${SIGHT}px;overflow-y:auto;overflow-x:hidden}
canvas{cursor:crosshair;touch-action:pan-y}
.said{min-height:20px;font-size:12px;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;table-layout:fixed;font-size:12.5px;margin-top:4px}
caption{text-align:left;font-size:11.5px;color:var(--ink2);line-height:17px;padding:4px 0}
th{font-weight:400;color:var(--ink2);text-align:left;font-size:11.5px;line-height:15px;padding:0 8px 4px 0;vertical-align:bottom}
th small{display:block;font-size:11px}thead{box-shadow:inset 0 -1px var(--rule1)}
td{height:22px;line-height:22px;padding:0 8px 0 0;white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.r{text-align:right}`;

// ---- the bars -----------------------------------------------------------------------------------------------

class Lane { // one row of bars, in the order of their start
  constructor(track, depth, n, what) {
    Object.assign(this, { track, depth, n: 0, kinds: what, from: new Float64Array(n), to: new Float64Array(n), what: new Int32Array(n), many: null, busy: null });
  }

  add(from, to, what, count, busy) {
    const i = this.n++;
    this.from[i] = from;
    this.to[i] = to;
    this.what[i] = what;
    if (count > 1) {
      (this.many ??= new Int32Array(this.from.length))[i] = count;
      (this.busy ??= new Float64Array(this.from.length))[i] = busy; // s that they took by themselves
    }
  }

  first(moment, from = 0) { // the first bar that may reach beyond a moment: bars of a row hardly overlap
    let low = from, high = this.n;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.to[middle] < moment) low = middle + 1; else high = middle;
    }
    return low;
  }

  mask(isOne) { // of each kind of bar, whether it is one
    if (this.kinds.isOne !== isOne) Object.assign(this.kinds, { isOne, mask: Uint8Array.from(this.kinds.name, (name, at) => Number(isOne(name, this.kinds.place[at]))) });
    return this.kinds.mask;
  }

  count(i) { return this.many?.[i] ?? 0; } // how many are drawn as this one; 0: it is one

  name(i) { return this.kinds.name[this.what[i]]; }

  place(i) { return this.kinds.place[this.what[i]]; }
}

// Rows of bars, from columns: of each track one bar after the other, each before those in it, starts as distances.
// `what` has of each kind of bar its row in the track, its name, hue and place.
function lanesOf({ bars, what }, tick) {
  const lanes = [];
  let i = 0;
  bars.of.forEach((count, track) => {
    const rows = [], begun = [], ended = [], sizes = [];
    let before = -1;
    for (let at = i; at < i + count; at++) sizes[what.depth[bars.what[at]]] = (sizes[what.depth[bars.what[at]]] ?? 0) + 1;
    for (const end = i + count; i < end; i++) {
      const depth = what.depth[bars.what[i]], start = bars.ahead[i] + ((depth > before ? begun[depth - 1] : ended[depth]) ?? 0);
      [begun[depth], ended[depth], before] = [start, start + bars.duration[i], depth];
      (rows[depth] ??= new Lane(track, depth, sizes[depth], what)).add(start * tick, ended[depth] * tick, bars.what[i], bars.count?.[i], bars.busy?.[i] * tick);
    }
    lanes.push(...rows.filter(Boolean));
  });
  return lanes;
}

export class Timeline {
  constructor(spec, state, on) {
    this.spec = spec;
    this.state = state;
    this.on = on;
    this.view = state.view ?? [0, spec.seconds];
    this.brush = state.brush ?? null;
    this.lanes = lanesOf(spec, spec.tick);
    this.isOne = null; // (name, place) of a bar -> whether it stands out: searched for, or chosen in another view
    this.sorted = ["time", -1];
    this.tops = new Map(); // track and row -> y
    this.heads = []; // [track, y]
    let y = 0, track = -1;
    for (const lane of this.lanes) {
      if (lane.track !== track) { if (track >= 0) y += GAP; track = lane.track; this.heads.push([track, y]); }
      this.tops.set(`${lane.track} ${lane.depth}`, y);
      y += ROW;
    }
    this.height = y + AXIS;
    this.build();
  }

  build() {
    const { spec } = this, bars = this.lanes.reduce((sum, lane) => sum + lane.n, 0);
    this.keys = (spec.keys ?? []).map((key, at) => key.replace(/^(\w+:)\*$/, (_, kind) => kind + spec.names[at])); // op:*: as the name
    this.canvas = h("canvas", { tabindex: 0, role: "img", "aria-describedby": "said" });
    this.canvas.setAttribute("aria-label", `${spec.title}: timeline of ${bars} bars. Up and down go from row to row, n and p from bar to bar, plus and minus zoom, left and right move, with shift they choose a span, Enter zooms into it, Escape goes back; the table below lists the span`);
    this.pen = this.canvas.getContext("2d");
    this.said = h("div", { class: "said", role: "status", id: "said" });
    this.table = h("div", {});
    this.swatches = spec.hues.map((hue) => h("i", { style: `background:var(--${hue})` }));
    const button = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
    const zooms = h("span", { class: "seg", role: "group", "aria-label": "zoom" },
      button("+", "zoom in", () => this.zoom(0.5)), button("−", "zoom out", () => this.zoom(2)),
      button("selection", "zoom to it", () => this.enter()), button("all", "show all", () => this.show(0, spec.seconds)));
    this.pane = h("div", { class: "pane" }, this.canvas);
    const keys = spec.legend.map(([hue, word]) => h("span", { class: "key" }, h("i", { style: `background:var(--${hue})` }), word));
    this.box = h("div", { class: "themed hued tl" },
      h("span", { hidden: true }, ...this.swatches),
      h("p", { class: "sentence" }, spec.title),
      h("div", { class: "controls" }, h("span", {}, "drag to choose a span"), ...this.beside(), h("span", { class: "space" }), zooms),
      this.pane, this.said, this.table, ...this.below(),
      h("p", { class: "foot" }, ...keys, `Ctrl+wheel zooms, Shift+drag moves; keys: ↑ ↓ n p + − ← →, Shift+← →, Enter, Escape. ${spec.note}`),
      h("details", {}, h("summary", {}, this.still), h("slot")));
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => { this.pressed = null; });
    canvas.addEventListener("dblclick", () => this.enter());
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, this.moment(event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  get still() { return "in words"; } // what stands in the light DOM

  beside() { return []; } // more controls, and what stands below the picture: of other kinds

  below() { return []; }

  top(lane) { return this.tops.get(`${lane.track} ${lane.depth}`); }

  get wide() { return Math.max(this.canvas.clientWidth - LABEL, 1); }

  moment(event) {
    const [from, to] = this.view;
    return from + (Math.min(Math.max(inside(event, this.canvas).x - LABEL, 0), this.wide) / this.wide) * (to - from);
  }

  // ---- what the reader does

  show(from, to) {
    const whole = this.spec.seconds, span = Math.min(Math.max(to - from, whole * 1e-7), whole);
    const left = Math.min(Math.max(from, 0), whole - span);
    this.view = this.state.view = [left, left + span];
    this.changed();
  }

  zoom(by, about) {
    const [from, to] = this.view, fixed = about ?? (this.brush ? (this.brush[0] + this.brush[1]) / 2 : (from + to) / 2);
    this.show(fixed - (fixed - from) * by, fixed + (to - fixed) * by);
  }

  brushed(from, to) {
    const [a, b] = from <= to ? [from, to] : [to, from];
    this.brush = this.state.brush = [Math.max(a, 0), Math.min(b, this.spec.seconds)];
    this.changed();
  }

  enter() { if (this.brush && this.brush[1] > this.brush[0]) this.show(...this.brush); }

  back() { // one step: the span, then the zoom
    if (this.brush) { this.brush = null; delete this.state.brush; this.changed(); return true; }
    if (this.view[0] > 0 || this.view[1] < this.spec.seconds) { this.show(0, this.spec.seconds); return true; }
    return false;
  }

  press(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pressed = { x: inside(event, this.canvas).x, at: this.moment(event), view: this.view, moves: event.shiftKey, far: false };
  }

  move(event) {
    const { pressed } = this;
    if (!pressed) return this.tell(this.under(event));
    pressed.far ||= Math.abs(inside(event, this.canvas).x - pressed.x) > 3;
    if (!pressed.far) return undefined;
    if (pressed.moves) {
      const [from, to] = pressed.view, by = ((pressed.x - inside(event, this.canvas).x) / this.wide) * (to - from);
      return this.show(from + by, to + by);
    }
    this.at = null;
    return this.brushed(pressed.at, this.moment(event));
  }

  release(event) {
    const { pressed } = this;
    this.pressed = null;
    if (!pressed || pressed.far || pressed.moves) return;
    const hit = this.under(event); // a click chooses the bar's own span
    if (hit) { this.at = hit; this.brushed(hit.lane.from[hit.i], hit.lane.to[hit.i]); } else if (this.brush) this.back();
  }

  key(event) {
    const [from, to] = this.view, step = (to - from) / 10, side = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (side && event.shiftKey) {
      const middle = (from + to) / 2, [a, b] = this.brush ?? [middle, middle];
      this.at = null;
      this.brushed(a, Math.max(a, b + side * step / 2));
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") this.walk(event.key === "ArrowUp" ? -1 : 1, 0);
    else if (event.key === "n" || event.key === "p") this.walk(0, event.key === "n" ? 1 : -1);
    else if (side) this.show(from + side * step, to + side * step);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-" || event.key === "_") this.zoom(2);
    else if (event.key === "Home") this.show(0, to - from);
    else if (event.key === "End") this.show(this.spec.seconds - (to - from), this.spec.seconds);
    else if (event.key === "Enter") this.enter();
    else if (event.key === "Escape") { if (!this.back()) return; }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  walk(rows, bars) { // from the bar at hand to one in the row above or below, or to its neighbour; chooses its span
    const [from, to] = this.brush ?? this.view, { lanes } = this, at = lanes.indexOf(this.at?.lane);
    const lane = lanes[at < 0 ? 0 : Math.min(Math.max(at + rows, 0), lanes.length - 1)];
    if (!lane) return;
    let i = at >= 0 && !rows ? this.at.i + bars : Math.min(lane.first((from + to) / 2), lane.n - 1);
    i = Math.min(Math.max(i, 0), lane.n - 1);
    this.at = { lane, i };
    const [start, end] = this.view, side = (end - start) / 2;
    if (lane.to[i] < start || lane.from[i] > end) this.show(lane.from[i] - side, lane.from[i] + side);
    this.brushed(lane.from[i], lane.to[i]);
    this.tell(this.at);
  }

  changed() {
    this.draw();
    this.list();
    clearTimeout(this.later);
    this.later = setTimeout(() => { this.on(this.state); this.pass(); }, 60); // while it is dragged
  }

  // What is chosen here, to other views: a bar, an operation with its line; or what ran in a span.
  pass() {
    const { brush, at } = this, now = brush?.join(" ") ?? "";
    if (now === (this.passed ?? "")) return;
    this.passed = now;
    const isBar = brush && at && !at.lane.count(at.i) && at.lane.from[at.i] === brush[0] && at.lane.to[at.i] === brush[1];
    const of = (name, place) => [this.keys[name], place >= 0 ? `line:${this.spec.placesOf[place]}` : ""].filter(Boolean);
    if (isBar) this.choose(of(at.lane.name(at.i), at.lane.place(at.i)), this.label(at.lane, at.i));
    else if (brush) this.choose([...new Set(this.ran(...brush).flatMap((sum) => of(sum.name, sum.place)))], `${this.time(brush[1] - brush[0])} from ${this.time(brush[0])} on`);
    else this.choose([], "");
  }

  // What is chosen in another view: operations, on the lines that are chosen too; or all that stands on lines.
  follow(keys, label) {
    const { op, line } = byKind(keys), { what, placesOf } = this.spec;
    if (!keys.length) return this.mark(null, "");
    if (!op && !line) return this.mark(null, `${label}: not in the timeline`);
    const places = placesOf.map((place) => line?.has(`line:${place}`));
    return this.mark((name, place) => (!op || op.has(this.keys[name])) && (!line || (place >= 0 && places[place])), label);
  }

  // Let bars stand out by their name and place, and say how many calls that is, of all that ran. Out of sight: show all.
  mark(isOne, label) {
    this.isOne = isOne;
    let words = label;
    if (isOne) {
      const calls = this.calls(isOne), isSeen = (a, b) => Boolean(this.bars(isOne, a, b).next().value);
      if (calls && !isSeen(...this.view)) { this.view = this.state.view = [0, this.spec.seconds]; this.list(); }
      words = `${label}: ${calls ? `${number(calls, 0)} call${calls > 1 ? "s" : ""}${this.together}` : `no bar of its own in this picture`}`;
    }
    this.said.textContent = words;
    this.draw();
  }

  * bars(isOne, from, to) { // [lane, i] of those that stand out and reach into a span
    for (const lane of this.lanes) {
      const mask = lane.mask(isOne);
      for (let i = lane.first(from); i < lane.n && lane.from[i] < to; i++) if (mask[lane.what[i]] && !lane.count(i)) yield [lane, i];
    }
  }

  calls(isOne) { return [...this.bars(isOne, -Infinity, Infinity)].length; }

  get together() { return this.spec.bars.count ? "; short ones are drawn together" : ""; } // which no name is known of

  // Rows {track, name, place, calls, time} of a span, by its bars. Those drawn together are one row of their track, name -1.
  ran(from, to) {
    const found = new Map();
    for (const lane of this.lanes) {
      const rows = []; // of each kind of bar
      for (let i = lane.first(from); i < lane.n && lane.from[i] < to; i++) {
        const count = lane.count(i), [begin, end] = [lane.from[i], lane.to[i]];
        if (end === from && begin < end) continue; // ended there
        const row = (rows[count ? 0 : lane.what[i] + 1] ??= this.rowOf(found, lane.track, count ? -1 : lane.name(i), count ? -1 : lane.place(i)));
        row.calls += count || 1;
        row.time += count ? lane.busy[i] : Math.min(end, to) - Math.max(begin, from);
      }
    }
    return [...found.values()];
  }

  rowOf(found, track, name, place) {
    const key = `${track} ${name} ${place}`;
    if (!found.has(key)) found.set(key, { track, name, place, calls: 0, time: 0 });
    return found.get(key);
  }

  // ---- what is seen

  under(event) {
    const at = this.moment(event), slack = ((this.view[1] - this.view[0]) / this.wide) * 1.5;
    const lane = this.lanes.find((each) => inside(event, this.canvas).y >= this.top(each) && inside(event, this.canvas).y < this.top(each) + ROW);
    if (!lane || inside(event, this.canvas).x < LABEL) return null;
    for (let i = lane.first(at - slack); i < lane.n && lane.from[i] <= at + slack; i++) if (lane.to[i] >= at - slack) return { lane, i };
    return null;
  }

  label(lane, i) {
    return lane.count(i) ? `${lane.count(i)} short` : this.spec.names[lane.name(i)];
  }

  scale(seconds) { // [size, unit, places] of a time, or of a column with this one as its largest: no digit that a tick does not know
    const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]].find(([each]) => seconds >= each) ?? [1e-6, "µs"];
    return [size, unit, Math.min(Math.max(0, Math.floor(-Math.log10(this.spec.tick / size))), 3)];
  }

  time(seconds) {
    const [size, unit, places] = this.scale(seconds);
    return seconds < this.spec.tick ? "0" : `${number(seconds / size, places)} ${unit}`;
  }

  tell(hit) {
    const text = hit ? [this.label(hit.lane, hit.i), hit.lane.count(hit.i) ? "drawn together" : "", this.spec.placesOf[hit.lane.place(hit.i)] ?? "", `${this.time(hit.lane.to[hit.i] - hit.lane.from[hit.i])} from ${this.time(hit.lane.from[hit.i])} on`].filter(Boolean).join(" · ") : "";
    if (this.said.textContent !== text) this.said.textContent = text;
  }

  list() { // what ran in the span
    const [from, to] = this.brush ?? this.view, all = this.ran(from, to);
    const columns = this.columns(to - from, this.scale(all.reduce((most, row) => Math.max(most, row.time), 0)));
    this.order(all, columns);
    const shown = this.isLong ? all : all.slice(0, MOST_ROWS_OF_TABLE), what = this.brush ? "chosen span" : "span in view";
    const wider = all.some((row) => row.name < 0) ? " (short calls that are drawn together count whole at its ends)" : "";
    const caption = `${what}: ${this.time(to - from)} from ${this.time(from)} on${wider}${all.length > shown.length ? `; the first ${shown.length} by ${this.sorted[0]} of ${number(all.length, 0)} rows` : ""}`;
    this.table.replaceChildren(h("table", {}, h("caption", {}, caption),
      h("colgroup", {}, ...["17%", "", "14%", "9%", "11%", "11%"].map((width) => h("col", { style: width ? `width:${width}` : "" }))),
      h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", { class: column.size ? "r" : "", scope: "col" }, this.head(column), h("small", {}, column.unit || "\u00a0"))))),
      h("tbody", {}, ...shown.map((sum) => h("tr", {}, ...columns.map(({ of, size, places, code }) => (size ? h("td", { class: "r" }, number(of(sum) / size, places)) : h("td", { class: code, title: of(sum) }, of(sum)))))))));
  }

  columns(span, [size, unit, places]) { // of the table of a span: what it is sorted by, and of numbers the unit and the places that are shown
    const { spec } = this, time = (sum) => sum.time;
    return [
      { name: "track", of: (sum) => spec.tracks[sum.track] },
      { name: "name", code: "code", of: (sum) => this.named(sum) },
      { name: "line", code: "code", of: (sum) => spec.placesOf[sum.place] ?? "" },
      { name: "calls", of: (sum) => sum.calls, size: 1, places: 0 },
      { name: "time", unit, of: time, size, places },
      { name: "of the span", unit: "%", of: time, size: (span || 1) / 100, places: 1 },
    ];
  }

  order(rows) { rows.sort((a, b) => b.time - a.time); }

  head(column) { return column.name; }

  named(sum) { return sum.name < 0 ? "short calls, drawn together" : this.spec.names[sum.name]; }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return; // not in sight: drawn when it is
    const { pen, spec, height } = this, [from, to] = this.view, k = this.wide / (to - from), ratio = globalThis.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(this.box), ink = style.color, rule = style.getPropertyValue("--rule1").trim() || "#999";
    const paints = this.swatches.map((swatch) => getComputedStyle(swatch).backgroundColor);
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    const each = pen.measureText("abcdefghij:_.0123456789").width / 21;
    let drawn = 0;
    pen.save();
    pen.beginPath();
    pen.rect(LABEL, 0, this.wide, height);
    pen.clip();
    const passes = this.isOne ? [false, true] : [null]; // those that stand out last, so that none is hidden
    for (const lane of this.lanes) for (const isMarked of passes) {
      const y = this.top(lane), mask = this.isOne && lane.mask(this.isOne);
      let edge = -1; // right end of what is painted: bars narrower than a pixel are painted once
      pen.globalAlpha = isMarked === false ? 0.25 : 1;
      for (let i = lane.first(from); i < lane.n && lane.from[i] < to; i++) {
        const what = lane.what[i];
        if (mask && Boolean(mask[what] && !lane.count(i)) !== isMarked) continue;
        const x = LABEL + (lane.from[i] - from) * k, wide = (lane.to[i] - lane.from[i]) * k;
        if (x + wide < edge + LEAST && wide < LEAST) { // on to the first that reaches beyond it
          if (!mask) i = Math.max(i, lane.first(lane.from[i] + LEAST / k, i) - 1);
          continue;
        }
        const left = Math.max(x, LABEL), right = Math.min(x + Math.max(wide, LEAST), LABEL + this.wide);
        pen.fillStyle = paints[lane.kinds.hue[what]] ?? paints.at(-1);
        pen.fillRect(left, y, Math.max(right - left - (wide > 3 ? 0.5 : 0), LEAST), ROW - 1);
        edge = right;
        drawn++;
        const room = Math.floor((right - left - 6) / each);
        if (room >= 3) {
          const text = this.label(lane, i);
          pen.fillStyle = ink;
          pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, left + 3, y + ROW / 2, right - left - 4);
        }
      }
    }
    pen.globalAlpha = 1;
    if (this.brush) {
      const a = LABEL + (this.brush[0] - from) * k, b = LABEL + (this.brush[1] - from) * k;
      pen.fillStyle = getComputedStyle(this.box).getPropertyValue("--brand").trim() || "#1f6fb2";
      pen.globalAlpha = 0.14;
      pen.fillRect(a, 0, Math.max(b - a, 1), height - AXIS);
      pen.globalAlpha = 1;
      pen.fillRect(a, 0, 1, height - AXIS);
      pen.fillRect(b, 0, 1, height - AXIS);
    }
    pen.restore();
    this.axis(k, ink, rule);
    for (const [track, y] of this.heads) {
      const text = spec.tracks[track], room = Math.floor((LABEL - 10) / each);
      pen.fillStyle = ink;
      pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, 0, y + ROW / 2);
      if (y > 0) { pen.fillStyle = rule; pen.globalAlpha = 0.5; pen.fillRect(0, y - GAP / 2, LABEL + this.wide, 1); pen.globalAlpha = 1; }
    }
    Object.assign(this.canvas.dataset, { drawn, from, to, brush: this.brush ? this.brush.join(" ") : "" });
  }

  axis(k, ink, rule) {
    const { pen, spec } = this, [from, to] = this.view, y = this.height - AXIS + 2.5, size = spec.size;
    const rough = (to - from) / size / 6, power = 10 ** Math.floor(Math.log10(rough)), step = ([1, 2, 5, 10].find((n) => n * power >= rough) ?? 10) * power;
    const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    pen.strokeStyle = rule;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(LABEL, y);
    pen.lineTo(LABEL + this.wide, y);
    const marks = [];
    for (let n = Math.ceil(from / size / step - 1e-9); n * step <= to / size + 1e-9; n++) {
      const x = LABEL + (n * step * size - from) * k;
      marks.push([x, (n * step).toFixed(places)]);
      pen.moveTo(x, y);
      pen.lineTo(x, y + 4);
    }
    pen.stroke();
    pen.fillStyle = ink;
    pen.globalAlpha = 0.7;
    marks.forEach(([x, text], at) => {
      pen.textAlign = x > LABEL + this.wide - 24 ? "right" : x < LABEL + 12 ? "left" : "center";
      pen.fillText(at === marks.length - 1 ? `${text} ${spec.unit}` : text, x, y + 12);
    });
    pen.textAlign = "left";
    pen.globalAlpha = 1;
  }
}

// mount(el, spec, on) of a kind of timeline.
export function mounting(Kind) {
  return (el, spec, on = () => {}) => {
    const line = new Kind(spec, spec.state ?? {}, on), unmount = mounted(el, line, TIMELINE_CSS + (line.css ?? ""));
    line.list();
    return () => { clearTimeout(line.later); unmount(); };
  };
}
