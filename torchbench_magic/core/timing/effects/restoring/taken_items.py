"""What timed code took from the user's own iterators, without using them up: nobody can give it back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from torchbench_magic.core.code.reached_objects import ReachedObject
from torchbench_magic.results.doubts import Doubt

from ..iterators import counted_left, is_used_up

__all__ = ["TakenItems"]


class TakenItems:
    """Where the generators and the iterators of the interpreter's own types stand, at one moment.

    A generator stands elsewhere if its frame is at another instruction or its variables hold other objects: one whose
    variables stay (``while True: yield x``) gives the same again, and is not told from one that nobody asked.
    """

    def __init__(self, reached: Iterable[ReachedObject]) -> None:
        self._before = [(one, place) for one in reached if (place := _place(one.value)) is not None]

    def doubts(self, told: Collection[str], *, restore: bool) -> list[Doubt]:
        """Name those that stand elsewhere now; not those used up, of which more is said, nor those ``told``."""
        names = [
            one.label
            for one, place in self._before
            if one.label not in told and is_used_up(one.value) is False and not _is_same(_place(one.value), place)
        ]
        if not names:
            return []
        listed = ", ".join(f"`{name}`" for name in names[:4]) + (f" and {len(names) - 4} more" * (len(names) > 4))
        text = f"Timed calls took items from {listed}, which are not restored."
        if restore:
            text += " `--restore` cannot restore a generator."
        action = f"Make {'it' if len(names) == 1 else 'them'} in the body, or in setup."
        return [Doubt("taken-items", text, action, {"names": names})]


def _place(iterator: Any) -> tuple[Any, ...] | None:
    """What tells where an iterator stands; None of what is none, is used up, or does not tell."""
    frame = None
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
    elif isinstance(iterator, AsyncGeneratorType):
        frame = iterator.ag_frame
    elif (left := counted_left(iterator)) is not None:
        return (left,)
    return None if frame is None else (frame.f_lasti, *frame.f_locals.items())


def _is_same(now: tuple[Any, ...] | None, before: tuple[Any, ...]) -> bool:
    """Whether both hold the same objects: what they hold may have an ``==`` of its own."""
    if now is None or len(now) != len(before) or now[0] != before[0]:
        return False
    return all(one[0] == other[0] and one[1] is other[1] for one, other in zip(now[1:], before[1:], strict=True))
