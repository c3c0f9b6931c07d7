"""What the kernels that measured one pair say of it together.

Each run measured its alternatives side by side, in a kernel with addresses of its own. Runs of the same work in several
kernels are what ``--processes`` makes in one go: each is one value, however many samples it took.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from torchbench_magic import units
from torchbench_magic.results.doubts import Doubt

from ..across_processes.process_ratios import assumes_normal, least_processes, over_processes
from ..comparison import Comparison
from ..identity import likeness
from ..intervals import ALPHA, verdict
from ..subject import Subject
from .unpaired_doubts import thing_of

__all__ = ["KernelRatios", "of_several_kernels", "ratios_by_kernel", "with_kernels"]


@dataclass
class KernelRatios:
    """One pair in several kernels.

    Attributes:
        names: of the alternative and of its baseline.
        point: where they were measured: sub_label, threads where there are several.
        logs: kernel -> log of the ratio there, of its latest run.
        verdicts: kernel -> what that run said.
        margin: inside which ratios are the same; the widest of the runs.
        family: comparisons that share the error rate; the most of the runs.
    """

    names: tuple[str, str]
    point: str
    logs: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    margin: float = 0.0
    family: int = 1

    def doubt(self) -> Doubt:
        """The ratio over the kernels, its interval and its verdict, in a sentence."""
        alpha = ALPHA / self.family
        interval = over_processes(np.array([*self.logs.values()]), alpha)
        word, ratio, count = verdict(interval, self.margin), interval.exp(), len(self.logs)
        alone = Counter(self.verdicts.values())
        ways = {"same": f"the same as {{}} within {100 * self.margin:g} %", "undecided": "undecided against {}"}
        is_what = ways.get(word, f"{word} than {{}}").format(f"`{self.names[1]}`")
        said = f"Over {count} kernels `{self.names[0]}` is {is_what}{self.point}"
        shown = units.ratio(ratio.median, ratio.low, ratio.high, digits=3)
        text = f"{said}: {shown} ({units.interval(ratio.low, ratio.high)})."
        if word == "undecided" and (sides := [f"{way} in {alone[way]}" for way in ("faster", "slower") if alone[way]]):
            text += f" Within one kernel it was {' and '.join(sides)}."
        of = {"names": self.names, "point": self.point, "kernels": count, "verdict": word}
        facts = {"name": " ".join((*self.names, self.point)), **of}
        need = least_processes(self.family)
        if assumes_normal(count, alpha):
            text += f" With so few kernels the interval assumes a normal distribution; {need} need no such assumption."
        return Doubt("kernels", text, "", facts | {"ratio": ratio.median, "low": ratio.low, "high": ratio.high})


def ratios_by_kernel(results: Iterable[Comparison]) -> dict[tuple[str, str], KernelRatios]:
    """(`likeness` of an alternative, of its baseline) -> what each kernel that measured them side by side says.

    Left out are ratios that decide nothing in their own run, and runs of which it is not known where they were made.
    """
    found: dict[tuple[str, str], KernelRatios] = {}
    for result in results:
        for row, base in _pairs(result):
            subject, other = result.subjects[row], result.subjects[base]
            start = KernelRatios((thing_of(subject), thing_of(other)), _point(subject))
            pair = found.setdefault((likeness(result, row), likeness(result, base)), start)
            pair.margin, pair.family = max(pair.margin, result.margin), max(pair.family, result.family)
            word = str(result.frame["verdict"][row])
            for kernel, log in _logs(result, row, base).items():
                pair.logs[kernel], pair.verdicts[kernel] = log, word
    return found


def _point(subject: Subject) -> str:
    threads = f"{subject.num_threads} threads" if subject.num_threads > 1 else ""
    said = ", ".join(filter(None, (subject.sub_label, threads)))
    return f" ({said})" if said else ""


def _pairs(result: Comparison) -> Iterator[tuple[int, int]]:
    for row in range(len(result.subjects)) if result.kernel else ():
        base = result.base_row(row)
        if base is None or base == row or row in result.unpaired or row in result.voids:
            continue
        used_up = any(result.subjects[at].used_up for at in (row, base))
        if not used_up and str(result.frame["verdict"][row]) in ("faster", "slower", "same", "undecided"):
            yield row, base


def _logs(result: Comparison, row: int, base: int) -> dict[str, float]:
    if result.is_over_processes(row):
        return {f"{result.kernel} {process}": log for process, log in result.ratio_by_process(row).items()}
    log = result.log_ratio(row, base).median
    return {result.kernel: log} if math.isfinite(log) else {}


def of_several_kernels(results: Iterable[Comparison], about: Iterable[Comparison] | None = None) -> list[Doubt]:
    """A doubt for each pair that several kernels measured.

    Args:
        results: the runs, oldest first.
        about: only pairs that one of these has; None is all.
    """
    wanted = None if about is None else ratios_by_kernel(about).keys()
    pairs = ratios_by_kernel(results).items()
    return [pair.doubt() for key, pair in pairs if len(pair.logs) > 1 and (wanted is None or key in wanted)]


def with_kernels(made: Comparison, kernels: Sequence[Doubt]) -> Comparison:
    """With what several kernels say before what else there is to say; that a ratio is of one kernel alone is not said
    where each that is meant was measured in several."""
    known = {(doubt.facts["names"][0], doubt.facts["point"]) for doubt in kernels}  # type: ignore[index]

    def is_open(doubt: Doubt) -> bool:
        if doubt.kind != "this-kernel":
            return True
        rows = (made.subjects[row] for row in doubt.facts["rows"])  # type: ignore[attr-defined]
        return not all((thing_of(row), _point(row)) in known for row in rows)

    if kernels:
        object.__setattr__(made, "warnings", [*kernels, *filter(is_open, made.warnings)])
    return made
