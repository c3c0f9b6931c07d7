"""Inputs of a point, a sweep's axis or a fuzzer's tensor, that no code reads: then all points time the same."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.core.code.bound_names import bound_names
from torchbench_magic.core.code.code_reads import BY_TEXT, globals_read, names_used
from torchbench_magic.core.code.timed_loop import Block
from torchbench_magic.results.doubts import Doubt

from ..points.sweep import Point
from ..timing_task import Task

__all__ = ["given_names", "unused_inputs"]


def given_names(point: Point | None, made: Mapping[str, Any]) -> dict[str, str]:
    """Name -> what it is, of each input that a point varies: a fuzzer's parameters only where it makes no tensors."""
    import torch

    if point is None:
        return {}
    axes = {name: f"The sweep's axis `{name}`" for name, _ in point.axes}
    drawn = {name: value for name, value in made.items() if name not in axes}
    tensors = [name for name, value in drawn.items() if isinstance(value, torch.Tensor)]
    return axes | {name: f"The fuzzer's `{name}`" for name in tensors or drawn}


def unused_inputs(
    given: Mapping[str, str], task: Task, blocks: Iterable[Block], functions: Iterable[FunctionType]
) -> Iterator[Doubt]:
    """Say which of the names ``given`` neither setup, nor a body, nor a notebook's function that it calls reads."""
    if not given:
        return
    codes: list[CodeType] = [function.__code__ for function in functions]
    read = {name for code in codes for name in globals_read(code)}
    texts = {name for block in blocks for name in block.names}
    overwritten: set[str] = set()
    for part in task.setup:
        of_part = [code for body in task.compiled([part]) for code in (body.code, body.last) if code is not None]
        overwritten |= _bound_first(part.source)
        read |= {name for code in of_part for name in globals_read(code)} - overwritten
        codes += of_part
    read |= {name for block in blocks for name in block.inputs} - overwritten
    texts |= {name for code in codes for name in names_used(code)}
    if texts & BY_TEXT:  # it may read one by a text, in which it is not looked for
        return
    for name, what in given.items():
        if name not in read:
            yield Doubt(
                "unused-input",
                f"{what} is not used by the setup or a statement, so all its values give the same time.",
                f"Use `{name}` in the setup or in a statement, or leave it out.",
                {"name": name},
            )


def _bound_first(text: str) -> set[str]:
    """Names that code binds before it reads them: it does not read what was given."""
    names = bound_names(ast.parse(text))
    return names.bound - names.reset
