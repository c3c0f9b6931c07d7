// The flame graph by itself, in an output or a page of its own or in a widget: besides what flame_graph.js does, it goes
// from match to match, shows who calls a function and what that calls, and compares two frames that are pinned.

import { h, number } from "./makers.js";
import { pageButton } from "./own_page.js";
import { FlameGraph, mounting, percent } from "./flame_graph.js";

const MOST_NEIGHBOURS = 12;

const EXPLORER_CSS = `
.steps button,.act{font-size:11.5px;border:1px solid var(--rule1);border-radius:3px;padding:0 7px;line-height:20px;color:var(--ink2)}
.steps{display:inline-flex;gap:4px}button[disabled]{opacity:.5;cursor:default}
.acts{display:flex;flex-wrap:wrap;gap:4px;margin:8px 0}
.panel{margin:10px 0 0;font-size:12.5px;border-top:1px solid var(--rule2);padding-top:8px;overflow-x:auto}.panel[hidden]{display:none}
.panel .sentence{display:flex;gap:4px 12px;flex-wrap:wrap;align-items:baseline;margin:0 0 4px}
.panel table{border-collapse:collapse;width:100%;table-layout:fixed;min-width:420px;max-width:860px;font-size:12.5px}
.panel caption{text-align:left;font-size:11.5px;color:var(--ink2);padding:4px 0 0}
.panel th{font-weight:400;color:var(--ink2);text-align:right;font-size:11.5px;line-height:15px;padding:0 8px 4px 0;vertical-align:bottom;width:88px}
.panel th:first-child{text-align:left;width:auto}.panel th small{display:block;font-size:11px}.panel thead{box-shadow:inset 0 -1px var(--rule1)}
.panel td{height:22px;line-height:22px;padding:0 8px 0 0;text-align:right;white-space:nowrap}
.panel td:first-child{text-align:left;overflow:hidden;text-overflow:ellipsis}.panel td button{font-family:var(--mono);font-size:12px;max-width:100%;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}
.panel td button:hover{text-decoration:underline}`;

const act = (text, title, onclick) => h("button", { type: "button", class: "act", title, onclick }, text);

