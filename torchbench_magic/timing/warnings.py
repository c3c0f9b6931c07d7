"""What spoils a timing or decides nothing in a ratio: each warning with the facts and the next step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from torchbench_magic import units
from torchbench_magic.process.contention import Contention, machine_doubts, mean_over, oversubscribed_text
from torchbench_magic.result_base import Doubt

from .comparison import Comparison
from .process_ratios import FEW_NS, SPREAD
from .repeat_warnings import doubts_of_subjects
from .samples import Subject, are_speeds, wall_over_cpu
from .verdict import CAUSES, VERDICTS, Void
from .voids import CO_LOAD, LEAST_WAIT, SEVERAL, WAITED, are_held_up

# ---- ratio_doubts ----------------------------------------------------------------------------------------------------
# What is to be said of the ratios of a comparison: which decide nothing and why, and which are still valid.

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


def row_names(made: Comparison, rows: Sequence[int]) -> str:
    """The rows, each name once."""
    return ", ".join(dict.fromkeys(row_name(made, i) for i in rows))


def still_valid(made: Comparison) -> str:
    """Which ratios hold where single times do not, in one sentence; empty where none is decided."""
    paired = [i for i, one in enumerate(made.rulings) if one.word in VERDICTS and i not in made.unpaired]
    short = short_blocks(made)
    valid = [i for i in paired if not made.rulings[i].is_open and not {i, made.base_row(i)} & short]
    if not valid:
        return ""
    if made.by_processor_time.issuperset(valid):
        return "Ratios are of processor time, which others do not lengthen."
    if len(valid) < len(paired):
        return "The other ratios are still valid."
    beside = "Ratios between alternatives that ran side by side are still valid."
    return beside if made.unpaired else "The ratios are still valid."


SHORT_BLOCK = 100e-6
"""Seconds of a block below which what starting it adds may be a few per cent: see the sentence of `_short_blocks`."""


def short_blocks(made: Comparison) -> set[int]:
    """Rows of which starting a block takes a noticeable part."""
    few = [i for i in range(len(made.subjects)) if made.few_calls(i) and made.subjects[i].language == "python"]
    return {i for i in few if np.median(made._blocks[i].wall) < SHORT_BLOCK}


def _short_blocks(made: Comparison) -> Iterator[Doubt]:
    """That starting a block takes a part of these times, which has ratios too near 1."""
    near = {i for i in range(len(made.subjects)) if made._rows[i]["median"] < made.shortest_call(i)}
    rows = sorted(i for i in short_blocks(made) - near if i not in made.unpaired)
    if not rows:
        return
    most = max(made.few_calls(i) or 0 for i in rows)
    calls = "one call" if most == 1 else f"{most} calls"
    too = "Times are too long, and ratios too near 1" if len(made.subjects) > 1 else "The time is too long"
    text = (
        f"A block of {row_names(made, rows)} is {calls} and starts with colder caches than a call in a loop finds: that"
        f" adds 0.1 to 0.5 µs in Python and 3 to 20 µs with torch operators. {too}."
    )
    way = "Give `-n N` if N calls in a row do the same work."
    yield Doubt("short-blocks", text, way, {"rows": rows, "calls": most})


def voided(made: Comparison) -> Iterator[Doubt]:
    """One doubt for each cause that takes verdicts away."""
    alone = [i for i in made.stalled if made.rulings[i].word is None]
    if alone:
        text = f"The time of {row_names(made, alone)} is mostly waiting: {_waits(row_name(made, alone[0]))}."
        yield Doubt("stalled", text, CAUSES["stalled"].cure, {"rows": alone})
    by_cause: dict[str, dict[int, Void]] = {}
    for i, void in made.voids.items():
        by_cause.setdefault(void.cause, {})[i] = void
    for cause, found in by_cause.items():
        rows = list(found)
        concerned = sorted({*rows, *(made.stalled if cause == "stalled" else ())})
        low, high = min(void.low for void in found.values()), max(void.high for void in found.values())
        facts = {"rows": concerned, "low": low, "high": high}
        about = f"No verdict on {row_names(made, rows)}: "
        yield Doubt(cause, about + _why(made, next(iter(found.values()))), CAUSES[cause].cure, facts)


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
        return f"{low:.0f} processes with a usable ratio are too few, at least {high:.0f} are needed."
    if void.cause == "few-rounds":
        sides = (made.subjects[at] for at in (void.row, made.base_row(void.row)) if at is not None)
        of = " without compiling" if any(side.compiled_in_samples for side in sides) else ""
        rounds = f"round{of} is" if low == 1 else f"rounds{of} are"
        return f"{low:.0f} {rounds} too few, at least {high:.0f} are needed."
    if void.cause != "unsteady":
        return f"{CAUSES[void.cause].said}."
    if high > 1.005 * low:
        fast = are_speeds(row["verdict"] for row in made._rows)
        first, last = (1 / high, 1 / low) if fast else (low, high)
        return (
            f"{name} was {first:.2f} to {last:.2f} times as {'fast' if fast else 'long'} in different parts of the run:"
            " machine conditions changed."
        )
    return "other processes delayed many rounds, and the remaining rounds give a different verdict."


def _waits(name: str) -> str:
    return f"other processes kept the threads of {name} waiting for a core in the typical block"


def medians_apart(made: Comparison) -> Iterator[Doubt]:
    """Where the quotient of two medians is not the ratio: the one that differs most is explained."""
    rows, found = made._rows, {}
    for i, ruling in enumerate(made.rulings):
        base = made.base_row(i)
        if ruling.word not in VERDICTS or base is None or {i} & {*made.unpaired, *made.voids, *made.by_processor_time}:
            continue
        ratio, low, high = (float(rows[i][name]) for name in ("ratio", "ratio_low", "ratio_high"))
        one, other = rows[i]["median"], rows[base]["median"]
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
    word = "fast" if are_speeds(row["verdict"] for row in rows) else "long"
    quotient, ratio = (1 / quotient, 1 / ratio) if word == "fast" else (quotient, ratio)
    more = f" and {len(found) - 1} more row{'s' if len(found) > 2 else ''}" if len(found) > 1 else ""
    text = (
        f"{row_name(made, i)}{more}: the medians alone give {quotient:.3g} times as {word}, the ratio {ratio:.3g}."
        f" Trust"
        " the ratio: it compares blocks of the same round, so machine effects cancel out."
    )
    yield Doubt("medians", text, "", {"quotients": {i: q for i, (_, q, _, _) in found.items()}})


SLOW, RARE, MATTERS, BEYOND = 2.0, 0.45, 1.25, 1.1
"""A block is slow from so many times its median on; the median is of the others up to that share; and they matter where
the mean (beside that of the baseline) is so many times what the median says; where the interval leaves it out, from the
last on."""
BEYOND_WAITING = 2.0
"""Slow blocks are the code's own where they took so many times more than own threads waited for a core in the run."""


