"""What ``--restore`` does not put back and the timed code was seen to change, by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MemberDescriptorType
from typing import Any

from torchbench_magic.core.code.held_values import class_attributes
from torchbench_magic.core.code.reached_objects import ReachedObject, own_attributes, slot_values, slots_among
from torchbench_magic.results.doubts import Doubt

from ..held_contents import ABSENT, differ

__all__ = ["Unrestored", "not_restored"]

_MOST_KEPT, _SHOWN = 100_000, 4


class Unrestored:
    """Attributes and slots of the user's objects, items of their dicts and sets, and globals that functions set.

    Args:
        items: id -> object that the code reaches.
        globals_: (name, the dict that holds it) of the globals that functions of the notebook read.
    """

    def __init__(self, items: Mapping[int, ReachedObject], globals_: Iterable[tuple[str, dict[str, Any]]]) -> None:
        self._kept: list[tuple[str, Any, Any]] = []
        self._slots: list[tuple[str, Any, Mapping[str, MemberDescriptorType], dict[str, Any]]] = []
        for one in items.values():
            if slots := slots_among(class_attributes(type(one.value))):
                self._slots.append((one.label, one.value, slots, dict(slot_values(one.value, slots))))
            own = own_attributes(one.value)
            held = own if own is not None else one.value if type(one.value) in (dict, list, set) else None
            if held is not None and len(held) <= _MOST_KEPT:
                self._kept.append((one.label if own is None else f"{one.label}.", held, held.copy()))
        self._globals = [(name, home, home[name]) for name, home in globals_ if name in home]

    def changed(self, put_back: Collection[int]) -> list[str]:
        """Labels, without those in the dicts and lists whose ids are among ``put_back``."""
        found: dict[str, None] = {}
        for label, held, kept in self._kept:
            if id(held) in put_back:
                continue
            if label.endswith("."):
                names = [n for n in held.keys() | kept.keys() if held.get(n, ABSENT) is not kept.get(n, ABSENT)]
                found.update(dict.fromkeys(f"{label}{name}" for name in sorted(names)))
            elif differ(held, kept):
                found[label] = None
        for label, value, slots, was in self._slots:
            now = dict(slot_values(value, slots))
            names = [name for name in slots if now.get(name, ABSENT) is not was.get(name, ABSENT)]
            found.update(dict.fromkeys(f"{label}.{name}" for name in sorted(names)))
        found.update(dict.fromkeys(name for name, home, was in self._globals if home.get(name, ABSENT) is not was))
        return list(found)


def not_restored(labels: Iterable[str], late: Iterable[str] = ()) -> list[Doubt]:
    """Say by name what was left changed, and what was put back only after the last block."""
    labels, late = sorted(dict.fromkeys(labels)), list(dict.fromkeys(late))
    said = []
    if labels:
        text = (
            f"{_names(labels)} changed, and `--restore` does not put {_them(labels)} back: later blocks did not start"
            " from the same state."
        )
        action = f"Set {_them(labels)} at the beginning of the body."
        said.append(Doubt("not-restored", text, action, {"names": labels}))
    if late:
        text = (
            f"{_names(late)} changed during the run in a way that torch does not track, and {_were(late)} put back only"
            " after the last block: some blocks started from a changed state."
        )
        said.append(Doubt("restored-late", text, "", {"names": late}))
    return said


def _names(labels: list[str]) -> str:
    rest = len(labels) - _SHOWN
    return ", ".join(f"`{n}`" for n in labels[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _them(labels: list[str]) -> str:
    return "it" if len(labels) == 1 else "them"


def _were(labels: list[str]) -> str:
    return "was" if len(labels) == 1 else "were"
