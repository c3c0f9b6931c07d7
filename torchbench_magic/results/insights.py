"""Insights as values: why code is slow, with the facts behind it, and what would help.

A doubt (`doubts`) is about a number, an insight about the code. What an insight says at most, a cure can save.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from ._gateway import hand_on

if TYPE_CHECKING:
    from .timing.comparison import Comparison

__all__ = ["CodeLine", "Cure", "Insight"]


@dataclass(frozen=True)
class CodeLine:
    """A line of code as the reader sees it.

    Attributes:
        label: ``In[3]:4``, or ``model.py:12``.
        source_id: the text that it stands in, a key of ``Profile.sources``.
        line: 1-based, as shown.
    """

    label: str
    source_id: str
    line: int

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Cure:
    """What may help.

    Attributes:
        text: one sentence, with code in backticks.
        code: what to paste, where it can be written; else None.
        lever: the name of what ``%%timer --try`` can do by itself; else None.
    """

    text: str
    code: str | None = None
    lever: str | None = None


@dataclass(frozen=True)
class Insight:
    """One reason why a run took as long as it did.

    Attributes:
        kind: one word, stable: tests and callers select by it.
        seconds: at stake: the most that a cure can save, by this run's own figures and without what recording is
            estimated to have added.
        share: ``seconds`` of the wall time, less what recording is estimated to have added; 0 to 1.
        text: one sentence that names the line, with code in backticks.
        evidence: the facts behind it, plain values by name. What begins with ``seconds`` is in seconds, with ``share``
            a share of 1, with ``bytes`` in bytes; other numbers are counts.
        places: the lines it is about, the one with the most at stake first.
        cures: what to do, the first to try first.
        nbytes: bytes at stake, of an insight about memory; its ``seconds`` and ``share`` are 0.
        body: the text of the code that was profiled; empty where it is not known.
    """

    kind: str
    seconds: float
    share: float
    text: str
    evidence: Mapping[str, object] = field(default_factory=dict, compare=False)
    places: tuple[CodeLine, ...] = ()
    cures: tuple[Cure, ...] = ()
    nbytes: int = 0
    body: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", MappingProxyType(dict(self.evidence)))

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"

    def __reduce__(self) -> tuple[type[Insight], tuple[object, ...]]:
        plain = dict(self.evidence)  # a mapping proxy does not pickle
        shown = (self.kind, self.seconds, self.share, self.text, plain, self.places, self.cures)
        return Insight, (*shown, self.nbytes, self.body)

    @property
    def levers(self) -> tuple[str, ...]:
        """What ``%%timer --try`` can do of the cures by itself."""
        return tuple(dict.fromkeys(cure.lever for cure in self.cures if cure.lever is not None))

    def try_(self, *levers: str, names: Mapping[str, object] | None = None, min_run_time: float = 0.2) -> Comparison:
        """Run the profiled code as it is against itself under the cures' levers: ratio, verdict, and whether the
        result is the same. The code runs many times, on the variables as they are now; what it changes is put back.

        Args:
            levers: which to try; none of them: those of ``cures``.
            names: the variables; None: those of the notebook.
            min_run_time: seconds, for each.

        Raises:
            InputError: in one line: no cure is a lever, the code is not known, or a variable is not there any more.
        """
        made: Comparison = hand_on(self, "try_", levers=levers, names=names, min_run_time=min_run_time)
        return made

    def as_dict(self) -> dict[str, object]:
        """The same as what JSON can hold."""
        return {
            "kind": self.kind,
            "seconds": self.seconds,
            "share": self.share,
            "bytes": self.nbytes,
            "text": self.text,
            "evidence": dict(self.evidence),
            "places": [{"label": p.label, "source_id": p.source_id, "line": p.line} for p in self.places],
            "cures": [{"text": c.text, "code": c.code, "lever": c.lever} for c in self.cures],
        }
