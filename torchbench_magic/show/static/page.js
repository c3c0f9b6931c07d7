// What stands first in the text that an output brings to its page (show/javascript.py packs it, each module
// as one `bring` after this). `self.torchbench_magic` has, by name and version of a module, what it exports; before it
// is there, the list of outputs that wait for it, which they push themselves: [id of an element, packed data].

const { unpacked } = document.currentScript; // show/javascript.py leaves it there
const page = (self.torchbench_magic ??= {});

export function bring(name, make) {
  const waiting = page[name];
  if (waiting && !Array.isArray(waiting)) return; // another output has brought it
  const made = make(page), drawn = new WeakSet();
  const push = async ([id, data]) => {
    const text = await unpacked(data);
    for (const el of document.querySelectorAll(`#${id}`)) { // an output may be shown in two places
      if (drawn.has(el)) continue;
      drawn.add(el);
      made.mount(el, JSON.parse(text));
    }
  };
  page[name] = { ...made, push };
  waiting?.forEach(push);
}
