"""What timed code does to the objects it shares with the notebook: tensors changed in place, globals shadowed."""

from __future__ import annotations

import ast
import dis
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic import units
from torchbench_magic.core.code.bound_names import bound_names
from torchbench_magic.core.code.code_reads import globals_read, names_by, notebook_functions, variables_read
from torchbench_magic.results.doubts import Doubt

from .restoring.held_state import HeldState
from .restoring.state_copies import hold_equal_values, version

__all__ = ["TensorVersions", "in_place", "rebound_names", "shadowed_globals"]

_SMALL, _SOME = 16_384, 4_096
"""Elements of a tensor up to which all are compared, and how many of a larger one: 0.1 ms and 16 KiB."""


def shadowed_globals(functions: Iterable[FunctionType], rebound: set[str]) -> Iterator[Doubt]:
    """Warn of each global that setup binds while a notebook function reads the notebook's own."""
    for function in functions:
        for name in sorted(globals_read(function.__code__) & rebound):
            where = function.__qualname__
            yield Doubt(
                "shadowed-global",
                f"setup binds `{name}`, but {where} reads the notebook's own `{name}`.",
                f"Pass it as an argument, or define {where} in the setup section.",
                {"name": name, "function": where},
            )


def rebound_names(
    tree: ast.Module, inputs: Set[str], names: Mapping[str, Any], home: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """("own", "`n`, but `f`") of each name that is bound where a function called afterwards reads another of it.

    What timed code binds is local to the timed loop. A function of the notebook looks for its globals in the notebook,
    and one that the setup made among the names of the run: neither sees what the timed code bound.

    Args:
        tree: of the timed code; it stays as it is.
        inputs: names that an iteration may read of ``names``.
        names: of the run.
        home: those of the notebook, which its functions read.
    """
    bound = bound_names(tree)
    imported = {alias.asname or alias.name.split(".")[0] for alias in _imports(tree)}
    module = compile(tree, "<bound>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    said: dict[tuple[str, str], None] = {}
    for name, later in _looked_up_later(module).items():
        if name in imported:  # binds what it was, as a rule
            continue
        for where in (home,) if name in bound.shared else (home, names):
            for function in notebook_functions(later & inputs, names, where):
                if name in globals_read(function.__code__):
                    said[("own", f"`{name}`, but `{function.__qualname__}`")] = None
    return tuple(said)


def _imports(tree: ast.Module) -> Iterator[ast.alias]:
    return (a for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for a in node.names)


def _looked_up_later(code: CodeType) -> dict[str, set[str]]:
    """Name that code binds -> the names that it may look up after that; functions in it may run at any time."""
    stores: list[tuple[float, str]] = []
    loads: list[tuple[float, str]] = []
    back: list[tuple[int, int]] = []
    for one in dis.get_instructions(code):
        if one.opname in ("STORE_NAME", "STORE_GLOBAL"):
            stores.append((one.offset, one.argval))
        elif one.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            loads.append((one.offset, one.argval))
        elif one.opcode in dis.hasjrel and one.argval < one.offset:
            back.append((one.offset, one.argval))
        elif isinstance(one.argval, CodeType):
            stores += ((-1, name) for name in names_by(one.argval, "STORE_GLOBAL"))
            loads += ((math.inf, name) for name in globals_read(one.argval))
    found: dict[str, set[str]] = {}
    for at, name in stores:
        first = _earliest_again(at, back)
        found.setdefault(name, set()).update(read for there, read in loads if there > first)
    return found


def _earliest_again(at: float, back: Iterable[tuple[int, int]]) -> float:
    """The earliest place that runs after ``at``: loops lead back to their begin."""
    back = [*back]
    first = at
    while (earlier := min((to for start, to in back if start >= first), default=first)) < first:
        first = earlier
    return first


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
