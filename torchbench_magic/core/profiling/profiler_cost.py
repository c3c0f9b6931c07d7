"""What recording a run cost, in one word: from what was recorded, and a small table of what each of it costs.

The costs depend on the processor, on what else it does and on the code around, by a factor of two to three either
way; no calibration in the process was steadier than that. So no figure is made of them, only one of three words whose
borders lie a factor of six apart. ``--twice`` measures.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.profile import ProfilerCost
from torchbench_magic.units import count

__all__ = ["EventNumbers", "cost_doubt", "profiler_cost"]

NOTICEABLE, MOST = 0.08, 0.5
"""Shares of the wall time from which on the cost is noticeable, and most of it."""

_MICROSECONDS = {"op": 0.6, "shapes": 0.5, "allocation": 0.8, "line": 0.5, "call": 0.0, "module": 6.0}
"""What recording adds, per event, in microseconds (2 shared cores, AMD EPYC, Python 3.11, torch 2.13): tiny ops, empty
tensors and a loop of assignments, each run with and without (medians of 5; they moved by a factor of two to three).
Modules, measured anew as they are seen by the interpreter: 200 layers that return their input, 20 times, 7 runs each
way on an idle machine; 5.4 a call where the layers are torch's `Identity` (2.6 ... 8.0), and 7.8 with the one line of
layers of one's own (6.3 ... 15.2), of which the line is 0.5."""
_MICROSECONDS_311 = _MICROSECONDS | {"call": 1.2}
"""On Python 3.11 a trace function sees each call of Python code that is not recorded; `sys.monitoring` does not."""


@dataclass(frozen=True)
class EventNumbers:
    """What a run had for its observers, as numbers of events.

    Attributes:
        ops: of torch, ranges of `record_function` included.
        allocations: allocations and freeings, 0 without ``--memory``.
        lines: line events.
        calls: calls of Python code whose lines are not recorded, as far as they were seen.
        modules: calls of nn.Modules.
        shapes: whether the shapes of the ops' inputs were recorded.
    """

    ops: int
    allocations: int
    lines: int
    calls: int
    modules: int
    shapes: bool = False

    @property
    def seconds(self) -> float:
        """What recording them takes by the table, good to a factor of two or three."""
        cost = _MICROSECONDS if sys.version_info >= (3, 12) else _MICROSECONDS_311
        op = cost["op"] + (cost["shapes"] if self.shapes else 0.0)
        kinds = (
            self.ops * op,
            self.allocations * cost["allocation"],
            self.lines * cost["line"],
            self.calls * cost["call"],
            self.modules * cost["module"],
        )
        return sum(kinds) / 1e6


def profiler_cost(wall_time: float, recorded: EventNumbers) -> ProfilerCost:
    """What recording was of the wall time (seconds): ``little``, ``noticeable`` or ``most``."""
    share = recorded.seconds / wall_time if wall_time > 0 else 0.0
    return "most" if share > MOST else "noticeable" if share > NOTICEABLE else "little"


def cost_doubt(cost: ProfilerCost, recorded: EventNumbers) -> Doubt | None:
    """What is to be said of it; nothing where it is little."""
    if cost == "little":
        return None
    kinds = [(recorded.ops, "operations"), (recorded.lines, "lines"), (recorded.calls, "calls")]
    seen = ", ".join(f"{count(number)} {what}" for number, what in sorted(kinds, reverse=True)[:2] if number)
    took = "Recording took most of this cell's time" if cost == "most" else "Recording made this cell noticeably slower"
    facts = {"cost": cost, "ops": recorded.ops, "lines": recorded.lines, "calls": recorded.calls}
    action = "`--twice` measures how much; for a time to quote, use `%%timer`."
    return Doubt("profiler-cost", f"{took} ({seen}).", action, facts)
