// What a table can do besides: show the samples behind a histogram, compare two rows that are pinned. Not within an
// output that has pictures too, which is kept small.

import { h } from "./makers.js";
import { compared } from "./compared_rows.js";
import { distribution } from "./samples.js";
import { unpack } from "./table_cells.js";
import { CopiesView } from "./table_copies.js";

const TOOLS_STYLE = `
.pinned{margin:0 0 8px;padding-left:10px;border-left:2px solid var(--brand)}.pinned th{color:var(--ink1)}.pinned tr th:first-child{width:30%;overflow:hidden;text-overflow:ellipsis}
tr.pin>td:first-child{box-shadow:inset 2px 0 var(--brand)}.sampler{display:block}.sampler:hover{background:var(--hover)}
.facts{display:flex;flex-wrap:wrap;gap:2px 18px;margin:0 0 4px;line-height:17px}.facts div{display:flex;gap:5px}dt{color:var(--ink2)}dd{margin:0}
.values{margin:0;max-height:72px;overflow:auto;font:11.5px/18px var(--mono);white-space:normal;word-spacing:6px}.values b{color:var(--more)}`;

export class ToolsView extends CopiesView {
  static get css() { return super.css + TOOLS_STYLE; }

  equip() {
    super.equip();
    this.sampled = null; // id of the row whose samples are shown
    this.pinned = []; // rows that are compared
    this.compared = h("div", { hidden: true, onkeydown: (event) => { if (event.key === "Escape") this.unpin(event); } });
    this.pinner = h("button", { type: "button", class: "act", hidden: true, onclick: () => this.pin(this.rows.find((row) => this.isChosen(row))) }, "pin");
    this.asker = h("button", { type: "button", class: "act", hidden: true, onclick: () => this.sample(this.rows.find((row) => this.isChosen(row))) }, "samples");
    this.acts.prepend(this.asker, this.pinner);
  }

  chose(chosen) {
    this.pinner.hidden = !chosen.length;
    this.asker.hidden = !chosen.some((one) => this.samplesOf(one));
  }

  isPinned(row) { return Boolean(this.pinned?.includes(row)); } // totals are drawn before there are any

  pictureOf(row, column, drawn) { return column.kind === "histogram" && this.samplesOf(row) ? this.sampler(row, drawn) : drawn; }

  below(row) { return this.sampled === row.id ? { made: () => this.samples(row), height: 170, id: `s${row.id}` } : null; }

  does(event, tr, row) {
    if (event.key === "Escape" && this.sampled !== null) {
      const closed = this.sampled;
      this.sampled = null;
      this.update();
      this.focusOn(closed);
    } else if (event.key === "Escape" && this.pinned.length) {
      this.unpin();
    } else if (event.key === "s" && row && event.target === tr && this.samplesOf(row)) {
      this.sample(row);
      this.focusOn(row.id);
    } else if (event.key === "p" && row && event.target === tr && !event.ctrlKey && !event.metaKey) {
      this.pin(row);
      this.focusOn(row.id);
    } else return false;
    return true;
  }

  pin(row) { // a third takes the place of the second; the same again is none
    this.pinned = this.pinned.includes(row) ? this.pinned.filter((one) => one !== row) : [...this.pinned.slice(0, 1), row];
    this.compare();
  }

  unpin(event) {
    event?.preventDefault();
    event?.stopPropagation();
    this.pinned = [];
    this.compare();
    this.stops.find((tr) => tr.tabIndex === 0)?.focus();
  }

  compare() {
    this.compared.hidden = !this.pinned.length;
    this.compared.replaceChildren(...(this.pinned.length ? [compared(this.spec, this.pinned, (row) => this.wholeName(row), () => this.unpin())] : []));
    this.redraw();
  }

  wholeName(row) { // what its group shares too: one alternative at two points
    const shared = this.spec.columns.flatMap((column, at) => (column.leading && column.kind !== "number" ? [unpack(row.cells[at])] : []));
    return [...shared.map(([text = "", , , , flat]) => flat || text), this.nameOf(row)].filter(Boolean).join(", ");
  }

  sampler(row, drawn) {
    return h("button", { type: "button", class: "sampler", "aria-expanded": String(this.sampled === row.id), "aria-label": `samples of ${this.nameOf(row)}`, onclick: () => {
      this.sample(row);
      this.drawn.get(row.id)?.querySelector(".sampler")?.focus({ preventScroll: true });
    } }, drawn);
  }

  sample(row) {
    this.sampled = this.sampled === row.id ? null : row.id;
    this.update();
  }

  samplesOf(row) {
    const at = this.spec.columns.findIndex((column) => column.kind === "histogram");
    return at < 0 ? undefined : unpack(row.cells[at])[5]?.[3];
  }

  samples(row) {
    return h("tr", { class: "opened" }, h("td", { class: "detail", colspan: this.shown }, distribution(this.samplesOf(row))));
  }
}
