"""What recording a run cost, in one word: from what was recorded, and a small table of what each of it costs.

The costs depend on the processor, on what else it does and on the code around, by a factor of two to three either
way; no calibration in the process was steadier than that. So no figure is made of them, only one of three words whose
borders lie a factor of six apart. ``--twice`` measures.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.profile import ProfilerCost
from torchbench_magic.results.profiling.recording_costs import microseconds_here
from torchbench_magic.units import count

__all__ = ["EventNumbers", "cost_doubt", "profiler_cost"]

NOTICEABLE, MOST = 0.08, 0.5
"""Shares of the wall time from which on the cost is noticeable, and most of it."""


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
        cost = microseconds_here()
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
    most, some = "The profiler took most of this cell's time", "The profiler slowed this cell noticeably"
    took = most if cost == "most" else some
    facts = {"cost": cost, "ops": recorded.ops, "lines": recorded.lines, "calls": recorded.calls}
    action = "`--twice` measures how much; to measure the time itself, use `%%timer`."
    return Doubt("profiler-cost", f"{took} ({seen}).", action, facts)
