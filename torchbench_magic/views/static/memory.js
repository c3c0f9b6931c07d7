// Reads the picture of memory over time at the pointer, or with the arrow keys: the total and what each line holds.
// The picture itself, and every number of its peak, are there without this.

const SVG = "http://www.w3.org/2000/svg";
const STEPS = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20 };

const shown = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 }).replace(/,/g, "\u202f").replace("-", "\u2212");

export function mount(box, data) {
  const drawing = box.querySelector("svg");
  const status = box.querySelector("p"), count = data.total.length;
  const cursor = document.createElementNS(SVG, "line");
  cursor.setAttribute("class", "at");
  cursor.setAttribute("y1", 0);
  cursor.setAttribute("y2", data.height);
  let at = null;

  const move = (to) => {
    at = Math.min(Math.max(to, 0), count - 1);
    const x = ((at + 0.5) * data.width) / count;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    drawing.querySelector("g").append(cursor);
    const parts = data.layers.map(([name, held]) => [name, held[at]]).filter(([, held]) => held > 0).sort((a, b) => b[1] - a[1]);
    const seconds = (((at + 0.5) * data.seconds) / count).toPrecision(3);
    status.textContent = `at ${seconds} s: ${shown(data.total[at])} ${data.unit}` +
      (parts.length ? ` = ${parts.map(([name, held]) => `${name} ${shown(held)}`).join(", ")}` : "");
  };
  const leave = () => {
    at = null;
    cursor.remove();
    status.textContent = "";
  };

  drawing.addEventListener("pointermove", (event) => {
    const place = drawing.getBoundingClientRect();
    const x = ((event.clientX - place.left) * drawing.viewBox.baseVal.width) / place.width - data.left;
    if (x < 0 || x > data.width) leave();
    else move(Math.floor((x / data.width) * count));
  });
  drawing.addEventListener("pointerleave", leave);
  drawing.addEventListener("blur", leave);
  drawing.addEventListener("keydown", (event) => {
    if (event.key in STEPS) move(at === null ? (STEPS[event.key] > 0 ? 0 : count - 1) : at + STEPS[event.key]);
    else if (event.key === "Home" || event.key === "End") move(event.key === "Home" ? 0 : count - 1);
    else if (event.key === "Escape") leave();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  box.setAttribute("data-lm-suppress-shortcuts", "true");
}
