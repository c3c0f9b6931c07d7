"""Several comparisons as one: the points of a sweep, what was measured before an interrupt, the same in processes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from torchbench_magic.errors import InputError

from ..counting.counts import Counts
from ..doubts import Doubt
from ..machine.contention import joined_contention
from ..machine.environment import Environment, common_environment
from .comparison import Comparison
from .counted_rows import key_of_row
from .subject import Subject
from .timing_doubts import doubts_of

__all__ = ["distinct", "join_comparisons", "join_processes", "take"]


def join_comparisons(parts: Sequence[Comparison]) -> Comparison:
    """Put comparisons of one request one after the other; ratios stay within the groups that were sampled together.

    Raises:
        InputError: nothing to join, or parts that were asked for with another baseline, margin or clock.
    """
    if not parts:
        raise InputError("nothing to join: give at least one comparison")
    first = parts[0]
    if len(parts) == 1:
        return first
    for name in ("baseline", "margin", "clock"):
        if len({getattr(part, name) for part in parts}) > 1:
            raise InputError(f"results with another {name} cannot be joined: measure them with one, or rebase them")
    subjects: list[Subject] = []
    frames, groups = [], 0
    void: list[tuple[int, int, str]] = []
    several = {"process": 0} if any("process" in part.samples for part in parts) else {}  # 0: this process alone
    for part in parts:
        samples = part.samples if "process" in part.samples else part.samples.assign(**several)
        frames.append(samples.assign(measurement=samples["measurement"] + len(subjects)))
        void += [(row + len(subjects), process, cause) for row, process, cause in part.void_processes]
        subjects += [replace(s, group=s.group + groups) for s in part.subjects]
        groups = 1 + max((s.group for s in subjects), default=-1)
    return replace(
        first,
        subjects=tuple(subjects),
        samples=pd.concat(frames, ignore_index=True),
        warnings=distinct(doubt for part in parts for doubt in part.warnings),
        elapsed=sum(part.elapsed for part in parts),
        partial=any(part.partial for part in parts),
        counts=Counts.joined(part.counts for part in parts),
        family=max(part.family for part in parts),
        unpaired={},
        history={},
        sources={key: text for part in parts for key, text in part.sources.items()},
        void_processes=tuple(void),
        kernel=first.kernel if len({part.kernel for part in parts}) == 1 else "",
        environment=_common_environment(parts),
    )


def _common_environment(parts: Sequence[Comparison]) -> Environment:
    """That of the first; where engines measured parts on machines of their own, with what differs side by side."""
    if not any(subject.place is not None for part in parts for subject in part.subjects):
        return parts[0].environment
    return common_environment([part.environment for part in parts])


def join_processes(parts: Mapping[int, Comparison]) -> Comparison:
    """What several processes measured of the same alternatives at the same point, as one result.

    Args:
        parts: number of the process -> what it measured.

    Raises:
        InputError: none, or processes that did not measure the same.
    """
    if not parts:
        raise InputError("nothing to join: give at least one process")
    first, *_ = parts.values()
    measured = [[(s.description, s.num_threads, s.axes) for s in part.subjects] for part in parts.values()]
    if any(one != measured[0] for one in measured):
        raise InputError("the processes did not measure the same")
    frames, rounds = [], 0
    for process, part in parts.items():
        frames.append(part.samples.assign(round=part.samples["round"] + rounds, process=process))
        rounds = 1 + int(frames[-1]["round"].max())
    void = [(row, process, void.cause) for process, part in parts.items() for row, void in part.voids.items()]
    return replace(
        first,
        subjects=tuple(_over_processes(same) for same in zip(*(part.subjects for part in parts.values()), strict=True)),
        samples=pd.concat(frames, ignore_index=True),
        warnings=distinct(doubt for part in parts.values() for doubt in part.warnings),
        elapsed=sum(part.elapsed for part in parts.values()),
        void_processes=tuple(void),
    )


def _over_processes(same: Sequence[Subject]) -> Subject:
    """One row's facts over the processes that measured it: means, and its load."""
    loads = [s.contention for s in same if s.contention is not None]
    means: dict[str, Any] = {name: statistics.fmean(getattr(s, name) for s in same) for name in _MEANS}
    used_up = tuple(dict.fromkeys(pair for s in same for pair in s.used_up))
    means["compiled_in_samples"] = sum(s.compiled_in_samples for s in same)
    means["recompiled"] = tuple(dict.fromkeys(reason for s in same for reason in s.recompiled))
    state = tuple(dict.fromkeys(words for s in same for words in s.state))
    return replace(same[0], contention=joined_contention(loads), used_up=used_up, state=state, **means)


_MEANS = ("first_call", "compile_time", "loop_overhead", "page_faults", "waited", "span")


def take(whole: Comparison, rows: Sequence[int]) -> Comparison:
    """Some rows of a comparison, in the order given, with their samples and the doubts that concern them.

    Rows of one group stay comparable side by side; how rows compared with those of another time is dropped.
    """
    place = {row: at for at, row in enumerate(rows)}
    counted = [key_of_row(whole.counts, whole.subjects[row]) for row in rows]
    kept = whole.samples[whole.samples["measurement"].isin(place)]
    made = replace(
        whole,
        subjects=tuple(whole.subjects[row] for row in rows),
        samples=kept.assign(measurement=kept["measurement"].map(place)),
        warnings=[doubt for doubt in whole.warnings if "rows" not in doubt.facts],
        counts=whole.counts.only(counted),
        unpaired={},
        history={place[row]: known for row, known in whole.history.items() if row in place},
        void_processes=tuple((place[row], one, why) for row, one, why in whole.void_processes if row in place),
    )
    return replace(made, warnings=distinct([*made.warnings, *doubts_of(made)])) if rows else made


def distinct(doubts: Iterable[Doubt]) -> list[Doubt]:
    """One doubt of each kind about each thing; the points of a sweep would say the same many times."""
    kept: dict[tuple[object, ...], Doubt] = {}
    for doubt in doubts:
        about = doubt.facts.get("name") or tuple(sorted(doubt.facts.get("changes", ())))  # type: ignore[call-overload]
        kept.setdefault((doubt.kind, about, doubt.facts.get("function")), doubt)
    return list(kept.values())
