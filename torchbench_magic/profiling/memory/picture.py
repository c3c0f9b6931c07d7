"""Memory over time, as static SVG and with matplotlib: the peak, and the blocks that make it up."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic import units
from torchbench_magic.array_types import Ints
from torchbench_magic.printable import printable
from torchbench_magic.profiling.ops_view import chosen_key, line_name, place
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.statements import place_in
from torchbench_magic.profiling.trace import line_ranges
from torchbench_magic.show.document import clipped
from torchbench_magic.show.drawing import figure, literal, new_axes, round_ticks, svg_text
from torchbench_magic.show.javascript import data_script, packed_text
from torchbench_magic.show.page_data import drawing_id, script_data
from torchbench_magic.show.palette import ALARM, GREY, HUES, UI_FONT, letters, mixed, theme

from .allocations import peak_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# ---- blocks_by_column ------------------------------------------------------------------------------------------------
# The blocks of memory that are alive at each moment that a picture of memory shows, for who clicks on it.
#
# A block is alive in a run of columns. Blocks of one line, one size and one run are one entry with their count, so that
# thousands of them are few numbers; the smallest, where there are very many, are summed per column. Nothing is rounded.

MOST_ENTRIES = 3_000  # with names of their own: about 20 KB


@dataclass(frozen=True, eq=False)
class BlocksByColumn:
    """Entries, the largest first: int64 columns of one length.

    Attributes:
        owner: number of the line that allocated them.
        size: bytes of one.
        first, end: columns of the picture, from the first in which it is alive to that after the last.
        count: blocks.
        rest_bytes, rest_blocks: of all smaller ones, per column of the picture.
        unseen: blocks that were given and freed between the moments of two columns.
    """

    owner: Ints
    size: Ints
    first: Ints
    end: Ints
    count: Ints
    rest_bytes: Ints
    rest_blocks: Ints
    unseen: int

    def spec(self) -> dict[str, Any]:
        """What ``static/memory.js`` reads."""
        names = ("owner", "size", "first", "end", "count")
        made: dict[str, Any] = {name: getattr(self, name).tolist() for name in names}
        made["unseen"] = self.unseen
        if self.rest_blocks.any():
            made |= {"restBytes": self.rest_bytes.tolist(), "restBlocks": self.rest_blocks.tolist()}
        return made


def blocks_by_column(
    change: Ints, given_at: Ints, owner: Ints, shown: Ints, most: int = MOST_ENTRIES
) -> BlocksByColumn:
    """The blocks of one device.

    Args:
        change: bytes of each change, in the order of time.
        given_at: of each change, the row that allocated its block.
        owner: of each change, the number of the line that allocated its block; -1: it was there before.
        shown: of each column, the row after which it is shown; -1: before the first. It does not decrease.
        most: entries.
    """
    rows = np.arange(len(change))
    born = rows[(change > 0) & (owner >= 0)]
    freed = rows[(change < 0) & (owner >= 0)]
    death = np.full(len(change), len(change), dtype=np.int64)
    death[given_at[freed]] = freed
    first, end = np.searchsorted(shown, born, "left"), np.searchsorted(shown, death[born], "left")
    seen = end > first
    every = pd.DataFrame({"owner": owner[born], "size": change[born], "first": first, "end": end})[seen]
    different = every.groupby(list(every), sort=False).size().reset_index(name="count").to_numpy(dtype=np.int64)
    order = np.argsort(-different[:, 1] * different[:, 4], kind="stable")
    entries, count = different[order, :4], different[order, 4]
    rest_bytes, rest_blocks = (np.zeros(len(shown) + 1, dtype=np.int64) for _ in range(2))
    for values, sums in ((entries[most:, 1] * count[most:], rest_bytes), (count[most:], rest_blocks)):
        np.add.at(sums, entries[most:, 2], values)
        np.subtract.at(sums, entries[most:, 3], values)
    owners, sizes, firsts, ends = entries[:most].T
    return BlocksByColumn(
        owners, sizes, firsts, ends, count[:most],
        np.cumsum(rest_bytes)[:-1], np.cumsum(rest_blocks)[:-1], int((~seen).sum()),
    )  # fmt: skip


# ---- memory_picture --------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 690, 170  # px of the plotted ground
_LEFT, _TOP, _RIGHT, _BOTTOM = 48, 18, 114, 38
_COLUMNS = 345  # of 2 px
_MOST_LAYERS = 6
_PALEST, _STRONGEST = 26, 100  # per cent of the hue of memory
_APART = 13
_STRIP = 13  # px of the strip of lines

_HUE = HUES["memory"]
_STYLE = (
    "<style>"
    + theme(
        ".tb-memory",
        ("bg", "bg2", "ink0", "ink1", "ink2", "rule1", "rule2"),
        f"--memory:{_HUE};--more:{ALARM};margin:8px 0;overflow-x:auto",
    )
    + "@supports(color:color-mix(in srgb,red,blue)){.tb-memory{"
    f"--memory:{mixed(_HUE)};--more:{mixed(ALARM)}}}}}"
    ".tb-memory svg{display:block}.tb-memory svg:focus-visible{outline:2px solid var(--jp-brand-color1,#1f6fb2)}"
    + letters(".tb-memory", "text.i1")
    + ".tb-memory .tk{stroke:var(--rule2)}.tb-memory .ax{stroke:var(--rule1)}"
    ".tb-memory .pk{stroke:var(--more);stroke-dasharray:3 3}.tb-memory .at{stroke:var(--ink1)}"
    ".tb-memory .ly{fill:var(--memory)}"
    ".tb-memory .st{fill:var(--bg2)}"
    f".tb-memory p{{margin:0;min-height:17px;font:11.5px/17px {UI_FONT};"
    "color:var(--ink2);font-variant-numeric:tabular-nums}</style>"
)


@dataclass(frozen=True)
class Layer:
    """What one line holds over time.

    Attributes:
        name: as it stands beside the layer.
        held: int64 [columns], bytes at the highest moment of each column.
        at_end: bytes after the last change.
        key: what its line is called when it is chosen, see `profiling.ops_view.chosen_key`; empty for several, or none.
    """

    name: str
    held: Ints
    at_end: int
    key: str = ""


@dataclass(frozen=True)
class _Stack:
    """Layers from the bottom up, and how far below zero they start (older blocks that were freed).

    Attributes:
        owners: (name, key) of each line that allocated a block.
        blocks: those that are alive in each column.
        moments: of each column, seconds of the change after which it is shown; 0: before the first.
    """

    layers: tuple[Layer, ...]
    older: Ints
    seconds: float
    owners: tuple[tuple[str, str], ...] = ()
    blocks: BlocksByColumn | None = None
    moments: tuple[float, ...] = ()
    device: str = ""

    @property
    def total(self) -> Ints:
        held: Ints = np.sum([layer.held for layer in self.layers], axis=0)
        return held - self.older


def stack(profile: Profile, device: str, columns: int = _COLUMNS) -> _Stack:
    """The held bytes of the lines that hold most, the rest as one layer, at the highest moment of each column."""
    memory = profile.memory
    assert memory is not None
    mine = memory[(memory["device"] == device) & memory["change"].notna()]
    change = mine["change"].to_numpy(dtype=np.int64)
    keys, owners = _owners(profile, mine)
    names = [name for name, _ in owners]
    totals = np.cumsum(change)
    seconds = max(profile.wall_time, float(mine["time"].max()) if len(mine) else 0.0) or 1.0
    shown_rows = _highest(mine["time"].to_numpy() / seconds, totals, columns)
    held = pd.Series(change).groupby(keys).cumsum()
    highest = held.groupby(keys).max().clip(lower=0)
    largest = sorted(range(len(names)), key=lambda key: -int(highest[key]))
    named, others = largest[:_MOST_LAYERS], largest[_MOST_LAYERS:]

    def layer(name: str, own: NDArray[np.bool_], key: str = "") -> Layer:
        held = np.cumsum(np.where(own, change, 0))
        return Layer(name, _at(held, shown_rows), int(held[-1]), key)

    layers = [layer(names[key], keys == key, owners[key][1]) for key in named]
    if others:
        layers.append(layer(f"{len(others)} other lines", np.isin(keys, others)))
    layers.sort(key=lambda layer: -float(layer.held.sum()) * _constancy(layer))  # the largest that stays comes first
    older = np.cumsum(np.where(keys < 0, -change, 0))
    given_at = _given_at(mine["block"], change > 0)
    blocks = blocks_by_column(change, given_at, keys, shown_rows)
    moments = np.append(mine["time"].to_numpy(dtype=np.float64), 0.0)[shown_rows].tolist()
    return _Stack(tuple(layers), _at(older, shown_rows), seconds, tuple(owners), blocks, tuple(moments), device)


def _constancy(layer: Layer) -> float:
    """1 for what is held all the time, less the shorter it is."""
    return (float(layer.held.mean()) / (int(layer.held.max(initial=0)) or 1)) ** 2


def _owners(profile: Profile, mine: pd.DataFrame) -> tuple[Ints, list[tuple[str, str]]]:
    """Of each change, the number of the line that allocated the block; -1 for a block from before. And of each line
    its name and what it is called when it is chosen."""
    is_given = (mine["change"] > 0).to_numpy(dtype=np.bool_)
    given = mine[is_given]
    by = [given[name].where(given["line"].notna()) for name in ("source_id", "line", "thread")]  # no line: one owner
    group = given.groupby(by, sort=False, dropna=False).ngroup().to_numpy()
    _, first, which = np.unique(group, return_index=True, return_inverse=True)
    owners = np.full(len(mine), -1, dtype=np.int64)
    owners[is_given] = np.argsort(np.argsort(first))[which]  # numbered in the order of their first
    first = np.sort(first)
    columns = (given[name].iloc[first] for name in ("source_id", "cell", "file", "line"))
    names = [
        ("no line", "")
        if pd.isna(line)
        else (
            _name(profile, source_id, cell, file, line),
            chosen_key("line", line_name(profile, source_id, int(line), cell, file)),
        )
        for source_id, cell, file, line in zip(*columns, strict=True)
    ]
    return owners[_given_at(mine["block"], is_given)], names


def _given_at(block: pd.Series, is_given: NDArray[np.bool_]) -> Ints:
    """Of each change, the row that allocated its block, itself perhaps; of a block from before some row that frees
    one."""
    numbers = block.fillna(-1).to_numpy(dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    given, same = is_given[order], numbers[order]
    starts = np.append(True, same[1:] != same[:-1])[: len(order)] | given  # of what one row allocated, or none did
    row = np.empty(len(order), dtype=np.int64)
    row[order] = order[np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))] if len(order) else order
    return row


def _name(profile: Profile, source_id: Any, cell: Any, file: Any, line: Any) -> str:
    """The variable that the line assigns to, where that is all that the line does, and the place."""
    found = place_in(profile.sources.get(source_id), int(line))
    only = found.statements[0] if found is not None and len(found.statements) == 1 else None
    targets = only.targets if isinstance(only, ast.Assign) else [only.target] if isinstance(only, ast.AnnAssign) else []
    target = targets[0] if targets else None
    where = place(cell, file, line)
    return f"{clipped(target.id, 12)} {where}" if isinstance(target, ast.Name) else where


def _highest(at: NDArray[np.float64], totals: Ints, columns: int) -> Ints:
    """The row to show in each column: of those within it and the one it begins with, that with the most; -1: none."""
    column = np.minimum((at * columns).astype(np.int64), columns - 1)
    shown = np.full(columns, -1, dtype=np.int64)
    ends = np.searchsorted(column, np.arange(columns), side="right")
    for each in range(columns):
        first = max(int(ends[each - 1]) - 1 if each else -1, -1)
        last = int(ends[each])
        candidates = totals[max(first, 0) : last]
        best = max(first, 0) + int(candidates.argmax()) if len(candidates) else -1
        shown[each] = -1 if best < 0 or (first < 0 and totals[best] < 0) else best
    return shown


def _at(values: Ints, rows: Ints) -> Ints:
    return np.append(values, 0)[rows]  # row -1: before the first change


def picture(profile: Profile, device: str, scale: units.Scale) -> str:
    """The markup; empty where nothing was ever held."""
    drawn = stack(profile, device)
    if not drawn.layers:
        return ""
    assert profile.memory is not None
    peak = peak_of(profile.memory, device)
    low = -int(drawn.older.max(initial=0))  # where the lowest layer starts
    high = max(peak.bytes, int(drawn.total.max()), 1)
    ticks = [tick for tick in round_ticks(low / scale.size, high / scale.size) if low <= tick * scale.size <= high]

    def y(nbytes: float) -> float:
        return (high - nbytes) / (high - low) * _HEIGHT

    parts = [
        f'<line class="tk" x1="0" x2="{_WIDTH}" y1="{y(t * scale.size):.1f}" y2="{y(t * scale.size):.1f}"/>'
        + svg_text(-8, y(t * scale.size) + 4, _tick(t), "end")
        for t in ticks
    ]
    parts.append(svg_text(-8, -8, scale.unit, "end"))
    tints = np.linspace(_PALEST, _STRONGEST, max(len(drawn.layers), 2)).round().astype(int).tolist()
    bottom = -drawn.older
    ends: list[tuple[float, Layer]] = []
    for layer, tint in zip(drawn.layers, tints, strict=False):
        top = bottom + layer.held
        shape = _area([y(v) for v in bottom], [y(v) for v in top])
        parts.append(f'<path class="ly" fill="{_HUE}" fill-opacity="{tint / 100:g}" d="{shape}"/>')
        if layer.held[-1] > 0.02 * high:
            ends.append((y(float(bottom[-1] + top[-1]) / 2), layer))
        else:
            parts.append(_inside(layer, [y(v) for v in bottom], [y(v) for v in top]))
        bottom = top
    axis = f'<line class="ax" stroke="{GREY}" x1="0" x2="{_WIDTH}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>'
    parts += [axis, *_labels(ends)]
    if peak.bytes:
        parts += _peak_marks(peak.time / drawn.seconds * _WIDTH, y(peak.bytes), peak.bytes, peak.time)
    parts += [*_strip(profile, drawn.seconds), *_times(drawn.seconds)]
    said = f"memory of {device} over time, peak {units.bytes_text(peak.bytes)} at {units.seconds_text(peak.time)}"
    name = drawing_id()
    drawing = figure((_WIDTH, _HEIGHT), (_LEFT, _TOP, _RIGHT, _BOTTOM), said, parts, ' tabindex="0"')
    return (
        f'{_STYLE}<div class="tb-memory" id="{name}">{drawing}<p role="status"></p></div>'
        f"{data_script('memory', name, packed_text(_data(drawn, scale)))}"
    )


def _tick(value: float) -> str:
    return (units.count(value) if value and value == int(value) else f"{value:g}").replace("-", "\u2212")


def _area(bottom: Sequence[float], top: Sequence[float]) -> str:
    """Steps along the top, and back along the bottom; equal neighbours are one step."""
    step = _WIDTH / len(top)

    def edge(values: Sequence[float], order: range) -> Iterator[str]:
        back = order.step < 0
        last = None
        for at in order:
            value = f"{values[at]:.1f}"
            if value != last:
                yield f"{(at + back) * step:.1f} {value}" if last is None else f"H{(at + back) * step:.1f}V{value}"
                last = value
        yield f"H{0 if back else _WIDTH}"

    count = len(top)
    there = "".join(edge(top, range(count)))
    again = "".join(edge(bottom, range(count - 1, -1, -1)))
    return f"M{there}L{again}Z"


def _inside(layer: Layer, bottom: Sequence[float], top: Sequence[float]) -> str:
    """The name of a layer that does not last, where it is thick for long enough."""
    step = _WIDTH / len(top)
    thick = [low - high >= 15 for low, high in zip(bottom, top, strict=True)]
    best, start = (0, 0), None
    for at, there in enumerate([*thick, False]):
        if there and start is None:
            start = at
        elif not there and start is not None:
            best, start = max(best, (at - start, start)), None
    length, first = best
    if length * step < 6.5 * len(layer.name) + 8:
        return ""
    middle = first + length // 2
    return svg_text((first + length / 2) * step, (bottom[middle] + top[middle]) / 2 + 4, layer.name, "middle", "i1")


def _labels(ends: Sequence[tuple[float, Layer]]) -> Iterator[str]:
    """The name of each layer that lasts, at its end, moved apart where they lie close; thin ones lie on top."""
    lowest = _HEIGHT + 4.0
    for middle, layer in ends:  # from the bottom up
        lowest = min(middle + 4, lowest)
        if lowest < 0:
            return
        yield svg_text(_WIDTH + 6, lowest, clipped(layer.name, 18), "start", "i1")
        lowest -= _APART


def _peak_marks(x: float, y: float, nbytes: int, seconds: float) -> list[str]:
    label = f"peak {units.bytes_text(nbytes)} at {units.seconds_text(seconds)}"
    anchor = "start" if x < 160 else "end"
    return [
        f'<line class="pk" stroke="{ALARM}" x1="0" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<line class="pk" stroke="{ALARM}" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 4:.1f}" y2="{_HEIGHT}"/>',
        svg_text(x + (6 if anchor == "start" else -6), y - 6, label, anchor, "i1"),
    ]


def _strip(profile: Profile, seconds: float) -> Iterator[str]:
    """Which line of the cell ran: the outermost line of its thread at each moment."""
    runs = _outermost(profile)
    if not runs:
        return
    top = _HEIGHT + 6
    yield svg_text(-8, top + 10, "line", "end")
    for start, end, label in runs:
        left, right = start / seconds * _WIDTH, min(end / seconds, 1.0) * _WIDTH
        if right - left >= 2:
            place_of = f'x="{left:.1f}" y="{top}" width="{right - left - 1:.1f}" height="{_STRIP}"'
            yield f'<rect class="st" fill="{GREY}33" {place_of}/>'
        if right - left >= 7 * len(label) + 4:
            yield svg_text((left + right) / 2, top + 10, label, "middle")


def _outermost(profile: Profile) -> list[tuple[float, float, str]]:
    """(start, end, ``:4``) in seconds, of the cell's own thread."""
    trace = profile.trace
    if trace is None:
        return []
    parents, lines = trace.nodes["parent"].to_numpy(), trace.nodes["line"].tolist()
    stays = line_ranges(trace)
    mine = np.flatnonzero((stays.thread == 0) & (parents[parents[stays.node]] < 0))  # right below the thread's root
    runs = zip(stays.start[mine].tolist(), stays.end[mine].tolist(), stays.node[mine].tolist(), strict=True)
    return [(start / 1e9, end / 1e9, f":{lines[node]}") for start, end, node in runs]


