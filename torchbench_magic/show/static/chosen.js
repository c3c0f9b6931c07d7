// What is chosen in one view of a result is shown by all others of it on the page.
//
// A view says what was chosen on its own element: "torchbench:chosen" with {keys, label}, which bubbles out of shadow
// roots; no keys: nothing. Each live view of the result hears "torchbench:show" on its element: {chosen, keys, label},
// where `keys` are those chosen and what runs in or around them by the profile itself, for rows that know no more than
// their own. Keys are "line:In[3]:4", "op:aten::mm", "module:model.0", "frame:forward". Views of one result are in
// elements of one class, torchbench-of-<name>.

const OF = /torchbench-of-(\w+)/;
const hub = (self.torchbench_chosen ??= { links: {}, chosen: {} });

const kindOf = (key) => key.slice(0, key.indexOf(":"));

export function byKind(keys) {
  const kinds = {};
  for (const key of keys) (kinds[kindOf(key)] ??= new Set()).add(key);
  return kinds;
}

export const choose = (el, keys, label) =>
  el.dispatchEvent(new CustomEvent("torchbench:chosen", { bubbles: true, composed: true, detail: { keys, label } }));

// What stands in the rows {op, line, module} of the profile that have all that is chosen; a module has those within it.
function related(keys, links) {
  const kinds = byKind(keys), found = new Set(keys), known = ["op", "line", "module"];
  if (!links || !known.some((kind) => kinds[kind])) return [...found];
  const isIn = (kind, key) => kinds[kind].has(key) || (kind === "module" && [...kinds[kind]].some((one) => key?.startsWith(`${one}.`)));
  for (let i = 0; i < links.op.at.length; i++) {
    const row = known.map((kind) => [kind, links[kind].names[links[kind].at[i]]]).map(([kind, name]) => [kind, name && `${kind}:${name}`]);
    if (row.every(([kind, key]) => !kinds[kind] || isIn(kind, key))) row.forEach(([, key]) => key && found.add(key));
  }
  return [...found];
}

function show(of, { keys, label }, from) {
  hub.chosen[of] = keys.length > 0;
  const links = hub.links[of], left = links?.left_out && keys.length ? ` (without the ${links.left_out} smallest operations)` : "";
  const detail = { chosen: keys, keys: related(keys, links), label: label + left, from };
  for (const view of document.querySelectorAll(`:is(.torchbench-of-${of},.torchbench-of-${of} *)[data-lm-suppress-shortcuts]`)) view.dispatchEvent(new CustomEvent("torchbench:show", { detail }));
}

const resultOf = (el) => el.closest?.("[class*=torchbench-of-]")?.className.match(OF)?.[1];

if (!hub.hears) {
  hub.hears = true;
  document.addEventListener("torchbench:chosen", (event) => {
    const of = resultOf(event.target);
    if (of) show(of, event.detail, event.target);
  });
  document.addEventListener("keydown", (event) => { // a view that goes back a step of its own keeps the key
    if (event.key !== "Escape") return;
    const of = resultOf(event.target);
    for (const each of of ? [of] : Object.keys(hub.chosen)) if (hub.chosen[each]) show(each, { keys: [], label: "" });
  });
}

// What runs where, of the result that el is of: {op, line, module}, of each `names` and a column of their places in it.
export function link(el, links) {
  const of = resultOf(el);
  if (of) hub.links[of] = links;
}
