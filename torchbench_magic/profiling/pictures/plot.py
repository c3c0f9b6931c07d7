"""Pictures of a profile with matplotlib: memory over time, and the flame graph, for SVG, PNG and paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torchbench_magic import units
from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.profiling.memory.allocations import devices_of, peak_of
from torchbench_magic.profiling.memory.picture import stack
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.show.drawing import literal, new_axes
from torchbench_magic.show.palette import ALARM, HUES

from . import profile_flame

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(profile: Profile, *, kind: str = "flame", metric: str = "time", ax: Axes | None = None) -> Axes:
    """See `Profile.plot`: the call tree (``flame``, as wide as ``metric``) or memory over time (``memory``)."""
    if kind == "flame":
        drawn: Axes = profile_flame.flamegraph(profile, metric).plot(ax)
        return drawn
    if kind != "memory":
        raise OptionError(f"kind {kind!r} is unknown; use flame or memory")
    devices = devices_of(profile.memory)
    if not devices:
        raise InputError("memory over time was not recorded: profile with --memory (memory=True)")
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
        ax.stairs(top, edges, baseline=bottom, fill=True, color=HUES["memory"], alpha=shade, label=literal(layer.name))
        bottom = top
    if peak.bytes:
        ax.axvline(peak.time, color=ALARM, linestyle="--", linewidth=1)
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
    ax.set_ylabel(f"held on {literal(device)} ({scale.unit})")
    ax.grid(visible=True, axis="y", alpha=0.3)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return ax
