"""The local names of the function that a magic stands in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torchbench_magic.errors import OptionError

__all__ = ["Names", "calling_frame", "check_not_local", "local_names"]

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
