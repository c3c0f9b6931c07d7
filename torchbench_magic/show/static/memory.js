// Reads the picture of memory over time at the pointer, or with the arrow keys: the total and what each line holds. A
// click, or Enter, lists the blocks alive there: all of them, to the byte (pictures/blocks_by_column.py).
// The picture itself, and every number of its peak, are there without this.

import { THEME, h, number } from "./makers.js";
import { byKind, choose } from "./chosen.js";

const SVG = "http://www.w3.org/2000/svg";
const STEPS = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20 };
const MOST_ROWS = 12;

const ALIVE_CSS = `
.sentence{margin:4px 0;display:flex;flex-wrap:wrap;gap:4px 12px;align-items:baseline}
.pane{overflow-x:auto}.pane.long{max-height:320px;overflow-y:auto}
table{border-collapse:collapse;width:100%;max-width:860px;min-width:420px;table-layout:fixed;font-size:12.5px}
th{font-weight:400;color:var(--ink2);text-align:right;font-size:11.5px;line-height:15px;padding:0 8px 4px 0;vertical-align:bottom;width:104px}
th:first-child{text-align:left;width:auto}th small{display:block;font-size:11px}thead{box-shadow:inset 0 -1px var(--rule1)}
td{height:22px;line-height:22px;padding:0 8px 0 0;text-align:right;white-space:nowrap}td:first-child{text-align:left;overflow:hidden;text-overflow:ellipsis}
td button:hover{text-decoration:underline}tr.shown td{background:var(--sel)}
.act{font-size:11.5px;border:1px solid var(--rule1);border-radius:3px;padding:0 7px;line-height:20px;color:var(--ink2)}`;

const shown = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 }).replace(/,/g, "\u202f").replace("-", "\u2212");
const exact = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f").replace("-", "\u2212");
const count = (blocks) => `${exact(blocks)} block${blocks === 1 ? "" : "s"}`;

// What is alive in a column: rows {owner, size, blocks}, one a line and size, the largest first, and all they hold.
function aliveAt(at, { blocks, older }) {
  const found = new Map();
  for (let i = 0; i < blocks.owner.length; i++) {
    if (blocks.first[i] > at || blocks.end[i] <= at) continue;
    const name = `${blocks.owner[i]} ${blocks.size[i]}`, row = found.get(name) ?? { owner: blocks.owner[i], size: blocks.size[i], blocks: 0 };
    row.blocks += blocks.count[i];
    found.set(name, row);
  }
  const rows = [...found.values()].sort((a, b) => b.size * b.blocks - a.size * a.blocks || a.owner - b.owner);
  const rest = { bytes: blocks.restBytes?.[at] ?? 0, blocks: blocks.restBlocks?.[at] ?? 0 };
  const bytes = rows.reduce((sum, row) => sum + row.size * row.blocks, rest.bytes);
  return { rows, rest, bytes, blocks: rows.reduce((sum, row) => sum + row.blocks, rest.blocks), older: older?.[at] ?? 0 };
}

