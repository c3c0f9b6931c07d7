"""What the code calls an optimizer, and whether that name is known where the backward pass is run.

A helper (``def step(o): o.step()``) has a name of its own for it: the loop cannot use it, and what would clear the
gradients in the helper, just before the step, would delete them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from ....insights import CodeLine
from ...profile import Profile
from ...source_texts import Source
from ..source_trees import FUNCTIONS, bound_in, call_name, calls_in, parsed_text, place_in

__all__ = ["OptimizerName", "optimizer_at"]

_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)


@dataclass(frozen=True)
class OptimizerName:
    """
    Attributes:
        name: on the line that steps it; empty where that does not say.
        is_known: the lines of the loop's backward passes know it by this name too.
        helper: the function that alone knows it by this name; empty for none.
        given: what the loop calls it, where that is the only one which it can be; else empty.
    """

    name: str = ""
    is_known: bool = False
    helper: str = ""
    given: str = ""

    @property
    def in_loop(self) -> str:
        """What the line of the backward pass can call it; empty where that is not known."""
        return self.name if self.is_known else self.given

    def __str__(self) -> str:
        if self.given:
            return f"`{self.given}`"
        if self.helper:
            return f"an optimizer (the `{self.name}` of `{self.helper}`)"
        return f"`{self.name}`" if self.name else "an optimizer"


def optimizer_at(profile: Profile, where: CodeLine, backward: Iterable[CodeLine]) -> OptimizerName:
    """What steps on a line: of ``a.step()`` and ``scaler.step(a)`` ``a``.

    Args:
        backward: the lines that run the loop's backward passes.
    """
    stepped = _stepped_at(profile, where)
    if stepped is None:
        return OptimizerName()
    name, lines, source = ast.unparse(stepped), tuple(backward), profile.sources[where.source_id]
    scope = _scope_of(source, stepped, where.line)
    if _is_known(scope, source, lines):
        return OptimizerName(name, is_known=True)
    if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        return OptimizerName(name)
    return OptimizerName(name, helper=scope.name, given=_given(profile, scope, name, lines))


def _stepped_at(profile: Profile, where: CodeLine) -> ast.Name | ast.Attribute | None:
    place = place_in(profile.sources.get(where.source_id), where.line)
    calls = calls_in(place.head) if place is not None else []
    steps = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "step"]
    if len(steps) != 1 or not isinstance(steps[0].func, ast.Attribute):
        return None
    of = steps[0].func.value
    if steps[0].args and "scaler" in ast.unparse(of).lower():
        of = steps[0].args[0]
    return of if isinstance(of, ast.Name | ast.Attribute) else None


def _scope_of(source: Source, name: ast.expr, line: int) -> ast.AST | None:
    """The innermost function, loop or class that alone knows a name which is read on ``line``; None for a global.

    A method's first parameter is known in all of its class.
    """
    while isinstance(name, ast.Attribute):
        name = name.value
    tree, number = parsed_text(source.text), line - source.first_line + 1
    if tree is None or not isinstance(name, ast.Name):
        return None
    every = list(ast.walk(tree))
    methods = {id(each): kind for kind in every if isinstance(kind, ast.ClassDef) for each in kind.body}
    for each in reversed(every):  # the innermost first: `ast.walk` meets them from outside
        if isinstance(each, _LOOPS) and _spans(each, number) and name.id in bound_in(each.target):
            return each
        if not isinstance(each, (*FUNCTIONS, ast.Lambda)) or not _spans(each, number):
            continue
        if any(isinstance(said, ast.Global) and name.id in said.names for said in ast.walk(each)):
            return None
        if name.id in bound_in(each):
            return methods[id(each)] if id(each) in methods and _parameters(each)[:1] == [name.id] else each
    return None


def _spans(node: ast.AST, number: int) -> bool:
    parts = [node, *ast.iter_child_nodes(node)]
    first = min((part.lineno for part in parts if hasattr(part, "lineno")), default=0)
    last = max((part.end_lineno or 0 for part in parts if hasattr(part, "end_lineno")), default=0)
    return first <= number <= last


def _is_known(scope: ast.AST | None, source: Source, lines: tuple[CodeLine, ...]) -> bool:
    """Whether what is known in ``scope`` is known on one of these lines: a global in all cells, or in its own file."""
    mine = [line.line - source.first_line + 1 for line in lines if line.source_id == source.source_id]
    if scope is None:
        return source.cell is not None or bool(mine)
    return any(_spans(scope, number) for number in mine)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args)]


def _function_at(tree: ast.Module, number: int) -> ast.AST | None:
    """The innermost function around a line; None at the top."""
    around = [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS) and _spans(each, number)]
    return around[-1] if around else None


def _given(
    profile: Profile, helper: ast.FunctionDef | ast.AsyncFunctionDef, parameter: str, lines: tuple[CodeLine, ...]
) -> str:
    """The one variable that a helper is called with and that no ``zero_grad`` of the text clears; empty where there
    is another, or it has no name that the loop knows."""
    if parameter not in _parameters(helper):
        return ""
    at = _parameters(helper).index(parameter)
    given, cleared = set(), set()
    for source in profile.sources.values():
        tree = parsed_text(source.text)
        if tree is None:
            continue
        for call in (each for each in ast.walk(tree) if isinstance(each, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
                cleared.add(ast.unparse(call.func.value))
            if call_name(call) != helper.name:
                continue
            if not _is_known(_function_at(tree, call.lineno), source, lines):
                continue  # of another loop
            named = [each.value for each in call.keywords if each.arg == parameter]
            value = next(iter([*call.args[at:], *named]), None)
            if not isinstance(value, ast.Name | ast.Attribute):
                return ""
            if not _is_known(_scope_of(source, value, call.lineno + source.first_line - 1), source, lines):
                return ""
            given.add(ast.unparse(value))
    left = given - cleared
    return left.pop() if len(left) == 1 else ""
