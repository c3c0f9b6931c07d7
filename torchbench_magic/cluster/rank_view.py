"""The ranks of a job as a document: sentence, strip over time, tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from torchbench_magic import units
from torchbench_magic.profiling.lines_view import unfolding
from torchbench_magic.result_base import most_important_first
from torchbench_magic.show.document import Document, Phrase, StyledText, Unfolding, backticked, clipped
from torchbench_magic.show.drawing import figure, round_ticks, svg_text
from torchbench_magic.show.json_output import finite_number, plain_value, rows_of
from torchbench_magic.show.page_data import attribute, drawing_id
from torchbench_magic.show.palette import ALARM, GREY, HUES, letters, mixed, theme
from torchbench_magic.show.table import BuiltColumn, Cell, Column, Table, built_table, counted, measured_columns, texts

from .job_profile import RankProfile

# ---- rank_strip ------------------------------------------------------------------------------------------------------

_WIDTH, _ROW, _BAR = 690, 26, 16  # px
_LEFT, _TOP, _RIGHT = 66, 8, 20
_MOST_RANKS = 16
_MOST_WAITS = 12
_APART = 46  # px between two names of ranks that were waited for
_WORDS = (
    ("other", "Python, data"), ("compute", "compute"), ("wait", "wait for the last rank"), ("transfer", "transfer"),
    ("unsplit", "wait or transfer"),
)  # fmt: skip
_MEANINGS = {"other": "python", "compute": "torch", "transfer": "memory", "unsplit": "backward"}
_HUES = {name: HUES[meaning] for name, meaning in _MEANINGS.items()}

_STYLE = (
    "<style>"
    + theme(
        ".tb-ranks",
        ("bg", "ink0", "ink1", "ink2", "rule1"),
        ";".join(f"--{name}:{hue}" for name, hue in _HUES.items())
        + f";--hatch:{GREY};--more:{ALARM};margin:8px 0;overflow-x:auto",
    )
    + "@supports(color:color-mix(in srgb,red,blue)){.tb-ranks{"
    + ";".join(f"--{name}:{mixed(hue)}" for name, hue in _HUES.items())
    + f";--hatch:{mixed(GREY, ground='bg')};--more:{mixed(ALARM)}}}}}"
    ".tb-ranks svg{display:block}"
    + letters(".tb-ranks", "text.i1")
    + ".tb-ranks text.w5{fill:var(--ink1);font-weight:600}"
    + "".join(f".tb-ranks .{name}{{fill:var(--{name})}}" for name in _HUES)
    + ".tb-ranks .hl{stroke:var(--hatch);stroke-width:1.4}.tb-ranks .ax{stroke:var(--rule1)}"
    ".tb-ranks .br{fill:none;stroke:var(--more);stroke-width:1.2}</style>"
)


def strips(profile: RankProfile) -> str:
    """The picture as markup; of many ranks the ones with the most blame, and the straggler among them."""
    ranks = profile.ranks.sort_values("blame", ascending=False, kind="stable")["rank"].tolist()[:_MOST_RANKS]
    ranks.sort()
    hatch = f"{drawing_id()}-h"
    height = _ROW * len(ranks) + 44
    parts = [
        _hatching(hatch),
        *_rows(profile, ranks, hatch),
        *_brackets(profile, _ROW * len(ranks) + 2),
        *_axis(profile.span, height - 18),
        *_legend(profile, hatch, height + 20),
    ]
    said = "what each rank did over time; the table below has the numbers"
    drawn = figure((_WIDTH, height), (_LEFT, _TOP, _RIGHT, 32), said, parts)
    return f'{_STYLE}<div class="tb-ranks">{drawn}</div>'


def _hatching(name: str) -> str:
    return (
        f'<defs><pattern id="{attribute(name)}" width="5" height="5" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><line x1="0" x2="0" y1="0" y2="5" class="hl" stroke="{GREY}"/></pattern></defs>'
    )


def _x(seconds: float, span: float) -> float:
    return _WIDTH * seconds / span if span > 0 else 0.0


def _rows(profile: RankProfile, ranks: list[int], hatch: str) -> Iterator[str]:
    late = profile.straggler.rank if profile.straggler is not None else None
    for at, rank in enumerate(ranks):
        top = at * _ROW
        yield svg_text(-10, top + 13, f"rank {rank}", "end", "w5" if rank == late else "i1")
        mine = profile.timeline[profile.timeline["rank"] == rank]
        for _, begin, end, what in mine.itertuples(index=False):
            left, width = _x(begin, profile.span), _x(end - begin, profile.span)
            drawn = f'fill="url(#{attribute(hatch)})"' if what == "wait" else f'class="{what}" fill="{_HUES[what]}"'
            yield f'<rect {drawn} x="{left:.1f}" y="{top + 1}" width="{width:.1f}" height="{_BAR}"/>'


def _brackets(profile: RankProfile, top: int) -> Iterator[str]:
    """The longest waits, each with the rank that came last."""
    yield svg_text(-10, top + 9, "waited for", "end")
    longest = profile.waits.nlargest(_MOST_WAITS, "seconds").sort_values("begin")
    until = -float(_APART)
    for begin, end, rank, _ in longest.itertuples(index=False):
        left, right = _x(begin, profile.span), max(_x(end, profile.span), _x(begin, profile.span) + 1)
        yield f'<path class="br" fill="none" stroke="{ALARM}" d="M{left:.1f} {top}v5H{right:.1f}v-5"/>'
        middle = (left + right) / 2
        if middle - until >= _APART:
            yield svg_text(middle, top + 17, f"rank {rank}", "middle")
            until = middle


def _axis(span: float, top: int) -> Iterator[str]:
    yield f'<line class="ax" stroke="{GREY}" x1="0" x2="{_WIDTH}" y1="{top}" y2="{top}"/>'
    scale = units.smallest_scale([span])
    ticks = round_ticks(0.0, span / scale.size) if span > 0 else ()
    for at, tick in enumerate(ticks):
        x = _x(tick * scale.size, span)
        unit = f" {scale.unit}" if at == len(ticks) - 1 else ""
        yield f'<line class="ax" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + 4}"/>'
        yield svg_text(x, top + 15, f"{tick:g}{unit}", "middle")


def _legend(profile: RankProfile, hatch: str, top: int) -> Iterator[str]:
    x = 0
    for name, words in _WORDS:
        if name == "unsplit" and not profile.ranks[name].any():
            continue
        drawn = f'fill="url(#{attribute(hatch)})"' if name == "wait" else f'class="{name}" fill="{_HUES[name]}"'
        yield f'<rect {drawn} x="{x}" y="{top - 9}" width="10" height="10"/>'
        yield svg_text(x + 15, top, words, "start")
        x += 40 + 6 * len(words)


# ---- rank_document ---------------------------------------------------------------------------------------------------

_MOST_RANK_COLUMNS = 8
_MOST_OPS = 200
_MOST_PRINTED, _LONGEST_PRINTED = 20, 200
"""Lines of a rank, and characters of a line."""


def document(profile: RankProfile) -> Document:
    """Ready for any carrier."""
    return Document(
        kind="profile of ranks",
        sentence=backticked(_sentence(profile)),
        tables=(_ranks(profile), _ops(profile)),
        doubts=tuple(backticked(str(doubt)) for doubt in most_important_first(profile.warnings)),
        doubts_where=".warnings",
        footer=tuple(_footer(profile)),
        where=".ranks, .ops",
        rest="Operations by rank: `.ops`".replace("`", ""),
        picture=strips(profile),
        picture_first=True,
        insights=(*(unfolding(each) for each in profile.insights), *_printed(profile)),
    )


def _sentence(profile: RankProfile) -> str:
    if profile.ended:
        return profile.ended.rstrip(".")
    if profile.straggler is not None:
        return profile.straggler.text.rstrip(".")
    if len(profile.ranks) == 1:
        return f"Rank {profile.ranks['rank'].iloc[0]} alone: there is no other rank to wait for"
    if profile.collectives < 2 or not math.isfinite(profile.threshold):
        why = "no collectives were recorded"
        why = "there is only one collective, and the first does not count" if profile.collectives else why
        why = why if profile.collectives < 2 else "how their clocks differ is unknown"
        return f"Which rank delays the others is unknown: {why}"
    facts = {doubt.kind: doubt.facts for doubt in profile.warnings}
    if (unsplit := facts.get("wait-or-transfer")) is not None:
        stood = units.part_text(float(str(unsplit["seconds"])), profile.span)
        return (
            f"Which rank delays the others is unknown: rank {unsplit['rank']} spends {stood} in collectives "
            "where waiting and transfer cannot be separated"
        )
    at = int(profile.ranks["blame"].to_numpy().argmax())
    rank, blame = int(profile.ranks["rank"].iloc[at]), float(profile.ranks["blame"].iloc[at])
    late = units.part_text(blame, profile.span)
    if blame > profile.threshold and profile.unnamed == "no cause":
        said = f"No rank clearly delays the others: rank {rank} delays them most, by {late}"
        return f"{said}, but nothing it does takes longer than cores alone can differ"
    said = f"No rank delays the others: rank {rank} delays them most, by {late}"
    if blame <= profile.threshold:
        return f"{said}, below the threshold of {units.seconds_text(profile.threshold)}"
    return f"{said}, but not often enough to rule out chance"


def _printed(profile: RankProfile) -> Iterator[Unfolding]:
    """What each rank printed, folded; of much its end."""
    for rank, text in zip(profile.ranks["rank"].tolist(), profile.printed, strict=False):
        lines = text.rstrip("\n").splitlines()
        if not lines:
            continue
        more = f"the last {_MOST_PRINTED} of " if len(lines) > _MOST_PRINTED else ""
        count = f"{more}{units.count(len(lines))} line{'s' if len(lines) != 1 else ''}"
        shown = tuple((Phrase(clipped(line, _LONGEST_PRINTED)),) for line in lines[-_MOST_PRINTED:])
        yield Unfolding((Phrase(f"rank {rank}", "strong"), Phrase(f" printed {count}")), shown)


def _ranks(profile: RankProfile) -> Table:
    late = profile.straggler
    longest = float(profile.ranks["span"].max()) or 1.0

    def bar(row: dict[str, float]) -> Cell:
        parts = (
            ("python", row["other"]), ("torch", row["compute"] - row["overlap"]), ("other", row["wait"]),
            ("memory", row["transfer"]), ("backward", row["unsplit"]),
        )  # fmt: skip
        shown = tuple((meaning, seconds / longest) for meaning, seconds in parts if seconds > 0)
        return Cell("", picture=(shown, ()))

    names = ["span", "compute", "communication", "overlap", "wait", "transfer", "unsplit", "other", "blame"]
    if not profile.ranks["unsplit"].any():
        names.remove("unsplit")
    labels = {"other": "Python, data", "blame": "delays others", "unsplit": "wait or transfer"}
    scale = units.spread_scale([float(v) for name in names for v in profile.ranks[name]])
    legend: tuple[tuple[str, str], ...] = (
        ("python", "Python, data"), ("torch", "compute"), ("other", "wait"), ("memory", "transfer"),
    )  # fmt: skip
    legend += (("backward", labels["unsplit"]),) if "unsplit" in names else ()
    built: list[BuiltColumn] = [
        BuiltColumn(Column("rank", "rank", kind="number"), lambda row: Cell(str(int(row["rank"])), row["rank"])),
        BuiltColumn(Column("bar", "", kind="bar", legend=legend), bar),
        *(measured_columns(name, labels.get(name, name), scale, missing=0.0) for name in names),
    ]
    if late is not None and late.place:
        at = late.rank
        built.append(texts("line", "line that delays others", 40, lambda row: late.place if row["rank"] == at else ""))
    if len(set(profile.hosts)) > 1:
        hosts = dict(zip(profile.ranks["rank"].tolist(), profile.hosts, strict=True))
        built.append(texts("host", "host", 24, lambda row: hosts[int(row["rank"])], quiet=True))
    return built_table("ranks", built, profile.ranks.to_dict("records"), lambda row: f"rank {int(row['rank'])}")


def _ops(profile: RankProfile) -> Table:
    """The ops with the most time; of many ranks the columns of those with the most and the least blame."""
    order = profile.ranks.sort_values("blame", ascending=False, kind="stable")["rank"].tolist()
    half = _MOST_RANK_COLUMNS // 2
    shown = order if len(order) <= _MOST_RANK_COLUMNS else [*order[:half], *order[-half:]]
    columns = [f"rank_{rank}" for rank in sorted(shown)]
    rows = profile.ops.head(_MOST_OPS)
    scale = units.spread_scale(rows[columns].to_numpy().ravel().tolist() if len(rows) else [])
    ratio = lambda row: Cell(units.number(row["ratio"]), row["ratio"] if math.isfinite(row["ratio"]) else None)
    built = [
        texts("op", "operation", 48, lambda row: str(row["op"])),
        texts("device", "on", 8, lambda row: str(row["device"]), quiet=True),
        counted("calls", "calls"),
        *(measured_columns(name, name.replace("_", " "), scale, missing=0.0) for name in columns),
        BuiltColumn(Column("ratio", "largest to smallest", kind="number"), ratio),
    ]
    more = len(profile.ops) - len(rows)
    hidden = f"{units.count(more)} more operations in .ops" if more else ""
    return built_table("operations", built, rows.to_dict("records"), lambda row: str(row["op"]), hidden=hidden)


def _footer(profile: RankProfile) -> Iterator[StyledText]:
    said = "Delays others: time the other ranks spent idle in collectives until this one arrived. "
    if math.isfinite(profile.threshold):
        said += f"A rank is named only if it delays the others by at least {units.seconds_text(profile.threshold)}. "
    yield (Phrase(said + _clocks(profile)),)
    count = len(profile.ranks)
    hosts = len(set(filter(None, profile.hosts)))
    on = f" on {hosts} host{'s' if hosts != 1 else ''}" if hosts else ""
    facts = [f"{count} rank{'s' if count != 1 else ''}{on}"]
    facts += [profile.backend] if profile.backend else []
    facts.append(f"{units.count(profile.collectives)} collectives")
    facts += [f"{profile.steps} steps"] if profile.steps > 1 else []
    facts += [profile.sent] if profile.sent else []
    yield (Phrase(" · ".join(facts)),)


def _clocks(profile: RankProfile) -> str:
    if len(profile.ranks) < 2:
        return ""
    width = float(((profile.clock_error["high"] - profile.clock_error["low"]) / 2).max())
    if not math.isfinite(width):
        return "How the clocks differ is unknown."
    return f"Clocks agree within {units.seconds_text(width, digits=2)}: shorter waits do not count."


# ---- ranks_as_json ---------------------------------------------------------------------------------------------------
# What the ranks of a job add to the envelope of every result's JSON.

_MOST_ROWS = 20
_RANK = ("rank", "span", "compute", "communication", "overlap", "wait", "transfer", "other", "blame")


def facts(profile: RankProfile) -> dict[str, Any]:
    late = profile.straggler
    files = ", ".join(repr(plain_value(each, 120)) for each in profile.files[:4])
    more = ", ..." if len(profile.files) > 4 else ""
    return {
        "span": finite_number(profile.span),
        "steps": profile.steps,
        "collectives": profile.collectives,
        "world_size": profile.world_size,
        "backend": plain_value(profile.backend),
        "straggler": None if late is None else {name: plain_value(value) for name, value in asdict(late).items()},
        "ranks": rows_of(profile.ranks, _RANK, len(profile.ranks)),
        "operations": rows_of(profile.ops, ("op", "device", "calls", "ratio"), _MOST_ROWS),
        "repeat": {"command": f"load_ranks([{files}{more}])"},
    }
