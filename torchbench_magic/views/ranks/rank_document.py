"""The ranks of a job as a document: who holds the others up, then the strip, the table of ranks and that of ops."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchbench_magic import units
from torchbench_magic.results.doubts import most_important_first
from torchbench_magic.results.ranks.rank_profiles import RankProfile

from ..built_columns import BuiltColumn, built_table, counted, measured_columns, texts
from ..document import Document, Phrase, StyledText, Unfolding, backticked, clipped
from ..profiling.insight_lines import unfolding
from ..table import Cell, Column, Table
from .rank_strip import strips

__all__ = ["document"]

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
    if (gone := facts.get("rank-ended-early")) is not None:
        when, stood = (units.part_text(float(str(gone[name])), profile.span) for name in ("seconds", "waited"))
        then = f"then another rank spends {stood} in collectives, as if waiting for it"
        return f"Rank {gone['rank']} ends at {when}, and {then}"
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
