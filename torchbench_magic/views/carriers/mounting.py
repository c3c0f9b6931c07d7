"""What a module of ``static/`` draws: its element, and the script that leaves the data of it on the page."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from html import escape

from ..document import printable
from .page_modules import data_script, packed_text

__all__ = ["attribute", "drawing_id", "fitted", "mounted", "script_data", "stored"]


def mounted(
    kind: str, label: str, still: str, module: str, data: Callable[[int], str], *, most_bytes: int, slot: str = ""
) -> tuple[str, str]:
    """(the element that is drawn in; the script with its data). `page_modules.with_modules` adds what draws it.

    Args:
        kind: class of the element.
        label: its name for assistive technology.
        still: markup in it that is read where no script runs.
        module: name of the module, which exports ``mount(element, data)``.
        data: bytes that there is room for -> `script_data` of what is drawn; see `fitted`.
        most_bytes: of both parts together as a notebook stores them, about.
        slot: a place in the shadow root of the element that this one is put into.
    """
    name = drawing_id()
    slotted = f' slot="{attribute(slot)}"' if slot else ""
    element = f'<div id="{name}" class="{kind}"{slotted} role="figure" aria-label="{attribute(label)}">{still}</div>'
    room = most_bytes - stored(element) - 300
    script = data_script(module, name, packed_text(data(room)))
    while stored(script) > room > 300:  # what does not compress is a third longer as base64
        room = room * 9 // 10
        script = data_script(module, name, packed_text(data(room)))
    return element, script


def drawing_id() -> str:
    """A name for an element that no other output has."""
    return f"torchbench-{uuid.uuid4().hex[:12]}"


def fitted(data: Callable[[int], str], room: int, most: int, least: int, *, is_packed: bool = False) -> str:
    """The data of ``most`` parts, or of as many as ``room`` bytes hold, packed or as they are; of ``least`` anyway."""
    while True:
        text = data(most)
        taken = len(packed_text(text)) if is_packed else stored(text)
        if taken <= room or most <= least:
            return text
        most = max(least, int(most * min(0.95, 0.97 * room / taken)))


def script_data(value: object) -> str:
    """JSON that is safe inside a script element too: no ``<``, U+2028 or U+2029 is in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent to a front end
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def stored(text: str) -> int:
    """Bytes of ``text`` in a notebook file, where it stands as a JSON string itself."""
    return len(text.encode("utf-8", "replace")) + text.count('"') + text.count("\\") + text.count("\n")


def attribute(text: str) -> str:
    """User text as it may stand in an attribute or an element."""
    return escape(printable(text), quote=True)
