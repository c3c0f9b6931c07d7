"""The flame graph of a profile: time, device time or bytes of lines, functions, modules and ops; and `Profile.plot`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from torchbench_magic import units
from torchbench_magic.array_types import Floats
from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.profiling.call_tree_tables import inclusive
from torchbench_magic.profiling.memory.allocations import devices_of
from torchbench_magic.profiling.memory.picture import plotted
from torchbench_magic.profiling.ops_view import MOST_LINKS, chosen_key, is_backward, links, op_text, shapes_text
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.show.document import Drawn, clipped, of_result
from torchbench_magic.show.flame import MOST_BYTES, FlameGraph, Measure, markup
from torchbench_magic.show.javascript import is_own_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS = {"time": "time", "device": "device", "bytes": "allocated", "allocated": "allocated"}
_LONGEST = 80  # characters of a line of code on a frame
_INLINE_LINKS = 400  # rows of what runs where
_INLINE_BYTES = 14_000  # of the picture that a profile's output carries


def flamegraph(profile: Profile, metric: str = "time") -> FlameGraph:
    """See `Profile.flamegraph`: frames are as wide as their share of ``metric``; others can be chosen."""
    if metric not in METRICS:
        raise OptionError(f"metric {metric!r} is unknown; use time, device or bytes")
    graph = graph_of(profile)
    if graph is None:
        way = ": profile without --phases" if profile.options.phases else ""
        raise InputError(f"this profile has no call tree to draw{way}")
    first = [measure for measure in graph.measures if measure.name == METRICS[metric]]
    if not first:
        how = "profile with --memory" if METRICS[metric] == "allocated" else "nothing ran on a device"
        raise InputError(f"no {metric} was recorded: {how}")
    order = (*first, *(measure for measure in graph.measures if measure is not first[0]))
    return replace(graph, measures=order, title=_title(profile, metric))


def plot(profile: Profile, *, kind: str = "flame", metric: str = "time", ax: Axes | None = None) -> Axes:
    """See `Profile.plot`: the call tree (``flame``, as wide as ``metric``) or memory over time (``memory``)."""
    if kind == "flame":
        drawn: Axes = flamegraph(profile, metric).plot(ax)
        return drawn
    if kind != "memory":
        raise OptionError(f"kind {kind!r} is unknown; use flame or memory")
    devices = devices_of(profile.memory)
    if not devices:
        raise InputError("memory over time was not recorded: profile with --memory (memory=True)")
    return plotted(profile, devices, ax)


def drawn(profile: Profile, place: int) -> Drawn | None:
    """The flame graph as a view of the profile's output; None where there is none."""
    room, most_links = (MOST_BYTES, MOST_LINKS) if is_own_page() else (_INLINE_BYTES, _INLINE_LINKS)
    graph = graph_of(profile, most_links)
    if graph is None:
        return None
    element, scripts = markup(graph, slot=f"drawn-{place}", most_bytes=room, rows=3)
    return Drawn("flame graph", element, scripts)


def _title(profile: Profile, metric: str) -> str:
    source = profile.sources.get(profile.source_id or "")
    what = {"time": "time", "device": "device time"}.get(metric, "bytes")
    of = f" of {source.label}" if source is not None else ""
    return f"Where the {what}{of} goes, by line, function, module and operation"


def graph_of(profile: Profile, most_links: int = MOST_LINKS) -> FlameGraph | None:
    """The call tree as a flame graph of time and whatever else was measured; None without one."""
    frames = profile.frames
    if frames.empty or not frames["wall_time"].sum() > 0:
        return None
    merged = _Merged(profile)
    own_time, own_device = merged.sums("self_time"), merged.sums("self_device_time")
    own_bytes, backward = merged.sums("allocated"), merged.inclusive(merged.sums("backward_cpu_time"))
    time = merged.inclusive(own_time)
    clock = units.spread_scale(time.tolist())
    measures = [Measure("time", time, own_time, clock, axis=True)]
    if own_device.any():
        device = merged.inclusive(own_device)
        measures.append(Measure("device", device, own_device, units.spread_scale(device.tolist()), axis=True))
    if own_bytes.any():
        held = merged.inclusive(own_bytes)
        measures.append(Measure("allocated", held, own_bytes, units.bytes_scale(held.tolist())))
    facts = [Measure("backward", backward, None, clock)] if backward.any() else []
    facts += [Measure("calls", merged.sums("calls"), None, units.Scale(places=0))]
    facts += [Measure(m.name, m.total, None, m.scale) for m in measures[1:]]
    return FlameGraph(
        title=_title(profile, "time"),
        parent=np.array(merged.parents, dtype=np.int64),
        names=merged.names,
        kinds=merged.kinds,
        measures=tuple(measures),
        facts=tuple(facts),
        notes={at: shapes for at, shapes in enumerate(merged.shapes) if shapes},
        note="Blank: not attributed. Calls of one line are merged.",
        where=of_result(".frames"),
        keys=merged.keys,
        links=links(profile, most_links),
        of=profile,
    )


class _Merged:
    """The frames with those of one name below one caller as one: ops differ by their inputs in ``.frames``."""

    def __init__(self, profile: Profile) -> None:
        self.parents: list[int] = []
        self.names: list[str] = []
        self.kinds: list[str] = []
        self.shapes: list[list[str]] = []
        self.keys: list[str] = []
        self._frames = frames = profile.frames
        self._row: list[int] = []
        index: dict[tuple[int, str, str], int] = {}
        wanted = ("parent", "kind", "name", "source", "thread", "source_id", "line", "input_shapes")
        for parent, kind, name, source, thread, source_id, line, shapes in zip(
            *(frames[column].tolist() for column in wanted), strict=True
        ):
            above = self._row[parent] if parent >= 0 else -1
            key = (above, kind, name)
            row = index.setdefault(key, len(index))
            if row == len(self.names):
                self.parents.append(above)
                inside = above >= 0 and self.kinds[above] == "backward"
                self.kinds.append("backward" if kind == "op" and (inside or is_backward(name)) else kind)
                own = source_id == profile.source_id and kind == "line"
                self.names.append(_written(profile, kind, f":{line}" if own else name, source, thread))
                self.shapes.append([])
                self.keys.append(chosen_key(kind, name))
            if shapes and shapes != "[]" and shapes_text(shapes) not in self.shapes[row]:
                self.shapes[row].append(shapes_text(shapes))
            self._row.append(row)

    def sums(self, column: str) -> Floats:
        values = self._frames[column].fillna(0).to_numpy(dtype=np.float64)
        return np.bincount(np.array(self._row), weights=values, minlength=len(self.names)).astype(np.float64)

    def inclusive(self, own: Sequence[float] | Floats) -> Floats:
        return np.array(inclusive(map(float, own), self.parents))


def _written(profile: Profile, kind: str, name: str, source: str | None, thread: int) -> str:
    if kind == "thread" and thread == 0:
        of = profile.sources.get(profile.source_id or "")
        return of.label if of is not None else name
    if kind == "line" and source:
        return f"{name} {clipped(source, _LONGEST)}"
    return op_text(name) if kind == "op" else name