def slow_calls(made: Comparison) -> Iterator[Doubt]:
    """Where the mean says another thing than the median, by the code's own doing: a cache that is filled now and then,
    a list that grows. Few blocks have such a call, and no median sees them."""
    excess = {i: _mean_over_median(made, i) for i in range(len(made.subjects))}
    is_speed = are_speeds(row["verdict"] for row in made._rows)  # as the column of the table
    found: dict[int, list[tuple[int, float]]] = {}  # row with the long calls -> rows that they concern, with the factor
    for i, row in enumerate(made._rows):
        ratio, base = row["ratio"], made.base_row(i)
        if base is None and excess[i] > MATTERS:
            text = f"The mean of {row_name(made, i)} is {units.number(excess[i], digits=2)} times its median"
            yield _of_slow_calls(f"{text}: some calls take", [i])
        if base is None or base == i or i in made.unpaired or i in made.voids or not ratio > 0:
            continue
        factor = excess[i] / excess[base]
        is_left_out = ratio * factor < row["ratio_low"] or ratio * factor > row["ratio_high"]
        if max(factor, 1 / factor) > (BEYOND if is_left_out else MATTERS):
            by_means = 1 / (ratio * factor) if is_speed else ratio * factor
            found.setdefault(i if factor > 1 else base, []).append((i, by_means))
    for slow, concerned in found.items():
        (i, times), others = concerned[0], len(concerned) - 1
        base = made.base_row(i)
        said = f"{'is' if is_speed else 'takes'} {units.number(times)} times as {'fast' if is_speed else 'long'} as"
        text = f"By the mean `{row_name(made, i)}` {said} `{row_name(made, base) if base is not None else ''}`"
        more = f" ({others} more likewise)" if others else ""
        yield _of_slow_calls(f"{text}{more}: some calls of `{row_name(made, slow)}` take", [i for i, _ in concerned])