def _times(seconds: float) -> Iterator[str]:
    unit = units.smallest_scale([seconds])
    for tick in round_ticks(0.0, seconds / unit.size):
        if 0 <= tick * unit.size <= seconds:
            x = tick * unit.size / seconds * _WIDTH
            words = f"{tick:g} {unit.unit}" if tick == 0 else f"{tick:g}"
            yield svg_text(x, _HEIGHT + _BOTTOM - 6, words, "middle" if x > 10 else "start")


def _data(drawn: _Stack, scale: units.Scale) -> str:
    """What the pointer reads: names, and bytes by column in the unit of the axis."""

    def shortened(values: Ints) -> list[float]:
        return [float(f"{value / scale.size:.4g}") for value in values.tolist()]

    data = {
        "left": _LEFT,
        "width": _WIDTH,
        "top": _TOP,
        "height": _HEIGHT,
        "seconds": drawn.seconds,
        "unit": scale.unit,
        "total": shortened(drawn.total),
        "layers": [[printable(layer.name), shortened(layer.held), layer.key] for layer in drawn.layers],
        "size": scale.size,
        "device": drawn.device,
        "moments": [float(f"{moment:.6g}") for moment in drawn.moments],
        "owners": [[printable(name), key] for name, key in drawn.owners],
        "blocks": drawn.blocks.spec() if drawn.blocks is not None else None,
        **({"older": drawn.older.tolist()} if drawn.older.any() else {}),
    }
    return script_data(data)


# ---- with matplotlib -------------------------------------------------------------------------------------------------


def plotted(profile: Profile, devices: list[str], ax: Axes | None) -> Axes:
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
