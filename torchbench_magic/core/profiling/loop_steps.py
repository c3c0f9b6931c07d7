"""Makes each iteration of a cell's loop a step, for ``--steps``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchbench_magic.errors import BodyError

__all__ = ["mark_loop"]

_OWN_SCOPE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_PACKAGE, _, _STEPS = "torchbench_magic.core.profiling.recording.steps".partition(".")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def mark_loop(tree: ast.Module) -> ast.Module:
    """The body with its only outermost loop telling `steps` where an iteration begins; lines stay as they are.

    Raises:
        BodyError: there is none, or more than one.
    """
    found = list(_outermost(tree))
    if len(found) != 1:
        lines = ", ".join(str(each.lineno) for each in found)
        has = f"has {len(found)} (lines {lines})" if found else "has none"
        raise BodyError(
            f"--steps records iterations of the one loop at the top level of the cell, and this cell {has}: "
            "call torchbench_magic.step() at the end of each step, and give --schedule instead"
        )
    (loop,) = found
    loop.body = [made for statement in loop.body for made in _with_breaks(statement)]
    if isinstance(loop, ast.While):
        parts = [_call("going()", loop.test), loop.test, _call("left(True)", loop.test)]
        loop.test = ast.copy_location(ast.BoolOp(ast.Or(), parts), loop.test)
    else:
        name = "loop" if isinstance(loop, ast.For) else "loop_async"
        called = _call(f"{name}(None)", loop.iter)
        called.args = [loop.iter]
        loop.iter = called
    return ast.fix_missing_locations(tree)


def _outermost(node: ast.AST) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _LOOPS):
            yield child
        elif not isinstance(child, _OWN_SCOPE):
            yield from _outermost(child)


def _call(text: str, at: ast.expr) -> ast.Call:
    """A call of a function of `steps`, wherever the code runs; no name is added to its namespace.

    The package is asked for by itself: an import with a ``fromlist`` takes eight times as long, in each round of a
    ``while``. Who runs the code has imported the module.
    """
    found = ast.parse(f"__import__({_PACKAGE!r}).{_STEPS}.{text}", mode="eval").body
    assert isinstance(found, ast.Call)
    for node in ast.walk(found):
        if isinstance(node, ast.expr):
            ast.copy_location(node, at)
            node.end_lineno, node.end_col_offset = at.lineno, at.col_offset
    return found


def _with_breaks(statement: ast.stmt) -> list[ast.stmt]:
    """``statement``, in which a ``break`` of the loop first says that the loop is left, on the same line."""
    if isinstance(statement, ast.Break):
        place = ast.copy_location(ast.Name("_"), statement)
        return [ast.copy_location(ast.Expr(_call("left()", place)), statement), statement]
    if isinstance(statement, _OWN_SCOPE):
        return [statement]
    inner = ("orelse",) if isinstance(statement, _LOOPS) else ("body", "orelse", "finalbody")
    for name in inner:
        if isinstance(getattr(statement, name, None), list):
            made = [each for part in getattr(statement, name) for each in _with_breaks(part)]
            setattr(statement, name, made)
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        part.body = [each for one in part.body for each in _with_breaks(one)]
    return [statement]