def _of_slow_calls(text: str, rows: list[int]) -> Doubt:
    text += " far longer, which a median does not show."
    facts = {"rows": rows, "name": str(rows[0])}
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
        if is_own and middle > made.shortest_call(row) and one.any() and other.any() and slow.mean() <= RARE:
            found.append(float(seconds.sum() / blocks.number.sum()) / middle)
    return max(found)


def in_this_kernel(made: Comparison) -> Iterator[Doubt]:
    """Verdicts that the next kernel may turn round."""
    rows = made.of_this_kernel
    if not rows:
        return
    text = (
        f"{row_names(made, rows)}: the difference may hold in this session only; memory addresses alone change a"
        f" ratio by up to {SPREAD * 100:.0f} %, or a call by {FEW_NS * 1e9:.0f} ns, rarely by more."
    )
    yield Doubt("this-kernel", text, "To decide, measure in several processes: `--processes`.", {"rows": list(rows)})


def of_processes(made: Comparison) -> Iterator[Doubt]:
    """That ratios of some processes were dropped."""
    void = [(row, process, cause) for row, process, cause in made.void_processes if made.is_over_processes(row)]
    if void:
        causes = [CAUSES[cause].said for cause, _ in Counter(cause for _, _, cause in void).most_common()]
        left, concerned = len({process for _, process, _ in void}), sorted({row for row, _, _ in void})
        processes = f"{left} process{'es' if left > 1 else ''}"
        text = f"The ratio of {row_names(made, concerned)} was dropped in {processes}: {', '.join(causes)}."
        text += " Up to two more processes replaced them."
        yield Doubt("void-process", text, "", {"rows": concerned, "processes": left})


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


# ---- timing_doubts ---------------------------------------------------------------------------------------------------
# What spoils a timing, found in its numbers: each doubt with the facts, what still stands, and the next step.
#
# Thresholds are those of the project's measurements: CPU pressure above 30 % or wall over CPU time above 1.2 is a
# busy machine (intervals about four times wider, comparisons still valid); IQR over median above 0.10 is noisy, above
# 0.25 no single time should be read.

BUSY_PRESSURE, BUSY_WALL_OVER_CPU = 0.30, 1.2
NOISY, UNREADABLE = 0.10, 0.25
LAUNCH_BOUND = 0.05
FAULT_SECONDS = 0.25e-6
"""A minor fault costs 0.2 us and more (zeroing a page included)."""
GONE = 0.1e-9
"""Seconds a call below which a C++ statement was compiled to nothing: a loop around anything takes a clock cycle."""
_COMPARE = "To choose between alternatives, compare them in one %%timer cell."
EXPLAINED = 0.5
"""Share of the time without processor that waiting for a core must explain for the machine to be called busy: a
``time.sleep`` waits for nobody."""
FACTOR = 2.0
"""From so many times on two figures are said to lie "N times apart", below by per cents: "27032 % apart" is read by
nobody."""


def doubts_of(made: Comparison) -> list[Doubt]:
    """Every doubt that the numbers of a comparison raise, most important first."""
    of_subjects = doubts_of_subjects(made.subjects, restore=bool(made.options.get("restore")))
    code = [*of_subjects, *compiled_meanwhile(made), *slow_calls(made)]
    load = [*code, *voided(made), *_co_load(made), *_busy(made), *_machine(made)]
    spread = [*_few(made), *_noisy(made), *_bimodal(made), *medians_apart(made)]
    rest = [*_threads(made), *_launch_bound(made), *_faults(made), *_near_loop(made), *_short_blocks(made)]
    kernels = [*in_this_kernel(made), *of_processes(made)]
    return _said_once(_said_once([*load, *kernels, *spread, *rest], still_valid(made)), _COMPARE)


def _said_once(doubts: list[Doubt], sentence: str) -> list[Doubt]:
    """The doubts with a sentence that several of them hold in the first of these only."""
    having = [at for at, doubt in enumerate(doubts) if sentence and sentence in f"{doubt.text} {doubt.action}"]
    for at in having[1:]:
        text, action = (part.replace(sentence, "").strip() for part in (doubts[at].text, doubts[at].action))
        doubts[at] = replace(doubts[at], text=text, action=action)
    return doubts


