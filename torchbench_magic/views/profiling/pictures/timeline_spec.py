"""What ``static/timeline_graph.js`` reads of a timeline: bars, exact sums by slots of time, what bars are called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from torchbench_magic import units
from torchbench_magic.views.document import clipped, printable
from torchbench_magic.views.drawing.bars import HUES, Bars, distinct_rows
from torchbench_magic.views.drawing.flame import shortened_key

from .span_sums import SpanSums
from .thread_bars import RUNNING, WAITING

__all__ = ["LONGEST_NAME", "MOST_BARS", "MOST_DEPTH", "TICKS", "bars_in_span", "spec_of", "widget_spec"]

MOST_BARS = 10_000
TICKS = 22  # bits: times are parts of the whole
MOST_DEPTH = 40  # rows of one track; what is nested deeper is not drawn, and counted
LONGEST_NAME = 100
_FULL_SUMS = 2_000  # with fewer bars to draw, few names have sums of their own
_MOST_IN_WIDGET = 40_000  # what is drawn together there is asked for
_MOST_IN_SPAN = 10_000  # of one answer
_WORDS = ("line", "torch", "range", "backward", "copy", "runtime call")  # of each of HUES, for the legend


class Seen(Protocol):
    """What is read of a `timeline.Timeline`."""

    @property
    def title(self) -> str: ...
    @property
    def duration(self) -> int: ...
    @property
    def tracks(self) -> tuple[str, ...]: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def places(self) -> tuple[str, ...]: ...
    @property
    def bars(self) -> Bars: ...
    @property
    def sums(self) -> SpanSums: ...
    @property
    def few_sums(self) -> SpanSums: ...


def spec_of(line: Seen, most: int = MOST_BARS, ticks: int = TICKS, *, all_names: bool = False) -> dict[str, Any]:
    """What ``static/timeline_graph.js`` reads, times in ticks of ``tick`` s, of which 2 to the ``ticks`` are about the
    whole (0: ticks are ns); see `_columns` and `SpanSums.spec`. The sums take as much room as so many bars, about.
    """
    bars = line.bars.where(line.bars.depth < MOST_DEPTH)
    deeper = len(line.bars) - len(bars)
    bars = bars.fewer(most)
    sums = line.sums if most >= _FULL_SUMS else line.few_sums
    while len(sums.key) > max(min(most // 2, len(bars)), len(sums.track)) and sums.slots > 1:
        sums = sums.halved()
    tick = max(1, line.duration >> ticks) if ticks else 1
    said_of = np.concatenate([bars.name, sums.name[sums.name >= 0]])
    used = np.arange(len(line.names)) if all_names else np.unique(said_of)
    name = np.searchsorted(used, said_of)
    named = np.full(len(sums.name), -1, dtype=np.int64)
    named[sums.name >= 0] = name[len(bars) :]
    bars, sums = replace(bars, name=name[: len(bars)]), replace(sums, name=named)
    names = [line.names[n] for n in used.tolist()]
    scale = units.spread_scale([line.duration / 1e9])
    merged = int(bars.count[bars.count > 1].sum())
    said = []
    if merged:
        said.append(f"{units.count(merged)} of {units.count(len(line.bars))} bars are short and drawn together.")
    if deeper:
        said.append(f"{units.count(deeper)} are nested deeper than {MOST_DEPTH} and not drawn.")
    if said:
        said.append("The table counts all of them; .timeline().to_html(path) draws each.")
    return {
        "title": printable(line.title),
        "seconds": line.duration / 1e9,
        "tick": tick / 1e9,
        "unit": scale.unit,
        "size": scale.size,
        "places": scale.places if scale.places is not None else 2,
        "tracks": [printable(clipped(track, 40)) for track in line.tracks],
        "names": [printable(clipped(each, LONGEST_NAME)) for each in names],
        **({"keys": [_short_key(line, n) for n in used.tolist()]} if line.keys else {}),
        "placesOf": [printable(place) for place in line.places],
        "hues": list(HUES),
        "legend": [(HUES[hue], ", ".join(words)) for hue, words in _legend(bars, names)],
        **_columns(bars, tick, len(line.tracks)),
        "sums": sums.spec(line.duration, is_exact=not ticks),
        "isWhole": not deeper,
        "note": " ".join(said),
    }


def _legend(bars: Bars, names: list[str]) -> Iterator[tuple[int, list[str]]]:
    """What stands for each hue that is drawn: a kind of event, threads, or both."""
    pairs = np.unique(np.column_stack([bars.hue, bars.name]), axis=0).tolist()
    for hue in sorted({hue for hue, _ in pairs}):
        said = {names[name] if names[name] in (RUNNING, WAITING) else _WORDS[hue] for of, name in pairs if of == hue}
        yield hue, sorted(said, key=lambda word: word != _WORDS[hue])


def _columns(bars: Bars, tick: int, tracks: int) -> dict[str, Any]:
    """``bars``, a list per column, those of each track one after the other, each before those in it; and ``what``, of
    each kind of bar its row, name, hue and place. ``ahead``: ticks from the start of the bar one row above, for the
    first in it, else from the end of the one before in its row. ``count``: only where some are drawn together.

    The steps of a loop run alike: in this order each is nearly the list of the one before, which compression finds.
    """
    bars = bars.where(np.lexsort((bars.depth, bars.start, bars.track)))
    start, end = bars.start // tick, (bars.start + bars.duration) // tick
    ahead: list[int] = []
    begun, ended, track, before = [0], [0], -1, -1
    for at, first, last, depth in zip(*(part.tolist() for part in (bars.track, start, end, bars.depth)), strict=True):
        if at != track:
            begun, ended, track, before = [0] * (MOST_DEPTH + 1), [0] * (MOST_DEPTH + 1), at, -1
        ahead.append(first - (begun[depth - 1] if 0 < depth > before else ended[depth]))
        begun[depth], ended[depth], before = first, last, depth
    known, which = distinct_rows(bars.depth, bars.name, bars.hue, bars.place)
    what = dict(zip(("depth", "name", "hue", "place"), known.T.tolist(), strict=True))
    columns = {
        "of": np.bincount(bars.track, minlength=tracks).tolist(),
        "what": which.tolist(),
        "ahead": ahead,
        "duration": (end - start).tolist(),
    }
    if bars.count.max(initial=1) > 1:
        columns["count"] = bars.count.tolist()
    return {"bars": columns, "what": what}


def _short_key(line: Seen, name: int) -> str:
    return shortened_key(line.keys[name], printable(clipped(line.names[name], LONGEST_NAME)))


# ---- the live widget --------------------------------------------------------------------------------------------


def widget_spec(line: Seen) -> dict[str, Any]:
    """`spec_of` for the widget. Where bars are drawn together, those of a span are asked for: see `bars_in_span`."""
    spec = spec_of(line, _MOST_IN_WIDGET, all_names=True)
    return spec | {"asks": True, "fineTick": 1e-9} if "count" in spec["bars"] else spec


def bars_in_span(line: Seen, start: float, end: float) -> dict[str, Any]:
    """The bars that reach into a span, seconds, as `spec_of` has them, in ns; ``merged`` if some are drawn together."""
    bars = line.bars
    first, last = int(start * 1e9), int(end * 1e9)
    inside = (bars.start <= last) & (bars.start + bars.duration >= first) & (bars.depth < MOST_DEPTH)
    fewer = bars.where(inside).fewer(_MOST_IN_SPAN, max(last - first, 1))
    columns = _columns(fewer, 1, len(line.tracks))
    return {"type": "bars", "from": start, "to": end, "merged": "count" in columns["bars"], **columns}
