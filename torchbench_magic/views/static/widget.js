// anywidget's render(): what table.js draws, from a model that Python can change.
//
// Sorting needs no kernel; what the controls round the table do, Python does. If it does not answer, a line says so.

import { h } from "./makers.js";
import { mount } from "./table.js";

const PATIENCE = 2000; // ms
const SILENT = "The kernel does not answer: it is busy, was restarted or has ended. What is drawn stays and can be sorted; "
  + "for the controls run the cell again.";
const NEXT = "margin:8px 0 0;padding:1px 0 1px 9px;border-left:3px solid #cf4f2c;font:12.5px/19px var(--jp-ui-font-family,sans-serif);"
  + "color:var(--jp-ui-font-color1,inherit)";

// A status line, and a function that asks Python for a sign of life. Each control of the box that el is in asks too.
function listening(model, el) {
  const line = h("p", { role: "status", style: NEXT, hidden: true });
  let waiting = null;
  const say = (text) => { line.textContent = text; line.hidden = !text; };
  const silent = () => { waiting = null; say(SILENT); };
  const heard = (message) => {
    if (message?.type !== "here") return;
    clearTimeout(waiting);
    waiting = null;
    say("");
  };
  const ask = () => {
    if (waiting !== null || !model.get("answers")) return;
    waiting = setTimeout(silent, PATIENCE);
    try { model.send({ type: "asked" }); } catch { clearTimeout(waiting); silent(); } // the front end knows already
  };
  const used = (event) => {
    const box = el.closest(".widget-vbox");
    if (box?.contains(event.target) && !el.contains(event.target) && event.target.matches("input,select,button,button *")) ask();
  };
  model.on("msg:custom", heard);
  for (const kind of ["input", "change", "click"]) document.addEventListener(kind, used, true);
  const stop = () => {
    clearTimeout(waiting);
    model.off("msg:custom", heard);
    for (const kind of ["input", "change", "click"]) document.removeEventListener(kind, used, true);
  };
  return { line, ask, stop };
}

export default {
  render({ model, el }) {
    const host = h("div"), { line, ask, stop } = listening(model, el);
    el.append(host, line);
    let unmount = () => {};
    const chosen = (state) => {
      model.set("state", structuredClone(state));
      try { model.save_changes(); } catch { /* no kernel: ask() says so */ }
      ask();
    };
    const redraw = () => {
      const before = host.shadowRoot, had = before?.activeElement?.matches("tr"), top = before?.querySelector(".pane")?.scrollTop ?? 0;
      unmount();
      unmount = mount(host, { ...model.get("spec"), selectable: true, state: structuredClone(model.get("state")) }, chosen);
      const pane = host.shadowRoot.querySelector(".pane");
      if (pane) pane.scrollTop = top;
      if (had) host.shadowRoot.querySelector("tr[aria-selected=true]")?.focus({ preventScroll: true });
    };
    model.on("change:spec", redraw);
    redraw();
    return () => { model.off("change:spec", redraw); stop(); unmount(); };
  },
};
