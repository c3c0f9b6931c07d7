"""What is to be said of the ratios of a comparison: which decide nothing and why, and which are still valid."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from torchbench_magic import units

from ..doubts import Doubt
from .across_processes.kernel_spread import SPREAD
from .across_processes.process_ratios import FEWEST, assumes_normal, least_processes
from .comparison import Comparison
from .intervals import ALPHA
from .rows import are_speeds
from .voided_verdicts import CO_LOAD, LEAST_WAIT, Void, are_held_up

__all__ = [
    "in_this_kernel",
    "medians_apart",
    "of_processes",
    "compiled_meanwhile",
    "point_name",
    "row_name",
    "row_names",
    "slow_calls",
    "still_valid",
    "voided",
]

APART = 0.02
"""By how much the quotient of two medians must differ from the ratio to be explained, where the margin is not more."""


def row_name(made: Comparison, i: int) -> str:
    """What a row is called: its description, with the thread count where there are several, and the engine where each
    is an environment."""
    subject = made.subjects[i]
    name = subject.description or "the code"
    if subject.place is not None and len({s.env for s in made.subjects}) > 1:
        name = f"{name} on {subject.place.name}"
    several = len({s.num_threads for s in made.subjects}) > 1
    return f"{name} ({subject.num_threads} thread{'s' if subject.num_threads > 1 else ''})" if several else name


def point_name(made: Comparison, i: int) -> str:
    """A row's name with its point, where there are several."""
    subject = made.subjects[i]
    at = ", ".join(f"{name}={value}" for name, value in subject.axes) or subject.sub_label or ""
    several = len({(s.axes, s.sub_label) for s in made.subjects}) > 1
    return f"{row_name(made, i)} at {at}" if several and at else row_name(made, i)


def row_names(made: Comparison, rows: Sequence[int]) -> str:
    """The rows, each name once."""
    return ", ".join(dict.fromkeys(row_name(made, i) for i in rows))


def still_valid(made: Comparison) -> str:
    """Which ratios hold where single times do not, in one sentence; empty where none is decided."""
    verdicts = made.frame["verdict"]
    compared = [i for i, word in enumerate(verdicts) if not pd.isna(word) and word != "baseline"]
    paired = [i for i in compared if i not in made.unpaired]
    valid = [i for i in paired if verdicts[i] != "undecided"]
    if not valid:
        return ""
    if len(valid) < len(paired):
        return "The other ratios are still valid."
    beside = "Ratios between alternatives that ran side by side are still valid."
    return beside if made.unpaired else "The ratios are still valid."


def voided(made: Comparison) -> Iterator[Doubt]:
    """One doubt for each cause that takes verdicts away."""
    frame = made.frame
    alone = [i for i in made.stalled if pd.isna(frame["verdict"][i])]
    if alone:
        text = f"The time of {row_names(made, alone)} is mostly waiting: {_waits(row_name(made, alone[0]))}."
        yield Doubt("stalled", text, _ACTIONS["stalled"], {"rows": alone})
    by_cause: dict[str, dict[int, Void]] = {}
    for i, void in made.voids.items():
        if not pd.isna(frame["verdict"][i]):
            by_cause.setdefault(void.cause, {})[i] = void
    for cause, found in by_cause.items():
        rows = list(found)
        concerned = sorted({*rows, *(made.stalled if cause == "stalled" else ())})
        low, high = min(void.low for void in found.values()), max(void.high for void in found.values())
        facts = {"rows": concerned, "low": low, "high": high}
        about = f"No verdict on {row_names(made, rows)}: "
        yield Doubt(cause, about + _why(made, next(iter(found.values()))), _ACTIONS[cause], facts)


_ACTIONS = {
    "stalled": "Measure again on a quiet machine, or at one thread (`-t 1`).",
    "unlike-blocks": "Measure again, or set the same number of calls for all (`-n N -r R`).",
    "few-rounds": "Allow more time (`--max-run-time S`), or set `-n N -r R` with fewer calls per block.",
    "few-processes": "Measure again on a quieter machine, or in more processes (`--processes N`).",
    "unsteady": "Measure again on a quieter machine, or longer (`--min-run-time 5`).",
}