def with_doubts_of_its_own(made: Comparison, before: Comparison) -> Comparison:
    """``made`` from ``before`` (other ratios, the same warnings), with the doubts of its own numbers."""
    former = set(doubts_of(before))
    others = [doubt for doubt in made.warnings if doubt not in former]
    return made if len(others) == len(made.warnings) else replace(made, warnings=[*others, *doubts_of(made)])


def is_bimodal(times: npt.NDArray[np.float64]) -> tuple[float, float] | None:
    """The medians of two separate speeds that samples jump between, or None.

    The samples between their 2 % and 98 % points are split where it lowers the variance most (Otsu 1979); they count
    as two speeds when each side holds a sixth of them and the sides lie 1 % and four times their inner spread apart.
    """
    if len(times) < 40:
        return None
    low, high = np.percentile(times, [2, 98])
    x = np.sort(times[(times >= low) & (times <= high)])
    n = len(x)
    sums, k = np.cumsum(x), np.arange(1, n)
    between = (sums[:-1] / k - (sums[-1] - sums[:-1]) / (n - k)) ** 2 * k * (n - k)
    cut = int(np.argmax(between)) + 1
    if not n / 6 <= cut <= n * 5 / 6:
        return None
    left, right = x[:cut], x[cut:]
    slow, fast = float(np.median(right)), float(np.median(left))
    spread = max(float(np.median(np.abs(side - np.median(side)))) for side in (left, right))
    return (fast, slow) if slow > 1.01 * fast > 0 and slow - fast > 4 * spread * 1.4826 else None


def _contentions(made: Comparison) -> list[Contention]:
    by_group = {s.group: s.contention for s in made.subjects if s.contention is not None}
    return list(by_group.values())


def _co_load(made: Comparison) -> Iterator[Doubt]:
    """Threads of one op wait for each other: a neighbour on one core makes an op on two cores many times slower."""
    spoiled = _co_loaded(made)
    if not spoiled:
        return
    cores = max(made.cores_of(row) for row, s in enumerate(made.subjects) if s.group in spoiled)
    worst = min(max((s.contention.ext for s in spoiled.values() if s.contention is not None), default=0.0), cores)
    threads = " and ".join(str(t) for t in sorted({s.num_threads for s in spoiled.values()}))
    groups = {s.group for s in made.subjects}
    where = "" if len(groups) == 1 else f" at {len(spoiled)} of {len(groups)} points"
    single = "absolute times are unreliable" if len(made.subjects) > 1 else "this time is unreliable"
    text = (
        f"Other processes used up to {worst:.1f} of {cores} cores while {threads} threads ran{where}:"
        f" {single} and can be many times too long."
    )
    facts = {"ext": worst, "groups": sorted(spoiled)}
    measure = "" if made.stalled else CAUSES["stalled"].cure
    yield Doubt("co-load", text, f"{still_valid(made)} {measure}".strip(), facts)


def _co_loaded(made: Comparison) -> dict[int, Subject]:
    """The groups whose threads had a neighbour, with a subject of each. Code that keeps to one thread has no others to
    wait for, whatever the thread count says."""
    rows = enumerate(made.subjects)
    return {s.group: s for row, s in rows if s.num_threads <= made.cores_of(row) and is_co_loaded(s)}


def is_co_loaded(s: Subject) -> bool:
    """Whether several threads of one op shared the machine with another process, which left no core idle: then neither
    its time nor its ratios hold."""
    c = s.contention
    if s.num_threads == 1 or c is None:
        return False
    return c.ext > CO_LOAD and not c.wanted <= SEVERAL and not c.waiting <= WAITED


def is_held_up(made: Comparison, row: int) -> bool:
    """Whether other processes held a row up, so that its median can be many times too long: its threads waited for each
    other, or at one thread most blocks lost the core to others (calls of many ms; short blocks mostly do not)."""
    s, c = made.subjects[row], made.subjects[row].contention
    if is_co_loaded(s):
        return True
    if s.num_threads != 1 or s.device != "cpu" or c is None or not (c.ext > 0.5 or c.waiting > 0.1):
        return False
    seen = made._rows[row]
    return bool(seen["median"] > BUSY_WALL_OVER_CPU * seen["cpu_clock_median"])


def is_load_known(made: Comparison, row: int) -> bool:
    """Whether it was recorded what else ran meanwhile."""
    contention = made.subjects[row].contention
    return contention is not None and not math.isnan(contention.ext)


def was_quiet(made: Comparison, row: int) -> bool:
    """Whether other processes are known to have left the machine alone."""
    contention = made.subjects[row].contention
    return contention is not None and contention.ext <= CO_LOAD


