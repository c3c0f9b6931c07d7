"""Statements that only make a generator or a coroutine: ``f(x)`` of a generator function runs none of its code."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from torchbench_magic.core.code.callables import kind_of_function
from torchbench_magic.results.cell_text import Body
from torchbench_magic.results.doubts import Doubt

__all__ = ["only_made"]


def only_made(bodies: Mapping[str, Body], names: Mapping[str, Any]) -> Iterator[Doubt]:
    """Say of each call that stands as a statement by itself, and whose function is a generator or coroutine function,
    that its code is not what is timed. Nothing is called to find out, and no attribute that computes is asked.

    Args:
        bodies: name of the alternative -> what is timed.
        names: what the statements find.
    """
    for name, body in bodies.items():
        for node in ast.parse(body.source, type_comments=False).body:
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
                continue
            kind = kind_of_function(_found(node.value.func, names))
            if kind is None:
                continue
            call = ast.unparse(node.value)
            of = f"{name}: " if len(bodies) > 1 else ""
            way = f"list({call})" if kind == "generator" else f"await {call}"
            way = "a loop over it" if kind == "async generator" else f"`{way}`"
            article = "an" if kind.startswith("a") else "a"
            text = f"{of}`{call}` only creates {article} {kind}: its code does not run and is not timed."
            yield Doubt("only-made", text, f"Time {way}.", {"name": name, "kind": kind})


def _found(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """What a name, or attributes of one, stand for; None where that is not known without running code."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if not isinstance(node, ast.Attribute):
        return None
    owner = _found(node.value, names)
    if owner is None:
        return None
    if isinstance(owner, ModuleType):
        return vars(owner).get(node.attr)
    found = inspect.getattr_static(owner, node.attr, None)
    return found.__func__ if isinstance(found, classmethod | staticmethod) else found
