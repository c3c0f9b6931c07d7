// Two rows that are pinned, one below the other, and the ratio of each number.

import { h } from "./makers.js";
import { valueOf, written } from "./plain_numbers.js";
import { unpack } from "./table_cells.js";

// How many times the first's the second's is, with three digits; a dash where that says nothing.
function ratio(column, first, second) {
  const [a, b] = [valueOf(column, first), valueOf(column, second)];
  return a === b && a !== null ? "1" : a > 0 && b > 0 ? written(b / a, [1, null, 3]) : "–";
}

export function compared(spec, [first, second], name, unpin) {
  const numbers = spec.columns.map((column, at) => [column, at]).filter(([column]) => column.kind === "number");
  const of = (row, head) => h("tr", {}, h("th", { scope: "row", class: "code" }, head), ...numbers.map(([, at]) => h("td", { class: "number r" }, unpack(row.cells[at])[0] ?? "")));
  const heads = numbers.map(([column]) => h("th", { scope: "col", class: "r" }, column.label, column.unit ? h("small", {}, column.unit) : null));
  const ratios = second ? [h("tr", { class: "sums" }, h("th", { scope: "row" }, "second / first"), ...numbers.map(([column, at]) => h("td", { class: "number r" }, ratio(column, first.cells[at], second.cells[at]))))] : [];
  return h("div", { class: "pinned" },
    h("div", { class: "pane" }, h("table", { "aria-label": "pinned rows" }, h("thead", {}, h("tr", {}, h("td"), ...heads)), h("tbody", {}, of(first, name(first)), ...(second ? [of(second, name(second))] : []), ...ratios))),
    h("p", { class: "under" }, second ? "" : "Choose another row and pin it to compare the two. ", h("button", { type: "button", class: "act", onclick: unpin }, "unpin")));
}