def _busy(made: Comparison) -> Iterator[Doubt]:
    spoiled = _co_loaded(made)
    rows = enumerate(made.subjects)
    own = {s.group for row, s in rows if s.num_threads > made.cores_of(row) or s.group in spoiled}  # said by others
    own |= {group for group, rows in made.groups.items() if all(_sleeps(made, i) for i in rows)}
    by_group = {s.group: s.contention for s in made.subjects if s.contention is not None and s.group not in own}
    pressure = max((c.pressure for c in by_group.values() if not math.isnan(c.pressure)), default=math.nan)
    waited = _preempted(made)
    if not pressure > BUSY_PRESSURE and not waited:
        return
    compared = any(len(rows) > 1 for rows in made.groups.values())
    facts: dict[str, object] = {"pressure": pressure, "involuntary": mean_over(_contentions(made), "involuntary")}
    why = [f"CPU pressure {pressure:.0%}".replace("%", " %")] if pressure > BUSY_PRESSURE else []
    if waited:
        ratio = max(wall_over_cpu(made._blocks[i]) for i in waited)
        facts["wall_over_cpu"] = ratio
        why.append(f"wall time {ratio:.1f} times CPU time")
        switches = facts["involuntary"]
        if isinstance(switches, float) and switches > 1:
            why.append(f"{switches:.0f} involuntary context switches per second")
    what = f"Busy machine: {', '.join(why)}."
    if compared:
        yield Doubt("busy", f"{what} Absolute times are unreliable.", still_valid(made), facts)
    else:
        yield Doubt("busy", what, _COMPARE, facts)


def _preempted(made: Comparison) -> list[int]:
    """Rows of one-thread CPU work that took notably more wall than processor time because threads of the process waited
    for a core; one that sleeps or reads a file waits for none."""
    return [
        i
        for i, s in enumerate(made.subjects)
        if s.contention is not None
        and s.contention.waiting > WAITED
        and _lacks_processor(made, i)
        and not _sleeps(made, i)
    ]


def _lacks_processor(made: Comparison, i: int) -> bool:
    """Whether CPU work of one thread took notably more wall than processor time."""
    subject = made.subjects[i]
    on_one = subject.num_threads == 1 and subject.device == "cpu"
    return on_one and wall_over_cpu(made._blocks[i]) > BUSY_WALL_OVER_CPU


def _sleeps(made: Comparison, i: int) -> bool:
    """Whether a row lacks processor time for another reason than waiting for a core, as far as that is known."""
    seen = made.subjects[i].contention
    if seen is None or not _lacks_processor(made, i):
        return False
    return seen.waiting < EXPLAINED * (1 - 1 / wall_over_cpu(made._blocks[i]))


def _machine(made: Comparison) -> Iterator[Doubt]:
    contentions = _contentions(made)
    steal, throttled, clock = (mean_over(contentions, name) for name in ("steal", "throttled", "clock"))
    yield from machine_doubts(steal, throttled, clock, "Measure again later, or compare in one cell.")


def _few(made: Comparison) -> Iterator[Doubt]:
    single = [i for i, row in enumerate(made._rows) if row["samples"] == 1]
    if single:
        names = row_names(made, single)
        lone = len(made.subjects) == 1
        text = "One sample: the spread is unknown." if lone else f"One sample of {names}: the spread is unknown."
        action = "Allow more time (`--max-run-time S`), or set the number of rounds (`-r N`)."
        yield Doubt("one-sample", text, action, {"rows": single})


def _noisy(made: Comparison) -> Iterator[Doubt]:
    spread = [row["iqr"] / row["median"] if row["median"] > 0 else math.nan for row in made._rows]
    bad = [i for i in range(len(made.subjects)) if spread[i] > UNREADABLE]
    noisy = [i for i in range(len(made.subjects)) if NOISY < spread[i] <= UNREADABLE]
    pressure = mean_over(_contentions(made), "pressure")
    cause = f", CPU pressure {100 * pressure:.0f} %" if pressure > BUSY_PRESSURE else ""
    if len(made.subjects) == 1 and bad:
        text = f"This time is unreliable: IQR {_share(spread[0])}{cause}."
        yield Doubt("noisy", text, _COMPARE, {"rows": bad})
    elif bad:
        worst = _share(max(spread[i] for i in bad))
        text = f"Absolute times of {row_names(made, bad)} are unreliable: IQR up to {worst}{cause}."
        yield Doubt("noisy", text, still_valid(made), {"rows": bad})
    elif len(made.subjects) == 1 and noisy and not cause:
        yield Doubt("noisy", f"Noisy: IQR {100 * spread[0]:.0f} % of the median.", "", {"rows": noisy})


