// A table that can be copied: as TSV, as markdown, by the keyboard. Every table can.

import { h } from "./makers.js";
import { asMarkdown, asTsv, copy } from "./copied_rows.js";
import { TableView } from "./table_view.js";

const COPIES_STYLE = `
.acts{float:right;display:inline-flex;gap:14px;margin:0 0 6px 14px}::slotted([slot=picture]){clear:both}.acts [role=status]:empty{display:none}
.copied{display:block;width:100%;margin:6px 0;font:12px/18px var(--mono);color:var(--ink1);background:var(--bg);border:1px solid var(--rule1)}`;

export class CopiesView extends TableView {
  static get css() { return COPIES_STYLE; }

  equip() {
    this.pane.addEventListener("copy", (event) => this.copied(event));
    this.acts = h("span", { class: "acts" }, ...[["copy TSV", asTsv], ["copy markdown", asMarkdown]].map(([words, as]) => this.copier(words, as)), h("span", { role: "status" }));
  }

  copier(words, as) {
    const button = h("button", { type: "button", class: "act", onclick: () => copy(as(this.spec, this.ordered), button, (text) => { this.acts.lastChild.textContent = text; }) }, words);
    return button;
  }

  // Of a keyboard: all rows, where none is selected as text or all that are drawn are; else those that are.
  copied(event) {
    const selection = this.pane.getRootNode().getSelection?.() ?? document.getSelection();
    const drawn = this.items.filter((item) => item.row && this.drawn.get(item.id)?.isConnected);
    const touched = selection?.isCollapsed === false ? drawn.filter((item) => selection.containsNode(this.drawn.get(item.id), true)).map((item) => item.row) : [];
    if (selection?.isCollapsed === false && touched.length < 2) return; // words of a cell
    event.clipboardData.setData("text/plain", asTsv(this.spec, !touched.length || touched.length === drawn.length ? this.ordered : touched));
    event.preventDefault();
  }
}
