"""Copies of the numpy arrays that timed code reaches, from which their values are put back in place.

Nobody counts the changes of an array, so its values are compared after the first calls and after the last block; those
that were found changed are put back before each block from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["ArrayCopies"]


@dataclass
class _Kept:
    label: str
    array: Any
    copy: Any
    is_changed: bool = False


class ArrayCopies:
    """The values of arrays as they are now.

    Args:
        roots: (label, object); those that are arrays are kept, each once.

    Attributes:
        late: labels of those that were found changed only at the end.
        unrestored: labels of those that changed and cannot be written to: another shape, or read-only.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self.late: list[str] = []
        self.unrestored: list[str] = []
        kind = getattr(sys.modules.get("numpy"), "ndarray", None)
        found = [(label, value) for label, value in roots if kind is not None and type(value) is kind]
        arrays = {id(value): (label, value) for label, value in reversed(found)}
        self._kept = [_Kept(label, array, array.copy()) for label, array in arrays.values()]

    def restore(self) -> None:
        """Put back those that are known to change."""
        for kept in self._kept:
            if kept.is_changed:
                self._put(kept)

    def restore_all(self, *, is_last: bool = False) -> None:
        """Put back all that changed."""
        self.restore()
        for kept in self._kept:
            if not kept.is_changed and not _same(kept.array, kept.copy):
                kept.is_changed = True
                self._put(kept)
                if is_last and kept.label not in self.unrestored:
                    self.late.append(kept.label)

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Label -> (before, now) of those that are not as they were."""
        return {kept.label: (kept.copy, kept.array) for kept in self._kept if not _same(kept.array, kept.copy)}

    def _put(self, kept: _Kept) -> None:
        try:
            if kept.array.shape != kept.copy.shape or kept.array.dtype != kept.copy.dtype:
                raise ValueError(f"{kept.label} has another shape or dtype")
            kept.array[...] = kept.copy
        except ValueError:  # numpy's own for what is read-only
            if not _same(kept.array, kept.copy) and kept.label not in self.unrestored:
                self.unrestored.append(kept.label)


def _same(one: Any, other: Any) -> bool:
    """Whether two arrays hold the same bytes: objects in them by identity, NaN equals itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.hasobject:
        return all(a is b for a, b in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True))
    equal = one == other
    return bool((equal | ((one != one) & (other != other))).all()) if one.dtype.names is None else bool(equal.all())
