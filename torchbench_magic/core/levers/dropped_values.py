"""The values of lines whose value nothing takes: ``model(x)`` in a loop. For a trial they are results as others are."""

from __future__ import annotations

import ast
from typing import Any

from .outcomes import detached, holds_numbers

__all__ = ["DroppedValues", "bound_to_what_is_given", "with_dropped_values"]

_SEEN = "__tb_seen"
_NO_WORK = (ast.Constant, ast.Name, ast.Yield, ast.YieldFrom)
_GIVING = frozenset({"enumerate", "iter", "len", "next", "range", "reversed", "zip"})
"""Functions that hand out what they are given."""


class DroppedValues:
    """Collects them during one call, of each line the last.

    Attributes:
        names: to be among those that the body finds, which `with_dropped_values` has changed.
    """

    def __init__(self) -> None:
        self._last: dict[int, Any] = {}
        self.names = {_SEEN: self._see}

    def _see(self, nth: int, value: Any) -> None:
        if value is not None:
            self._last[nth] = value

    def detached(self) -> dict[str, Any]:
        """Label -> value, of those that have numbers in them."""
        values = sorted(self._last.items())
        return {f"the value dropped in place {nth + 1}": detached(v) for nth, v in values if holds_numbers(v)}


def with_dropped_values(tree: ast.Module) -> ast.Module:
    """The module with each value that is dropped handed over first; the last one is taken already."""
    last = tree.body[-1] if tree.body else None
    made: ast.Module = _Handing(last).visit(tree)
    return ast.fix_missing_locations(made)


class _Handing(ast.NodeTransformer):
    def __init__(self, last: ast.stmt | None) -> None:
        self._last, self._count = last, 0

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:  # noqa: N802  # the name that `ast` calls
        if node is self._last or isinstance(node.value, _NO_WORK):
            return node
        arguments = [ast.Constant(self._count), node.value]
        self._count += 1
        call = ast.copy_location(ast.Call(ast.Name(_SEEN, ast.Load()), arguments, []), node.value)
        return ast.copy_location(ast.Expr(call), node)

    def _left_alone(self, node: Any) -> Any:
        """Code that runs when it is called, from wherever: it finds other names."""
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _left_alone  # noqa: N815


def bound_to_what_is_given(tree: ast.Module) -> frozenset[str]:
    """Names that the body binds to nothing but constants, to what a loop hands out, and to other names or parts of
    them: they are the same whatever it computes."""
    given: set[str] = set()
    computed: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.AsyncFor)):
            given |= _names_in(node.target)
        elif isinstance(node, ast.Assign):
            (given if _is_given(node.value) else computed).update(*map(_names_in, node.targets))
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            computed |= _names_in(node.target)
    return frozenset(given - computed)


def _names_in(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _is_given(value: ast.expr) -> bool:
    """Whether it is a constant, a name, or a part of one: nothing is computed but places."""
    if isinstance(value, (ast.Constant, ast.Name)):
        return True
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.operand, ast.Constant)
    if isinstance(value, (ast.Attribute, ast.Subscript, ast.Starred)):
        return _is_given(value.value)
    if isinstance(value, (ast.Tuple, ast.List)):
        return all(map(_is_given, value.elts))
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in _GIVING and all(map(_is_given, value.args))
    return False
