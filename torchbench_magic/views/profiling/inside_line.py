"""What holds the time of one line: the modules, ranges and backward passes that run below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchbench_magic.results.profiling.profile import Profile

from ..frame_rows import float_or_none, frame_rows
from .operations import STEP_RANGE

__all__ = ["inside_line", "range_in_words"]

_NAMED = ("module", "python")  # kinds of frames that have a name of the user's or of a library's
_ENGINE = "autograd::engine::evaluate_function: "
_BACKWARD = "backward"
_WORDS = {
    "enumerate(DataLoader)#_MultiProcessing": "waiting for the DataLoader's workers",
    "enumerate(DataLoader)#_SingleProcess": "the DataLoader fetching batches",
}
"""How the name of a range of torch's begins -> what it means."""
_NEARLY_ALL = 0.9  # of the line: then what is inside that is said instead
_WORTH = 0.05  # of the line


def range_in_words(name: str) -> str:
    """What a range of torch's own means, in words; empty for any other name."""
    return next((words for start, words in _WORDS.items() if name.startswith(start)), "")


def inside_line(
    profile: Profile, source_id: str, line: int, *, with_backward: bool = False
) -> list[tuple[str, float]]:
    """(name, seconds) of what runs on the line itself, the largest first; empty where nothing there has a name.

    Seconds are those that stand on the line: what has lines of its own stands there. Where one name holds nearly all
    the time, what is inside that is given instead, if it has names.

    Args:
        with_backward: add the backward pass that each caused, which runs on another line.
    """
    paths = list(_paths(profile, source_id, line, with_backward))
    whole = sum(seconds for _, seconds in paths)
    level = 0
    while True:
        found: dict[str, float] = {}
        for path, seconds in paths:
            if len(path) > level:
                found[path[level]] = found.get(path[level], 0.0) + seconds
        name = max(found, key=found.__getitem__, default="")
        inside = [(path, seconds) for path, seconds in paths if path[level : level + 1] == (name,)]
        if not name or found[name] < _NEARLY_ALL * whole or all(len(path) == level + 1 for path, _ in inside):
            break
        paths, level = inside, level + 1
    by_size = sorted(found.items(), key=lambda item: -item[1])
    return [(name, seconds) for name, seconds in by_size if seconds >= _WORTH * whole > 0]


def _paths(
    profile: Profile, source_id: str, line: int, with_backward: bool
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Of each frame on the line: the names that it runs in, the outermost first, and its seconds."""
    times = ["self_time", *(["backward_cpu_time"] if with_backward else [])]
    frames = frame_rows(profile.frames[["parent", "kind", "name", "source_id", "line", "thread", *times]])
    names: list[tuple[str, ...]] = []
    for frame in frames:  # a caller comes before what it calls
        here = frame["thread"] == 0 and frame["source_id"] == source_id and float_or_none(frame["line"]) == line
        around = names[int(frame["parent"])] if here and int(frame["parent"]) >= 0 else ()
        names.append((*around, *_name_of(frame, around)) if here else ())
        if here:
            yield names[-1], sum(float_or_none(frame[time]) or 0.0 for time in times)


def _name_of(frame: dict[str, Any], around: tuple[str, ...]) -> tuple[str, ...]:
    if frame["kind"] in _NAMED and frame["name"] != STEP_RANGE:
        return (str(frame["name"]),)
    is_backward = frame["kind"] == "op" and str(frame["name"]).startswith(_ENGINE)
    return (_BACKWARD,) if is_backward and _BACKWARD not in around else ()
