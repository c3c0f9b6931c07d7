// The timeline by itself, in an output or a page of its own or in a widget: besides what timeline_graph.js does, it
// finds bars, goes from match to match, and sorts the table of a span.

import { h, number } from "./makers.js";
import { pageButton } from "./own_page.js";
import { usablePattern } from "./pattern.js";
import { MOST_ROWS_OF_TABLE, Timeline, mounting } from "./timeline_graph.js";

const SEEKER_CSS = `
input{width:196px}.steps{display:inline-flex;gap:4px}
.steps button,.act{font-size:11.5px;border:1px solid var(--rule1);border-radius:3px;padding:0 7px;line-height:20px;color:var(--ink2)}
button[disabled]{opacity:.5;cursor:default}.all{font-size:11.5px;color:var(--ink2);text-decoration:underline;margin-top:4px}
th button:hover{color:var(--ink1)}`;

class TimelineExplorer extends Timeline {
  get css() { return SEEKER_CSS; }

  get still() { return "all of it as a table"; }

  beside() {
    const step = (by, text, label) => h("button", { type: "button", "aria-label": label, title: label, disabled: true, onclick: () => this.step(by) }, text);
    this.steps = [step(-1, "↑", "previous match (Shift Enter)"), step(1, "↓", "next match (Enter)")];
    this.search = h("input", { type: "search", placeholder: "find, regex", spellcheck: "false", "aria-label": "find bars by regular expression",
      oninput: () => this.find(this.search.value), onkeydown: (event) => {
        if (event.key !== "Enter") return;
        event.preventDefault();
        event.stopPropagation();
        this.step(event.shiftKey ? -1 : 1);
      } });
    return [this.search, h("span", { class: "steps" }, ...this.steps), pageButton(this)];
  }

  find(pattern) {
    this.search.removeAttribute("aria-invalid");
    if (!pattern) return this.mark(null, "");
    const { names, placesOf } = this.spec;
    let tester;
    try {
      tester = usablePattern(pattern, this.longest ??= [...names, ...placesOf].reduce((most, name) => Math.max(most, name.length), 0));
    } catch (error) { // keep the last view and say why
      this.search.setAttribute("aria-invalid", "true");
      this.said.textContent = `not a usable pattern: ${error.message.replace(/^Invalid regular expression: /, "")}`;
      return undefined;
    }
    const known = names.map((name) => tester.test(name)), there = placesOf.map((place) => tester.test(place));
    this.mark((name, place) => known[name] || (place >= 0 && there[place]), `“${pattern}”`);
    if (!known.includes(true) && !there.includes(true)) this.said.textContent = `no name or line matches “${pattern}”: a part of a name is enough, such as ${names.at(-1)}`;
    return undefined;
  }

  mark(isOne, label) {
    super.mark(isOne, label);
    this.steps.forEach((button) => { button.disabled = !isOne || !this.calls(isOne); });
  }

  // To the next bar that stands out, in the order of their start, from where the view or the last match begins; and round.
  step(by) {
    const { isOne } = this;
    if (!isOne) return;
    const at = this.at && this.brush?.[0] === this.at.lane.from[this.at.i] ? [this.at.lane.from[this.at.i], this.at.lane] : [this.view[0], null];
    const { lanes } = this, rank = new Map(lanes.map((lane, nth) => [lane, nth])), mine = rank.get(at[1]) ?? (by > 0 ? -1 : Infinity);
    const isBefore = (from, lane, from2, nth2) => from < from2 || (from === from2 && rank.get(lane) < nth2);
    let best = null, end = null, before = 0, count = 0; // the next one, the one at the other end, how many come before the next
    for (const lane of lanes) {
      const mask = lane.mask(isOne);
      for (let i = 0; i < lane.n; i++) {
        if (!mask[lane.what[i]] || lane.count(i)) continue;
        count++;
        const is = isBefore(lane.from[i], lane, at[0], mine), isAt = lane === at[1] && lane.from[i] === at[0];
        if (is) before++;
        const isAhead = !isAt && is === by < 0;
        const isNearer = (one) => !one || isBefore(lane.from[i], lane, one[0].from[one[1]], rank.get(one[0])) === by > 0;
        if (isAhead && isNearer(best)) best = [lane, i];
        if (isNearer(end)) end = [lane, i];
      }
    }
    if (!count) return;
    const [lane, i] = best ?? end, from = lane.from[i], to = lane.to[i], side = Math.max((to - from) * 2, this.spec.seconds * 1e-6);
    const nth = best ? (by > 0 ? before + (at[1] ? 1 : 0) : before - 1) : by > 0 ? 0 : count - 1;
    this.at = { lane, i };
    this.view = this.state.view = [Math.max(from - side, 0), Math.min(to + side, this.spec.seconds)];
    this.brushed(from, to);
    this.tell(this.at);
    this.said.textContent = `match ${number(nth + 1, 0)} of ${number(count, 0)}${this.together}: ${this.said.textContent}`;
  }

  // ---- the table of a span, sorted by any of its columns

  list() {
    const focused = this.table.getRootNode().activeElement, at = focused?.closest?.("th")?.cellIndex ?? -1, isAll = focused?.matches?.(".all");
    super.list();
    const [by, way] = this.sorted, heads = [...this.table.querySelectorAll("th")];
    heads.forEach((head) => head.setAttribute("aria-sort", head.firstChild.dataset.name !== by ? "none" : way > 0 ? "ascending" : "descending"));
    const more = this.rowsOfSpan > MOST_ROWS_OF_TABLE ? [h("button", { type: "button", class: "all", onclick: () => { this.isLong = !this.isLong; this.list(); } }, this.isLong ? `show the first ${MOST_ROWS_OF_TABLE}` : `show all ${number(this.rowsOfSpan, 0)} rows`)] : [];
    this.table.append(...more);
    if (at >= 0) heads[at].firstChild.focus();
    if (isAll) more[0]?.focus();
  }

  order(rows, columns) {
    const [by, way] = this.sorted, { of } = columns.find((column) => column.name === by), values = new Map(rows.map((row) => [row, of(row)]));
    rows.sort((a, b) => (values.get(a) < values.get(b) ? -way : values.get(a) > values.get(b) ? way : b.time - a.time));
    this.rowsOfSpan = rows.length;
  }

  head({ name, size }) {
    const [by, way] = this.sorted, sort = () => { this.sorted = by === name ? [by, -way] : [name, size ? -1 : 1]; this.list(); };
    return h("button", { type: "button", "data-name": name, onclick: sort }, name, by !== name ? "" : way > 0 ? " ▴" : " ▾");
  }
}

export const mount = mounting(TimelineExplorer);
