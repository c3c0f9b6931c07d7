"""What the text of a source says about its lines: which lines are one statement, where a function is defined.

A call written over several lines comes back to its first line, so that line gets two line events for one run.
To count how often a line *ran*, the lines of one statement are taken together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Statements", "read_statements"]


@dataclass(frozen=True)
class Statements:
    """Lines of one source.

    Attributes:
        first: line -> first line of its statement, for lines of statements that span several.
        definition: first line of a decorated function or class (its decorator) -> line of its ``def``.
        with_end: line of a ``with`` -> last line of its block; leaving the block comes back to the ``with``.
        numpy_calls: line -> calls on it that go to numpy or leave torch, as written ("np.argwhere").
    """

    first: Mapping[int, int] = field(default_factory=dict)
    definition: Mapping[int, int] = field(default_factory=dict)
    with_end: Mapping[int, int] = field(default_factory=dict)
    numpy_calls: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def read_statements(*texts: str) -> Statements:
    """Read the first of ``texts`` that is Python (a cell's visible text need not be); empty if none is."""
    for text in texts:
        try:
            tree = ast.parse(re.sub(r"\A(\s*)%%", r"\1# ", text))  # a leading cell magic is a comment; lines stay
        except (SyntaxError, ValueError):
            continue
        return _read(tree)
    return Statements()


def _read(tree: ast.Module) -> Statements:
    first: dict[int, int] = {}
    definition: dict[int, int] = {}
    with_end: dict[int, int] = {}
    calls: dict[int, list[str]] = {}
    numpy_names = _numpy_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            start, end = _span(node)
            if end > start:
                first.update(dict.fromkeys(range(start, end + 1), start))
            if start < node.lineno:
                definition[start] = node.lineno
            if isinstance(node, ast.With | ast.AsyncWith):
                with_end.update(dict.fromkeys(range(start, end + 1), node.end_lineno or end))
        elif isinstance(node, ast.Call) and (name := _leaves_torch(node, numpy_names)):
            calls.setdefault(node.lineno, []).append(name)
    named = {line: tuple(dict.fromkeys(names)) for line, names in calls.items()}
    return Statements(first, definition, with_end, named)


def _span(node: ast.stmt) -> tuple[int, int]:
    """First and last line of a simple statement, or of the head of a compound one, decorators included."""
    start = _start(node)
    inner = [part for name in ("body", "cases", "handlers") for part in getattr(node, name, [])]
    if not inner:
        return start, node.end_lineno or node.lineno
    return start, max(node.lineno, min(_start(part) for part in inner) - 1)


def _start(node: ast.AST) -> int:
    """Line on which ``node`` begins: its first decorator, or the pattern of a ``case``."""
    if isinstance(node, ast.match_case):
        return int(node.pattern.lineno)
    lines: list[int] = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
    return min([*lines, int(getattr(node, "lineno", 1))])


def _numpy_names(tree: ast.Module) -> frozenset[str]:
    """Names that mean the module numpy; the two usual ones always, since an earlier cell may import it."""
    names = {"np", "numpy"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(
                a.asname or a.name.split(".")[0] for a in node.names if a.name.split(".")[0] == "numpy"
            )
    return frozenset(names)


def _leaves_torch(call: ast.Call, numpy_names: frozenset[str]) -> str:
    """``np.argwhere`` or ``.numpy()`` as written; empty for any other call."""
    if not isinstance(call.func, ast.Attribute):
        return ""
    if call.func.attr == "numpy":
        return ".numpy()"
    root: ast.expr = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return ast.unparse(call.func) if isinstance(root, ast.Name) and root.id in numpy_names else ""
