"""What timed code does to the tensors that it shares with the notebook: they are changed in place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from torchbench_magic import units
from torchbench_magic.core.code.code_reads import variables_read
from torchbench_magic.results.doubts import Doubt

from .restoring.held_state import HeldState
from .restoring.state_copies import hold_equal_values, version

__all__ = ["TensorVersions", "in_place"]

_SMALL, _SOME = 16_384, 4_096
"""Elements of a tensor up to which all are compared, and how many of a larger one: 0.1 ms and 16 KiB."""


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
        self._before = [(label, t, version(t), _some_values(t)) for label, t in self.held.tensors.values()]

    @property
    def devices(self) -> set[str]:
        """Device of each tensor, as "cpu" or "cuda:0"."""
        return {str(tensor.device) for _, tensor, _, _ in self._before}

    def changed(self) -> dict[str, int]:
        """Label -> in-place changes since this record was made, for the tensors that have any, and those that an
        optimizer or a module got since; 0 where nobody counted them."""
        found = {}
        for label, tensor, before, values in self._before:
            counted = version(tensor) - before
            if counted or (values is not None and not hold_equal_values(_some_values(tensor), values)):
                found[label] = counted
        now = self.held.again()
        new = now.kept_state - self.held.tensors.keys()
        return found | {label: version(tensor) for at, (label, tensor) in now.tensors.items() if at in new}


def _some_values(tensor: Any) -> Any:
    """A copy of all values of a small tensor, of some of a large one; None of one that does not have them at hand."""
    import torch

    try:
        with torch.no_grad():
            if tensor.is_meta or tensor.layout is not torch.strided:
                return None
            if tensor.numel() <= _SMALL:
                return tensor.detach().clone()
            where = torch.arange(0, tensor.numel(), tensor.numel() // _SOME | 1, device=tensor.device)
            return torch.take(tensor.detach(), where)
    except (RuntimeError, NotImplementedError, TypeError):
        return None


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
    return Doubt(
        "in-place",
        f"{shown} {how_often}: names are restored after each call, objects are"
        f" not{', and the alternatives share them' if is_shared else ''}.",
        "",
        {"changes": dict(changes), "calls": calls},
    )
