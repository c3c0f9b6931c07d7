// The samples behind a small histogram: how many, their quartiles, what lies outside, and each value.

import { h } from "./makers.js";
import { written } from "./plain_numbers.js";

// [unit, step, count, quartiles, [below, above], first, differences...]: values of so many steps of the unit, sorted; of
// many samples some, evenly spaced in their order, the least and the largest among them.
export function distribution([unit, step, count, quartiles, [below, above], ...differences]) {
  let at = 0;
  const values = differences.map((difference) => (at += difference)), shown = (value) => written(value * step, [1, null, 4]);
  const [q1, median, q3] = quartiles, reach = 1.5 * (q3 - q1), isOut = (value) => value < q1 - reach || value > q3 + reach;
  const facts = [["samples", written(count, [1, 0, null])], ["min", shown(values[0])], ["lower quartile", shown(q1)], ["median", shown(median)], ["upper quartile", shown(q3)],
    ["max", shown(values.at(-1))], ["outliers", `${below + above}${below + above ? ` (${below} below, ${above} above)` : ""}`]];
  const said = `${values.length < count ? `${values.length} of ${written(count, [1, 0, null])} values, evenly spaced in their order` : "All values"}, in ${unit}; outliers lie more than 1.5 interquartile ranges outside the quartiles.`;
  return h("div", {}, h("dl", { class: "facts" }, ...facts.map(([word, text]) => h("div", {}, h("dt", {}, word), h("dd", {}, text)))),
    h("p", { class: "values", tabindex: 0, role: "group", "aria-label": "values, sorted" }, ...values.flatMap((value) => [isOut(value) ? h("b", {}, shown(value)) : shown(value), " "])),
    h("p", { class: "under" }, said));
}