def _why(made: Comparison, void: Void) -> str:
    name, low, high = row_name(made, void.row), void.low, void.high
    if void.cause == "stalled":
        return f"{_waits(row_name(made, void.row))}, so times and ratios measure waiting, not the code."
    if void.cause == "unlike-blocks":
        base = made.base_row(void.row)
        other = row_name(made, base) if base is not None else "its baseline"
        calls = f"{low:.0f} call{'' if low == 1 else 's'}"
        return (
            f"a disturbed warm-up chose {calls} per block for {name} and {high:.0f} for {other}, so the cost of"
            " starting a block weighs differently on the two."
        )
    if void.cause == "few-processes":
        return f"only {low:.0f} of {high:.0f} processes gave a usable ratio."
    if void.cause == "few-rounds":
        return _few_rounds(made, void)
    if high > 1.005 * low:
        fast = are_speeds(made.frame["verdict"].dropna())
        first, last = (1 / high, 1 / low) if fast else (low, high)
        return (
            f"{name} was {first:.2f} to {last:.2f} times as {'fast' if fast else 'long'} in different parts of the run:"
            " machine conditions changed."
        )
    return "other processes delayed many rounds, and the remaining rounds give a different verdict."


LONG_BLOCK = 10.0
"""From so many times the other's length on a block is said to be what took the time of the rounds."""


def _few_rounds(made: Comparison, void: Void) -> str:
    """That the rounds are too few, and whose blocks took the time."""
    base = made.base_row(void.row)
    text = f"{void.low:.0f} round{' is' if void.low == 1 else 's are'} too few, at least {void.high:.0f} are needed"
    if base is None:
        return f"{text}."
    blocks = made.samples.groupby("measurement")[["wall", "number"]].median()
    wall = {row: float(blocks["wall"].get(row, math.nan)) for row in (void.row, base)}
    slow, fast = (void.row, base) if wall[void.row] > wall[base] else (base, void.row)
    if not wall[slow] > LONG_BLOCK * wall[fast]:
        return f"{text}."
    calls = int(blocks["number"][slow])
    of = f"{calls} call{'' if calls == 1 else 's'}"
    took = f"One block of {row_name(made, slow)} ({of}) took {units.seconds_text(wall[slow])}"
    return f"{text}. {took}, far longer than a block of {row_name(made, fast)}."


def _waits(name: str) -> str:
    return f"other processes kept the threads of {name} waiting for a core in the typical block"


def medians_apart(made: Comparison) -> Iterator[Doubt]:
    """Where the quotient of two medians is not the ratio: the one that differs most is explained."""
    frame, found = made.frame, {}
    for i, word in enumerate(frame["verdict"]):
        base = made.base_row(i)
        if pd.isna(word) or word == "baseline" or base is None or i in made.unpaired or i in made.voids:
            continue
        ratio, low, high = (float(frame[name][i]) for name in ("ratio", "ratio_low", "ratio_high"))
        one, other = float(frame["median"][i]), float(frame["median"][base])
        if not (one > 0 and other > 0 and ratio > 0 and low > 0 and math.isfinite(high)):
            continue
        quotient = one / other
        if not 0 < quotient / ratio < math.inf:  # of a damaged store
            continue
        apart = abs(math.log(quotient / ratio))
        if not low <= quotient <= high and apart > math.log1p(max(APART, made.margin)):
            found[i] = apart, quotient, ratio, base
    if not found:
        return
    i, (_, quotient, ratio, _) = max(found.items(), key=lambda item: item[1][0])
    word = "fast" if are_speeds(frame["verdict"].dropna()) else "long"
    quotient, ratio = (1 / quotient, 1 / ratio) if word == "fast" else (quotient, ratio)
    more = f" and {len(found) - 1} more row{'s' if len(found) > 2 else ''}" if len(found) > 1 else ""
    text = (
        f"{row_name(made, i)}{more}: the medians alone give {quotient:.3g} times as {word}, the ratio {ratio:.3g}."
        f" Trust"
        " the ratio: it compares blocks of the same round, so machine effects cancel out."
    )
    yield Doubt("medians", text, "", {"quotients": {i: q for i, (_, q, _, _) in found.items()}})


