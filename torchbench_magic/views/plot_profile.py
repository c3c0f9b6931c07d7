"""Pictures of a profile with matplotlib: memory over time, and the flame graph, for SVG, PNG and paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import units
from ..errors import InputError, OptionError
from ..results.allocations import devices_of, peak_of
from ..results.profile import Profile
from . import profile_flame
from .axes import literal, new_axes
from .flame import KINDS, FlameGraph
from .memory_picture import stack

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot", "plot_flame"]

_HUE_OF = {"line": "#c3c6c9", "torch": "#91b3d7", "python": "#ebcb9b", "backward": "#e2c1e1", "memory": "#95d0c1"}
_OTHER = "#cacccf"  # as the flame graph of a page on white, so that text on it is read
_MOST_LEVELS = 40
_LEAST = 0.0015  # share of the width from which a frame is drawn
_CHARACTER = 0.0075  # share of the width that a letter takes, about


def plot(profile: Profile, *, kind: str = "flame", metric: str = "time", ax: Axes | None = None) -> Axes:
    """Draw the call tree (``flame``, as wide as ``metric``) or memory over time (``memory``).

    Raises:
        MissingTool: matplotlib is not installed.
        OptionError: an unknown kind or metric.
        InputError: that was not recorded.
    """
    if kind == "flame":
        return plot_flame(profile_flame.flamegraph(profile, metric), ax)
    if kind != "memory":
        raise OptionError(f"kind {kind!r} is unknown; there are: flame, memory")
    devices = devices_of(profile.memory) if profile.memory is not None else []
    if not devices:
        raise InputError("no bytes over time were recorded: profile with --memory (memory=True)")
    return _memory(profile, devices, ax)


def _memory(profile: Profile, devices: list[str], ax: Axes | None) -> Axes:
    """The device with the highest peak: what each line holds, one above the other."""
    memory = profile.memory
    assert memory is not None
    device = max(devices, key=lambda each: peak_of(memory, each).bytes)
    drawn, peak = stack(profile, device), peak_of(memory, device)
    ax = ax if ax is not None else new_axes((7.5, 3.2))
    scale = units.bytes_scale([float(peak.bytes)])
    columns = len(drawn.older)
    edges = np.linspace(0, drawn.seconds, columns + 1)
    bottom = -drawn.older / scale.size
    shades = np.linspace(0.25, 0.95, max(len(drawn.layers), 2)).tolist()
    for layer, shade in zip(drawn.layers, shades, strict=False):
        top = bottom + layer.held / scale.size
        ax.stairs(top, edges, baseline=bottom, fill=True, color="#2ca184", alpha=shade, label=literal(layer.name))
        bottom = top
    if peak.bytes:
        ax.axvline(peak.time, color="#cf4f2c", linestyle="--", linewidth=1)
        end = peak.time > 0.7 * drawn.seconds
        ax.annotate(
            f"peak {units.bytes_text(peak.bytes)}",
            (peak.time, peak.bytes / scale.size),
            xytext=(-4 if end else 4, 3),
            textcoords="offset points",
            ha="right" if end else "left",
            fontsize="small",
        )
        ax.margins(y=0.12)
    ax.set_xlim(0, drawn.seconds)
    ax.set_xlabel("s")
    ax.set_ylabel(f"held on {device} ({scale.unit})")
    ax.grid(visible=True, axis="y", alpha=0.3)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def plot_flame(graph: FlameGraph, ax: Axes | None = None) -> Axes:
    """Frames as bars below their callers; what is narrower than 0.15 % or deeper than 40 is not drawn, and counted.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    measure = graph.measures[0]
    lefts, depths = _layout(graph)
    span = float(measure.total[graph.parent < 0].sum()) or 1.0
    every = measure.total > 0
    shown = np.flatnonzero(every & (measure.total / span >= _LEAST) & (depths < _MOST_LEVELS)).tolist()
    levels = max((int(depths[at]) for at in shown), default=0) + 1
    ax = ax if ax is not None else new_axes((9.0, 1.2 + 0.24 * levels))
    unit = measure.scale
    for at in shown:
        left, wide = lefts[at] / unit.size, float(measure.total[at]) / unit.size
        hue = _HUE_OF.get(KINDS.get(graph.kinds[at], KINDS["other"])[0], _OTHER)
        ax.barh(int(depths[at]), wide, left=left, height=0.94, color=hue, edgecolor="white", linewidth=0.5)
        room = int(wide * unit.size / span / _CHARACTER) - 1
        if room >= 3:
            name = graph.names[at]
            name = name if len(name) <= room else f"{name[: room - 1]}…"
            ax.text(left, int(depths[at]), f" {literal(name)}", va="center", fontsize=7, clip_on=True)
    left_out = int(every.sum()) - len(shown)
    said = f"; {units.count(left_out)} narrow frames are not drawn" if left_out else ""
    ax.set_xlabel(f"{measure.name}{f' ({unit.unit})' if unit.unit else ''}{said}")
    ax.set_xlim(0, span / unit.size)
    ax.set_ylim(levels - 0.5, -0.5)
    ax.set_yticks([])
    ax.set_title(literal(graph.title, 120), fontsize="medium", loc="left")
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
    return ax


def _layout(graph: FlameGraph) -> tuple[list[float], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Left edge of each frame, in the measure, and its depth: children stand side by side from their parent's edge."""
    total = graph.measures[0].total
    lefts, filled = [0.0] * len(graph), [0.0] * (len(graph) + 1)  # the last is what stands at the root
    depths = np.zeros(len(graph), dtype=np.int64)
    for at, parent in enumerate(graph.parent.tolist()):  # a parent comes before its children
        start = lefts[parent] if parent >= 0 else 0.0
        depths[at] = depths[parent] + 1 if parent >= 0 else 0
        lefts[at] = start + filled[parent]
        filled[parent] += float(total[at])
    return lefts, depths
