"""Lines and ops of one thread, joined."""

from __future__ import annotations

from dataclasses import dataclass

from ..torch_events.events import Ints
from .nesting import Nesting, Slices
from .segments import Segments

__all__ = ["ThreadJoin"]



@dataclass(frozen=True)
class ThreadJoin:
    """One thread of the run.

    Attributes:
        number: as in the tables; 0 is the cell's own.
        segments: its lines over time.
        ops: indices of its ops in ``Joined.ops``.
        nesting: of these ops (indices into ``ops``).
        slices: the stretch of the run, cut where the line or the innermost op changes.
    """

    number: int
    segments: Segments
    ops: Ints
    nesting: Nesting
    slices: Slices
