"""What on this machine spoils a measurement now: findings of the doctor, each with its evidence and what to do."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from torchbench_magic.result_base import Shown
from torchbench_magic.timing.verdict import is_open

if TYPE_CHECKING:
    import pandas as pd

FindingState = Literal["ok", "warn", "not available"]

_WORST_FIRST = (
    "debug build", "hooks", "outside load", "own load", "throttling", "quota", "steal", "waiting",
    "threads", "self-test", "memory", "memory limit", "torch checks", "OpenMP", "governor", "power",
)  # fmt: skip
"""Kinds of findings by how far times go astray through them, as a rule: a factor first, then per cent."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        kind: what it is about, stable: callers select by it.
        state: ``ok``; ``warn`` where it spoils a measurement; ``not available`` where it cannot be known here, or a
            tool is missing that only some options need.
        text: what was found, one sentence.
        evidence: the figures or the file behind it; may be empty.
        fix: what to do about it, one line; empty where there is nothing to do.
    """

    kind: str
    state: FindingState
    text: str
    evidence: str = ""
    fix: str = ""


@dataclass(frozen=True)
class SelfTest:
    """Equal code compared with itself: what lies in its interval, this machine cannot tell from no difference now.

    Attributes:
        name: what was run.
        median: seconds of a call.
        ratio, low, high: of the two equal alternatives, with its 95 % interval.
        verdict: what the comparison said of them; ``same`` and ``undecided`` are right.
        seconds: that the comparison took.
    """

    name: str
    median: float
    ratio: float
    low: float
    high: float
    verdict: str
    seconds: float

    @property
    def smallest_effect(self) -> float:
        """Half the width of the interval, as a share: 0.02 is 2 %. Infinite where it has no ends."""
        if not (0 < self.low <= self.high < math.inf):
            return math.inf
        return math.sqrt(self.high / self.low) - 1

    @property
    def is_wrong(self) -> bool:
        """Whether equal code was called different."""
        return self.verdict != "same" and not is_open(self.verdict)


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """What ``%tdoctor`` found.

    Attributes:
        findings: what was looked at, what spoils measurements first, the worst of it at the top.
        self_test: the comparisons of equal code; empty where none was asked for.
        seconds: that the examination took, the self-test apart.
        watched: seconds for which the load was watched.
        environment: device and versions, in one line.
        partial: the self-test was interrupted.
    """

    findings: tuple[Finding, ...]
    self_test: tuple[SelfTest, ...] = ()
    seconds: float = 0.0
    watched: float = 0.0
    environment: str = ""
    partial: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", tuple(sorted(self.findings, key=_place)))

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What spoils a measurement now, the worst first."""
        return tuple(one for one in self.findings if one.state == "warn")

    @property
    def smallest_effect(self) -> float:
        """The smallest difference that every case of the self-test can resolve, as a share; NaN without one."""
        return max((one.smallest_effect for one in self.self_test), default=math.nan)

    @property
    def frame(self) -> pd.DataFrame:
        """One row per finding: ``kind``, ``state``, ``text``, ``evidence``, ``fix``."""
        import pandas as pd

        return pd.DataFrame([asdict(one) for one in self.findings], columns=list(Finding.__dataclass_fields__))


def _place(finding: Finding) -> tuple[int, int]:
    states = ("warn", "not available", "ok")
    rank = _WORST_FIRST.index(finding.kind) if finding.kind in _WORST_FIRST else len(_WORST_FIRST)
    return states.index(finding.state), rank if finding.state == "warn" else 0
