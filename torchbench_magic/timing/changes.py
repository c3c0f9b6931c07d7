"""What timed code changes: tensors in place, inputs that grow, what it prints; watched around each block."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from torchbench_magic import units
from torchbench_magic.process.code import variables_read
from torchbench_magic.process.freed_memory import resident_now
from torchbench_magic.process.machine import memory_facts
from torchbench_magic.process.output import CountingSink
from torchbench_magic.process.settings import modes
from torchbench_magic.process.static_introspection import is_plain_tensor
from torchbench_magic.result_base import Doubt

from .iterators import at_end, is_used_up, rewinder, second_copy
from .repeat_state import seen_of
from .restore import HeldState, container_of, version

# ---- supplies --------------------------------------------------------------------------------------------------------
# What calls use up, print, or keep in memory, and what slows them all.


def _is_empty(value: Any) -> bool | None:
    held = container_of(value)
    return None if held is None else not held


_USED_UP: tuple[tuple[str, Callable[[Any], bool | None], Callable[[Any], object]], ...] = (
    ("ended", is_used_up, second_copy),
    ("read", at_end, rewinder),
    ("empty", _is_empty, lambda _: True),
)
"""How a thing is used up; whether it is (None: there is no such thing in it); what puts it back with ``--restore``."""


class Supplies:
    """What calls may use up, so that a later one fails: iterators and files that have not ended, containers that are
    not empty, and graphs, of which torch says it.

    Args:
        reached: (label, object).
    """

    def __init__(self, reached: Iterable[tuple[str, Any]]) -> None:
        things = {id(value): (label, value) for label, value in reached}.values()
        self._left = [(how, *thing, is_gone, back) for thing in things for how, is_gone, back in _USED_UP
                      if is_gone(thing[1]) is False]  # fmt: skip

    def used_up(self, error: Exception) -> tuple[str, str, bool] | None:
        """(how, label, whether ``--restore`` could put it back) of the first that is used up now; of a graph where that
        is the error."""
        if isinstance(error, RuntimeError) and "backward through the graph a second time" in str(error):
            return "graph", "", False
        gone = ((how, label, back(value) is not None) for how, label, value, is_gone, back in self._left
                if is_gone(value))  # fmt: skip
        return next(gone, None)


def prints(sink: CountingSink) -> list[Doubt]:
    """Say what the timed code printed, logged and displayed."""
    amounts = {"characters": sink.characters, "displays": sink.dropped["displays"], "widgets": sink.dropped["widgets"]}
    of = {"characters": "character", "displays": "displayed output", "widgets": "widget message"}
    found = [f"{n:,} {of[kind]}{'' if n == 1 else 's'}" for kind, n in amounts.items() if n]
    if not found:
        return []
    text = f"Output after the first call was dropped ({', '.join(found)}), so the times do not include showing it."
    return [Doubt("prints", text, "", amounts)]


def slowed_by(hooks: Iterable[str]) -> list[Doubt]:
    """Say what this process calls for every line, call or allocation, and torch's modes that see every operation."""
    import torch

    found = [*hooks, *(["torch.autograd.set_detect_anomaly(True)"] if torch.is_anomaly_enabled() else [])]
    found += [kind.words(value, []) for kind in modes() if (value := kind.read())]
    if not found:
        return []
    text = f"Active in this session, and slowing or changing the timed code: {', '.join(found)}. Ratios change, too."
    way = "Switch it off and measure again, unless you want to measure with it."
    return [Doubt("hooks", text, way, {"active": found})]


class MemoryGuard:
    """Notices a body that keeps what it allocates, before the machine runs out of memory."""

    def __init__(self, read: Callable[[], tuple[int, int, int] | None] | None = None) -> None:
        self._read = read if read is not None else read_memory
        first = self._read()
        self._start = first[0] if first else 0

    def check(self) -> Doubt | None:
        """A doubt when this process has grown and less than a tenth of the machine's memory is left."""
        now = self._read()
        if now is None:
            return None
        own, available, total = now
        grown = own - self._start
        if available > total / 10 or grown < total / 10:
            return None
        return Doubt(
            "memory",
            f"Stopped early: the code keeps {grown / 2**30:.1f} GiB more than at its start, and"
            f" {available / 2**30:.1f} GiB of memory are left.",
            "",
            {"grown": grown, "available": available},
        )


