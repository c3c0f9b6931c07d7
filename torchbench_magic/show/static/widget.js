// anywidget's render(): what table.js draws, from a model that Python can change.
//
// Sorting needs no kernel; what the controls round the table do, Python does. If it does not answer they are switched
// off and a line says so, until it does.

import { h } from "./makers.js";
import { mount } from "./table_explorer.js";

const PATIENCE = 2000; // ms
const SILENT = "The session does not answer (busy, restarted or ended), so the controls are off. The table stays and can be "
  + "sorted. Run the cell again to use the controls.";
const NEXT = "margin:8px 0 0;padding:1px 0 1px 9px;border-left:3px solid #cf4f2c;font:12.5px/19px var(--jp-ui-font-family,sans-serif);"
  + "color:var(--jp-ui-font-color1,inherit)";

// A status line, and a function that asks Python for a sign of life. Each control of the box that el is in asks too. A
// front end that knows of no kernel, now or when it draws this, marks the views (ipywidgets' class).
function listening(model, el) {
  const line = h("p", { role: "status", style: NEXT, hidden: true });
  let waiting = null;
  const box = () => el.closest(".torchbench-live");
  const say = (text) => {
    if (line.textContent === text) return;
    line.textContent = text;
    line.hidden = !text;
    for (const controls of box()?.querySelectorAll(".torchbench-controls") ?? []) controls.inert = Boolean(text);
  };
  const silent = () => { clearTimeout(waiting); waiting = null; say(SILENT); };
  const look = () => setTimeout(() => {
    if (!model.get("answers") || !el.isConnected) return;
    if (el.closest(".jupyter-widgets-disconnected")) silent();
  });
  const heard = (message) => {
    if (message?.type !== "here") return;
    clearTimeout(waiting);
    waiting = null;
    say("");
  };
  const ask = () => {
    if (waiting !== null || !model.get("answers")) return;
    waiting = setTimeout(silent, PATIENCE);
    try { model.send({ type: "asked" }); } catch { silent(); } // the front end knows already
  };
  const used = (event) => {
    if (box()?.contains(event.target) && !el.contains(event.target) && event.target.matches("input,select,button,button *")) ask();
  };
  model.on("msg:custom", heard);
  model.on("comm_live_update", look);
  const shown = new ResizeObserver(look); // when it comes on the page
  shown.observe(el);
  for (const kind of ["input", "change", "click"]) document.addEventListener(kind, used, true);
  const stop = () => {
    clearTimeout(waiting);
    model.off("msg:custom", heard);
    model.off("comm_live_update", look);
    shown.disconnect();
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
      const spec = model.get("spec");
      if (!spec.tables) return; // a busy page may draw the widget before it has read what Python sent next
      unmount();
      unmount = mount(host, { ...spec, selectable: true, state: structuredClone(model.get("state")) }, chosen);
      const pane = host.shadowRoot.querySelector(".pane");
      if (pane) pane.scrollTop = top;
      if (had) host.shadowRoot.querySelector("tr[aria-selected=true]")?.focus({ preventScroll: true });
    };
    model.on("change:spec", redraw);
    redraw();
    return () => { model.off("change:spec", redraw); stop(); unmount(); };
  },
};
