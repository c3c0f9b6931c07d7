"""Where the search for holders begins: what the reader sees, and what a notebook keeps without showing it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torchbench_magic.core.code.library_files import is_users_file
from torchbench_magic.core.code.reached_objects import is_users_module
from torchbench_magic.printable import printable
from torchbench_magic.results.cell_text import CellText

__all__ = [
    "CAN_READ_LOCALS",
    "Root",
    "context_roots",
    "hidden_roots",
    "is_users_code",
    "last_value",
    "local_roots",
    "module_roots",
    "variable_roots",
]

_HISTORY = re.compile(r"_+|_i+|_i?\d+")
_IPYTHONS = frozenset({"In", "Out", "_ih", "_oh", "_dh", "get_ipython", "exit", "quit", "open"})
_OURS = frozenset({"_timer", "_tprofile", "__builtins__", "__builtin__", "__annotations__"})


CAN_READ_LOCALS = sys.version_info >= (3, 13)
"""Variables of a running function; before, a dict of them stays with its frame and would hold them itself."""


@dataclass(frozen=True, eq=False)
class Root:
    """Something that stands by itself.

    Attributes:
        name: as the reader would write it: ``losses``, ``Out[3]``.
        kind: ``variable``; of what a notebook keeps by itself ``output``, ``history`` or ``traceback``.
        value: the object.
        says: in words with code in backticks, of what is no variable.
    """

    name: str
    kind: str
    value: Any
    says: str = ""


def is_users_code(code: CodeType) -> bool:
    """Of a function: the variables of a cell or a module are those of its namespace."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and is_users_file(code.co_filename)


def variable_roots(namespace: Mapping[str, Any]) -> Iterator[Root]:
    """The variables of the cell or script."""
    for name, value in list(namespace.items()):
        if name not in _IPYTHONS | _OURS and not (_is_notebook(namespace) and _HISTORY.fullmatch(name)):
            yield Root(name, "variable", value)


def local_roots(running: Iterable[FrameType]) -> Iterator[Root]:
    """Those of functions of the user's that have not ended."""
    for frame in running if CAN_READ_LOCALS else ():
        code = frame.f_code.co_qualname.replace("<locals>.", "")
        for name, value in list(frame.f_locals.items()):
            yield Root(name, "variable", value, f"`{name}` in `{code}`, which is still running")


def context_roots() -> Iterator[Root]:
    """What context variables hold."""
    for variable, value in copy_context().items():
        name = printable(variable.name).replace("`", "'")
        yield Root(name, "variable", value, f"`{name}` (a context variable)")


def module_roots(namespace: Mapping[str, Any]) -> Iterator[Root]:
    """Those of the user's own modules, but the one that ``namespace`` is of."""
    for module_name, module in list(sys.modules.items()):
        if module is None or not is_users_module(module) or vars(module) is namespace or _is_notebook(vars(module)):
            continue
        prefix = "" if module_name == "__main__" else f"{module_name}."
        for name, value in list(vars(module).items()):
            if not name.startswith("__"):
                yield Root(f"{prefix}{name}", "variable", value)


def last_value(value: Any, cell: CellText | None) -> Root | None:
    """What a cell's last expression gave: the notebook keeps it as ``Out[n]`` and as ``_``."""
    if value is None:
        return None
    name = "_" if cell is None or cell.number is None else f"Out[{cell.number}]"
    return Root(name, "output", value, f"`{name}` (the value of the cell's last expression)")


def hidden_roots(namespace: Mapping[str, Any]) -> Iterator[Root]:
    """What the notebook and Python keep by themselves: outputs, their history, and the last error's frames."""
    if _is_notebook(namespace):
        for number, value in list(namespace["_oh"].items()):
            yield Root(f"Out[{number}]", "output", value)
        for name, value in list(namespace.items()):
            if _HISTORY.fullmatch(name) and not isinstance(value, str):
                yield Root(name, "history", value)
    for name in ("last_exc", "last_value", "last_traceback"):
        value = getattr(sys, name, None)
        if value is not None:
            error = getattr(sys, "last_type", None) if name == "last_traceback" else type(value)
            what = f" (the frames of a {error.__name__})" if isinstance(error, type) else ""
            yield Root(f"sys.{name}", "traceback", value, f"`sys.{name}`{what}")


def _is_notebook(namespace: Mapping[str, Any]) -> bool:
    return isinstance(namespace.get("_oh"), dict)
