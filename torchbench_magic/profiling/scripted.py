"""What TorchScript's functions may leave running when they return, read in their graphs.

Nothing at run time tells which call launched the work of a `torch.jit.fork`. The graphs tell which calls cannot have:
those without a fork, and those that wait for each of their forks before they return.

Assumed of torch (2.13; the sources of 2.15 have the same): functions and methods that Python scripts or traces live
in ``torch.jit._state._python_cu``, those of a loaded file in its modules; ``prim::fork`` has its body as
``Subgraph``. What is missing or unknown makes a function one that may leave work behind.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_KNOWN = ("aten::", "prim::")  # what calls back into Python, and ops of others, may launch anything
_PYTHON = "prim::PythonOp"


@dataclass(frozen=True)
class Scripted:
    """Names of scripted functions, as the profiler shows them (without their module).

    Attributes:
        without_forks: all functions of the name launch nothing.
        waiting: all functions of the name wait for what they launch.
    """

    without_forks: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Facts:
    calls: frozenset[str]  # names of the functions that it calls, forked ones included
    forks: bool
    waits: bool  # for each of its forks
    known: bool


def read_scripted() -> Scripted:
    """Read all scripted functions of this process."""
    of_name: defaultdict[str, list[_Facts]] = defaultdict(list)
    for name, function in _functions():
        try:
            of_name[name].append(_facts(function.graph))
        except RuntimeError:  # torch's, of a function that has no graph
            of_name[name].append(_Facts(frozenset(), forks=True, waits=False, known=False))
    known = {name for name, all_of_it in of_name.items() if all(facts.known for facts in all_of_it)}
    waiting = _that_call_only({n for n in known if all(f.waits for f in of_name[n])}, of_name)
    without = _that_call_only({n for n in waiting if not any(f.forks for f in of_name[n])}, of_name)
    return Scripted(frozenset(without), frozenset(waiting))


def _functions() -> Iterator[tuple[str, Any]]:
    import torch

    unit = getattr(getattr(torch.jit, "_state", None), "_python_cu", None)
    if unit is not None and hasattr(unit, "get_functions"):
        for function in unit.get_functions():
            yield function.name, function
    for each in gc.get_objects():  # by type: asking an object for its class may run code of its own
        if issubclass(type(each), torch.jit.ScriptModule) and "_c" in vars(each):
            for name in each._c._method_names():
                yield name, each._c._get_method(name)


def _that_call_only(names: set[str], of_name: Mapping[str, Iterable[_Facts]]) -> set[str]:
    """The largest part of ``names`` whose functions call nothing outside it."""
    while True:
        kept = {name for name in names if all(facts.calls <= names for facts in of_name[name])}
        if kept == names:
            return kept
        names = kept


def _facts(graph: Any) -> _Facts:
    calls: set[str] = set()
    forks, waits, known = False, True, True
    for nodes in _blocks(graph):
        waited = {_only(node.inputs()) for node in nodes if node.kind() == "aten::wait"}
        for node in nodes:
            kind = node.kind()
            known &= kind.startswith(_KNOWN) and kind != _PYTHON and not kind.startswith("prim::rpc_")
            if kind == "prim::fork":
                forks, waits = True, waits and _only(node.outputs()) in waited
            elif kind == "prim::CallMethod":
                calls.add(node.s("name"))
            elif kind == "prim::CallFunction":
                callee = next(iter(node.inputs())).node()
                known &= callee.hasAttribute("name")
                calls |= {callee.s("name")} if callee.hasAttribute("name") else set()
    return _Facts(frozenset(calls), forks, waits, known)


def _only(values: Iterable[Any]) -> str:
    return str(next(iter(values)).debugName())


def _blocks(graph: Any) -> Iterator[list[Any]]:
    """The nodes of each block; those of branches, loops and forked functions are blocks of their own."""
    nodes = list(graph.nodes())
    yield nodes
    for node in nodes:
        for block in node.blocks():
            yield from _blocks(block)
        if node.hasAttribute("Subgraph"):
            yield from _blocks(node.g("Subgraph"))
