"""What spoils a timing, found in its numbers: each doubt with the facts, what still stands, and the next step.

Thresholds are those of the project's measurements: CPU pressure above 30 % or wall over CPU time above 1.2 is a
busy machine (intervals about four times wider, comparisons still valid); IQR over median above 0.10 is noisy, above
0.25 no single time should be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from torchbench_magic import units

from ..doubts import Doubt
from ..machine.contention import Contention
from ..machine.load_doubts import machine_doubts, oversubscribed_text
from .comparison import Comparison
from .ratio_doubts import (
    compiled_meanwhile,
    in_this_kernel,
    medians_apart,
    of_processes,
    point_name,
    row_name,
    row_names,
    slow_calls,
    still_valid,
    voided,
)
from .rows import are_speeds
from .subject import Subject
from .used_up import doubts_of_subjects
from .voided_verdicts import CO_LOAD, SEVERAL, WAITED

__all__ = [
    "doubts_of",
    "is_bimodal",
    "is_co_loaded",
    "is_held_up",
    "is_load_known",
    "was_quiet",
    "with_doubts_of_its_own",
]

BUSY_PRESSURE, BUSY_WALL_OVER_CPU = 0.30, 1.2
NOISY, UNREADABLE = 0.10, 0.25
LAUNCH_BOUND = 0.05
FAULT_SECONDS = 0.25e-6
"""A minor fault costs 0.2 us and more (zeroing a page included)."""
GONE = 0.1e-9
"""Seconds a call below which a C++ statement was compiled to nothing: a loop around anything takes a clock cycle."""
_MOST_BY_CPU = 3
_COMPARE = "To choose between alternatives, compare them in one %%timer cell."
EXPLAINED = 0.5
"""Share of the time without processor that waiting for a core must explain for the machine to be called busy: a
``time.sleep`` waits for nobody."""
FACTOR = 2.0
"""From so many times on two figures are said to lie "N times apart", below by per cents: "27032 % apart" is read by
nobody."""


def doubts_of(made: Comparison) -> list[Doubt]:
    """Every doubt that the numbers of a comparison raise, most important first."""
    code = [*doubts_of_subjects(made.subjects), *compiled_meanwhile(made), *slow_calls(made)]
    load = [*code, *voided(made), *_co_load(made), *_busy(made), *_machine(made)]
    spread = [*_few(made), *_noisy(made), *_bimodal(made), *medians_apart(made)]
    rest = [*_threads(made), *_launch_bound(made), *_faults(made), *_near_loop(made)]
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


def _mean(contentions: list[Contention], name: str) -> float:
    """Mean over the groups, weighted by their seconds; NaN where the system does not tell."""
    pairs = [(c.wall, getattr(c, name)) for c in contentions if not math.isnan(getattr(c, name))]
    total = sum(wall for wall, _ in pairs)
    return sum(wall * value for wall, value in pairs) / total if total else math.nan


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
    measure = "" if made.stalled else "Measure again on a quiet machine, or at one thread (`-t 1`)."
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
    seen = made.frame.iloc[row]
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
    facts: dict[str, object] = {"pressure": pressure, "involuntary": _mean(_contentions(made), "involuntary")}
    why = [f"CPU pressure {pressure:.0%}".replace("%", " %")] if pressure > BUSY_PRESSURE else []
    if waited:
        ratio = max(made.details["wall_over_cpu"][i] for i in waited)
        facts["wall_over_cpu"] = ratio
        why.append(f"wall time {ratio:.1f} times CPU time")
        switches = facts["involuntary"]
        if isinstance(switches, float) and switches > 1:
            why.append(f"{switches:.0f} involuntary context switches per second")
    what = f"Busy machine: {', '.join(why)}."
    if compared:
        yield Doubt("busy", f"{what} Absolute times are unreliable.", still_valid(made), facts)
        yield from _by_cpu_clock(made)
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
    return on_one and bool(made.details["wall_over_cpu"][i] > BUSY_WALL_OVER_CPU)


def _sleeps(made: Comparison, i: int) -> bool:
    """Whether a row lacks processor time for another reason than waiting for a core, as far as that is known."""
    seen = made.subjects[i].contention
    if seen is None or not _lacks_processor(made, i):
        return False
    return seen.waiting < EXPLAINED * (1 - 1 / float(made.details["wall_over_cpu"][i]))


def _by_cpu_clock(made: Comparison) -> Iterator[Doubt]:
    """The same ratios by processor time, a second opinion where the work is all on the CPU, on one thread: that of
    other threads is booked by the kernel's tick, every few milliseconds, and a block does not know its own."""
    if made.clock != "wall" or any(s.device != "cpu" or s.num_threads > 1 for s in made.subjects):
        return
    if any(_sleeps(made, i) for i in range(len(made.subjects))):
        return  # what it waits for is no processor time
    frame = replace(made, clock="cpu").frame
    rows = frame[frame["verdict"].notna() & (frame["verdict"] != "baseline") & frame["ratio_low"].gt(0)]
    rows = rows[np.isfinite(rows["ratio_high"])]
    if rows.empty:
        return
    by_wall = made.frame.loc[rows.index]
    others = rows[rows["verdict"] != by_wall["verdict"]]
    same = len(rows) - len(others)
    if same > 1 and others.empty:
        apart = float((rows["ratio"] / by_wall["ratio"]).map(lambda ratio: max(ratio, 1 / ratio) - 1).max())
        all_of_them, most = "both" if same == 2 else f"all {same}", units.percent(apart)
        most = f"less than {most[1:]}" if most.startswith("<") else f"at most {most}"
        text = f"By CPU time, {all_of_them} verdicts are the same; the ratios differ by {most} %."
    else:
        text = _said_by_cpu(made, others if same > 1 else rows, same if same > 1 else 0)
    yield Doubt("cpu-clock", text, "", {"rows": list(rows.index)})


