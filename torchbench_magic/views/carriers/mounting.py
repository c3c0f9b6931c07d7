"""What a module of ``static/`` draws: its element, the data beside it, and the script that brings the two together."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.resources import files

from ..document import printable

__all__ = ["attribute", "fitted", "mounted", "script", "script_data", "stored"]


def mounted(
    kind: str, label: str, still: str, module: str, data: Callable[[int], str], *, most_bytes: int, slot: str = ""
) -> tuple[str, str]:
    """(the element that is drawn in; the scripts that draw it).

    Args:
        kind: class of the element.
        label: its name for assistive technology.
        still: markup in it that is read where no script runs.
        module: text of the module, which defines ``mount(element, data)``.
        data: bytes that there is room for -> `script_data` of what is drawn; see `fitted`.
        most_bytes: of both parts together as a notebook stores them, about.
        slot: a place in the shadow root of the element that this one is put into.
    """
    name = f"torchbench-{uuid.uuid4().hex[:12]}"
    slotted = f' slot="{attribute(slot)}"' if slot else ""
    element = f'<div id="{name}" class="{kind}"{slotted} role="figure" aria-label="{attribute(label)}">{still}</div>'
    run = (
        f'{module}\nconst host = document.getElementById("{name}");\n'
        f'if (host) mount(host, JSON.parse(document.getElementById("{name}-spec").textContent));\n'
    )
    found = data(most_bytes - stored(element) - stored(run) - 300)
    scripts = f'<script type="application/json" id="{name}-spec">{found}</script><script type="module">{run}</script>'
    return element, scripts


def fitted(data: Callable[[int], str], room: int, most: int, least: int) -> str:
    """The data of ``most`` parts, or of as many as ``room`` bytes hold; of ``least`` in any case."""
    while True:
        text = data(most)
        taken = stored(text)
        if taken <= room or most <= least:
            return text
        most = max(least, int(most * min(0.95, 0.97 * room / taken)))


def script_data(value: object) -> str:
    """JSON that is safe inside a script element: no ``<``, U+2028 or U+2029 is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent to a front end
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def script(*names: str) -> str:
    """Modules of ``static/`` one after the other, as they may stand in a script element."""
    folder = files("torchbench_magic.views").joinpath("static")
    text = "".join(folder.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in names)
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError(f"{', '.join(names)}: holds a text that ends a script element")
    return text


def stored(text: str) -> int:
    """Bytes of ``text`` in a notebook file, where it stands as a JSON string itself."""
    return len(text.encode("utf-8", "replace")) + text.count('"') + text.count("\\") + text.count("\n")


def attribute(text: str) -> str:
    """User text as it may stand in an attribute or an element."""
    return escape(printable(text), quote=True)
