"""Switches of objects that the alternatives share: what one sets there, another may run with.

What the process has is put back between alternatives (`isolation`); what their objects have is not, since nobody knows
what else belongs to it. A model that one section turns to bfloat16, or to evaluation, is so for all. Looked at are the
switches: flags and words of modules, of users' own objects and dicts, dtype and device of parameters. Numbers are not:
they count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .reached import Reached, own_attributes

__all__ = ["SharedState"]


class SharedState:
    """Watches the switches of what at least two alternatives reach.

    An alternative sets a switch where a call of it leaves another value than it found. It inherits one where it finds
    another value than the setup left and leaves that as it is: then it was timed in the state of another.

    Args:
        reads: alternative -> what it reaches.
    """

    def __init__(self, reads: Mapping[str, Mapping[int, Reached]]) -> None:
        counts: dict[int, int] = {}
        for found in reads.values():
            for at in found:
                counts[at] = counts.get(at, 0) + 1
        everything = {at: item for found in reads.values() for at, item in found.items()}
        self._items = {name: {at for at in found if counts[at] > 1} for name, found in reads.items()}
        self._shared = {at: item for at, item in everything.items() if counts[at] > 1}
        self._first = self._now()
        self._found = self._first
        self._sets: dict[str, set[str]] = {name: set() for name in reads}
        self._inherits: dict[str, set[str]] = {name: set() for name in reads}

    def begin(self) -> None:
        """Calls of an alternative begin."""
        self._found = self._now()

    def end(self, name: str) -> None:
        """They have ended."""
        for key, value in self._now().items():
            if key not in self._first or key not in self._found or name not in self._sets:
                continue
            if value != self._found[key]:
                self._sets[name].add(key)
            elif value != self._first[key]:
                self._inherits[name].add(key)

    def inherited(self, name: str) -> list[str]:
        """The switches that an alternative was timed with as another one had set them."""
        by_others = {key for other, keys in self._sets.items() if other != name for key in keys}
        return sorted((self._inherits.get(name, set()) & by_others) - self._sets.get(name, set()), key=len)[:1]

    def _now(self) -> dict[str, object]:
        return {key: value for item in self._shared.values() for key, value in _switches(item)}


def _switches(item: Reached) -> Iterator[tuple[str, object]]:
    """(how the code would say it, value) of each switch of an object."""
    value = item.value
    if type(value) is dict:
        yield from _plain(value, lambda key: f"{item.label}[{key!r}]")
        return
    if _is_module(value):
        yield from _of_module(item.label, value)
        return
    held = own_attributes(value)
    if held is not None:
        yield from _plain(held, lambda key: f"{item.label}.{key}")


def _of_module(label: str, module: Any) -> Iterator[tuple[str, object]]:
    """Of a module itself (those within it are reached by themselves) and of its configuration."""
    inside = vars(module)
    yield from _plain(inside, lambda key: f"{label}.{key}")
    for name, parameter in (inside.get("_parameters") or {}).items():
        if parameter is not None:
            yield f"{label}.{name}.dtype", (str(parameter.dtype), str(parameter.device))
            yield f"{label}.{name}.requires_grad", bool(parameter.requires_grad)
    config = inside.get("config")
    held = getattr(config, "__dict__", None)
    if type(held) is dict:
        yield from _plain(held, lambda key: f"{label}.config.{key}")


def _plain(held: Mapping[Any, Any], said: Any) -> Iterator[tuple[str, object]]:
    for key, value in list(held.items()):
        if type(key) is str and (value is None or type(value) in (bool, str)):
            yield said(key), value


def _is_module(value: Any) -> bool:
    import torch

    return issubclass(type(value), torch.nn.Module)
