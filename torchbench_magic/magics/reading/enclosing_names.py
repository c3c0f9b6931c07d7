"""Names of enclosing functions that a magic's text does not see.

Python hands a variable of ``outer`` to ``inner`` only where the code of ``inner`` itself uses it. A magic's text is a
string there, so a name in it is the notebook's, though a reader of the cell expects that of ``outer``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

from torchbench_magic.core.code.body import CompiledBody
from torchbench_magic.results.doubts import Doubt

from .local_scope import calling_frame

__all__ = ["unseen_names"]


def unseen_names(parts: Iterable[CompiledBody], user_ns: Mapping[str, Any]) -> list[Doubt]:
    """Say of each name that the code reads from the notebook, and that an enclosing function has too, which is meant.

    Args:
        parts: the magic's code, setup included.
        user_ns: the notebook's names.
    """
    from torchbench_magic.core.code.code_reads import globals_assigned, globals_read

    frame = calling_frame(user_ns)
    if frame is None:
        return []
    codes = [code for part in parts for code in (part.code, part.last) if code is not None]
    read = {name for code in codes for name in globals_read(code)}
    read -= {name for code in codes for name in globals_assigned(code)} | set(frame.f_locals)
    found: dict[str, str] = {}
    for outer in _enclosing(frame):  # the innermost first
        for name in sorted(read & {*outer.co_varnames, *outer.co_cellvars} & user_ns.keys()):
            found.setdefault(name, outer.co_name)
    inner = frame.f_code.co_name
    return [
        Doubt(
            "enclosing-name",
            f"`{name}` is the notebook's `{name}`, not that of {outer}: {inner} can see the variable of {outer} only"
            f" where the code of {inner} itself uses it.",
            f"Give it to {inner} as an argument.",
            {"name": name, "function": outer},
        )
        for name, outer in found.items()
    ]


def _enclosing(frame: FrameType) -> list[CodeType]:
    """The functions around the one that a frame runs, the innermost first: of those that run, and where they have
    returned, of the function of the notebook that its qualified name begins with."""
    inner, around = frame.f_code, []
    at = frame.f_back
    while at is not None:
        if inner in at.f_code.co_consts and at.f_code.co_name != "<module>":
            around.append(at.f_code)
            inner = at.f_code
        at = at.f_back
    if around or ".<locals>." not in inner.co_qualname:
        return around
    for root in _functions(frame.f_globals, inner.co_qualname.partition(".<locals>.")[0]):
        way = _way_to(inner, root.__code__)
        if way is not None:
            return way
    return []


def _functions(names: Mapping[str, Any], path: str) -> Iterator[FunctionType]:
    """The function that a qualified name leads to, through classes."""
    first, *rest = path.split(".")
    found = names.get(first)
    for name in rest:
        found = type.__dict__["__dict__"].__get__(found).get(name) if issubclass(type(found), type) else None
    if type(found) is FunctionType:
        yield found


def _way_to(inner: CodeType, root: CodeType) -> list[CodeType] | None:
    """The codes from around ``inner`` out to ``root``; None where it is not in there."""
    if inner in root.co_consts:
        return [root]
    for code in root.co_consts:
        if isinstance(code, CodeType) and (way := _way_to(inner, code)) is not None:
            return [*way, root]
    return None
