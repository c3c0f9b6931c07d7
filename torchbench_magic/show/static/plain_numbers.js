// Numbers of cells as plain numbers: for comparing them, and for other programs.

import { cellText } from "./table_cells.js";

// As torchbench_magic.units.number writes it: [size, places, digits, whole] are a Scale and its significant digits.
export function written(value, [size, places, digits, whole]) {
  if (value === null || value === undefined) return "–";
  if (!value) return "·";
  const sign = value < 0 ? "−" : "", much = Math.abs(value) / size;
  if (much > 1e300) return `${sign}∞`;
  let shown = digits === null ? places ?? 0 : digits - 1 - Number(much.toExponential(digits - 1).split("e")[1]);
  if (whole) shown = Math.max(shown, 0);
  if (places !== null && places !== undefined) {
    shown = Math.min(shown, places);
    if (Number(rounded(much, places)) === 0) return `${sign ? ">−" : "<"}${(10 ** -places).toFixed(places)}`;
  }
  const [before, after] = rounded(much, shown).split(".");
  return sign + before.replace(/\B(?=(\d{3})+$)/g, "\u202f") + (after ? `.${after}` : "");
}

// toFixed takes the upper of two that are as near, Python the even one.
function rounded(value, places) {
  const unit = 10 ** Math.abs(places), moved = places < 0 ? value / unit : value * unit;
  const isTie = moved % 1 === 0.5 && (places < 0 || Number.isInteger(value * 2 ** (places + 1)));
  if (places < 0) return String(unit * (isTie ? 2 * Math.round(moved / 2) : Math.round(moved)));
  return isTie ? ((2 * Math.round(moved / 2)) / unit).toFixed(places) : value.toFixed(places);
}

// Units of one kind, each with its size; what a column is in is always among them.
const KINDS = [
  { ns: 1e-9, us: 1e-6, µs: 1e-6, ms: 1e-3, s: 1, min: 60 },
  { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, kB: 1e3, MB: 1e6, GB: 1e9 },
  { "%": 0.01 },
  { FLOP: 1, kFLOP: 1e3, MFLOP: 1e6, GFLOP: 1e9, TFLOP: 1e12 },
  { "MFLOP/s": 1e6, "GFLOP/s": 1e9, "TFLOP/s": 1e12 },
  { "MB/s": 1e6, "GB/s": 1e9 },
];
const kindOf = (unit) => KINDS.find((kind) => unit in kind);

// One `unit` in SI, for a column in `of`; null: another kind of unit. A unit that nobody knows is of size 1.
export function sizeOf(unit, of = unit) {
  const kind = kindOf(of), known = unit === "μs" ? "µs" : unit; // two letters that look alike
  if (!kind) return known === of ? 1 : null;
  const name = known in kind ? known : Object.keys(kind).find((one) => one.toLowerCase() === known.toLowerCase());
  return name === undefined ? null : kind[name];
}

export const unitsBeside = (unit) => (kindOf(unit) ? `; units: ${Object.keys(kindOf(unit)).join(", ")}` : "");

// The number that a cell shows, in the unit of its column: "1 230" is 1230, "·" is 0; null: none, or only a bound.
export function readNumber(text) {
  const plain = (text ?? "").replace(/[\u202f\s]/g, "").replace("−", "-");
  return plain === "·" ? 0 : /^[+-]?\d+(\.\d+)?$/.test(plain) ? Number(plain) : null;
}

// A cell's number in SI, as exact as the specification has it; null where there is none. What a cell has to be sorted by
// need not be its number (a line's order): the two must agree as far as the text goes.
export function valueOf(column, cell) {
  if (typeof cell === "number") return cell;
  const value = (Array.isArray(cell) ? cell[1] : null) ?? null, size = sizeOf(column.unit) ?? 1;
  const text = cellText(cell) ?? "", shown = readNumber(text);
  if (shown === null) return value !== null && (!text || /[<>]/.test(text)) ? value : null;
  if (value === null) return shown * size;
  const decimals = /\.(\d+)$/.exec(text)?.[1].length ?? 0, whole = text.replace(/[\u202f\s]/g, "");
  const step = decimals ? 10 ** -decimals : 10 ** Math.max(whole.length - 2, 0); // 1 230 may be 1 234
  return Math.abs(value / size - shown) <= step ? value : shown * size;
}

// The same in the unit of the column, five digits of it.
export function plainNumber(column, cell) {
  const value = valueOf(column, cell), size = sizeOf(column.unit) ?? 1;
  if (value === null) return null;
  const short = Number((value / size).toPrecision(5));
  return Number.isInteger(value / size) ? value / size : short;
}

// With its unit, for a sentence.
export const amount = (column, cell) => [typeof cell === "number" ? written(cell, column.scale) : cellText(cell) || plainNumber(column, cell), column.unit].filter(Boolean).join(" ");
