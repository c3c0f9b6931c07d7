// A table as text for other programs: TSV for a spreadsheet, markdown for an issue.

import { h } from "./makers.js";
import { plainNumber } from "./plain_numbers.js";
import { FLAT, unpack } from "./table_cells.js";

const DRAWN = new Set(["bar", "change", "interval", "dots", "histogram"]);
const titled = (column, more = "") => `${column.label || column.name}${more}${column.unit ? ` (${column.unit})` : ""}`;
const plainText = (text) => text.replace(/[\t\r\n]+/g, " ");

function words(column, cell) {
  const [text = "", , , note = "", flat = ""] = unpack(cell);
  return [(column.kind === "line" && flat) || text, column.kind === "source" ? "" : note].filter((part) => part.trim()).join(", ");
}

// [title, text of a cell] of each column; what is drawn stands beside as figures.
function columnsOf(spec, number) {
  return spec.columns.flatMap((column, at) => {
    if (DRAWN.has(column.kind)) return [];
    if (column.kind === "number") return [[titled(column), (row) => number(column, row.cells[at]), true]];
    if (column.kind !== "range") return [[titled(column), (row) => words(column, row.cells[at]), false]];
    return ["low", "high"].map((end, nth) => [titled(column, ` ${end}`), (row) => (words(column, row.cells[at]).split(" … ")[nth] ?? "").replace(/\u202f/g, ""), true]);
  });
}

// Numbers are plain, in the unit of their header; a text that a spreadsheet would take for a formula begins with a space.
export function asTsv(spec, rows) {
  const columns = columnsOf(spec, (column, cell) => String(plainNumber(column, cell) ?? ""));
  const body = rows.map((row) => columns.map(([, text, isNumber]) => (isNumber ? text(row) : plainText(text(row)).replace(/^(?=[=+@-])/, " "))));
  return [columns.map(([title]) => plainText(title)), ...body].map((cells) => `${cells.join("\t")}\n`).join("");
}

const escaped = (text) => plainText(text).replace(/[\\`*_[\]|~$]/g, "\\$&").replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function inCode(text) {
  const fence = "`".repeat(1 + Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length))), space = /^`|`$/.test(text) ? " " : "";
  return fence + space + plainText(text).replaceAll("|", "\\|") + space + fence;
}

export function asMarkdown(spec, rows) {
  const kinds = spec.columns.filter((column) => !DRAWN.has(column.kind));
  const cell = (column, row) => {
    const text = words(column, row.cells[spec.columns.indexOf(column)]);
    return text.trim() && ["code", "source"].includes(column.kind) ? inCode(text.trim()) : escaped(text);
  };
  const lines = [kinds.map((column) => escaped(titled(column))), kinds.map((column) => (column.kind === "number" ? "--:" : ":--")), ...rows.map((row) => kinds.map((column) => cell(column, row)))];
  return lines.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}

// Into the clipboard; where that is not allowed into a field after `button`, selected, to be copied by hand.
export async function copy(text, button, say) {
  try {
    await navigator.clipboard.writeText(text);
    say("copied");
  } catch {
    const field = h("textarea", { class: "copied", readonly: true, rows: 4, spellcheck: "false", "aria-label": "the table as selected text: Ctrl-C copies it" });
    field.value = text;
    field.addEventListener("blur", () => { setTimeout(() => field.remove()); say(""); }); // it cannot be removed while it loses the focus
    field.addEventListener("keydown", (event) => { if (event.key === "Escape") button.focus(); });
    button.parentElement.after(field);
    field.focus();
    field.select();
    say("the browser does not let this page copy: press Ctrl-C");
  }
}
