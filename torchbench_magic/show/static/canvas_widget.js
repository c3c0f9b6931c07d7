// anywidget's render() for a picture on a canvas: the same drawing from a model that Python can change.
// It stands after the module of the picture, whose `mount` it calls.

export default {
  render({ model, el }) {
    let unmount = () => {};
    const redraw = () => {
      unmount();
      const ask = (message) => model.send?.(message); // for more of what is seen: Python answers by msg:custom
      const spec = { ...model.get("spec"), state: structuredClone(model.get("state")), esm: model.get("_esm"), ask };
      unmount = mount(el, spec, (state) => {
        model.set("state", structuredClone(state));
        try { model.save_changes(); } catch { /* no kernel: nobody reads it, and the picture goes on */ }
      });
    };
    const hear = (message) => el.dispatchEvent(new CustomEvent("torchbench:answer", { detail: message }));
    model.on("change:spec", redraw);
    model.on("msg:custom", hear);
    redraw();
    return () => { model.off("change:spec", redraw); model.off("msg:custom", hear); unmount(); };
  },
};
