"""What ran when: lines, ops and ranges of each thread, kernels of each stream, as one picture that zooms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from torchbench_magic import units
from torchbench_magic.array_types import Ints
from torchbench_magic.errors import InputError
from torchbench_magic.printable import printable
from torchbench_magic.profiling.ops_view import chosen_key, is_backward, op_text
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.trace import KINDS, Trace, line_ranges, node_sources
from torchbench_magic.show import html, renderers, text
from torchbench_magic.show.document import Document, Drawn, Phrase, clipped
from torchbench_magic.show.flame import shortened_key
from torchbench_magic.show.html import boxed
from torchbench_magic.show.javascript import es_module, is_own_page, with_modules
from torchbench_magic.show.page_data import attribute, fitted, mounted, script_data
from torchbench_magic.show.table import (
    BuiltColumn,
    Cell,
    Column,
    built_table,
    counted,
    frame_rows,
    measured_columns,
    texts,
)

# ---- bars ------------------------------------------------------------------------------------------------------------
# The bars of a timeline, fewer of them where there are more than can be seen, and the module that draws them.

HUES = ("line", "torch", "python", "backward", "memory", "other")


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of all tracks in columns of one length, sorted by (track, depth, start).

    Attributes:
        track, depth: int64, where it is drawn; 0 is the top row of a track.
        start, duration: int64, ns since the body was entered.
        name: int64, index of `Timeline.names`.
        hue: int64, index of `HUES`.
        place: int64, index of `Timeline.places`; -1 for none.
        count: int64, how many it stands for.
        busy: int64, ns, the sum of the durations of these.
    """

    track: Ints
    depth: Ints
    start: Ints
    duration: Ints
    name: Ints
    hue: Ints
    place: Ints
    count: Ints
    busy: Ints

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: NDArray[Any]) -> Bars:
        return Bars(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @classmethod
    def join(cls, *parts: Bars) -> Bars:
        joined = cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__dataclass_fields__))
        return joined.where(np.lexsort((joined.start, joined.depth, joined.track)))

    def fewer(self, most: int) -> Bars:
        """At most about ``most`` bars: the shortest are drawn together with their neighbours of the same row."""
        if len(self) <= most:
            return self
        least = np.partition(self.duration, len(self) - most // 2)[len(self) - most // 2]
        short = self.duration <= least
        kept, rest = self.where(~short), self.where(short)
        span = int((self.start + self.duration).max()) + 1
        pixel = max(1, span * max(1, len(np.unique(self.track * 1000 + self.depth))) // max(1, most // 2))
        keys = (rest.track, rest.depth, rest.start // pixel)  # bars of one row stand together, by their start
        changes = np.any([key[1:] != key[:-1] for key in keys], axis=0)
        first = np.flatnonzero(np.append(True, changes))
        start = rest.start[first]
        count, busy = (np.add.reduceat(column, first) for column in (rest.count, rest.busy))
        end = np.maximum.reduceat(rest.start + rest.duration, first)
        merged = rest.where(first)
        merged = Bars(
            merged.track, merged.depth, start, end - start, merged.name, merged.hue, merged.place, count, busy
        )  # fmt: skip
        return Bars.join(kept, merged)


def module() -> str:
    """The text of the module that draws them, as it may stand in a script element."""
    return es_module("timeline_explorer", "canvas_widget")


# ---- timeline_spec ---------------------------------------------------------------------------------------------------

MOST_BARS = 10_000
TICKS = 22  # bits: times are parts of the whole
MOST_DEPTH = 40  # rows of one track; what is nested deeper is not drawn, and counted
LONGEST_NAME = 100
_MOST_IN_WIDGET = 40_000
_WORDS = ("line", "torch", "range", "backward", "copy", "runtime call")  # of each of HUES, for the legend


def spec_of(line: Timeline, most: int = MOST_BARS, ticks: int = TICKS) -> dict[str, Any]:
    """What ``static/timeline_graph.js`` reads, times in ticks of ``tick`` s, of which 2 to the ``ticks`` are about the
    whole (0: ticks are ns); see `_columns`.
    """
    bars = line.bars.where(line.bars.depth < MOST_DEPTH)
    deeper = len(line.bars) - len(bars)
    bars = bars.fewer(most)
    tick = max(1, line.duration >> ticks) if ticks else 1
    used, name = np.unique(bars.name, return_inverse=True)
    bars = replace(bars, name=name)
    names = [line.names[n] for n in used.tolist()]
    scale = units.spread_scale([line.duration / 1e9])
    merged = int(bars.count[bars.count > 1].sum())
    said = []
    if merged:
        said.append(f"{units.count(merged)} of {units.count(len(line.bars))} bars are short and drawn together.")
    if deeper:
        said.append(f"{units.count(deeper)} are nested deeper than {MOST_DEPTH} and not drawn.")
    if said:
        said.append(".timeline().to_html(path) draws each.")
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
        "legend": [(HUES[hue], _WORDS[hue]) for hue in np.unique(bars.hue).tolist()],
        **_columns(bars, tick, len(line.tracks)),
        "note": " ".join(said),
    }


def _columns(bars: Bars, tick: int, tracks: int) -> dict[str, Any]:
    """``bars``, a list per column, those of each track one after the other, each before those in it; and ``what``, of
    each kind of bar its row, name, hue and place. ``ahead``: ticks from the start of the bar one row above, for the
    first in it, else from the end of the one before in its row. ``count`` and ``busy``: only where some are drawn
    together.

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
    kinds = pd.DataFrame({name: getattr(bars, name) for name in ("depth", "name", "hue", "place")})
    which = kinds.groupby(list(kinds), sort=False).ngroup()
    columns = {
        "of": np.bincount(bars.track, minlength=tracks).tolist(),
        "what": which.tolist(),
        "ahead": ahead,
        "duration": (end - start).tolist(),
    }
    if bars.count.max(initial=1) > 1:
        columns |= {"count": bars.count.tolist(), "busy": (bars.busy // tick).tolist()}
    return {"bars": columns, "what": kinds.drop_duplicates().to_dict("list")}


def _short_key(line: Timeline, name: int) -> str:
    return shortened_key(line.keys[name], printable(clipped(line.names[name], LONGEST_NAME)))


# ---- timeline --------------------------------------------------------------------------------------------------------
# ``static/timeline.js`` draws it, in an inline module and in a widget. Where no script runs, a table of what took most
# time on each track is read. Bars that are too short to be seen are drawn together, as one that says how many it is.

MOST_BYTES = 100_000
_MOST_ON_PAGE = 2_000_000  # bars of a page of its own, about 6 bytes each: every one, as a rule
_LARGEST_PAGE = 200_000_000
_PAGE_BYTES = 300_000  # of the picture in the page of a profile, with others
_TABLE_ROWS = 20
_INLINE_TICKS = 15  # a bar more is worth more than a digit more
_INLINE_BYTES = 2600  # within the output of a profile, which has other pictures too
_MOST_INLINE = 20_000  # events and segments: about a fifth of a second
_HUE_OF_KIND = ("torch", "python", "other", "torch", "memory", "memory")  # of each of KINDS
_KEY = "\0"  # between a name, while they are collected, and its key: names that look alike may be several operations


@dataclass(frozen=True, eq=False)
class Timeline:
    """The timeline of a profile; it displays itself in a notebook.

    Attributes:
        title: what it shows, one sentence.
        duration: ns.
        tracks: names, from the top.
        names: what is written on bars.
        places: ``In[3]:4``.
        bars: every bar; those nested deeper than `MOST_DEPTH` are not drawn.
        keys: of each name, what it is called when it is chosen, see `profiling.ops_view.chosen_key`; empty where it
        cannot be.
    """

    title: str
    duration: int
    tracks: tuple[str, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    bars: Bars
    profile: Profile | None = field(default=None, repr=False)
    keys: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per bar: ``track depth name place start duration``, seconds."""
        bars = self.bars
        return pd.DataFrame(
            {
                "track": [self.tracks[n] for n in bars.track.tolist()],
                "depth": bars.depth,
                "name": [self.names[n] for n in bars.name.tolist()],
                "place": [self.places[n] if n >= 0 else None for n in bars.place.tolist()],
                "start": bars.start / 1e9,
                "duration": bars.duration / 1e9,
            }
        )

    def between(self, start: float, end: float) -> pd.DataFrame:
        """What ran from ``start`` to ``end`` (seconds since the body was entered), per track, name and place:
        ``track name place calls time``, ``time`` being the seconds within the span, calls inside included."""
        bars = self.bars
        begins, ends = bars.start / 1e9, bars.start / 1e9 + bars.duration / 1e9
        inside = np.flatnonzero((begins < end) & (ends >= start))
        track = np.array(list(map(self.tracks.index, self.tracks)), dtype=np.int64)[bars.track[inside]]  # of its name
        within = np.minimum(ends[inside], end) - np.maximum(begins[inside], start)
        rows = pd.DataFrame({"track": track, "name": bars.name[inside], "place": bars.place[inside], "time": within})
        sums = rows.groupby(["track", "name", "place"], sort=False)["time"].agg(calls="size", time="sum").reset_index()
        sums = sums.sort_values("time", ascending=False, kind="stable", ignore_index=True)
        for column, of in (("track", self.tracks), ("name", self.names), ("place", (*self.places, None))):  # -1: None
            sums[column] = pd.Series([of[number] for number in sums[column].tolist()], dtype=object)
        return sums

    def explore(self) -> Any:
        """The live widget; the span that is brushed is its ``selection``, what ran in it its ``rows``."""
        from .timeline_widget import TimelineWidget

        return TimelineWidget(self, spec_of(self, _MOST_IN_WIDGET))

    def __repr__(self) -> str:
        return text.for_stdout(document(self))

    to_html = renderers.to_html

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        fragment = with_modules(boxed("".join(markup(self)), self.profile))
        return {"text/plain": text.render(document(self)), "text/html": fragment}


def timeline(profile: Profile) -> Timeline:
    """See `Profile.timeline`."""
    trace = profile.trace
    if trace is None:
        raise InputError("this profile has no events over time, so there is no timeline")
    names: dict[str, int] = {}
    places: dict[str, int] = {}
    tracks, lines_of, track_of = _tracks(trace)
    node_place = _node_places(profile, trace, places)
    parts = [_lines(profile, trace, lines_of, node_place, names)] if lines_of else []
    parts.append(_events(trace, track_of, node_place, names))
    title = _answer(trace)
    bars = Bars.join(*parts)
    shown, _, keys = zip(*(name.partition(_KEY) for name in names), strict=True) if names else ((), (), ())
    return Timeline(title, max(trace.duration, 1), tuple(tracks), shown, tuple(places), bars, profile, keys)


def _answer(trace: Trace) -> str:
    """``MainThread is in torch for 93 % of 458 ms; cuda:0 stream 7 is busy for 12 %``."""
    events, whole = trace.events, max(trace.duration, 1)
    kind, parent = events["kind"].to_numpy(), events["parent"].to_numpy()
    is_op = kind == KINDS.index("op")
    outermost = is_op & ~np.append(is_op, False)[parent]  # in no op; what is in a range counts
    outermost |= trace.is_on_device
    busy = events[outermost].groupby("track")["duration"].sum().sort_values(ascending=False)
    said: list[str] = []
    for number, ns in busy.head(3).items():
        track = trace.tracks[int(str(number))]
        share = f"{units.percent(min(float(ns) / whole, 1.0))} %"
        of = f" of {units.seconds_text(whole / 1e9)}" if not said else ""
        what = "is busy for" if track.device else "is in torch for"
        said.append(f"{f'{track.device} {track.name}'.strip()} {what} {share}{of}")
    return "; ".join(said) or f"no torch operation was recorded in {units.seconds_text(whole / 1e9)}"


def _tracks(trace: Trace) -> tuple[list[str], dict[int, int], Ints]:
    """Names from the top; thread -> track of its lines; and of each track of the trace, its number here."""
    with_lines = set(trace.segments["thread"].unique().tolist())
    names: list[str] = []
    lines_of: dict[int, int] = {}
    track_of = []
    for track in trace.tracks:
        if track.thread in with_lines:
            lines_of[track.thread] = len(names)
            names.append("lines" if track.thread == 0 else f"lines of {track.name}")
        track_of.append(len(names))
        names.append(f"{track.device} {track.name}".strip())
    return names, lines_of, np.array(track_of, dtype=np.int64)


def _node_places(profile: Profile, trace: Trace, places: dict[str, int]) -> Ints:
    """Of each node, and at the end of none, the number of its place; -1 for a root."""
    stands = zip(node_sources(trace, profile.sources), trace.nodes["line"].tolist(), strict=True)
    found = [-1 if known is None else places.setdefault(f"{known.label}:{line}", len(places)) for known, line in stands]
    return np.array([*found, -1], dtype=np.int64)


def _lines(profile: Profile, trace: Trace, lines_of: dict[int, int], node_place: Ints, names: dict[str, int]) -> Bars:
    texts = []
    for known, at in zip(node_sources(trace, profile.sources), trace.nodes["line"].tolist(), strict=True):
        words = f"{known.label}:{at} {known.line(at).strip()}" if known is not None else "no line"
        texts.append(names.setdefault(words, len(names)))
    depth_of = np.full(len(trace.nodes), -1, dtype=np.int64)  # a root is no row
    for node, parent in enumerate(trace.nodes["parent"].tolist()):
        depth_of[node] = depth_of[parent] + 1 if parent >= 0 else -1
    stays = line_ranges(trace)
    threads, which = np.unique(stays.thread, return_inverse=True)
    tracks = np.array([lines_of[thread] for thread in threads.tolist()], dtype=np.int64)
    return Bars(
        tracks[which], depth_of[stays.node], stays.start, stays.end - stays.start,
        np.array(texts, dtype=np.int64)[stays.node], np.full(len(stays), HUES.index("line")), node_place[stays.node],
        np.ones(len(stays), dtype=np.int64), stays.end - stays.start,
    )  # fmt: skip


def _events(trace: Trace, track_of: Ints, node_place: Ints, names: dict[str, int]) -> Bars:
    columns = {name: trace.events[name].to_numpy().astype(np.int64) for name in trace.events.columns}
    named = [op_text(name) + _KEY + chosen_key("op", name) for name in trace.names]
    numbers = np.array([names.setdefault(each, len(names)) for each in named] or [0], dtype=np.int64)
    hues = np.array([HUES.index(hue) for hue in _HUE_OF_KIND])[columns["kind"]]
    backward = np.array([is_backward(name) for name in trace.names] or [False])[columns["name"]]
    is_op = columns["kind"] == KINDS.index("op")
    hues[is_op & (backward | (columns["caused_by"] >= 0))] = HUES.index("backward")
    return Bars(
        track_of[columns["track"]], _depths(columns["parent"]), columns["start"], columns["duration"],
        numbers[columns["name"]], hues, node_place[columns["node"]], np.ones(len(trace), dtype=np.int64),
        columns["duration"],
    )  # fmt: skip


def _depths(parent: Ints) -> Ints:
    """How many events each one runs in."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent.copy()
    while (inside := above >= 0).any():
        depth[inside] += 1
        above[inside] = parent[above[inside]]
    return depth


# ---- what is read without a script ------------------------------------------------------------------------------


def document(line: Timeline, most: int = _TABLE_ROWS) -> Document:
    """The names that take most time on each track."""
    sums = line.between(0.0, line.duration / 1e9)
    shown = sums.head(most)
    built = (
        BuiltColumn(Column("track", "track", widest=28), lambda row: Cell(str(row["track"]))),
        texts("name", "name", 60, lambda row: clipped(str(row["name"]), LONGEST_NAME)),
        counted("calls", "calls"),
        measured_columns("time", "time", units.spread_scale(sums["time"])),
    )
    every = f"{len(shown)} of {units.count(len(sums))} names. All: .between(start, end)"
    hidden = every if len(sums) > len(shown) else ""
    table = built_table("timeline", built, frame_rows(shown), hidden=hidden)
    return Document("timeline", (Phrase(line.title),), (table,), where=".frame")


def _in_words(line: Timeline, most: int) -> str:
    """The names that take most time as a line, for an output with other tables: a tenth of the bytes of one."""
    sums = line.between(0.0, line.duration / 1e9)
    said = [f"{clipped(str(row['name']), 40)} {units.seconds_text(row['time'])}" for row in frame_rows(sums.head(most))]
    more = f" ({len(said)} of {units.count(len(sums))} names)" if len(sums) > len(said) else ""
    whole = f"{line.title}. Most time: {', '.join(said)}{more}."
    return f"<p><small>{attribute(whole)}</small></p>"


# ---- the picture ------------------------------------------------------------------------------------------------


def drawn(profile: Profile, place: int) -> Drawn | None:
    """The timeline as a view of the profile's output; None where there is none, or too much to lay it out in passing
    (`Profile.timeline` does)."""
    trace = profile.trace
    most = _MOST_ON_PAGE if is_own_page() else _MOST_INLINE
    if trace is None or not len(trace) or len(trace) + len(trace.segments) > most:
        return None
    room, ticks = (_PAGE_BYTES, TICKS) if is_own_page() else (_INLINE_BYTES, _INLINE_TICKS)
    element, scripts = markup(timeline(profile), slot=f"drawn-{place}", most_bytes=room, rows=3, ticks=ticks)
    return Drawn("timeline", element, scripts)


def markup(
    line: Timeline, *, slot: str = "", most_bytes: int = MOST_BYTES, rows: int = _TABLE_ROWS, ticks: int = TICKS
) -> tuple[str, str]:
    """(the element, with the table in it; the script with its data): at most ``most_bytes`` as a notebook has them.

    By itself on a page of its own it has every bar, to the nanosecond, however large that is.
    """
    is_whole, is_small = is_own_page() and not slot, bool(slot) and not is_own_page()
    most_bars = _MOST_ON_PAGE if is_own_page() else MOST_BARS

    def data(room: int) -> str:
        if is_whole:
            return script_data(spec_of(line, _MOST_ON_PAGE, 0))
        return fitted(lambda n: script_data(spec_of(line, n, ticks)), room, most_bars, 50, is_packed=True)

    return mounted(
        "torchbench-timeline",
        "timeline",
        _in_words(line, rows) if is_small else html.static(document(line, rows)),
        "timeline" if is_small else "timeline_explorer",
        data,
        most_bytes=_LARGEST_PAGE if is_whole else most_bytes,
        slot=slot,
    )