def read_memory() -> tuple[int, int, int] | None:
    """(resident bytes of this process, available bytes, total bytes); None where /proc does not tell."""
    own, known = resident_now(), memory_facts()
    left, total = known.get("MemAvailable"), known.get("MemTotal")
    return (own, left, total) if own and left is not None and total is not None else None


# ---- in_place --------------------------------------------------------------------------------------------------------
# What timed code does to the tensors that it shares with the notebook: they are changed in place.

class TensorVersions:
    """The in-place versions (``tensor._version``) of every tensor that some code may read, at one moment.

    Some operations change a tensor and do not count it (running statistics of a batch norm, the state of a fused
    optimizer, whatever goes through ``.data``): so values are compared too, all of a small tensor, some of a large one.

    Args:
        names: that the code reads, of ``namespace``.
        functions: of the notebook, that it may call.
        reached: (label, object) of what it reaches besides.
    """

    def __init__(
        self,
        names: Iterable[str],
        namespace: Mapping[str, Any],
        functions: Iterable[FunctionType],
        reached: Iterable[tuple[str, Any]] = (),
    ) -> None:
        read = variables_read(names, namespace, functions)
        self.held = HeldState([*sorted(read.items()), *reached])
        self._before = [(label, t, version(t), seen_of(t).digest) for label, t in self.held.tensors.values()]
        leaves = [(f"{label}.grad", t) for label, t in self.held.tensors.values() if is_plain_tensor(t) and t.is_leaf]
        # by weak references: code that clears gradients is to free them
        kept = [(label, t, t.grad) for label, t in leaves if t.requires_grad]
        self._grads = [(label, t, g if g is None else weakref.ref(g), version(g)) for label, t, g in kept]

    @property
    def devices(self) -> set[str]:
        """Device of each tensor, as "cpu" or "cuda:0"."""
        return {str(tensor.device) for _, tensor, _, _ in self._before}

    @property
    def with_gradients(self) -> list[Any]:
        """Tensors that backward passes leave gradients in."""
        return [tensor for _, tensor, _, _ in self._grads]

    def changed(self, calls: int = 0) -> dict[str, int]:
        """Label -> in-place changes since this record was made, for the tensors that have any, and those that an
        optimizer or a module got since; 0 where nobody counted them.

        Args:
            calls: that were made since: a gradient that is new counts only where as many calls were added to it, less
                one that made it. One that each call makes anew does not.
        """
        found = {}
        for label, tensor, before, digest in self._before:
            counted = version(tensor) - before
            if counted or seen_of(tensor).digest != digest:
                found[label] = counted
        for label, tensor, was, counted in self._grads:
            is_same = tensor.grad is (was() if was is not None else None)
            added = version(tensor.grad) - (counted if is_same else 0)
            if added > 0 and (is_same or added >= calls - 1 > 0):
                found[label] = added
        now = self.held.again()
        new = now.kept_state - self.held.tensors.keys()
        return found | {label: version(tensor) for at, (label, tensor) in now.tensors.items() if at in new}


def in_place(
    changes: Mapping[str, int], calls: Mapping[str, int], readers: Mapping[str, Collection[str]]
) -> Iterator[Doubt]:
    """Say which tensors the timed code changed, and how often: of all calls of the alternatives that read them.

    Args:
        changes: label -> times, as `TensorVersions.changed`.
        calls: alternative -> calls.
        readers: variable -> the alternatives that may read it; one that is not there may be read by all.
    """
    groups: dict[frozenset[str], dict[str, int]] = {}
    for label, times in changes.items():
        variable = re.match(r"\w*", label)
        group = frozenset(readers.get(variable[0] if variable is not None else "", calls))
        groups.setdefault(group, {})[label] = times
    for group, found in groups.items():
        yield _in_place(found, sum(calls[name] for name in group), is_shared=len(group) > 1)


def _in_place(changes: Mapping[str, int], calls: int, *, is_shared: bool) -> Doubt:
    names = sorted(changes, key=lambda n: -changes[n])
    shown = ", ".join(f"`{n}`" for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    most = changes[names[0]]
    how_often = (
        f"changed in place {units.count(most)} times in {units.count(calls)} calls"
        if most
        else f"changed in place in {units.count(calls)} calls"
    )
    clause = f"{shown} {how_often}"
    return Doubt(
        "in-place",
        f"{clause}: names are restored after each call, objects are"
        f" not{', and the alternatives share them' if is_shared else ''}.",
        "",
        {
            "changes": dict(changes),
            "calls": calls,
            "clause": clause + (", shared by the alternatives" if is_shared else ""),  # of the line that shows it
        },
    )
