"""Profiles of a cell whose every figure is given, for the tests of what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import FRAME_COLUMNS, LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.profiling.trace import EVENT_COLUMNS, NODE_COLUMNS, SEGMENT_COLUMNS, Source, Trace, Track, compact

SOURCE = "ab12"


@dataclass(frozen=True)
class Op:
    """An op on a line: its name below those that it ran in ("aten::to > aten::_to_copy"), with seconds over all calls.

    A caller stands before what it calls; ``own`` is without that.
    """

    path: str
    calls: int
    own: float


@dataclass(frozen=True)
class Did:
    """What a line did: ``runs`` times, ``python`` seconds outside torch, ops, calls of a module ``net``.

    Attributes:
        longest: seconds of its longest run; all are alike unless given.
    """

    runs: int
    python: float
    ops: Sequence[Op] = ()
    modules: int = 0
    longest: float = 0.0

    @property
    def torch(self) -> float:
        return sum(op.own for op in self.ops)

    @property
    def whole(self) -> float:
        return self.python + self.torch

    @property
    def recording(self) -> float:
        """Seconds that recording is estimated to have added: to each op, run and call of a module."""
        return 0.6e-6 * sum(op.calls for op in self.ops) + 0.5e-6 * self.runs + 6e-6 * self.modules


def built_profile(text: str, did: Mapping[int, Did], **changes: Any) -> Profile:
    """The profile of the cell ``text`` (its first line is the magic's) whose lines did what ``did`` says."""
    source = Source(SOURCE, "<cell>", text, cell=1)
    wall = sum(each.whole for each in did.values())
    lines = frame_of(
        LINE_COLUMNS,
        {
            "cell": [1] * len(did),
            "line": list(did),
            "source": [source.line(number) for number in did],
            "file": ["<cell>"] * len(did),
            "source_id": [SOURCE] * len(did),
            "thread": [0] * len(did),
            "calls": [each.runs for each in did.values()],
            "wall_time": [each.whole for each in did.values()],
            "self_cpu_time": [each.torch for each in did.values()],
            "cpu_time": [each.torch for each in did.values()],
            "python_time": [each.python for each in did.values()],
            "recording_time": [each.recording for each in did.values()],
        },
    )
    frames = [_frame(-1, "thread", "MainThread", None, 0, wall, 0.0)]
    ops = []
    for number, each in did.items():
        frames.append(_frame(0, "line", f"In[1]:{number}", number, each.runs, each.whole, each.python))
        top = len(frames) - 1
        if each.modules:
            frames.append(_frame(top, "module", "net", number, each.modules, each.torch, 0.0))
            top = len(frames) - 1
        at: dict[str, int] = {}
        for op in each.ops:
            above, _, name = op.path.rpartition(" > ")
            wall_of = sum(other.own for other in each.ops if f"{other.path} > ".startswith(f"{op.path} > "))
            frames.append(_frame(at.get(above, top), "op", name, number, op.calls, wall_of, op.own))
            at[op.path] = len(frames) - 1
            ops.append((name, op.calls, op.own, wall_of, 1, number, SOURCE, "<cell>", 0))
    names = ("op", "calls", "self_cpu_time", "cpu_time", "cell", "line", "source_id", "file", "thread")
    fields = {
        "lines": lines,
        "ops": frame_of(OP_COLUMNS, _columns(names, ops)),
        "frames": frame_of(FRAME_COLUMNS, _columns(_FRAME, frames)),
        "wall_time": wall,
        "num_threads": 2,
        "sources": {SOURCE: source},
        "source_id": SOURCE,
        "profiler_cost": "little",
        "trace": _trace(did, wall),
    }
    return Profile(**(fields | changes))


_FRAME = (
    *("parent", "kind", "name", "cell", "line", "file", "source_id", "thread"),
    *("calls", "wall_time", "self_time", "self_cpu_time"),
)


def _frame(parent: int, kind: str, name: str, line: int | None, calls: int, wall: float, own: float) -> tuple[Any, ...]:
    place = (None, None, None, None) if line is None else (1, line, "<cell>", SOURCE)
    return (parent, kind, name, *place, 0, calls, wall, own, own if kind == "op" else 0.0)


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _trace(did: Mapping[int, Did], wall: float) -> Trace:
    """The lines in turn, as often as they ran."""
    lengths, node = [], []
    for at, each in enumerate(did.values(), 1):
        runs = [each.whole / each.runs] * each.runs
        if each.longest:
            runs = [each.longest, *[(each.whole - each.longest) / (each.runs - 1)] * (each.runs - 1)]
        lengths += runs
        node += [at] * each.runs
    ends = np.cumsum(np.array(lengths) * 1e9)
    nodes = {
        "parent": np.array([-1, *[0] * len(did)]),
        "thread": np.zeros(len(did) + 1),
        "source": np.array([-1, *[0] * len(did)]),
        "line": np.array([0, *did]),
        "function": np.array([-1, *[0] * len(did)]),
        "calls": np.array([0, *(each.runs for each in did.values())]),
    }
    segments = {"thread": np.zeros(len(node)), "start": np.append([0], ends[:-1]), "node": np.array(node)}
    return Trace(
        events=compact(EVENT_COLUMNS, {name: np.zeros(0) for name in EVENT_COLUMNS}),
        nodes=compact(NODE_COLUMNS, nodes),
        segments=compact(SEGMENT_COLUMNS, segments),
        tracks=(Track("MainThread", 0, 1),),
        sources=(SOURCE,),
        functions=("<module>",),
        duration=round(wall * 1e9),
    )
