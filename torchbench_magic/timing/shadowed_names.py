"""Names that setup or timed code binds, while functions that it calls read the notebook's own of that name."""

from __future__ import annotations

import ast
import dis
import math
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.process.code import bound_names, globals_read, names_by, names_used
from torchbench_magic.process.reach import search, texts_used


def shadowed_names(
    bound: Mapping[str, str], functions: Iterable[FunctionType], home: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """(who bound it, "`n`, but `f`") of each name that was bound before the timed code, and that a function of the
    notebook reads, which finds the notebook's own.

    Args:
        bound: name -> "setup", "axis" or "drawn".
        functions: that the timed code may call.
        home: the notebook's names.
    """
    functions = list(functions)
    return tuple(
        (bound[name], f"`{name}`, but `{reader}`")
        for name in sorted(bound)
        for reader in dict.fromkeys(_readers(name, functions, [home]))
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
    mentioned = {*names_used(module), *texts_used(module)}
    reached = cache(lambda roots: search(roots, mentioned, names).functions)
    everywhere = {name for function in reached(frozenset(inputs)) for name in names_used(function.__code__)}
    for name, later in _looked_up_later(module).items():
        if name in imported or name not in everywhere:  # an import binds what it was, as a rule
            continue
        where = [home] if name in bound.shared else [home, names]
        readers = _readers(name, reached(frozenset(later & inputs)), where)
        said |= dict.fromkeys(("own", f"`{name}`, but `{reader}`") for reader in readers)
    return tuple(said)


def _readers(name: str, functions: Iterable[FunctionType], where: Iterable[object]) -> Iterator[str]:
    """The functions that read a global of that name, of those whose globals are among ``where``."""
    for function in functions:
        if any(function.__globals__ is one for one in where) and name in globals_read(function.__code__):
            yield function.__qualname__


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
