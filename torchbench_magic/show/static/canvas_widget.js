// anywidget's render() for a picture on a canvas: the same drawing from a model that Python can change.
// It stands after the module of the picture, whose `mount` it calls.

export default {
  render({ model, el }) {
    let unmount = () => {};
    const redraw = () => {
      unmount();
      const spec = { ...model.get("spec"), state: structuredClone(model.get("state")), esm: model.get("_esm") };
      unmount = mount(el, spec, (state) => {
        model.set("state", structuredClone(state));
        try { model.save_changes(); } catch { /* no kernel: nobody reads it, and the picture goes on */ }
      });
    };
    model.on("change:spec", redraw);
    redraw();
    return () => { model.off("change:spec", redraw); unmount(); };
  },
};
