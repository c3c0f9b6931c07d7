"""Which library a line calls, so that its lines can be opened: what the text names is looked up, nothing is run."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from torchbench_magic.results.profiling.profile import Profile, Source

__all__ = ["libraries_called"]

_MOST = 0.5  # of the wall time
_MISSING = object()
_NOT_OPENED = ("torch", "torchbench_magic")
"""What is to be seen of torch are operations and modules; this package's own lines are never recorded."""


def libraries_called(profile: Profile, namespace: Mapping[str, Any]) -> tuple[tuple[str, int, str], ...]:
    """(source_id, line, module) of the line that has most of the time, where it calls Python code of a library.

    The module is one for ``--lines-of``: its lines were not recorded. torch's own are none, nor are this package's.
    """
    rows = profile.lines[(profile.lines["thread"] == 0) & profile.lines["line"].notna()]
    own = rows["self_cpu_time"] + rows["python_time"]
    found = []
    for source_id, line in rows[own > _MOST * profile.wall_time][["source_id", "line"]].itertuples(index=False):
        module = _library_called(profile.sources[source_id], int(line), namespace, profile.sources.values())
        if module:
            found.append((str(source_id), int(line), module))
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
    """The calls of the statement that has this line, the outermost first."""
    text = "\n".join("" if each.lstrip()[:1] in ("%", "!") else each for each in source.text.splitlines())
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno + source.first_line - 1 == line:
            yield node


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
