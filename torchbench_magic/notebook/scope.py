"""Names of a cell's own scope and of the functions around it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

from torchbench_magic.errors import OptionError
from torchbench_magic.process.code import CompiledBody, globals_assigned, globals_read
from torchbench_magic.result_base import Doubt

# ---- local_scope -----------------------------------------------------------------------------------------------------

_SHELL = ("IPython", __name__.partition(".")[0])
_IMPLICIT = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def local_names(user_ns: Mapping[str, Any]) -> dict[str, Any]:
    """Names of the calling function, as ``%timeit`` sees them; none where a cell's own level calls.

    IPython hands locals to line magics alone (``needs_local_scope``; a cell magic gets the notebook's names for them),
    so the frame is looked for here, for both.
    """
    frames = reversed(_calling_frames(user_ns))
    return {name: value for frame in frames for name, value in frame.f_locals.items() if name.isidentifier()}


def calling_frame(user_ns: Mapping[str, Any]) -> FrameType | None:
    """The function that a magic stands in; None at a cell's own level."""
    found = [frame for frame in _calling_frames(user_ns) if frame.f_code.co_name not in _IMPLICIT]
    return found[0] if found else None


def _calling_frames(user_ns: Mapping[str, Any]) -> list[FrameType]:
    """The first frame that is neither IPython's nor this package's, unless it is a cell's own level. Up to Python 3.11
    a comprehension has a frame of its own, whose names stand before those of the frame around it: it comes first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _SHELL:
        frame = frame.f_back
    found: list[FrameType] = []
    while frame is not None and frame.f_locals is not user_ns:
        found.append(frame)
        if frame.f_code.co_name not in _IMPLICIT:
            break
        frame = frame.f_back
    return found


def check_not_local(name: str | None, found: Mapping[str, Any]) -> None:
    """Refuse ``-o NAME`` where NAME is a local variable of the calling function: a magic cannot set it.

    Raises:
        OptionError: in one line, with the way out.
    """
    if name is not None and name in found:
        raise OptionError(
            f"-o {name}: {name} is a local variable of the calling function, which a magic cannot set; write"
            f" `{name} = %timer ...` (or %tprofile), or leave -o out"
        )


class Names:
    """The notebook's names and, before them, those of the calling function, as one dict for code to run in.

    Args:
        user_ns: the notebook's.
        local: of the calling function.

    Attributes:
        namespace: both; the notebook's own dict where there are no local names.
    """

    def __init__(self, user_ns: dict[str, Any], local: Mapping[str, Any]) -> None:
        self._user_ns, self._local = user_ns, local
        # without local names nothing is put back, and a value that were kept here would outlive its name
        self._before = {**user_ns, **local} if local else {}
        self.namespace = dict(self._before) if local else user_ns

    def keep(self) -> None:
        """Have in the notebook what the code bound or deleted, but for local names, which stay as they are."""
        if not self._local:
            return
        absent = object()
        for name in self._before.keys() | self.namespace.keys():
            value = self.namespace.get(name, absent)
            if name in self._local or value is self._before.get(name, absent):
                continue
            if value is absent:
                self._user_ns.pop(name, None)
            else:
                self._user_ns[name] = value


# ---- enclosing_names -------------------------------------------------------------------------------------------------
# Names of enclosing functions that a magic's text does not see.
#
# Python hands a variable of ``outer`` to ``inner`` only where the code of ``inner`` itself uses it. A magic's text is a
# string there, so a name in it is the notebook's, though a reader of the cell expects that of ``outer``.


def unseen_names(parts: Iterable[CompiledBody], user_ns: Mapping[str, Any]) -> list[Doubt]:
    """Say of each name that the code reads from the notebook, and that an enclosing function has too, which is meant.

    Args:
        parts: the magic's code, setup included.
        user_ns: the notebook's names.
    """
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
