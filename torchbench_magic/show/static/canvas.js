// What the pictures on one canvas have in common: colours, where the pointer is, how they are mounted.
// All is drawn in a shadow root; what stands in the light DOM of el (a table) is shown on demand.

import { THEME, h, textScale } from "./makers.js";
import { choose } from "./chosen.js";

// Bars and frames carry text: their colours are mixed with the background.
export const HUED = `
.hued{
 --line:color-mix(in srgb,#8b9097 28%,var(--bg));--torch:color-mix(in srgb,#2468b0 50%,var(--bg));
 --python:color-mix(in srgb,#d28a1a 44%,var(--bg));--backward:color-mix(in srgb,#c583c4 50%,var(--bg));
 --memory:color-mix(in srgb,#2ca184 50%,var(--bg))}
.sentence{margin:0 0 8px;overflow-wrap:anywhere}canvas{display:block;width:100%}
.key{display:inline-flex;gap:5px;align-items:center;margin-right:10px}.key i{width:9px;height:9px;display:inline-block}
summary{cursor:pointer;font-size:11.5px;color:var(--ink2);margin-top:6px;width:max-content}`;

// Where an event is on a canvas, in the px that it is drawn in (the page may be zoomed).
export function inside(event, canvas) {
  const seen = canvas.getBoundingClientRect(), scale = canvas.clientWidth / (seen.width || 1);
  return { x: (event.clientX - seen.left) * scale, y: (event.clientY - seen.top) * scale };
}

// Draw a picture (its box, its pane, draw()) into the shadow root of el, and anew whenever its size or the theme changes.
// What is chosen in another view of the result comes to its follow(chosen, label); choose(keys, label) says what is here.
// Returns what takes it away again. Make the picture before: where that fails the table stays.
export function mounted(el, picture, css) {
  const root = el.shadowRoot ?? el.attachShadow({ mode: "open" });
  el.setAttribute("data-lm-suppress-shortcuts", "true"); // keys of the canvas are not a notebook's shortcuts
  if (textScale() !== 1) picture.box.style.zoom = textScale();
  root.replaceChildren(h("style", {}, THEME + HUED + css), picture.box);
  const redraw = () => picture.draw();
  const size = new ResizeObserver(redraw); // also when it comes into sight
  size.observe(picture.pane);
  const theme = new MutationObserver(redraw), scheme = matchMedia("(prefers-color-scheme: dark)");
  theme.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-name", "data-jp-theme-light", "data-vscode-theme-kind"] });
  scheme.addEventListener("change", redraw);
  const shown = ({ detail }) => detail.from !== el && picture.follow(detail.chosen, detail.label);
  el.addEventListener("torchbench:show", shown);
  picture.el = el;
  picture.choose = (keys, label) => choose(el, keys, label);
  picture.draw();
  return () => {
    size.disconnect();
    theme.disconnect();
    scheme.removeEventListener("change", redraw);
    el.removeEventListener("torchbench:show", shown);
    root.replaceChildren();
  };
}
