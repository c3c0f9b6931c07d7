// What the modules that draw have in common: making elements, numbers, the theme.

// Colours of the notebook's theme, else of VS Code's, else the system's; and what all that is drawn looks like.
export const THEME = `
:host{display:block}
.themed{--bg:var(--jp-layout-color0,var(--vscode-editor-background,#fff));
 --ink0:var(--jp-ui-font-color0,var(--vscode-foreground,#000));--ink1:var(--jp-ui-font-color1,var(--vscode-foreground,#212428));
 --ink2:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#666b72));
 --rule1:var(--jp-border-color1,var(--vscode-panel-border,#bfc3c8));--rule2:var(--jp-border-color2,var(--vscode-panel-border,#e3e5e8));
 --brand:var(--jp-brand-color1,var(--vscode-focusBorder,#1f6fb2));
 --ui:var(--jp-ui-font-family,var(--vscode-font-family,-apple-system,"Segoe UI","Helvetica Neue",Arial,sans-serif));
 --mono:var(--jp-code-font-family,var(--vscode-editor-font-family,Menlo,Consolas,"DejaVu Sans Mono",monospace))}
@media (prefers-color-scheme:dark){.themed{--bg:var(--jp-layout-color0,var(--vscode-editor-background,#111));
 --ink0:var(--jp-ui-font-color0,var(--vscode-foreground,#fff));--ink1:var(--jp-ui-font-color1,var(--vscode-foreground,#dfe1e4));
 --ink2:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#9da2a9));
 --rule1:var(--jp-border-color1,var(--vscode-panel-border,#4d5157));--rule2:var(--jp-border-color2,var(--vscode-panel-border,#2b2e32));
 --brand:var(--jp-brand-color1,var(--vscode-focusBorder,#6cb0e6))}}
.themed{--sel:color-mix(in srgb,var(--brand) 14%,transparent);font:13px/20px var(--ui);font-variant-numeric:tabular-nums lining-nums;color:var(--ink1);background:var(--bg);padding:2px 0 4px}
.themed *{box-sizing:border-box}[hidden]{display:none!important}
.controls{display:flex;flex-wrap:wrap;align-items:center;gap:4px 14px;margin:0 0 8px;font-size:12px;color:var(--ink2);min-height:24px}
.controls .space{flex:1}.code{font-family:var(--mono);font-size:12px}.quiet{color:var(--ink2)}
.seg{display:inline-flex;border:1px solid var(--rule1);border-radius:3px;overflow:hidden;flex:none}
button{font:inherit;color:inherit;background:none;border:0;padding:0;margin:0;cursor:pointer;text-align:inherit}
.seg button{padding:0 8px;line-height:20px;font-size:11.5px;color:var(--ink2)}.seg button+button{border-left:1px solid var(--rule1)}
.seg button[aria-pressed=true]{background:var(--sel);color:var(--ink1)}
button:focus-visible,input:focus-visible,summary:focus-visible,canvas:focus-visible,[tabindex]:focus-visible{outline:2px solid var(--brand);outline-offset:-1px}
input{font:12px/20px var(--mono);color:var(--ink1);background:var(--bg);border:1px solid var(--rule1);border-radius:3px;padding:1px 6px;height:24px;min-width:0}
input::placeholder{color:var(--ink2)}input[aria-invalid=true]{border-color:#cf4f2c}
.foot{margin:8px 0 0;font-size:11.5px;line-height:17px;color:var(--ink2);overflow-wrap:anywhere}`;

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false && value !== "") element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function segments(label, names, pressed, choose) {
  const buttons = names.map((name, at) =>
    h("button", { type: "button", "aria-pressed": String(at === pressed), onclick() {
      buttons.forEach((button, other) => button.setAttribute("aria-pressed", String(other === at)));
      choose(at);
    } }, name));
  return h("span", { class: "seg", role: "group", "aria-label": label }, ...buttons);
}

// Three significant digits, as torchbench_magic.units.number; a zero is ·, less than the column shows is <0.1.
export function number(value, places) {
  if (value === null || value === undefined) return "–";
  if (!value) return "·";
  const size = Math.abs(value), least = 10 ** -places;
  if (Number(size.toFixed(places)) === 0) return value < 0 ? `>−${least.toFixed(places)}` : `<${least.toFixed(places)}`;
  const digits = Math.min(Math.max(2 - Math.floor(Math.log10(size)), 0), places);
  return (value < 0 ? "−" : "") + size.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, "\u202f");
}

// A reader's larger letters: sizes here are px, so all grows as the page's text does.
export const textScale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16 || 1;
