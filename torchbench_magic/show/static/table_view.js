// One table: sorted, filtered, walked through by keys; of many rows only those in sight are in the DOM.

import { h, textScale } from "./makers.js";
import { written } from "./plain_numbers.js";
import { filtered } from "./row_filter.js";
import { FLAT, cellText, drawWith, intervalHead, keys, padding, picture, source, svg, unpack, widthsNow } from "./table_cells.js";
import { DETAIL_ROW, HEADING, ROW, SIGHT } from "./table_style.js";

const MANY = 300; // rows from which only those in sight are in the DOM
const NAMES = new Set(["code", "text", "line"]); // kinds that say what a row is of
const PART = 20; // rows of one that has more beside it
const RIGHT = new Set(["number", "range", "line"]), CODE = new Set(["code", "source", "line"]);
const GIVES_WAY = new Set(["code", "text"]), LEAST_NAME = 170, NARROW_ROOM = 760, LEAST_NARROW = 64; // px that a name keeps
const SLACK = { source: 12, verdict: 3 }; // characters that a last column can do without
const YIELDS = ["histogram", "interval", "bar", "change"]; // kinds whose figures stand in other columns, the least missed first

// Cells of which a column says how they are written, with their text.
const opened = (cells, columns) => cells.map((cell, at) => (typeof cell === "number" ? [written(cell, columns[at].scale), cell] : cell ?? (columns[at].scale ? "–" : "")));
const count = (number) => written(number, [1, 0, null]).replace("·", "0");

// Rows that came as columns: `raw` is what a column has; their cells are made when they are seen.
class RestRow {
  constructor(columns, nth, id) { Object.assign(this, { columns, nth, id, group: 0 }); }

  raw(at) { return this.columns.read[at](this.nth); }

  get key() { return this.columns.keys?.[this.nth] || cellText(this.raw(0)); }

  get cells() { return opened(this.columns.read.map((read) => read(this.nth)), this.columns.heads); }
}

function restOf({ rest, columns }, from) {
  const read = rest.columns.map((column) => (column.of ? (nth) => column.of[column.at[nth]] : (nth) => column[nth])), [first] = rest.columns;
  const made = { read, keys: rest.keys, heads: columns };
  return Array.from({ length: (first.of ? first.at : first).length }, (_, nth) => new RestRow(made, nth, from + nth));
}

