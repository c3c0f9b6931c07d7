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
from typing import Any, TypeVar

from torchbench_magic.results.cell_text import Body

__all__ = [
    "CompiledBody",
    "TransformAst",
    "compile_body",
    "copied_tree",
    "ending_block",
    "parse_body",
    "with_value_taken",
]

TransformAst = Callable[[ast.Module], ast.Module]
Node = TypeVar("Node", bound=ast.AST)


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


_TAKEN = "__tb_value"
_WORDS: tuple[tuple[type[ast.stmt] | tuple[type[ast.stmt], ...], str], ...] = (
    ((ast.With, ast.AsyncWith), "with"),
    ((ast.For, ast.AsyncFor), "for"),
    (ast.While, "while"),
    (ast.If, "if"),
    ((ast.Try, ast.TryStar), "try"),
    (ast.Match, "match"),
)


def with_value_taken(tree: ast.Module) -> ast.Module:
    """The module with the last expression of a trailing ``with`` block (or of one within it) as its own last one.

    Such a block always runs to its end, so there is no doubt which value is meant. Other blocks may run it never or
    many times: a module that ends with one stays as it is.
    """
    block = tree.body
    while block and isinstance(block[-1], (ast.With, ast.AsyncWith)):
        block = block[-1].body
    if block is tree.body or not isinstance(block[-1], ast.Expr):
        return tree
    last = block[-1]
    taken = ast.Assign([ast.Name(_TAKEN, ast.Store())], last.value)
    block[-1] = ast.copy_location(taken, last)
    empty = ast.Assign([ast.Name(_TAKEN, ast.Store())], ast.Constant(None))  # a block may swallow an exception
    value = ast.Expr(ast.Name(_TAKEN, ast.Load()))
    tree.body = [ast.copy_location(empty, tree.body[0]), *tree.body, ast.copy_location(value, last)]
    return ast.fix_missing_locations(tree)


def ending_block(tree: ast.Module) -> str:
    """The word that begins the block which the module ends with; empty where it ends with none."""
    last = tree.body[-1] if tree.body else None
    return next((word for kinds, word in _WORDS if isinstance(last, kinds)), "")


def copied_tree(tree: Node) -> Node:
    """A copy of a tree, of its own fields alone.

    Tracebacks of IPython give each node its parent, and all trees share the nodes of ``Load``, ``Add`` and the like:
    `copy.deepcopy` would copy the whole of another file's tree with it.
    """
    fields = {name: _copied(value) for name, value in ast.iter_fields(tree)}
    return ast.copy_location(type(tree)(**fields), tree)


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return copied_tree(value) if isinstance(value, ast.AST) else value
