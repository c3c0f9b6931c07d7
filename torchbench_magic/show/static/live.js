// The line over a measurement that runs: what is under way, how far it is, Stop. anywidget's render() only.
//
// Stop is drawn only where it works: a message sent while a cell runs reaches Python at once only over a subshell.
// So the line says hello when it is drawn, and Python answers with `can_stop` if it hears that before the cell ends.
// The front end starts its subshell meanwhile, and what is sent before that waits for the cell: hello is said again.

const CSS = `
.bar{--ink1:var(--jp-ui-font-color1,var(--vscode-foreground,#212428));--ink2:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#666b72));
 --rule1:var(--jp-border-color1,var(--vscode-panel-border,#bfc3c8));--brand:var(--jp-brand-color1,var(--vscode-focusBorder,#1f6fb2));
 display:flex;align-items:center;gap:14px;height:24px;white-space:nowrap;color:var(--ink1);
 font:13px/20px var(--jp-ui-font-family,var(--vscode-font-family,sans-serif));font-variant-numeric:tabular-nums lining-nums}
.what,.way{overflow:hidden;text-overflow:ellipsis;min-width:0}.what{flex:0 1 auto}.time{color:var(--ink2);flex:none}.way{color:var(--ink2);font-size:11.5px;flex:0 2 auto}
.track{flex:0 0 120px;height:8px;border-bottom:1px solid var(--rule1)}.track i{display:block;height:8px;background:var(--brand)}
button{font:inherit;font-size:11.5px;line-height:18px;flex:none;color:var(--ink1);background:none;border:1px solid var(--rule1);border-radius:3px;padding:0 8px;cursor:pointer}
button:focus-visible{outline:2px solid var(--brand)}button[disabled]{color:var(--ink2);cursor:default}`;

const HELLOS = [0, 500, 1500, 4000, 10000]; // ms after it is drawn

const seconds = (value) => value.toFixed(1);

function drawn() {
  const root = document.createElement("div");
  root.className = "bar";
  root.innerHTML = '<span class="what" role="status"></span><span class="track" role="progressbar" aria-label="time measured"><i></i></span>'
    + '<span class="time"></span><button type="button" hidden>Stop</button><span class="way"></span>';
  return root;
}

export default {
  render({ model, el }) {
    const host = el.attachShadow({ mode: "open" }), style = document.createElement("style"), root = drawn();
    style.textContent = CSS;
    host.append(style, root);
    const [what, track, time, stop, way] = root.children;
    let asking; // Stop was pressed
    const isLost = () => el.closest(".jupyter-widgets-disconnected") !== null;
    const show = () => {
      const done = model.get("done"), total = model.get("total");
      what.textContent = what.title = model.get("what");
      track.hidden = total === null;
      if (total !== null) {
        track.firstChild.style.width = `${Math.min(100, (100 * done) / Math.max(total, 1e-9))}%`;
        for (const [name, value] of [["now", done], ["min", 0], ["max", total]]) track.setAttribute(`aria-value${name}`, seconds(value));
      }
      time.textContent = total === null ? `${seconds(done)} s` : `${seconds(done)} of ${seconds(total)} s, ${seconds(Math.max(total - done, 0))} s left`;
      stop.hidden = !model.get("can_stop");
      stop.disabled = model.get("stopping") || asking !== undefined;
      stop.textContent = model.get("stopping") ? "stopping" : "Stop";
      way.textContent = way.title = model.get("can_stop") ? "keeps partial results" : "interrupt the kernel to stop and keep partial results";
      if (!isLost()) return;
      what.textContent = what.title = "The session ended before this measurement did. Run the cell again.";
      time.textContent = way.textContent = "";
      track.hidden = stop.hidden = true;
      clearTimeout(asking);
    };
    const ask = () => { // until Python says that it has heard
      if (model.get("stopping")) return;
      model.send({ type: "stop" });
      asking = setTimeout(ask, 1000);
    };
    stop.addEventListener("click", () => { stop.disabled = true; ask(); });
    const look = () => { setTimeout(show); }; // the front end marks the view in the same turn
    model.on("change", show);
    model.on("comm_live_update", look);
    show();
    const hellos = HELLOS.map((wait) => setTimeout(() => { if (!model.get("can_stop")) model.send({ type: "hello" }); }, wait));
    return () => { [...hellos, asking].forEach(clearTimeout); model.off("change", show); model.off("comm_live_update", look); };
  },
};
