"""What the alternatives of a run read: the inputs that tell it from a run on others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchbench_magic.core.code.values_read import Values, without_changed
from torchbench_magic.results.timing.values_read import variable_of

from ..task import Inputs, Task, without

__all__ = ["InputsRead"]


class InputsRead:
    """The inputs of each alternative, as setup left them and as the caller gave them.

    Args:
        task: what is asked.
        made: names that the sweep's point makes, which are its axes and no inputs.
    """

    def __init__(self, task: Task, made: set[str]) -> None:
        self._task = task
        self._read: Mapping[str, Inputs] = {}
        self._given: Mapping[str, Inputs] = {name: without(made, read) for name, read in task.given.items()}
        self._values: Mapping[str, Values] = {}
        self._given_values = {name: _without(made, read) for name, read in task.given_values.items()}

    def note(self, names: Mapping[str, Any]) -> None:
        """Note what the alternatives read in these names, after the setup."""
        self._read, self._values = self._task.inputs(names), self._task.values(names)

    def drop_changed(self, names: Mapping[str, Any]) -> None:
        """A list that the code fills, or whatever else is not as it was, is no input of it."""
        now, given_now = (self._task.inputs(names), self._task.given_now()) if self._read else ({}, {})
        changed = {one[0] for name, read in self._read.items() for one in read if one not in now[name]}
        given = self._given if self._read else {}
        changed |= {one[0] for name, read in given.items() for one in read if one not in given_now[name]}
        self._read = {name: without(changed, read) for name, read in self._read.items()}
        self._given = {name: without(changed, read) for name, read in self._given.items()}
        found, values = (self._task.values(names), self._task.values_now()) if self._values else ({}, {})
        for name, read_then in self._values.items():
            pairs = (read_then, found[name]), (self._task.given_values[name], values[name])  # a setup changes some too
            roots = {variable_of(value[0]) for then, after in pairs for value in set(then) ^ set(after)}
            self._values = {**self._values, name: without_changed(read_then, roots)}
            self._given_values[name] = without_changed(self._given_values[name], roots)

    def of(self, name: str) -> dict[str, Inputs | Values]:
        """The fields of an alternative's subject; empty where the names are not known, as in C++."""
        values = {"values": self._values.get(name, ()), "given_values": self._given_values[name]}
        return {"inputs": self._read.get(name, ()), "given": self._given[name], **values}


def _without(names: set[str], read: Values) -> Values:
    """The values but for those of some names, whatever attribute or item of them."""
    return tuple(value for value in read if variable_of(value[0]).partition(".")[0] not in names)
