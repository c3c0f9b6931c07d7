"""What kinds of insights share: what each line did, and the parts of their sentences."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchbench_magic import units
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.recording_cost import LEAST, MICROSECONDS
from torchbench_magic.profiling.trace import line_label
from torchbench_magic.result_base import CodeLine, Insight

if TYPE_CHECKING:
    import pandas as pd

LEAST_SHARE = 0.05
"""Of the wall time: below it nothing is said. Single runs differ by a few per cent (see `timing.intervals`), and who
saves less than that would not see it."""
ALIKE = 0.9
"""Of the measured time, without recording: from there on shares are of the measured time alone."""
LEAST_SECONDS = 1e-3
"""At stake, in seconds: what takes less in all is a run too short to say where its time goes."""


def stake_text(seconds: float, wall: float, measured: float = 0.0, digits: int = 2) -> str:
    """``up to 95 ms (73 % of the time)``, or ``(90 % of the at most 40 ms that it takes without recording)``.

    Args:
        wall: what the seconds are a part of.
        measured: the wall time that is shown; where ``wall`` is less, the sentence says what its per cent are of.
        digits: 3 for what was measured, so that it adds up with the tables; 2 for what is estimated.
    """
    of = "time"
    if wall < measured:
        of = f"at most {units.seconds_text(wall, digits=digits)} that it takes without recording"
    return f"up to {units.seconds_text(seconds, digits=digits)} ({units.percent(seconds / wall)} % of the {of})"


def places_text(places: tuple[CodeLine, ...]) -> str:
    """```In[3]:4` and 2 more lines``."""
    rest = len(places) - 1
    more = "" if not rest else " and 1 more line" if rest == 1 else f" and {rest} more lines"
    return f"`{places[0]}`{more}"


# ---- line_uses -------------------------------------------------------------------------------------------------------

_MOST_TIMES = 3.0  # the costs are good to a factor of three
_COMPILED = "Torch-Compiled Region"  # torch's name of a call of compiled code


@dataclass(frozen=True)
class OpUse:
    """One op at one place of the call tree.

    Attributes:
        above: the ops it ran in, the one that the line called first.
        wall: seconds with what it calls, over all calls; ``own`` without.
    """

    name: str
    above: tuple[str, ...]
    calls: int
    wall: float
    own: float

    @property
    def path(self) -> tuple[str, ...]:
        """Itself below all that it ran in."""
        return (*self.above, self.name)

    @property
    def is_called_by_line(self) -> bool:
        return not self.above


@dataclass(frozen=True)
class LineUse:
    """One line on the cell's own thread.

    Attributes:
        runs: how often it ran.
        torch: seconds in ops on the line itself, as recorded.
        python: seconds outside ops on the line itself, as recorded: Python, NumPy, other libraries, waiting.
        cost: seconds that recording is estimated to have added to it.
        ops: all of them, those in others too.
        modules: calls of nn.Modules from it.
        module_names: the last parts of their names.
        ranges: names of ``record_function`` ranges on it.
        functions: names of functions with lines of their own that it called.
    """

    where: CodeLine
    runs: int
    torch: float
    python: float
    cost: float
    ops: tuple[OpUse, ...]
    modules: int
    module_names: frozenset[str]
    ranges: frozenset[str]
    functions: frozenset[str]

    @property
    def recorded(self) -> float:
        return self.torch + self.python

    @property
    def time(self) -> float:
        """Seconds on the line without what recording is estimated to have added."""
        return max(self.recorded - self.cost, 0.0)

    @property
    def is_compiled(self) -> bool:
        """Whether it calls what is already compiled."""
        return any(name.startswith(_COMPILED) for name in (*self.ranges, *(op.name for op in self.ops)))

    @property
    def key(self) -> tuple[str, int]:
        return self.where.source_id, self.where.line

    def calls_within(self, some: Iterable[OpUse]) -> int:
        """Calls of ops in these and of what they run."""
        paths = {op.path for op in some}
        return sum(op.calls for op in self.ops if any(op.path[: n + 1] in paths for n in range(len(op.path))))

    @property
    def called(self) -> int:
        """Ops that the line called itself."""
        return sum(op.calls for op in self.ops if op.is_called_by_line)


@dataclass(frozen=True)
class Recorded:
    """The lines of a profile, and what recording cost.

    Attributes:
        wall: seconds of the run without what recording has surely added.
        per_op: seconds that recording surely added for each op.
        surely: of a line's cost, what recording added at least.
        measured: seconds of the run as it is shown.
    """

    lines: tuple[LineUse, ...]
    wall: float
    per_op: float
    surely: float
    measured: float

    @property
    def base(self) -> float:
        """Seconds that shares are of, in sentences and in `Insight.share`."""
        return self.wall if self.wall < ALIKE * self.measured else self.measured

    def without(self, seconds: float, use: LineUse) -> float:
        """Seconds of a line less what recording surely added to it, at least 0."""
        return max(seconds - self.surely * use.cost, 0.0)


_last: tuple[weakref.ref[Profile], Recorded] | None = None
"""The profile that was asked about last, and what was found: most kinds of insights begin with it."""


def recorded_lines(profile: Profile) -> Recorded:
    """The lines of the cell's own thread, by the call tree. With ``--twice`` the cost of recording is what it was; else
    it is as estimated."""
    global _last
    if (last := _last) is not None and last[0]() is profile:
        return last[1]
    found = _read(profile)
    _last = weakref.ref(profile), found
    return found


def of_each_line(
    profile: Profile,
    judged: Callable[[Profile, Recorded, LineUse], Insight | None],
    but: Collection[tuple[str, int]] = (),
) -> list[Insight]:
    """What is said of the lines, one by one; ``but`` of some nothing is."""
    recorded = recorded_lines(profile)
    found = (judged(profile, recorded, use) for use in recorded.lines if recorded.wall > 0 and use.key not in but)
    return [each for each in found if each is not None]


def _read(profile: Profile) -> Recorded:
    found = _by_line(profile)
    names = ("thread", "source_id", "line", "calls", "self_cpu_time", "python_time", "recording_time")
    columns = [_values(profile.lines[name]) for name in names]
    rows = [row for thread, *row in zip(*columns, strict=True) if thread == 0 and row[1] is not None]
    places = [(str(source_id), int(line)) for source_id, line, *_ in rows]
    uses = [found.get(place, _Found()) for place in places]
    costs = [cost or 0.0 for *_, cost in rows]
    scale, whole = 1.0, sum(costs)
    if profile.unprofiled_time and whole > 0:
        scale = min(max((profile.wall_time - profile.unprofiled_time) / whole, 0.0), _MOST_TIMES)
    lines = tuple(
        LineUse(
            where=line_named(profile, *place),
            runs=int(ran),
            torch=torch or 0.0,
            python=python or 0.0,
            cost=scale * cost,
            ops=tuple(use.ops),
            modules=use.modules,
            module_names=frozenset(use.module_names),
            ranges=frozenset(use.ranges),
            functions=frozenset(use.functions),
        )
        for (_, _, ran, torch, python, _), place, use, cost in zip(rows, places, uses, costs, strict=True)
    )
    surely = 1.0 if profile.unprofiled_time else LEAST  # only that is taken off a bound, so that it stays one
    added = surely * scale
    wall = max(profile.wall_time - added * whole, 0.0)
    if profile.unprofiled_time:  # recording added more to a tiny loop than that: nothing saves more than it took
        wall = min(wall, profile.unprofiled_time)
    microseconds = MICROSECONDS["op"] + (MICROSECONDS["shapes"] if profile.options.shapes else 0.0)
    return Recorded(lines, wall, added * microseconds / 1e6, surely, profile.wall_time)


_Place = tuple[str, int]


@dataclass
class _Found:
    """What the call tree has below one line."""

    ops: list[OpUse] = field(default_factory=list)
    modules: int = 0
    module_names: set[str] = field(default_factory=set)
    ranges: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)


def _by_line(profile: Profile) -> Mapping[_Place, _Found]:
    """What the lines of the cell's own thread did; a caller stands before what it calls."""
    frames = profile.frames
    names = ("parent", "kind", "name", "source_id", "line", "thread", "calls", "wall_time", "self_time")
    columns = [_values(frames[name]) for name in names]
    kinds, called = columns[1], columns[2]
    above: list[tuple[str, ...]] = []  # ops over each frame, up to its line
    places: list[_Place | None] = []
    found: dict[_Place, _Found] = defaultdict(_Found)
    for parent, kind, name, source_id, line, thread, calls, wall, own in zip(*columns, strict=True):
        over: tuple[str, ...] = ()
        if parent >= 0 and kind in ("op", "python", "module"):
            over = (*above[parent], called[parent]) if kinds[parent] == "op" else above[parent]
        above.append(over)
        places.append((str(source_id), int(line)) if source_id is not None and line is not None else None)
        if thread != 0:
            continue
        place = places[parent] if kind == "function" and parent >= 0 else places[-1]
        if place is None:
            continue
        mine = found[place]
        if kind == "op":
            mine.ops.append(OpUse(name, over, int(calls), float(wall or 0.0), float(own or 0.0)))
        elif kind == "module":
            mine.modules += int(calls)
            mine.module_names.add(name.rpartition(".")[2])
        elif kind == "python":
            mine.ranges.add(name)
        elif kind == "function":
            mine.functions.add(name.rpartition(".")[2])
    return found


def _values(column: pd.Series[Any]) -> list[Any]:
    """With None for what is missing."""
    values = column.to_numpy(dtype=object, copy=True)
    values[column.isna().to_numpy()] = None
    return values.tolist()


def line_named(profile: Profile, source_id: str, line: int) -> CodeLine:
    return CodeLine(line_label(profile.sources, source_id, line), source_id, line)
