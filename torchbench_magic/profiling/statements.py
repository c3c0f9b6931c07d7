"""What the text of a line says: its statement, the loop around it, what it calls, and of which library."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

from .profile import Profile
from .trace import Source

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


# ---- library_calls ---------------------------------------------------------------------------------------------------
# Which library a line calls, so that its lines can be opened: what the text names is looked up, nothing is run.

_MOST = 0.5  # of the wall time
_MISSING = object()
_NOT_OPENED = ("torch", "torchbench_magic")
"""What is to be seen of torch are operations and modules; this package's own lines are never recorded."""


def libraries_called(profile: Profile, namespace: Mapping[str, Any]) -> tuple[tuple[str, int, str], ...]:
    """(source_id, line, module) of the line that has most of the time, where it calls Python code of a library.

    The module is one for ``--lines-of``: its lines were not recorded. torch's own are none, nor are this package's.
    """
    columns = ("source_id", "line", "thread", "self_cpu_time", "python_time")
    found = []
    for source_id, line, thread, *own in zip(*(profile.lines[name].tolist() for name in columns), strict=True):
        if thread != 0 or source_id is None or not sum(own) > _MOST * profile.wall_time:
            continue
        module = _library_called(profile.sources[source_id], line, namespace, profile.sources.values())
        if module:
            found.append((source_id, line, module))
    return tuple(found)


def _library_called(source: Source, line: int, namespace: Mapping[str, Any], recorded: Iterable[Source]) -> str:
    files = {each.file for each in recorded}
    for call in _calls(source, line):
        function = _function(_value(call.func, namespace))
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        if function is None or module is None or not isinstance(file, str) or not file.endswith(".py"):
            continue
        if module.__name__.partition(".")[0] not in _NOT_OPENED and function.__code__.co_filename not in files:
            return module.__name__
    return ""


def _calls(source: Source, line: int) -> Iterator[ast.Call]:
    """The calls that begin on this line, the outermost first."""
    place = place_in(source, line)
    if place is not None:
        yield from (call for call in calls_in(place.head) if call.lineno + source.first_line - 1 == line)


def _value(node: ast.expr, namespace: Mapping[str, Any]) -> object:
    """What a name, or an attribute of one, stands for; no property is asked."""
    if isinstance(node, ast.Name):
        return namespace.get(node.id, _MISSING)
    if isinstance(node, ast.Attribute):
        value = _value(node.value, namespace)
        return _MISSING if value is _MISSING else inspect.getattr_static(value, node.attr, _MISSING)
    return _MISSING


def _function(value: object) -> FunctionType | None:
    """The Python function that a call of ``value`` runs."""
    if value is _MISSING or isinstance(value, ModuleType):
        return None
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if inspect.ismethod(value):
        value = value.__func__
    if isinstance(value, FunctionType):
        unwrapped = inspect.unwrap(value)
        return unwrapped if isinstance(unwrapped, FunctionType) else value
    kind, name = (value, "__init__") if isinstance(value, type) else (type(value), "__call__")
    found = inspect.getattr_static(kind, name, None)
    return found if isinstance(found, FunctionType) else None