const table = (caption, heads, rows) => h("table", {}, h("caption", {}, caption),
  h("thead", {}, h("tr", {}, ...heads.map(([name, unit]) => h("th", { scope: "col" }, name, h("small", {}, unit || "\u00a0"))))),
  h("tbody", {}, ...rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", { title: typeof cell === "string" ? cell : cell.textContent }, cell))))));

// Who calls a function and what it calls, over all its calls: of frames of one name (an index of spec.names).
//
// Its calls within itself are not counted again: `total` is of its outermost frames. Each caller has what these take;
// so callers add up to the total. Each callee has what its outermost frames below the function take.
export function neighbours(tree, name, own) {
  const { spec, parent, w, n } = tree, mine = (i) => spec.name[i] === name;
  const depth = new Uint8Array(n); // 1: inside the function
  const callers = new Map(), callees = new Map(), found = { places: 0, total: 0, own: 0, callers, callees };
  const add = (map, key, frame) => {
    const one = map.get(key) ?? { total: 0, frames: [] };
    one.total += w[frame];
    one.frames.push(frame);
    map.set(key, one);
  };
  for (let i = 0; i < n; i++) { // a parent comes before its children
    const p = parent[i];
    depth[i] = p >= 0 && (depth[p] || mine(p)) ? 1 : 0;
    if (mine(i)) {
      found.own += own?.[i] ?? 0;
      if (depth[i]) continue;
      found.places++;
      found.total += w[i];
      add(callers, p < 0 ? -1 : spec.name[p], i);
    } else if (p >= 0 && mine(p)) {
      let above = p; // within another call of the same callee from this function it is counted already
      const isCounted = () => spec.name[above] === spec.name[i] && parent[above] >= 0 && mine(parent[above]);
      while (above >= 0 && !isCounted()) above = parent[above];
      if (above < 0) add(callees, spec.name[i], i);
    }
  }
  return found;
}

class FlameExplorer extends FlameGraph {
  get css() { return EXPLORER_CSS; }

  get still() { return "as a table"; }

  beside() {
    const step = (by, text, label) => h("button", { type: "button", "aria-label": label, title: label, disabled: true, onclick: () => this.step(by) }, text);
    this.steps = [step(-1, "↑", "previous match (Shift Enter)"), step(1, "↓", "next match (Enter)")];
    this.search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      event.stopPropagation();
      this.step(event.shiftKey ? -1 : 1);
    });
    return [h("span", { class: "steps" }, ...this.steps)];
  }

  below() {
    this.pins = [];
    this.open = false; // who calls what is shown
    this.around = h("section", { class: "panel", hidden: true, "aria-label": "callers and callees" });
    this.compared = h("section", { class: "panel", hidden: true, "aria-label": "pinned frames" });
    return [this.around, this.compared, h("p", { class: "foot" }, "Enter and Shift Enter in the search go from match to match. On the picture: Space chooses without zooming, c lists callers and callees, p pins a frame.")];
  }

  mark(isOne, words) {
    super.mark(isOne, words);
    this.found = [];
    for (let i = 0; i < this.tree.n; i++) if (this.matches[i] && this.tree.w[i] > 0) this.found.push(i);
    this.steps.forEach((button) => { button.disabled = !this.found.length; });
    this.canvas.dataset.found = this.found.length;
  }

  unmark() {
    super.unmark();
    this.found = [];
    this.steps.forEach((button) => { button.disabled = true; });
  }

  step(by) { // to the next frame that stands out, in the order in which they ran, and round
    const { found } = this;
    if (!found?.length) return;
    const at = found.indexOf(this.selected), first = found.findIndex((frame) => frame > this.selected);
    const to = at >= 0 ? (at + by + found.length) % found.length : by > 0 ? Math.max(first, 0) : ((first < 0 ? found.length : first) - 1 + found.length) % found.length;
    this.select(found[to], false);
    if (found[to] === this.zoom) this.draw(); else this.go(found[to]);
    this.said.textContent = `match ${to + 1} of ${found.length}: ${this.said.textContent}`;
  }

  key(event) {
    if (event.key === "p") this.pin(this.selected);
    else if (event.key === "c") this.sandwich();
    else return super.key(event);
    event.preventDefault();
    return event.stopPropagation();
  }

  measure(at) {
    super.measure(at);
    this.compare();
    this.list();
  }

  select(i, draw) {
    super.select(i, draw);
    this.list();
  }

  tell(hovered) {
    super.tell(hovered);
    if (this.selected < 0) return;
    this.acts ??= h("div", { class: "acts" },
      act("callers and callees", "who calls it and what it calls, over all its calls (c)", () => this.sandwich()),
      act("pin", "pin it, to compare two frames (p)", () => this.pin(this.selected)),
      pageButton(this));
    this.facts.append(this.acts);
  }

  // ---- callers and callees

  sandwich() {
    this.open = !this.open;
    this.list();
  }

  list() {
    this.around.hidden = !this.open;
    if (!this.open) return;
    const { tree, spec, unit } = this, name = spec.name[this.selected], { places, total, own, callers, callees } = neighbours(tree, name, unit.self);
    const written = (value) => number(value, unit.places), share = (value, of) => percent(value / (of || 1));
    const calls = spec.facts?.find((fact) => fact.name === "calls");
    const heads = [["name", ""], ...(calls ? [["calls", ""]] : []), ["total", unit.unit], ["of it", "%"], ["of all", "%"]];
    const rows = (map) => [...map].sort(([, a], [, b]) => b.total - a.total).slice(0, MOST_NEIGHBOURS).map(([key, { total: sum, frames }]) => [
      key < 0 ? "nothing: it is outermost" : h("button", { type: "button", onclick: () => this.select(key === name ? this.selected : this.callerOrCallee(map, key, frames)) }, spec.names[key]),
      ...(calls ? [number(frames.reduce((all, frame) => all + (calls.values[frame] ?? 0), 0), calls.places)] : []),
      written(sum), share(sum, total).replace(" %", ""), share(sum, tree.span).replace(" %", "")]);
    const title = (word, map) => (map.size ? `${word}${map.size > MOST_NEIGHBOURS ? `: the ${MOST_NEIGHBOURS} largest of ${map.size}` : ""}` : `${word}: nothing drawn`);
    const selfs = unit.self ? `, self ${written(own)} ${unit.unit}` : "";
    this.around.replaceChildren(
      h("p", { class: "sentence" }, h("span", {}, h("span", { class: "code name" }, spec.names[name]), ` over all its calls, at ${places} place${places > 1 ? "s" : ""}: ${written(total)} ${unit.unit}, ${share(total, tree.span)}${selfs}`),
        act("close", "close (c)", () => this.sandwich())),
      table(title("called from", callers), heads, rows(callers)),
      table(title("calls", callees), heads, rows(callees)),
      h("p", { class: "foot" }, "Calls of a function within itself are counted once. Frames that are too small to be drawn are part of their caller only."));
    Object.assign(this.around.dataset, { total, own, places });
  }

  // A frame of the neighbour: of a callee, the first that was called; of a caller, the one above.
  callerOrCallee(map, key, frames) {
    const [first] = frames;
    return this.spec.name[first] === key ? first : this.tree.parent[first];
  }

  // ---- two frames

  pin(i) {
    if (i < 0) return;
    this.pins = this.pins.includes(i) ? this.pins.filter((one) => one !== i) : [...this.pins.slice(-1), i];
    this.compare();
  }

  compare() {
    const { tree, spec, unit, pins } = this;
    this.compared.hidden = !pins.length;
    if (!pins.length) return;
    const of = (values, places) => [pins.map((i) => values?.[i] ?? 0), places];
    const ratio = ([a, b]) => (a > 0 && b > 0 ? (b / a >= 99.5 ? number(b / a, 0) : (b / a).toPrecision(b / a < 1 ? 2 : 3)) : "–");
    const given = [["total", unit.unit, ...of(tree.w, unit.places)], ...(unit.self ? [["self", unit.unit, ...of(unit.self, unit.places)]] : []),
      ["share", "%", pins.map((i) => (100 * tree.w[i]) / tree.span), 1],
      ...(spec.facts ?? []).filter((fact) => fact.name !== unit.name).map((fact) => [fact.name, fact.unit, ...of(fact.values, fact.places)])];
    const rows = given.map(([name, unitOf, values, places]) => [`${name}${unitOf ? `, ${unitOf}` : ""}`, ...values.map((value) => number(value, places)), ...(pins.length > 1 ? [ratio(values)] : [])]);
    const path = (i) => [...tree.path(i), i].map((frame) => tree.text[frame]).join(" › ");
    this.compared.replaceChildren(
      h("p", { class: "sentence" }, h("span", {}, pins.length > 1 ? "two pinned frames" : "one pinned frame; pin another to compare them"), act("unpin", "unpin the frames", () => { this.pins = []; this.compare(); this.canvas.focus(); })),
      ...pins.map((i, at) => h("p", { class: "foot" }, `${"AB"[at]}: ${path(i)}`)),
      table("", [["measure", ""], ...pins.map((_, at) => ["AB"[at], ""]), ...(pins.length > 1 ? [["B / A", ""]] : [])], rows));
  }
}

export const mount = mounting(FlameExplorer);
