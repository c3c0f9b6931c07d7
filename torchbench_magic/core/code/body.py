"""From a piece of a cell's text to code that runs, with the cell's own file name and visible line numbers.

A magic's body is compiled behind as many empty lines as stand above it in the cell, under the file name that
the cell itself has. So tracebacks, syntax errors and line events name the line that the user sees. Nothing
here knows IPython: compiler flags (a ``from __future__ import`` of an earlier cell) and AST transformers are
given by the caller.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torchbench_magic.results.cell import Body

__all__ = ["CompiledBody", "TransformAst", "compile_body", "parse_body"]

TransformAst = Callable[[ast.Module], ast.Module]


@dataclass(frozen=True)
class CompiledBody:
    """Code of one body, its trailing expression split off as an interactive cell does.

    Attributes:
        code: the statements before the trailing expression.
        last: the trailing expression, or None.
        is_coroutine: the body awaits at its top level; ``run`` refuses it, ``run_async`` takes both kinds.
        body: what was compiled.
    """

    code: CodeType
    last: CodeType | None
    is_coroutine: bool
    body: Body

    def run(self, namespace: dict[str, Any]) -> Any:
        """Run in ``namespace``; the value of the trailing expression, or None without one."""
        __tracebackhide__ = True
        if self.is_coroutine:
            raise RuntimeError("a body with a top-level await needs run_async")
        exec(self.code, namespace)
        return None if self.last is None else eval(self.last, namespace)

    async def run_async(self, namespace: dict[str, Any]) -> Any:
        """As ``run``, within a running event loop."""
        __tracebackhide__ = True
        await _finish(self.code, eval(self.code, namespace))
        return None if self.last is None else await _finish(self.last, eval(self.last, namespace))


async def _finish(code: CodeType, value: Any) -> Any:
    __tracebackhide__ = True
    return await value if _awaits(code) else value


def _awaits(code: CodeType | None) -> bool:
    return code is not None and bool(code.co_flags & inspect.CO_COROUTINE)


def parse_body(body: Body, *, flags: int = 0, transform_ast: TransformAst | None = None) -> ast.Module:
    """Parse ``body`` with its visible line numbers, top-level await allowed.

    Args:
        flags: compiler flags (``__future__`` features) of the session.
        transform_ast: applied to the tree, as IPython's AST transformers are to a cell.

    Raises:
        SyntaxError: the user's, with the visible line and the cell's file.
    """
    __tracebackhide__ = True
    padded = "\n" * (body.first_line - 1) + body.source
    only_ast = flags | ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.Module = compile(padded, body.file, "exec", only_ast, dont_inherit=True)
    return tree if transform_ast is None else transform_ast(tree)


def compile_body(body: Body, *, flags: int = 0, transform_ast: TransformAst | None = None) -> CompiledBody:
    """Compile ``body`` to run once, as a cell does.

    Raises:
        SyntaxError: the user's, with the visible line and the cell's file.
    """
    __tracebackhide__ = True
    tree = parse_body(body, flags=flags, transform_ast=transform_ast)
    trailing: ast.Expression | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last_statement = tree.body.pop()
        assert isinstance(last_statement, ast.Expr)
        trailing = ast.Expression(last_statement.value)

    def compiled(node: ast.Module | ast.Expression, mode: str) -> CodeType:
        __tracebackhide__ = True
        await_allowed = flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(node, body.file, mode, await_allowed, dont_inherit=True)
        return code

    code = compiled(tree, "exec")
    last = None if trailing is None else compiled(trailing, "eval")
    return CompiledBody(code, last, _awaits(code) or _awaits(last), body)