def _share(share: float) -> str:
    """A spread as per cents of the median, or as times of it."""
    return f"{100 * share:.0f} %" if share < FACTOR else f"{units.number(share)} times the median"


def _bimodal(made: Comparison) -> Iterator[Doubt]:
    alone = [i for i in range(len(made.subjects)) if not made.is_over_processes(i)]  # processes differ in speed
    found = {i: two for i in alone if (two := is_bimodal(made.call_times(i))) is not None}
    if not found:
        return
    i, (fast, slow) = max(found.items(), key=lambda item: item[1][1] / item[1][0])
    more = f" and {len(found) - 1} more row{'s' if len(found) > 2 else ''}" if len(found) > 1 else ""
    text = (
        f"{row_name(made, i)}{more} ran at two speeds, {_apart(fast, slow)}: the median is that of the more frequent"
        f" one."
    )
    yield Doubt("bimodal", text, "", {"rows": list(found), "fast": fast, "slow": slow})


def _apart(fast: float, slow: float) -> str:
    times = slow / fast
    return f"{100 * (times - 1):.1f} % apart" if times < FACTOR else f"{units.number(times)} times apart"


def _threads(made: Comparison) -> Iterator[Doubt]:
    rows = enumerate(made.subjects)
    over = {s.num_threads: made.cores_of(row) for row, s in rows if s.num_threads > made.cores_of(row)}
    many, cores = sorted(over), min(over.values(), default=0)
    if many:
        text = oversubscribed_text(" and ".join(map(str, many)), cores)
        yield Doubt("oversubscribed", text, "", {"threads": many, "cores": cores})


def _launch_bound(made: Comparison) -> Iterator[Doubt]:
    bound = [i for i, s in enumerate(made.subjects) if s.device != "cpu" and s.waited < LAUNCH_BOUND]
    if bound:
        names = row_names(made, bound)
        text = (
            f"Launch-bound: {names} kept {made.subjects[bound[0]].device} waiting, so the time is that of Python and of"
            " launching kernels, not of the kernels."
        )
        action = "To measure the device, use larger inputs, or fewer (fused) kernels."
        yield Doubt("launch-bound", text, action, {"rows": bound})


def _faults(made: Comparison) -> Iterator[Doubt]:
    faults, median = [s.page_faults for s in made.subjects], [row["median"] for row in made._rows]
    heavy = [i for i in range(len(made.subjects)) if faults[i] > 50 and faults[i] * FAULT_SECONDS > 0.2 * median[i]]
    if heavy:
        i = max(heavy, key=lambda row: faults[row])
        text = (
            f"{row_name(made, i)} has {faults[i]:.0f} page faults per call, which take much of its time:"
            " the system provides fresh memory for each result above 32 MiB."
        )
        action = "Reuse a tensor (`out=`), or start the session with `MALLOC_MMAP_THRESHOLD_=4294967296`."
        yield Doubt("page-faults", text, action, {"rows": heavy, "faults": float(faults[i])})


def _near_loop(made: Comparison) -> Iterator[Doubt]:
    medians = [row["median"] for row in made._rows]
    gone = {i for i, median in enumerate(medians) if median < GONE and made.subjects[i].language == "c++"}
    if gone:
        names = row_names(made, sorted(gone))
        text = f"{names}: the compiler removed the statement, because nothing uses its result."
        action = "Use the result, for example in a `volatile` variable of the setup."
        yield Doubt("compiled-away", text, action, {"rows": sorted(gone)})
    near = [i for i, median in enumerate(medians) if median < made.shortest_call(i) and i not in gone]
    if near:
        names, under = row_names(made, near), max(map(made.shortest_call, near))
        is_start = any(made.shortest_call(i) > made.subjects[i].near_loop for i in near)
        cost = "starting a block costs as much" if is_start else "the timing loop itself costs as much"
        text = f"No verdict on {names}: below {under * 1e9:.0f} ns per call {cost}."
        way = "Put more work into one call"
        way += ", or give `-n N` if N calls in a row do the same work." if is_start else "."
        yield Doubt("near-loop", text, way, {"rows": near})