def _said_by_cpu(made: Comparison, rows: pd.DataFrame, same: int) -> str:
    """The first ``rows`` with their ratios by processor time; ``same``: how many others have the verdict they had."""
    in_speeds = are_speeds(made.frame["verdict"].dropna())
    said = []
    for i, *ends in rows[["ratio", "ratio_low", "ratio_high"]].head(_MOST_BY_CPU).itertuples():
        ratio, low, high = (1 / ends[0], 1 / ends[2], 1 / ends[1]) if in_speeds else ends
        said.append(f"{point_name(made, i)} {units.ratio(ratio, low, high)} ({units.interval(low, high)})")
    if len(rows) > len(said):
        said.append(f"{len(rows) - len(said)} more")
    if same:
        said.append(f"the other {same} verdicts are the same")
    return f"By CPU time, the ratios (times as {'fast' if in_speeds else 'long'}) are: {'; '.join(said)}."


def _machine(made: Comparison) -> Iterator[Doubt]:
    contentions = _contentions(made)
    steal, throttled, clock = (_mean(contentions, name) for name in ("steal", "throttled", "clock"))
    yield from machine_doubts(steal, throttled, clock, "Measure again later, or compare in one cell.")


def _few(made: Comparison) -> Iterator[Doubt]:
    single = [i for i, n in enumerate(made.frame["samples"]) if n == 1]
    if single:
        names = row_names(made, single)
        lone = len(made.subjects) == 1
        text = "One sample: the spread is unknown." if lone else f"One sample of {names}: the spread is unknown."
        action = "Allow more time (`--max-run-time S`), or set the number of rounds (`-r N`)."
        yield Doubt("one-sample", text, action, {"rows": single})


def _noisy(made: Comparison) -> Iterator[Doubt]:
    median = made.frame["median"]
    spread = made.frame["iqr"] / median.where(median > 0)  # a spread is no share of nothing
    bad = [i for i in range(len(made.subjects)) if spread[i] > UNREADABLE]
    noisy = [i for i in range(len(made.subjects)) if NOISY < spread[i] <= UNREADABLE]
    pressure = _mean(_contentions(made), "pressure")
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
    faults, median = made.details["page_faults"], made.frame["median"]
    heavy = [i for i in range(len(made.subjects)) if faults[i] > 50 and faults[i] * FAULT_SECONDS > 0.2 * median[i]]
    if heavy:
        i = max(heavy, key=lambda row: faults[row])
        text = (
            f"{row_name(made, i)} has {faults[i]:.0f} page faults per call, which take much of its time:"
            " the system provides fresh memory for each result above 32 MiB."
        )
        action = "Reuse a tensor (`out=`), or start the kernel with `MALLOC_MMAP_THRESHOLD_=4294967296`."
        yield Doubt("page-faults", text, action, {"rows": heavy, "faults": float(faults[i])})


def _near_loop(made: Comparison) -> Iterator[Doubt]:
    gone = {i for i, median in enumerate(made.frame["median"]) if median < GONE and made.subjects[i].language == "c++"}
    if gone:
        names = row_names(made, sorted(gone))
        text = f"{names}: the compiler removed the statement, because nothing uses its result."
        action = "Use the result, for example in a `volatile` variable of the setup."
        yield Doubt("compiled-away", text, action, {"rows": sorted(gone)})
    medians = enumerate(made.frame["median"])
    near = [i for i, median in medians if median < made.subjects[i].near_loop and i not in gone]
    if near:
        names = row_names(made, near)
        under = max(made.subjects[i].near_loop for i in near)
        text = f"No verdict on {names}: below {under * 1e9:.0f} ns per call the timing loop itself costs as much."
        yield Doubt("near-loop", text, "Put more work into one call.", {"rows": near})
