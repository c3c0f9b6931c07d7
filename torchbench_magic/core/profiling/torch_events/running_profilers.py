"""A torch profiler that runs already: somebody's, to be left alone, or one that nobody can stop any more.

``prof.start()`` in a cell that then fails leaves a profiler running that only the traceback still refers to, and
every later profile would be empty without a word.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType, TracebackType
from typing import Any

from torchbench_magic.errors import Busy

from .muted_stderr import profiler_silenced
from .torch_profiler import profiler_type, stop_nameless, torch_profiler_runs

__all__ = ["torch_profiler_runs", "stop_leaked"]

_MOST = 5000  # objects looked at on the way from a profiler to whoever holds it
_AT_ONCE = 16
"""Objects whose holders are looked for at once: each look goes through all that the collector knows, for each one."""


def stop_leaked() -> bool:
    """Stop a profiler that runs though nothing refers to it any more; whether there was one.

    Raises:
        Busy: one runs that somebody can still stop; it is left as it is.
    """
    if not torch_profiler_runs():
        return False
    gc.collect()  # one that only refers to itself
    running = _running_profilers(profiler_type())
    if not all(_is_left_behind(each, {id(running)}) for each in running):
        raise Busy("a torch profiler is already running; stop it first (`prof.stop()`)")
    with profiler_silenced():
        for each in running:
            each.__exit__(None, None, None)
        stop_nameless(switch=torch_profiler_runs())  # nobody has the object any more
    if torch_profiler_runs():
        raise Busy("a torch profiler is already running and cannot be stopped from here: restart the kernel")
    return True


def _running_profilers(kind: type) -> list[Any]:
    alive = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    return [each for each in alive if each.entered and each.kineto_results is None]


def _is_left_behind(profiler: object, ours: set[int]) -> bool:
    """Whether ``profiler`` is a local of code that has ended, kept by a traceback, and nothing else leads to it.

    What leads to it is followed backwards, until a module or a variable of code that runs is found, which means
    no. Without a trace of either the answer is no too: a running ``with`` holds its profiler where nobody can look.
    """
    held = {id(vars(module)) for module in list(sys.modules.values()) if hasattr(module, "__dict__")}
    running: set[int] = set()
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            running.add(id(frame))
            if frame.f_globals is not globals():
                names = frame.f_locals
                held |= {id(names), id(frame.f_globals), *map(id, names.values())}
            frame = frame.f_back
    seen, found, is_left = {id(profiler)}, [profiler], False
    ours |= {id(found), id(seen), id(held)}
    while found and len(seen) < _MOST:
        current = found[-_AT_ONCE:]
        del found[-_AT_ONCE:]
        if any(id(each) in held for each in current):
            return False
        ours.add(id(current))
        for holder in gc.get_referrers(*current):
            if id(holder) in seen or id(holder) in ours or id(holder) in running:
                continue
            if isinstance(holder, FrameType):
                is_left = True
            elif not isinstance(holder, TracebackType):
                seen.add(id(holder))
                found.append(holder)
    return is_left and not found
