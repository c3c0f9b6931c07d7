"""A tree of frames as a flame graph: a zoomable picture, with a table of the largest frames beside it.

Any call tree can be drawn: a profile's frames, the functions that callgrind counted. ``static/flame.js`` draws it, in
an inline module and in a widget; where no script runs, the table is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from torchbench_magic import units
from torchbench_magic.printable import printable

from . import html, renderers, text
from .document import Document, Phrase, clipped
from .drawing import literal, new_axes
from .html import boxed
from .javascript import es_module, is_own_page, with_modules
from .page_data import attribute, fitted, mounted, script_data
from .table import BuiltColumn, Cell, Column, built_table, share_cell, texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BYTES = 100_000
KINDS: dict[str, tuple[str, str]] = {
    "line": ("line", "notebook line"),
    "thread": ("line", "notebook line"),
    "torch": ("torch", "torch"),
    "op": ("torch", "torch"),
    "python": ("python", "Python"),
    "function": ("python", "Python"),
    "module": ("python", "Python"),
    "backward": ("backward", "backward"),
    "memory": ("memory", "memory"),
    "other": ("other", "other"),
}
"""What a frame may be -> its hue, and the word that the legend has for the hue."""

_LONGEST_NAME = 120
TABLE_ROWS = 20
_MOST_NOTES = 6  # lines beneath the numbers of a frame

# with matplotlib
_PLOTTED = {"line": "#c3c6c9", "torch": "#91b3d7", "python": "#ebcb9b", "backward": "#e2c1e1", "memory": "#95d0c1"}
_PLOTTED_OTHER = "#cacccf"  # as the flame graph of a page on white, so that text on it is read
_MOST_LEVELS = 40
_LEAST = 0.0015  # share of the width from which a frame is drawn
_CHARACTER = 0.0075  # share of the width that a letter takes, about


@dataclass(frozen=True, eq=False)
class Measure:
    """What the width of a frame can mean.

    Attributes:
        name: what the switch says ("time", "allocated").
        total: float [frames], SI, of a frame with those in it; 0 where a frame is not to be drawn.
        own: float [frames], without those in it; None where that says nothing.
        scale: unit in which numbers are written.
        axis: the picture gets an axis (time).
    """

    name: str
    total: npt.NDArray[np.float64]
    own: npt.NDArray[np.float64] | None
    scale: units.Scale
    axis: bool = False


@dataclass(frozen=True, eq=False)
class FlameGraph:
    """A flame graph, ready for any carrier; it displays itself in a notebook.

    Attributes:
        title: what it shows, one sentence.
        parent: int [frames], -1 for a root; a parent comes before its children, these in the order they ran.
        names: what is written on each frame; any text.
        kinds: of each frame, keys of `KINDS`; an unknown one is ``other``.
        measures: what the width can mean; the first is shown at first.
        facts: more numbers of a frame, shown beside the picture.
        notes: frame -> lines of text shown with it (input shapes).
        note: under the picture.
        where: how all frames are reached (``_tprofile.frames``).
        keys: of each frame, what it is called when it is chosen, see `profiling.ops_view.chosen_key`; none: nothing can
            be.
        links: what runs where, see `profiling.ops_view.links`; None where nothing is known of it.
        of: the result that it is a picture of, whose other views show what is chosen in it.
    """

    title: str
    parent: npt.NDArray[np.int64]
    names: Sequence[str]
    kinds: Sequence[str]
    measures: tuple[Measure, ...]
    facts: tuple[Measure, ...] = ()
    notes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    note: str = ""
    where: str = ""
    keys: Sequence[str] = ()
    links: Mapping[str, Any] | None = None
    of: object = field(default=None, repr=False)

    def __post_init__(self) -> None:
        at = np.arange(len(self.parent))
        if len(self.names) != len(at) or len(self.kinds) != len(at) or bool((self.parent >= at).any()):
            raise ValueError("a flame graph needs one name and kind per frame, and parents before their children")
        if self.keys and len(self.keys) != len(at):
            raise ValueError("a flame graph needs a key per frame, or none")
        if not self.measures:
            raise ValueError("a flame graph needs something that its widths mean")

    def __len__(self) -> int:
        return len(self.parent)

    def largest(self, most: int) -> FlameGraph:
        """The ``most`` frames with the largest share of any measure: with each its callers, which are no smaller."""
        if len(self) <= most:
            return self
        share = np.zeros(len(self))
        for measure in self.measures:
            span = float(measure.total[self.parent < 0].sum())
            share = np.maximum(share, measure.total / span if span > 0 else 0.0)
        kept = np.sort(np.argsort(-share, kind="stable")[:most])
        number = np.full(len(self) + 1, -1, dtype=np.int64)  # the last is what parent -1 finds
        number[kept] = np.arange(len(kept))

        def cut(measure: Measure) -> Measure:
            own = None if measure.own is None else measure.own[kept]
            return replace(measure, total=measure.total[kept], own=own)

        widest = 100 * float(np.delete(share, kept).max())
        said = f"{units.count(len(self) - most)} frames of at most {units.number(widest, units.Scale(places=2))} %"
        return replace(
            self,
            parent=number[self.parent[kept]],
            names=[self.names[at] for at in kept],
            kinds=[self.kinds[at] for at in kept],
            keys=[self.keys[at] for at in kept] if self.keys else (),
            measures=tuple(map(cut, self.measures)),
            facts=tuple(map(cut, self.facts)),
            notes={int(number[at]): lines for at, lines in self.notes.items() if number[at] >= 0},
            note=f"{self.note} {said} are not drawn{f'; all: {self.where}' if self.where else ''}.".strip(),
        )

    def __repr__(self) -> str:
        return text.for_stdout(flame_document(self))

    to_html = renderers.to_html

    def plot(self, ax: Any = None) -> Any:
        """The picture with matplotlib; its Axes are returned. MissingTool where matplotlib is not installed."""
        return _plot(self, ax)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        fragment = boxed("".join(markup(self)), self.of)
        return {"text/plain": text.render(flame_document(self)), "text/html": with_modules(fragment)}


def flame_document(graph: FlameGraph, most: int = TABLE_ROWS) -> Document:
    """What is read where no script runs: the frames with the most of their own (else with the largest total)."""
    measure = graph.measures[0]
    values = measure.total if measure.own is None else measure.own
    span = float(measure.total[graph.parent < 0].sum())
    order = [at for at in np.argsort(-values, kind="stable")[:most] if values[at] > 0]
    parents, own = graph.parent.tolist(), measure.own
    built = [
        texts("frame", "frame", 50, lambda at: clipped(graph.names[at], _LONGEST_NAME)),
        texts("of", "called from", 40, lambda at: graph.names[parents[at]] if parents[at] >= 0 else ""),
        *([_amount("self", own, measure.scale)] if own is not None else []),
        _amount("total", measure.total, measure.scale),
        BuiltColumn(Column("share", "total", "%", "number"), lambda at: share_cell(float(measure.total[at]), span)),
    ]
    left = len(graph) - len(order)
    hidden = f"{units.count(len(order)) if order else 'none'} of {units.count(len(graph))} frames" if left else ""
    hidden += f". All frames: {graph.where}" if hidden and graph.where else ""
    table = built_table("frames", built, order, hidden=hidden)
    return Document("flame graph", (Phrase(graph.title),), (table,), where=graph.where)


def _amount(name: str, values: npt.NDArray[np.float64], scale: units.Scale) -> BuiltColumn:
    column = Column(name, name, scale.unit, "number")
    return BuiltColumn(column, lambda at: Cell(units.number(float(values[at]), scale), float(values[at])))


def markup(
    graph: FlameGraph, *, slot: str = "", most_bytes: int = MOST_BYTES, rows: int = TABLE_ROWS
) -> tuple[str, str]:
    """(the element, with the table in it, that the picture is drawn in; the script with its data).

    ``slot`` names a place in the shadow root of the element that this one is put into; ``rows`` are those of the
    table. Together at most about ``most_bytes`` as a notebook stores them: the smallest frames are left out, and
    counted. By itself, and on a page of its own, it can do more than among the views of an output.
    """
    is_small = bool(slot) and not is_own_page()
    return mounted(
        "torchbench-flame",
        "flame graph",
        _in_words(graph, rows) if is_small else html.static(flame_document(graph, rows)),
        "flame" if is_small else "flame_explorer",
        lambda room: fitted(lambda n: script_data(spec_of(graph.largest(n))), room, len(graph), 1, is_packed=True),
        most_bytes=most_bytes,
        slot=slot,
    )


def _in_words(graph: FlameGraph, most: int) -> str:
    """The largest frames as a line, for an output with other tables: a tenth of the bytes of one."""
    document = flame_document(graph, most)
    (table,), measure = document.tables, graph.measures[0]
    at = next(place for place, column in enumerate(table.columns) if column.name in ("self", "total"))
    said = ", ".join(f"{row.cells[0].text} {row.cells[at].text} {measure.scale.unit}".strip() for row in table.rows())
    word = "By themselves" if measure.own is not None else "With what they call"
    whole = f"{graph.title}. {word}: {said}. {table.hidden}"
    return f"<p><small>{attribute(whole)}</small></p>"


def spec_of(graph: FlameGraph) -> dict[str, Any]:
    """The graph as what JSON can hold: what ``static/flame.js`` reads."""
    names = [printable(clipped(name, _LONGEST_NAME)) for name in graph.names]
    named = list(zip(names, graph.keys or [""] * len(names), strict=True))
    different = {pair: at for at, pair in enumerate(dict.fromkeys(named))}
    kinds = [kind if kind in KINDS else "other" for kind in graph.kinds]
    used = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
    return {
        "title": printable(graph.title),
        "names": [name for name, _ in different],
        "name": [different[pair] for pair in named],
        **({"keys": [shortened_key(key, name) for name, key in different]} if graph.keys else {}),
        **({"links": graph.links} if graph.links else {}),
        "kinds": [KINDS[kind] for kind in used],
        "kind": [used[kind] for kind in kinds],
        "parent": graph.parent.tolist(),
        "metrics": [_measure(measure) for measure in graph.measures],
        "facts": [
            {"name": m.name, "unit": m.scale.unit, "places": m.scale.places or 0, "values": _values(m.total, m.scale)}
            for m in graph.facts
        ],
        "notes": {str(at): [printable(line) for line in lines[:_MOST_NOTES]] for at, lines in graph.notes.items()},
        "note": f"Enter or click zooms in, Escape goes back, arrow keys move. {graph.note}".strip(),
    }


def shortened_key(key: str, name: str) -> str:
    """``op:*`` where the rest of a key is the name that is shown: what is read again compresses better."""
    kind, colon, rest = key.partition(":")
    return f"{kind}:*" if colon and rest == name else key


def _measure(measure: Measure) -> dict[str, Any]:
    scale = measure.scale
    spec = {"name": measure.name, "unit": scale.unit, "places": scale.places if scale.places is not None else 1}
    spec |= {"axis": measure.axis, "total": _values(measure.total, scale)}
    return spec if measure.own is None else spec | {"self": _values(measure.own, scale)}


def _values(values: npt.NDArray[np.float64], scale: units.Scale) -> list[float | int]:
    """In the unit of the scale, five digits: no picture shows more."""
    short = [float(f"{value:.5g}") for value in (np.nan_to_num(values) / scale.size).tolist()]
    return [int(value) if value.is_integer() else value for value in short]


def module() -> str:
    """The module, for a widget."""
    return es_module("flame_explorer", "canvas_widget")


# ---- with matplotlib ---------------------------------------------------------------------------------------------


def _plot(graph: FlameGraph, ax: Axes | None) -> Axes:
    """Frames as bars below their callers; what is narrower than 0.15 % or deeper than 40 is not drawn, and counted."""
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
        hue = _PLOTTED.get(KINDS.get(graph.kinds[at], KINDS["other"])[0], _PLOTTED_OTHER)
        ax.barh(int(depths[at]), wide, left=left, height=0.94, color=hue, edgecolor="white", linewidth=0.5)
        room = int(wide * unit.size / span / _CHARACTER) - 1
        if room >= 3:
            name = graph.names[at]
            name = name if len(name) <= room else f"{name[: room - 1]}…"
            ax.text(left, int(depths[at]), f" {literal(name)}", va="center", fontsize=7, clip_on=True)
    left_out = int(every.sum()) - len(shown)
    said = f"; {units.count(left_out)} narrow frames are not drawn" if left_out else ""
    ax.set_xlabel(f"{literal(measure.name)}{f' ({unit.unit})' if unit.unit else ''}{said}")
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
