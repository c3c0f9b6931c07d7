// A button that opens a picture in a page of its own: one that can be saved as a file, and fetches nothing.
//
// In an output the page is made of what drew the picture: its element, the script with its data, and the script that
// brought its modules. In a widget it is made of the model's own module and its data (canvas_widget.js says what).

import { h } from "./makers.js";

const HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
  + "<style>:root{color-scheme:light dark}body{margin:16px 20px}@media (prefers-color-scheme:dark){body{background:#111;color:#dfe1e4}}</style>";

const safe = (text) => text.replace(/[&<]/g, (sign) => (sign === "&" ? "&amp;" : "&lt;"));
const inScript = (value) => JSON.stringify(value).replace(/</g, "\\u003c");

// The text of the page, or null: what drew the picture is not on this page.
function pageOf(picture) {
  const { el, spec } = picture, head = `${HEAD}<title>${safe(spec.title)}</title><body><main><h1 style="font:600 15px sans-serif;margin:0 0 12px">${safe(spec.title)}</h1>`;
  if (spec.esm) {
    const given = inScript({ ...spec, esm: undefined });
    return `${head}<div id="picture"></div></main><script type="module">const given = ${given};
const made = await import(URL.createObjectURL(new Blob([${inScript(spec.esm)}], { type: "text/javascript" })));
made.default.render({ model: { get: (name) => ({ spec: given })[name] ?? {}, set() {}, save_changes() {}, on() {}, off() {} }, el: document.getElementById("picture") });
<\/script></body></html>`;
  }
  const scripts = [...document.scripts], data = scripts.find((one) => one.dataset.needs && one.textContent.includes(`['${el.id}',`));
  const brings = data && scripts.find((one) => one.dataset.brings?.split(",").includes(data.dataset.needs));
  if (!brings) return null;
  const alone = el.cloneNode(true);
  alone.removeAttribute("slot");
  return `${head}${alone.outerHTML}</main>${data.outerHTML}${brings.outerHTML}</body></html>`;
}

export function pageButton(picture) {
  const open = () => {
    const text = pageOf(picture);
    if (text === null) { picture.said.textContent = "The script that draws this is not on the page: .to_html(path) writes the file."; return; }
    const url = URL.createObjectURL(new Blob([text], { type: "text/html" }));
    if (!window.open(url, "_blank")) h("a", { href: url, download: "picture.html" }).click(); // no windows here: a file
  };
  return h("button", { type: "button", class: "act", title: "open the picture in a page of its own, which can be saved as a file", onclick: open }, "open in a new page");
}