export class TableView {
  // tell(keys, label): the row that was chosen, for the other views of the result; null in a detail, whose rows are not
  constructor(spec, state, changed, tell = null) {
    this.spec = spec;
    this.changed = changed;
    this.tell = tell;
    this.state = state;
    this.axis = state.axis ?? 0;
    this.widths = widthsNow();
    this.rows = [];
    spec.groups.forEach((group, inGroup) => group.rows.forEach((given) => {
      const id = this.rows.length, row = Array.isArray(given) ? { cells: given } : given;
      this.rows.push({ ...row, cells: opened(row.cells, spec.columns), group: inGroup, id });
    }));
    this.own = this.rows.length; // the others came as columns, and are seen when sorted, filtered or asked for
    if (spec.rest) restOf(spec, this.own).forEach((row) => this.rows.push(row));
    state.all ??= Boolean(state.selectable); // a widget has room for all
    this.searched = spec.columns.flatMap((column, at) => (["text", "code", "source", "verdict"].includes(column.kind) ? [at] : []));
    this.opened = this.rows.find((row) => row.detail && row.key && spec.opened?.includes(row.key))?.id ?? null;
    this.numeric = []; // columns that sort as numbers
    this.chosen = null; // id of the row chosen here
    this.marked = new Set(); // keys that another view shows
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
      spec.totals ? h("tfoot", {}, ...spec.totals.map((row) => this.row({ cells: opened(row.cells ?? row, spec.columns), total: true }))) : null);
    this.leaveOut(0);
    this.hint = h("p", { class: "under hint", hidden: true }, "scroll sideways for more columns");
    this.pane = h("div", { class: "pane", role: "group", "aria-label": spec.name, onscroll: () => requestAnimationFrame(() => this.paint()) }, this.table, this.hint);
    this.status = h("span", { role: "status" });
    this.more = spec.rest ? h("button", { type: "button", class: "act", onclick: () => { this.state.all = !this.state.all; this.update(); this.changed(); } }) : null;
    new ResizeObserver(() => this.fit()).observe(this.pane);
    this.body.addEventListener("keydown", (event) => this.walk(event));
    this.equip();
  }

  equip() {} // of a table that can do more, see table_tools.js

  chose() {}

  does() { return false; }

  pictureOf(row, column, drawn) { return drawn; }

  below() { return null; } // what stands under a row

  // Widths are given in ch of the column's own font, so that they hold in whatever font the notebook has.
  columnWidth(column, last) {
    const element = h("col", { class: `${column.kind}${CODE.has(column.kind) && column.kind !== "code" ? " code" : ""}` });
    let ch = 0, px = this.widths[column.kind] ?? 9;
    if (!this.widths[column.kind]) {
      const body = column.kind === "number" ? this.digits(column) : column.chars;
      ch = Math.max(body, Math.max(column.label.length, column.unit.length) * 0.95 + (RIGHT.has(column.kind) ? 0.5 : 1));
      if (column.kind === "source") px += 20;
      else if (this.rows.some((row) => row.detail) && column === this.spec.columns[this.opener]) px += 14; // its button
    }
    if (last && !this.widths[column.kind] && !RIGHT.has(column.kind)) ch = Math.min(ch, column.kind === "source" ? 36 : 16); // it takes what is left
    else element.style.width = `calc(${ch.toFixed(1)}ch + ${px}px)`;
    return { element, ch, px };
  }

  // Before a number falls off the end give way: what is drawn and stands beside as figures, then columns of names,
  // whose titles have the whole name. What is wider all the same is scrolled, which a line says.
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
    if (this.shown !== before) this.redraw(); // what spans all columns spans fewer
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
    const names = this.columns.map((column, at) => ({ column, px: this.heads[at].offsetWidth, kind: this.spec.columns[at].kind }))
      .filter(({ column, kind }) => GIVES_WAY.has(kind) && column.element.style.width);
    // All are cut to one width, the first, which says what the row is of, to twice that: the widest that is enough.
    const parts = (most) => names.map(({ px }, at) => Math.max(px - Math.max(most * (at ? 1 : 2), leastName * textScale()), 0));
    const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
    let most = room;
    while (most > 0 && sum(parts(most)) < over) most -= 2;
    let gained = 0;
    for (const [at, wide] of parts(most).entries()) {
      const { column } = names[at], part = Math.min(over - gained, wide);
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
    for (const row of this.rows.slice(0, this.own)) look(row.cells);
    for (const { sums } of this.spec.groups) if (sums) look(opened(sums, this.spec.columns));
    for (const row of this.spec.totals ?? []) look(opened(row.cells ?? row, this.spec.columns));
    if (this.spec.rest) { // its longest are its largest and its least
      const known = this.rows.slice(this.own).map((row) => row.raw(at)).filter((value) => typeof value === "number");
      if (known.length) [...known.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [0, 0])].forEach((value) => look({ [at]: [column.scale ? written(value, column.scale) : String(value)] }));
    }
    return most;
  }

  head(column, at) {
    const right = RIGHT.has(column.kind) ? "r" : "";
    if (column.kind === "interval") return h("th", { scope: "col", class: "axis interval" }, intervalHead(column.axes[this.axis]), h("span", { class: "unseen" }, "drawn"));
    if (column.kind === "change") {
      const middle = this.widths.change / 2, [less, more] = column.legend.map((one) => one[1]);
      return h("th", { scope: "col", class: "axis change" }, h("span", { class: "unseen" }, `${less} or ${more}`), svg("svg", { width: this.widths.change, height: 15, "aria-hidden": "true" },
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

  longestText() { // of those that the filter looks at
    const texts = this.rows.flatMap((row) => this.searched.map((at) => cellText(row.raw?.(at) ?? row.cells[at]) ?? ""));
    return [...texts, ...this.spec.groups.map((group) => group.title ?? "")].reduce((most, text) => Math.max(most, text.length), 0);
  }

  update() {
    let rows = this.rows, hint = "";
    if (this.state.filter?.trim()) {
      try {
        ({ rows, hint } = filtered(this.spec, rows, this.state.filter, this.longest ??= this.longestText()));
      } catch (error) { // keep the last view and say why
        this.say(error.message.replace(/^(Invalid regular expression: )?(?=\/|this pattern)/, "not a usable pattern: "));
        return error.message;
      }
    }
    const { sort } = this.state, found = rows.length;
    this.flat = Boolean(sort);
    this.order = sort ?? (this.spec.sorted ? [this.spec.columns.findIndex((c) => c.name === this.spec.sorted[0]), this.spec.sorted[1]] : [-1, 0]);
    if (sort) rows = this.sorted(rows, ...sort);
    this.ordered = rows;
    rows = this.part(rows);
    this.items = [];
    let previous = null;
    for (const row of rows) {
      const first = !this.flat && previous !== null && row.group !== previous;
      if (!this.flat && row.group !== previous && this.spec.groups[row.group].title) {
        this.items.push({ heading: this.spec.groups[row.group], height: HEADING, id: `g${row.group}` });
      }
      this.items.push({ row, first: first && !this.spec.groups[row.group].title, lead: this.flat || row.group !== previous, height: ROW, id: row.id });
      if (this.opened === row.id) this.items.push({ detail: row, height: 46 + DETAIL_ROW * row.detail.groups.reduce((sum, group) => sum + group.rows.length, 0), id: `d${row.id}` });
      const below = this.below(row);
      if (below) this.items.push(below);
      previous = row.group;
    }
    this.spec.columns.forEach((column, at) => column.kind === "line" && this.showPlaces(column, at));
    const [column, direction] = this.order;
    this.heads.forEach((head, at) => {
      if (head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", at !== column ? "none" : direction > 0 ? "ascending" : "descending");
    });
    this.say(this.counted(found, rows.length, hint));
    this.table.setAttribute("aria-rowcount", this.items.length + (this.spec.headless ? 0 : 1) + (this.spec.totals?.length ?? 0));
    const isMany = this.items.length > MANY;
    this.pane.classList.toggle("many", isMany);
    if (isMany) this.pane.tabIndex = 0; else if (this.hint.hidden) this.pane.removeAttribute("tabindex"); // it scrolls: by keyboard too
    this.drawn.clear();
    this.paint();
    return "";
  }

  // Of many rows a part is shown, until all are asked for. Where only those travelled that are largest by some column, no
  // more of them are ranked by one.
  part(rows) {
    const { rest } = this.spec, { sort, filter, all } = this.state;
    if (!rest) return rows;
    if (all) return rest.top && sort ? rows.slice(0, rest.top) : rows;
    return sort || filter ? rows.slice(0, PART) : rows.slice(0, this.own);
  }

  counted(found, shown, hint) { // what is shown of what there is
    const { rest, columns, hidden } = this.spec, { sort, filter, all } = this.state, here = this.rows.length;
    if (this.more) {
      this.more.hidden = !all && shown === found;
      this.more.textContent = all ? "fewer rows" : `all ${count(found)} rows`;
    }
    if (!filter && (!rest || !(sort || all))) return hidden;
    const isCut = rest?.total > here, isRanked = isCut && sort?.[1] < 0 && this.isNumeric(sort[0]) && !filter;
    const [by, way] = this.order, ranked = by >= 0 && this.isNumeric(by) && `the ${count(shown)} ${way < 0 ? "largest" : "smallest"} by ${columns[by].label} of `;
    const part = shown < found || isRanked ? ranked || `the first ${count(shown)} of ` : "";
    const left = isCut && !isRanked ? `; ${count(rest.total)} in all: .explore() has them` : "";
    return [`${part}${filter ? `${count(found)} of ` : ""}${count(isRanked ? rest.total : here)} rows${left}`, hint].filter(Boolean).join(": ");
  }

  isNumeric(at) { return this.numeric[at] ??= this.rows.some((row) => this.value(row, at) !== null); }

  value(row, at) { // what a column sorts by
    const cell = row.raw ? row.raw(at) : row.cells[at];
    return typeof cell === "number" ? cell : Array.isArray(cell) ? cell[1] ?? null : null;
  }

  // Values are sorted without a function of ours, which is far faster, and each row goes to the place of its own; equal
  // ones keep their order, what is not known stays last.
  sorted(rows, at, direction) {
    const numeric = this.isNumeric(at), unknown = [], known = [], values = [];
    for (const row of rows) {
      const cell = row.raw ? row.raw(at) : row.cells[at];
      const value = numeric ? this.value(row, at) : Array.isArray(cell) ? cell[FLAT] || cell[0] || null : cell || null;
      if (value === null) unknown.push(row);
      else { known.push(row); values.push(value); }
    }
    const order = (numeric ? Float64Array.from(values) : [...values]).sort(), place = new Map();
    if (direction < 0) order.reverse();
    for (let to = order.length - 1; to >= 0; to--) place.set(order[to], to);
    const placed = new Array(known.length);
    known.forEach((row, nth) => {
      const to = place.get(values[nth]);
      placed[to] = row;
      place.set(values[nth], to + 1);
    });
    return placed.concat(unknown);
  }

  paint() {
    drawWith(this.widths);
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
    this.stopAt(this.stops.find((tr) => tr.tabIndex === 0));
  }

  get stops() { return [...this.body.querySelectorAll("tr[tabindex]")]; }

  stopAt(tr = this.stops[0]) { // of all rows one is reached by Tab, the others by arrows
    for (const stop of this.stops) stop.tabIndex = stop === tr ? 0 : -1;
  }

  item(item, at) {
    let tr = this.drawn.get(item.id);
    if (!tr) {
      tr = item.heading ? this.heading(item.heading) : item.detail ? this.detail(item.detail) : item.made ? item.made() : this.row(item.row, item);
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
    drawWith(this.widths);
    const selected = this.isSelected(row);
    const tr = h("tr", { class: ["row", first ? "first" : "", selected || this.opened === row.id ? "selected" : "", this.isPinned?.(row) ? "pin" : ""].join(" ").trim(), "data-key": this.keyOf(row) });
    if (this.isRemark(row)) {
      const td = this.cell(this.spec.columns[0], row, 0, lead);
      td.colSpan = this.shown;
      tr.append(td);
    } else this.spec.columns.forEach((column, at) => tr.append(this.cell(column, row, at, lead)));
    if (this.isChoosable(row)) {
      tr.tabIndex = -1;
      tr.setAttribute("aria-selected", String(Boolean(selected)));
      tr.addEventListener("click", (event) => event.detail < 2 && this.choosesRow(event) && this.select(row, event.ctrlKey || event.metaKey));
    }
    return tr;
  }

  keyOf(row) { return this.spec.keyed && row.key && !row.total ? `${this.spec.keyed}:${row.key}` : ""; }

  isChoosable(row) { return this.tell && !row.total && !this.spec.headless && !this.isRemark(row); }

  isChosen(row) { return this.state.selectable && row.key ? this.state.selected?.includes(row.key) : this.chosen === row.id; }

  isSelected(row) { return this.isChosen(row) || this.marked.has(this.keyOf(row)); }

  choosesRow(event) { // not who follows a button, or selects text
    const selection = event.currentTarget.getRootNode().getSelection?.() ?? document.getSelection();
    return !event.target.closest("button") && (!selection || selection.isCollapsed);
  }

  isRemark(row) { // words about rows that are not shown, and no number
    const [first, ...others] = row.cells.map(unpack);
    return first[2] === "quiet" && !row.total && others.every(([text, , , note, , picture]) => !text && !note && !picture);
  }

  cell(column, row, at, lead) {
    const [text = "", , tone = "", note = "", flat = "", spans] = unpack(row.cells[at]);
    const td = h("td", { class: [column.kind, RIGHT.has(column.kind) ? "r" : "", this.widths[column.kind] ? "picture" : "", tone].join(" ").trim() });
    if (column.leading && !lead) return td;
    if (this.widths[column.kind]) {
      const drawn = picture(column, unpack(row.cells[at]), this.axis, row.total);
      if (drawn) td.append(this.pictureOf(row, column, drawn));
      return td;
    }
    const read = this.flat && flat ? flat : text;
    if (column.kind === "source") td.append(...source(read, spans));
    else td.append(read);
    if (column.kind === "number") {
      const pad = padding(read, column.places);
      if (pad) td.append(h("span", { class: "pad", "aria-hidden": "true" }, pad));
    } else if (read.length + note.length > 12) td.title = note ? `${read}  ${note}` : read;
    if (note) td.append(" ", h("span", { class: "note" }, note));
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
      this.open(this.opened === row.id ? null : row.id);
      this.body.querySelector(".open[aria-expanded=true]")?.focus({ preventScroll: true });
    } });
  }

  detail(row) {
    const inner = new TableView(row.detail, {}, () => {});
    return h("tr", { class: "opened" }, h("td", { class: "detail", colspan: this.shown }, h("div", {}, inner.pane, inner.spec.hidden ? h("p", { class: "under" }, inner.spec.hidden) : null)));
  }

  select(row, more = false) { // one row; with Ctrl, one more; again: none
    const { key } = row;
    if (this.state.selectable && key) {
      const before = this.state.selected ?? [], rest = before.filter((other) => other !== key);
      this.state.selected = [...(more ? rest : []), ...(before.includes(key) ? [] : [key])];
    } else this.chosen = this.chosen === row.id ? null : row.id;
    const chosen = this.rows.filter((one) => this.isChosen(one));
    this.chose(chosen);
    const keys = [...new Set(chosen.map((one) => this.keyOf(one)).filter(Boolean))];
    this.marked.clear();
    this.redraw();
    this.stopAt(this.drawn.get(row.id));
    this.focusOn(row.id); // the row is drawn anew
    if (this.state.selectable) this.changed();
    if (this.spec.keyed) this.tell(keys, keys.length ? chosen.map((one) => this.nameOf(one)).join(", ") : "");
  }

  nameOf(row) { // the first text that names it, not what a whole group shares
    const at = Math.max(0, this.spec.columns.findIndex((column) => NAMES.has(column.kind) && !column.leading)), [text = "", , , , flat] = unpack(row.cells[at]);
    return (flat || text).trim();
  }

  // What was chosen in some view of the result: rows with these keys are marked, the first is brought into sight.
  show(keys, label) {
    this.marked = new Set(keys);
    if (!keys.length) this.chosen = null;
    const found = this.rows.filter((row) => this.marked.has(this.keyOf(row)));
    this.say(this.filtered, this.spec.keyed && keys.length ? `${label}: ${found.length} of ${this.rows.length} rows` : "");
    this.redraw();
    const at = this.items.findIndex((item) => item.row && this.marked.has(this.keyOf(item.row)));
    if (at < 0 || this.items.length <= MANY) return;
    const top = this.items.slice(0, at).reduce((sum, item) => sum + item.height, 0), { scrollTop } = this.pane;
    if (top < scrollTop || top > scrollTop + SIGHT - 2 * ROW) this.pane.scrollTop = top - SIGHT / 3;
    this.paint();
  }

  say(filtered, followed = this.followed ?? "") { // what the filter leaves; what another view has chosen
    Object.assign(this, { filtered, followed });
    this.status.textContent = [filtered, followed].filter(Boolean).join("; ");
  }

  redraw() {
    this.drawn.clear();
    this.paint();
  }

  walk(event) { // arrows go from row to row and open what is in one; Enter and Space choose; Escape closes
    const tr = event.target.closest("tr"), at = this.items.find((item) => this.drawn.get(item.id) === tr), { row } = at ?? {};
    if (event.key === "Escape" && this.opened !== null) {
      const closed = this.opened;
      this.opened = null;
      this.update();
      this.focusOn(closed);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const isButton = event.target.matches(".open"), stops = isButton ? [...this.body.querySelectorAll(".open")] : this.stops;
      const next = stops[stops.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
      if (!next) return;
      if (!isButton) this.stopAt(next);
      next.focus();
    } else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && row?.detail && (this.opened === row.id) === (event.key === "ArrowLeft")) {
      this.open(event.key === "ArrowRight" ? row.id : null);
      this.focusOn(row.id);
    } else if (this.does(event, tr, row)) {
      // and its focus stays
    } else if ((event.key === "Enter" || event.key === " ") && row && event.target === tr) {
      this.select(row, event.ctrlKey || event.metaKey);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  focusOn(id) { (this.drawn.get(id)?.closest("tr[tabindex]") ?? this.drawn.get(id)?.querySelector("button"))?.focus(); }

  open(id) { // one at a time
    this.opened = id;
    this.update();
  }

  choose(axis) {
    this.axis = this.state.axis = axis;
    const at = this.spec.columns.findIndex((column) => column.kind === "interval");
    this.heads[at].replaceChildren(intervalHead(this.spec.columns[at].axes[axis]));
    this.redraw();
    this.changed();
  }
}
