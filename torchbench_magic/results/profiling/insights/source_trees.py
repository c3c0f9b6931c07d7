"""What the text of a line says: its statement, the loop it stands in, the calls it makes and what those can be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..source_texts import Source

__all__ = [
    "FUNCTIONS",
    "StatementPlace",
    "bound_in",
    "call_name",
    "calls_in",
    "is_torch_call",
    "leaves_for_numpy",
    "place_in",
    "parsed_text",
]

TORCH_ROOTS = frozenset({"torch", "F", "nn"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, eq=False)
class StatementPlace:
    """Where a line stands in its text.

    Attributes:
        statements: those that are on it, in the order of the text: of a compound one its head, and what follows on
            the same line.
        around: the loops and functions around the first of them, the innermost first.
        module: the whole text.
    """

    statements: tuple[ast.stmt, ...]
    around: tuple[ast.stmt, ...]
    module: ast.Module

    @property
    def head(self) -> list[ast.expr]:
        """The expressions that the statements run on their own lines: of a compound one, its head."""
        return [part for each in self.statements for part in _head(each)]

    @property
    def repeated_by(self) -> ast.stmt | None:
        """The innermost loop around it, or else function; None where it is in neither."""
        loops = [each for each in self.around if isinstance(each, _LOOPS)]
        return loops[0] if loops else self.around[0] if self.around else None

    def assigned(self) -> frozenset[str]:
        """Names that may be other values each time it runs: those bound within the loops and functions around it."""
        return frozenset(name for each in self.around for name in bound_in(each))


def place_in(source: Source | None, line: int) -> StatementPlace | None:
    """Where ``line`` of a source stands; None where the text is no Python, or has no statement there."""
    tree = parsed_text(source.text) if source is not None else None
    if source is None or tree is None:
        return None
    number = line - source.first_line + 1
    found = tuple(_on_line(tree.body, number, ()))
    if not found:
        return None
    return StatementPlace(tuple(each for each, _ in found), found[0][1], tree)


def _on_line(
    body: Iterable[ast.stmt], number: int, around: tuple[ast.stmt, ...]
) -> Iterator[tuple[ast.stmt, tuple[ast.stmt, ...]]]:
    """Statements that run something on line ``number``, each with the loops and functions around it."""
    for each in body:
        if not _first(each) <= number <= (each.end_lineno or each.lineno):
            continue
        inside = list(_blocks(each))
        has_head_there = any(part.lineno <= number <= (part.end_lineno or part.lineno) for part in _head(each))
        if not inside or has_head_there or number == each.lineno:
            yield each, around
        deeper = (each, *around) if isinstance(each, (*_LOOPS, *FUNCTIONS)) else around
        yield from _on_line(inside, number, deeper)


@lru_cache(maxsize=64)
def parsed_text(text: str) -> ast.Module | None:
    """The text as Python, with a leading cell magic and lines of magics as comments; lines stay where they are."""
    said = re.sub(r"^(\s*)(%%?[A-Za-z_]|!)", _as_pass, text, flags=re.MULTILINE)
    try:
        return ast.parse(said)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _as_pass(found: re.Match[str]) -> str:
    return f"{found[1]}pass  # " if not found[2].startswith("%%") else f"{found[1]}# "


def _first(node: ast.stmt) -> int:
    decorators: list[int] = [each.lineno for each in getattr(node, "decorator_list", [])]
    return min([*decorators, node.lineno])


def _blocks(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements directly within a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield from (each for each in getattr(node, name, []) if isinstance(each, ast.stmt))
    for name in ("handlers", "cases"):
        for part in getattr(node, name, []):
            yield from part.body


def _head(node: ast.stmt) -> Iterator[ast.expr]:
    inner = set(map(id, _blocks(node)))
    for child in ast.iter_child_nodes(node):
        if id(child) in inner or isinstance(child, ast.ExceptHandler | ast.match_case | ast.arguments):
            continue
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.withitem):
            yield child.context_expr


def bound_in(scope: ast.AST) -> Iterator[str]:
    """Names that running ``scope`` binds, its own parameters included; of a class or function also those in it."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node is not scope:
            yield node.name


def calls_in(expressions: list[ast.expr]) -> list[ast.Call]:
    """All calls, those in arguments too; what stands in a ``lambda`` as well."""
    return [node for each in expressions for node in ast.walk(each) if isinstance(node, ast.Call)]


def call_name(call: ast.Call) -> str:
    """``np.argwhere`` or ``x.numpy``; the last part alone where it is called on another expression; empty where there
    is no name."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return ".".join([node.id, *reversed(parts)])
    return f".{parts[0]}" if parts else ""


def is_torch_call(call: ast.Call) -> bool:
    """Whether it is written as a function of torch: ``torch.ones``, ``F.relu``, ``torch.nn.functional.pad``."""
    root, dot, _ = call_name(call).partition(".")
    return bool(dot) and root in TORCH_ROOTS


def leaves_for_numpy(call: ast.Call, module: ast.Module) -> bool:
    """Whether it is a function of numpy, or ``.numpy()``."""
    name = call_name(call)
    return name.endswith(".numpy") or ("." in name and name.partition(".")[0] in _numpy_names(module))


def _numpy_names(module: ast.Module) -> frozenset[str]:
    names = {"np", "numpy"}  # always: an earlier cell may import it
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names.update(a.asname or "numpy" for a in node.names if a.name.split(".")[0] == "numpy")
    return frozenset(names)