_NAMED = 4
"""Rows that one sentence names."""
SLOW, RARE, MATTERS = 2.0, 0.45, 1.25
"""A block is slow from so many times its median on; the median is of the others up to that share; and they matter where
the mean (beside that of the baseline) is so many times what the median says."""
BEYOND_WAITING = 2.0
"""Slow blocks are the code's own where they took so many times more than own threads waited for a core in the run."""


def slow_calls(made: Comparison) -> Iterator[Doubt]:
    """Where the mean says another thing than the median, by the code's own doing: a cache that is filled now and then,
    a list that grows. Few blocks have such a call, and no median sees them."""
    excess = {i: _mean_over_median(made, i) for i in range(len(made.subjects))}
    of_base: dict[int, list[tuple[int, float]]] = {}  # one doubt for all that are compared with it
    for i, ratio in enumerate(made.frame["ratio"]):
        base = made.base_row(i)
        if base is None and excess[i] > MATTERS:
            text = f"The mean of {row_name(made, i)} is {units.number(excess[i], digits=2)} times its median"
            yield _of_slow_calls(f"{text}: some calls take", i)
        if base is None or base == i or i in made.unpaired or i in made.voids or not ratio > 0:
            continue
        factor = excess[i] / excess[base]
        if max(factor, 1 / factor) > MATTERS:
            if factor > 1:
                yield _of_slow_calls(_by_means(made, [(i, ratio * factor)], base, i), i)
            else:
                of_base.setdefault(base, []).append((i, ratio * factor))
    for base, found in of_base.items():
        yield _of_slow_calls(_by_means(made, found, base, base), *(i for i, _ in found))


def _by_means(made: Comparison, found: Sequence[tuple[int, float]], base: int, slow: int) -> str:
    """What the means say of these rows, each with its factor, beside their baseline; ``slow`` has the long calls."""
    is_speed = are_speeds(made.frame["verdict"].dropna())  # as the column of the table
    (first, factor), *others = [(i, 1 / times if is_speed else times) for i, times in found]
    rest = [f"`{row_name(made, i)}` {units.number(times)} times" for i, times in others[: _NAMED - 1]]
    rest += [f"{len(found) - _NAMED} more likewise"] if len(found) > _NAMED else []
    said = "is {} times as fast as" if is_speed else "takes {} times as long as"
    text = f"By the mean `{row_name(made, first)}` {said.format(units.number(factor))}"
    text = ", ".join([f"{text} `{row_name(made, base)}`", *rest])
    return f"{text}: some calls of `{row_name(made, slow)}` take"


def _of_slow_calls(text: str, *rows: int) -> Doubt:
    text += " far longer, which a median does not show."
    facts = {"rows": list(rows), "name": str(rows[0])}
    return Doubt("slow-calls", text, "If they matter, use `mean` in `.frame`.", facts)


def _mean_over_median(made: Comparison, row: int) -> float:
    """Of a call: by the processor's clock, which others do not move, or by the wall's on a quiet machine; by either
    where what slow blocks took is more than any waiting. 1 where they are most blocks, or did not come in both halves
    of the run, as what the machine does once does not; or where a call takes no longer than the timing loop may."""
    blocks, subject = made._blocks[row], made.subjects[row]
    seen, found = subject.contention, [1.0]
    waited = seen.waiting * seen.wall if seen is not None else math.nan
    quiet = seen is not None and seen.waiting < LEAST_WAIT and seen.ext < CO_LOAD
    held_up = are_held_up(subject, made.cores_of(row))
    for seconds, is_trusted in ((blocks.cpu, not held_up), (blocks.wall, quiet and not held_up)):
        calls = seconds / blocks.number
        middle = float(np.median(calls)) if len(calls) else 0.0
        slow = calls > SLOW * middle
        one, other = np.array_split(slow, 2)
        more = float(seconds.sum() - middle * blocks.number.sum())
        is_own = is_trusted or more > BEYOND_WAITING * waited
        if is_own and middle > subject.near_loop and one.any() and other.any() and slow.mean() <= RARE:
            found.append(float(seconds.sum() / blocks.number.sum()) / middle)
    return max(found)