export function mount(box, data) {
  const drawing = box.querySelector("svg"), layers = [...box.querySelectorAll("path.ly")];
  const status = box.querySelector("p"), columns = data.total.length;
  const line = (kind) => {
    const made = document.createElementNS(SVG, "line");
    for (const [name, value] of [["class", kind], ["y1", 0], ["y2", data.height]]) made.setAttribute(name, value);
    return made;
  };
  const cursor = line("at"), pinned = line("at"), host = h("div"), list = h("div", { class: "themed" });
  let at = null, pin = null, isLong = false, lines = new Set();
  host.attachShadow({ mode: "open" }).append(h("style", {}, THEME + ALIVE_CSS), list);
  list.hidden = true;
  box.append(host);
  pinned.setAttribute("stroke-width", 2);
  drawing.setAttribute("aria-label", `${drawing.getAttribute("aria-label")}. Arrow keys move, Enter lists the blocks alive there, Escape goes back`);

  const put = (mark, column) => {
    const x = ((column + 0.5) * data.width) / columns;
    mark.setAttribute("x1", x);
    mark.setAttribute("x2", x);
    drawing.querySelector("g").append(mark);
  };
  const move = (to) => {
    at = Math.min(Math.max(to, 0), columns - 1);
    put(cursor, at);
    const parts = data.layers.map(([name, held]) => [name, held[at]]).filter(([, held]) => held > 0).sort((a, b) => b[1] - a[1]);
    const seconds = (((at + 0.5) * data.seconds) / columns).toPrecision(3);
    status.textContent = `at ${seconds} s: ${shown(data.total[at])} ${data.unit}` +
      (parts.length ? ` = ${parts.map(([name, held]) => `${name} ${shown(held)}`).join(", ")}` : "");
  };
  const leave = () => {
    at = null;
    cursor.remove();
    status.textContent = "";
  };

  // ---- what is alive at a moment

  const unpin = () => { pin = null; pinned.remove(); list.hidden = true; };
  const written = (bytes) => number(bytes / data.size, data.size > 1024 ? 3 : 0);
  const draw = () => {
    const alive = aliveAt(pin, data), { rows, rest } = alive, few = isLong ? rows : rows.slice(0, MOST_ROWS), others = rows.slice(few.length);
    const row = ({ owner, size, blocks }) => {
      const [name, key] = data.owners[owner];
      const where = key ? h("button", { type: "button", class: "code", onclick: () => choose(box, [key], name) }, name) : name;
      return h("tr", { class: key && lines.has(key) ? "shown" : "" }, ...[where, exact(blocks), exact(size), written(size * blocks)].map((cell) => h("td", {}, cell)));
    };
    const left = others.reduce((sum, one) => ({ blocks: sum.blocks + one.blocks, bytes: sum.bytes + one.size * one.blocks }), { ...rest });
    const more = left.blocks ? [h("p", { class: "foot" }, `${count(left.blocks)} more hold ${written(left.bytes)} ${data.unit}${rest.blocks ? `, ${exact(rest.blocks)} of them too small to list` : ""}.`)] : [];
    const older = alive.older ? ` ${exact(alive.older)} bytes of blocks from before the cell were freed by then: the curve is lower by these.` : "";
    const unseen = data.blocks.unseen ? ` ${count(data.blocks.unseen)} were allocated and freed between the moments shown.` : "";
    list.replaceChildren(
      h("p", { class: "sentence" }, h("span", { role: "status" }, `alive at ${number(data.moments[pin], 6)} s, the peak of this column: ${count(alive.blocks)}, ${exact(alive.bytes)} bytes`),
        rows.length > MOST_ROWS ? h("button", { type: "button", class: "act", onclick: () => { isLong = !isLong; draw(); } }, isLong ? "only the largest" : `all ${exact(rows.length)} rows`) : null,
        h("button", { type: "button", class: "act", onclick: () => { unpin(); drawing.focus(); } }, "close")),
      h("div", { class: isLong ? "pane long" : "pane", tabindex: isLong ? 0 : false, role: isLong ? "region" : false, "aria-label": isLong ? "live blocks" : false }, h("table", {}, h("thead", {}, h("tr", {}, ...[["allocated at", ""], ["blocks", ""], ["each", "bytes"], ["together", data.unit]].map(([name, unit]) => h("th", { scope: "col" }, name, h("small", {}, unit || "\u00a0"))))),
        h("tbody", {}, ...few.map(row)))),
      ...more,
      h("p", { class: "foot" }, `Not included: what NumPy, Python and libraries hold, and blocks from before the cell.${older}${unseen}`));
    list.hidden = false;
    Object.assign(box.dataset, { alive: alive.blocks, aliveBytes: alive.bytes, older: alive.older });
  };
  const choosing = () => {
    if (at === null || !data.blocks) return;
    pin = at;
    put(pinned, pin);
    draw();
  };

  // ---- what is chosen in another view: its lines' layers and blocks

  box.addEventListener("torchbench:show", ({ detail }) => {
    const chosen = byKind(detail.chosen).line ?? byKind(detail.keys).line ?? new Set();
    lines = chosen;
    const mine = data.layers.map(([, , key]) => Boolean(key) && chosen.has(key)), isAny = mine.some(Boolean);
    layers.forEach((layer, nth) => { layer.style.opacity = detail.chosen.length && isAny && !mine[nth] ? 0.25 : ""; });
    const own = data.owners.filter(([, key]) => key && chosen.has(key)).map(([name]) => name);
    status.textContent = !detail.chosen.length ? "" : `${detail.label}: ${own.length ? `blocks of ${own.slice(0, 4).join(", ")}${own.length > 4 ? ` and ${own.length - 4} more lines` : ""}` : "no block"}`;
    if (pin !== null) draw();
  });

  drawing.addEventListener("pointermove", (event) => {
    const place = drawing.getBoundingClientRect();
    const x = ((event.clientX - place.left) * drawing.viewBox.baseVal.width) / place.width - data.left;
    if (x < 0 || x > data.width) leave();
    else move(Math.floor((x / data.width) * columns));
  });
  drawing.addEventListener("click", choosing);
  drawing.addEventListener("pointerleave", leave);
  drawing.addEventListener("blur", leave);
  drawing.addEventListener("keydown", (event) => {
    if (event.key in STEPS) move(at === null ? (STEPS[event.key] > 0 ? 0 : columns - 1) : at + STEPS[event.key]);
    else if (event.key === "Home" || event.key === "End") move(event.key === "Home" ? 0 : columns - 1);
    else if (event.key === "Enter") choosing();
    else if (event.key === "Escape" && pin !== null) unpin();
    else if (event.key === "Escape" && at !== null) leave();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  box.setAttribute("data-lm-suppress-shortcuts", "true");
}
