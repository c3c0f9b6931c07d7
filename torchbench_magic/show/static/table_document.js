// Draws a result of torchbench_magic: sentence, insights, tables, doubts, footer.
// One function, two who call it:
//   page.js, for an HTML output
//   widget.js, anywidget's render(): the same drawing from a model that Python can change
//
// spec is what torchbench_magic/show/page_data.py writes. Text from it only ever becomes a text node or an attribute
// set by name, never markup. All is drawn in a shadow root: the notebook's own styles do not reach it, its colour
// variables do, and the static table in the light DOM disappears behind it.
//
// A row that is chosen is said on el: "torchbench:chosen" with {keys, label}, which bubbles. On "torchbench:show" with the
// same, el marks the rows that have one of the keys (`data-key`), and says how many; no keys: none.

import { THEME, h, segments, textScale } from "./makers.js";
import { NARROW, WIDE, drawWith, keys, line } from "./table_cells.js";
import { TABLE_STYLE } from "./table_style.js";

const ENOUGH = 800, ENOUGH_FOR_INTERVALS = 900; // the words of a verdict stand beside them
const hasIntervals = (spec) => spec.tables.some((table) => table.columns.some((column) => column.kind === "interval"));
const isNarrow = (el, spec) => el.clientWidth > 0 && el.clientWidth < (hasIntervals(spec) ? ENOUGH_FOR_INTERVALS : ENOUGH) * textScale();

const FILTER_FROM = 3; // rows from which a filter is of use

// What may be typed to filter it: "filter, self > 1 ms".
function example({ columns }) {
  const number = columns.find((column) => column.kind === "number" && column.unit && column.label);
  return number ? `filter, ${number.label} > 1 ${number.unit}` : "filter, regex";
}

// The controls of one table: what stands left (filter, status), what stands right (the switch of its axis).
function controls(spec, view, ownFilter) {
  const axes = spec.columns.find((column) => column.kind === "interval")?.axes ?? [];
  const right = axes.length > 1 ? [view.axes = segments("ratio axis", axes.map((axis) => axis.name), view.axis, (at) => view.choose(at))] : [];
  const acts = spec.headless || !view.rows.length || !view.acts ? [] : [view.acts];
  if (!ownFilter || spec.headless || view.rows.length < FILTER_FROM) return { left: [], right, under: [h("p", { class: "under" }, view.status, ...acts)] };
  const input = h("input", { type: "search", placeholder: example(spec), value: view.state.filter ?? "", spellcheck: "false", "aria-label": `filter ${spec.name} by regular expression or comparison`,
    oninput(event) { event.target.setAttribute("aria-invalid", String(Boolean(view.filter(event.target.value)))); } });
  return { left: [input, view.status, ...(view.more ? [view.more] : [])], right, under: [h("p", { class: "under" }, ...acts)] };
}

function draw(View, spec, state, on, { tell, tables }) {
  state.tables ??= {};
  const changed = () => on(state);
  const views = spec.tables.map((table) => {
    const own = (state.tables[table.name] ??= {});
    table.opened = spec.opened; // keys of rows whose detail Python opens
    own.selectable = Boolean(spec.selectable);
    const view = new View(table, own, changed, tell), { left, right, under } = controls(table, view, !spec.unfiltered);
    const legend = table.columns.filter((column) => column.legend && !["source", "change"].includes(column.kind)).map((column) => h("p", { class: "under" }, ...keys(column.legend)));
    tables.push(view);
    return { name: table.name, left: h("span", { class: "controls side" }, ...left), right: h("span", { class: "side" }, ...right), box: h("div", {}, view.compared ?? null, view.pane, ...legend, ...under) };
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
export const mounting = (View) => (el, spec, on = () => {}) => {
  const state = spec.state ?? {};
  for (const [name, slot] of [["doubts", "doubt"], ["footer", "foot"]]) { // lines that stand in the light DOM
    if (!spec[name].length) spec[name] = Array.from(el.querySelectorAll(`:scope>[slot=${slot}]`), (one) => [one.textContent]);
  }
  let narrow = isNarrow(el, spec), tables = [], others = null; // others: what the views of this result show
  const tell = (keys, label) => el.dispatchEvent(new CustomEvent("torchbench:chosen", { bubbles: true, composed: true, detail: { keys, label } }));
  const follow = ({ detail }) => {
    others = detail;
    tables.forEach((table) => table.show(detail.keys, detail.label));
  };
  const drawn = () => {
    drawWith(narrow ? NARROW : WIDE);
    tables = [];
    const box = draw(View, spec, state, on, { tell, tables });
    if (others) follow({ detail: others });
    if (textScale() !== 1) box.style.zoom = textScale();
    return [h("style", {}, THEME + TABLE_STYLE + (View.css ?? "")), box];
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
  el.addEventListener("torchbench:show", follow);
  return () => {
    watch.disconnect();
    el.removeEventListener("torchbench:show", follow);
    root.replaceChildren();
  };
};
