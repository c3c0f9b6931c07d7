"""What the alternatives of a run read: the inputs that tell it from a run on others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchbench_magic.core.code.values_read import without_changed
from torchbench_magic.results.timing.values_read import variable_of

from ..timing_task import Read, Task

__all__ = ["InputsRead"]


class InputsRead:
    """The inputs of each alternative, as setup left them and as the caller gave them.

    Args:
        task: what is asked.
        made: names that the sweep's point makes, which are its axes and no inputs.
    """

    def __init__(self, task: Task, made: set[str]) -> None:
        self._task = task
        self._read: dict[str, Read] = {}
        self._given = {name: _without(made, read) for name, read in task.given.items()}

    def note(self, names: Mapping[str, Any]) -> None:
        """Note what the alternatives read in these names, after the setup."""
        self._read = dict(self._task.read(names))

    def drop_changed(self, names: Mapping[str, Any]) -> None:
        """A list that the code fills, or whatever else is not as it was, is no input of it."""
        if not self._read:
            return
        now, given_now = self._task.read(names), self._task.given_now()
        both = (self._read, now), (self._given, given_now)
        changed = {
            one[0]
            for then, after in both
            for name, read in then.items()
            for one in read.inputs
            if one not in after[name].inputs
        }
        for name, read in self._read.items():
            given, first = self._given[name], self._task.given[name]  # a setup changes some too
            pairs = (read.values, now[name].values), (first.values, given_now[name].values)
            roots = {variable_of(value[0]) for then, after in pairs for value in set(then) ^ set(after)}
            self._read[name] = _kept(read, changed, roots)
            self._given[name] = _kept(given, changed, roots)

    def of(self, name: str) -> dict[str, Any]:
        """The fields of an alternative's subject; empty where the names are not known, as in C++."""
        read, given = self._read.get(name, Read((), ())), self._given[name]
        return {"inputs": read.inputs, "values": read.values, "given": given.inputs, "given_values": given.values}


def _without(names: set[str], read: Read) -> Read:
    """What was read but for some names, whatever attribute or item of them."""
    values = (value for value in read.values if variable_of(value[0]).partition(".")[0] not in names)
    return Read(tuple(one for one in read.inputs if one[0] not in names), tuple(values))


def _kept(read: Read, changed: set[str], roots: set[str]) -> Read:
    return Read(tuple(one for one in read.inputs if one[0] not in changed), without_changed(read.values, roots))