def in_this_kernel(made: Comparison) -> Iterator[Doubt]:
    """Verdicts that the next kernel may turn round."""
    rows = made.of_this_kernel
    if not rows:
        return
    text = (
        f"{row_names(made, rows)}: the difference may hold in this kernel only; memory addresses alone change a"
        f" ratio by"
        f" up to {SPREAD * 100:.0f} %, rarely by more."
    )
    for row in rows:
        if own := made.subjects[row].own_inputs:
            those = " and ".join(f"`{name}`" for name in own)
            text += f" {row_name(made, row)} reads its own {those}: let it read the tensors that"
            text += f" {row_name(made, made.base_row(row) or 0)} reads."
    yield Doubt("this-kernel", text, "To decide, measure in several processes: `--processes`.", {"rows": list(rows)})


_CAUSES = {
    "stalled": "its threads waited for other processes",
    "unlike-blocks": "its warm-up was disturbed",
    "unsteady": "it changed during the run",
    "few-rounds": "there were too few rounds",
}


def of_processes(made: Comparison) -> Iterator[Doubt]:
    """The doubts of the rows that several processes measured."""
    rows = [row for row in range(len(made.subjects)) if made.ratio_by_process(row)]
    void = [(row, process, cause) for row, process, cause in made.void_processes if made.is_over_processes(row)]
    if void:
        causes = [_CAUSES[cause] for cause, _ in Counter(cause for _, _, cause in void).most_common()]
        left, concerned = len({process for _, process, _ in void}), sorted({row for row, _, _ in void})
        processes = f"{left} process{'es' if left > 1 else ''}"
        text = f"The ratio of {row_names(made, concerned)} was dropped in {processes}: {', '.join(causes)}."
        text += " Up to two more processes replaced them."
        yield Doubt("void-process", text, "", {"rows": concerned, "processes": left})
    few = [row for row in rows if len(made.ratio_by_process(row)) >= FEWEST and _assumes(made, row)]
    if few:
        counts = max(len(made.ratio_by_process(row)) for row in few)
        text = f"{counts} processes: the interval assumes that their ratios are normally distributed."
        need = least_processes(_comparisons(made))
        yield Doubt("normal-processes", text, f"{need} need no such assumption (`--processes {need}`).", {"rows": few})


def _comparisons(made: Comparison) -> int:
    return max(made.family, 1)


def _assumes(made: Comparison, row: int) -> bool:
    return assumes_normal(len(made.ratio_by_process(row)), ALPHA / _comparisons(made))


def compiled_meanwhile(made: Comparison) -> Iterator[Doubt]:
    """Rows that torch.compile compiled again while they were timed, or gave up before."""
    rows = [at for at, subject in enumerate(made.subjects) if subject.compiled_in_samples]
    for at in rows[:_MOST_RECOMPILED]:
        subject = made.subjects[at]
        count = subject.compiled_in_samples
        times = "once" if count == 1 else f"{units.count(count)} times"
        why = f" ({'; '.join(subject.recompiled[:_MOST_RECOMPILED])})" if subject.recompiled else ""
        text = f"{row_name(made, at)} was recompiled {times} during timing{why}: some samples include compiling."
        action = "Use the same shapes and values in each call, or compile with `dynamic=True`."
        yield Doubt("recompiled", text, action, {"rows": (at,), "count": count, "reasons": subject.recompiled})
    for at, subject in enumerate(made.subjects):
        if subject.fell_back:
            name = row_name(made, at)
            text = f"{name} contains code that is not compiled ({subject.fell_back}) and runs as plain Python."
            action = "Profile it with `%%tprofile`: it names the line and a cure."
            yield Doubt("fell-back", text, action, {"rows": (at,), "name": name})


_MOST_RECOMPILED = 3
