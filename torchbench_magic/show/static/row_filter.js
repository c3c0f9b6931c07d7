// What a reader types to narrow a table: `self > 1 ms and name ~ conv`, or a regular expression on its own.
//
// A part is a comparison where it reads as one: a name, a sign, a number with or without a unit; or a name, ~ and a
// pattern. If no part is one, all of it is one pattern, as it stands. Errors are words for the reader.

import { usablePattern } from "./pattern.js";
import { amount, sizeOf, unitsBeside, valueOf } from "./plain_numbers.js";
import { cellText } from "./table_cells.js";

const cellOf = (row, at) => (row.raw ? row.raw(at) : row.cells[at]);
const TEXTS = ["text", "code", "source", "verdict"];
const SLOW = 400; // ms after which a filter gives up
const COMPARISON = /^\s*([^<>=!~]*?)\s*(>=|<=|!=|==|!~|=|>|<|~)\s*(.*?)\s*$/s;
const NUMBER = /^([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([^\s\d]\S*)?$/i;
const TELLS = {
  ">": (a, b) => a > b, ">=": (a, b) => a >= b, "<": (a, b) => a < b, "<=": (a, b) => a <= b,
  "=": (a, b) => a === b, "==": (a, b) => a === b, "!=": (a, b) => a !== b,
};

const plainName = (text) => text.trim().toLowerCase().replace(/[\s_]+/g, " ");
const isNumeric = (column) => !TEXTS.includes(column.kind) && column.kind !== "line" && Boolean(column.label || column.unit);

// The columns that a name may mean, the likeliest first: its label, its name, what it is of.
function named(columns, name) {
  const asked = plainName(name), found = columns.filter((column) => [column.label, column.name, `${column.label} ${column.unit}`].map(plainName).includes(asked));
  if (found.length) return found;
  if (asked === "name") return columns.filter((column) => TEXTS.includes(column.kind)).slice(0, 1);
  if (asked === "bytes") return columns.filter((column) => /^([KMG]i)?B$/.test(column.unit));
  return asked === "time" ? columns.filter((column) => /^(n|µ|m)?s$/.test(column.unit)) : [];
}

function unknown(columns, name) {
  const labels = (of) => [...new Set(columns.filter(of).map((column) => column.label || column.name))].join(", ");
  return new Error(`no column “${name}”; numbers: ${labels(isNumeric) || "none"}; texts: name, ${labels((column) => TEXTS.includes(column.kind))}`);
}

// One part as {keep(row), words, hint(rows)}; null: it is no comparison.
function comparison(columns, part, longest) {
  const [, name, sign, right] = COMPARISON.exec(part) ?? [];
  if (!name || !right) return null;
  const found = named(columns, name), number = NUMBER.exec(right);
  if (sign.endsWith("~")) {
    const at = columns.indexOf(found.find((column) => TEXTS.includes(column.kind)));
    if (at < 0) {
      if (!/^[\w %/]+$/.test(name)) return null; // a pattern with a ~ in it
      throw unknown(columns, name);
    }
    const pattern = usablePattern(right, longest);
    return { words: part.trim(), keep: (row) => pattern.test(cellText(cellOf(row, at)) ?? "") === (sign === "~") };
  }
  if (!found.length && (!number || sign === "=" || !/^[\w %/]+$/.test(name))) return null; // source code has such signs
  const numbers = found.filter(isNumeric);
  if (!numbers.length) {
    if (found.length && !number) return null;
    throw found.length ? new Error(`${name} is text: ${name} ~ pattern`) : unknown(columns, name);
  }
  if (!number) throw new Error(`“${right}” is not a number`);
  const unit = number[2] ?? "", column = unit ? numbers.find((one) => sizeOf(unit, one.unit) !== null) : numbers[0];
  if (!column) throw new Error(`${name} is in ${numbers.map((one) => one.unit || "plain numbers").join(" or ")}, not in ${unit}${unitsBeside(numbers[0].unit)}`);
  const at = columns.indexOf(column), limit = Number(number[1].replaceAll("_", "")) * sizeOf(unit || column.unit, column.unit), tells = TELLS[sign];
  const near = (value) => (Math.abs(value - limit) <= 1e-9 * Math.abs(limit) ? limit : value); // 0.1 ms of two ways to write it
  return {
    words: part.trim(),
    keep(row) {
      const value = valueOf(column, cellOf(row, at));
      return value !== null && tells(near(value), limit);
    },
    hint(rows) {
      const known = rows.filter((row) => valueOf(column, cellOf(row, at)) !== null);
      if (!known.length) return `no row has a ${column.label || column.name}`;
      const isMore = !sign.startsWith("<"), best = known.reduce((one, other) => ((valueOf(column, cellOf(other, at)) > valueOf(column, cellOf(one, at))) === isMore ? other : one));
      return `the ${isMore ? "largest" : "smallest"} ${column.label || column.name} is ${amount(column, cellOf(best, at))}`;
    },
  };
}

function pattern(spec, columns, text, longest) {
  const usable = usablePattern(text, longest), searched = columns.flatMap((column, at) => (TEXTS.includes(column.kind) ? [at] : []));
  return {
    words: text,
    keep(row) {
      const title = spec.groups[row.group]?.title;
      return searched.some((at) => usable.test(cellText(cellOf(row, at)) ?? "")) || Boolean(title && usable.test(title));
    },
  };
}

// The rows that all parts keep, and a hint where there are none.
export function filtered(spec, rows, text, longest) {
  const { columns } = spec, parts = text.split(/\s+and\s+/i);
  let made = parts.map((part) => comparison(columns, part, longest));
  if (made.every((one) => one === null)) made = [pattern(spec, columns, text, longest)];
  else made = made.map((one, at) => one ?? pattern(spec, columns, parts[at], longest));
  const started = performance.now(), kept = [];
  for (const row of rows) {
    if (made.every((one) => one.keep(row))) kept.push(row);
    if (performance.now() - started > SLOW) throw new Error("this pattern takes too long");
  }
  return { rows: kept, hint: kept.length || !rows.length ? "" : hint(made, rows) };
}

function hint(made, rows) {
  const alone = made.map((one) => rows.filter((row) => one.keep(row)).length), none = made.filter((_, at) => !alone[at]);
  if (!none.length) return made.map((one, at) => `${alone[at]} have ${one.words}`).join(", ") + ", none has both".replace("both", made.length > 2 ? "all" : "both");
  return none.map((one) => one.hint?.(rows) ?? `nothing matches ${one.words}; names begin with ${names(rows)}`).join("; ");
}

const names = (rows) => [...new Set(rows.slice(0, 200).map((row) => (cellText(row.cells.find((cell) => (cellText(cell) ?? "").length > 2)) ?? "").trim()).filter(Boolean))].slice(0, 3).join(", ");
