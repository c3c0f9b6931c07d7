"""The box around all views of one result on a page: what is chosen in one of them is shown by the others."""

from __future__ import annotations

import uuid
from weakref import WeakKeyDictionary

__all__ = ["box_class", "boxed"]

_names: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def box_class(result: object) -> str:
    """A class of elements for this result alone, as long as it is there: ``torchbench-of-3f2a9c1d44aa``."""
    if result not in _names:
        _names[result] = f"torchbench-of-{uuid.uuid4().hex[:12]}"
    return _names[result]


def boxed(fragment: str, result: object | None) -> str:
    """The fragment as views of ``result``; as it is for None."""
    return fragment if result is None else f"<div class={box_class(result)}>{fragment}</div>"
