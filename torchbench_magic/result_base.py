"""What every result has in common: warnings and insights as values, how it is shown, stored and handed on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from torchbench_magic.timing.comparison import Comparison

# ---- _gateway --------------------------------------------------------------------------------------------------------
# The one way up from a result: what it shows of itself, and where it is handed on to, is found here, on first call.
#
# A result may not import what shows it as it is loaded (it must be usable where nothing can be shown), and a record may
# not import the store or the exporter that is made of such records. The tables below name the function of each verb;
# they are resolved lazily.

TABLE: dict[tuple[str, str], str] = {
    ("Comparison", "document"): "torchbench_magic.timing.view:document",
    ("Comparison", "facts"): "torchbench_magic.timing.reports:facts",
    ("Comparison", "to_markdown"): "torchbench_magic.timing.reports:pull_request",
    ("Comparison", "under"): "torchbench_magic.timing.view:under",
    ("Comparison", "compare"): "torchbench_magic.timing.torch_compare:torch_compare",
    ("Comparison", "plot"): "torchbench_magic.timing.scaling_view:plot",
    ("Comparison", "explore"): "torchbench_magic.notebook.widgets:ComparisonExplorer",
    ("Counts", "flamegraph"): "torchbench_magic.counting.view:flamegraph",
    ("CountsDiff", "explore"): "torchbench_magic.notebook.widgets:CountsExplorer",
    ("CountsDiff", "flamegraph"): "torchbench_magic.counting.view:of_diff",
    ("CountsDiff", "facts"): "torchbench_magic.counting.view:facts",
    ("CountsDiff", "document"): "torchbench_magic.counting.view:document",
    ("Diagnosis", "document"): "torchbench_magic.tdoctor.view:document",
    ("Diagnosis", "facts"): "torchbench_magic.tdoctor.view:facts",
    ("Diagnosis", "under"): "torchbench_magic.tdoctor.view:under",
    ("Diagnosis", "explore"): "torchbench_magic.notebook.widgets:DiagnosisExplorer",
    ("ProfileDiff", "explore"): "torchbench_magic.notebook.widgets:ProfileDiffExplorer",
    ("ProfileDiff", "facts"): "torchbench_magic.profiling.profile_json:facts_of_diff",
    ("ProfileDiff", "document"): "torchbench_magic.profiling.diff_view:document",
    ("Profile", "document"): "torchbench_magic.profiling.view:document",
    ("Profile", "facts"): "torchbench_magic.profiling.profile_json:facts",
    ("Profile", "under"): "torchbench_magic.profiling.memory.view:documents",
    ("Profile", "table"): "torchbench_magic.profiling.torch_table:table",
    ("Profile", "plot"): "torchbench_magic.profiling.pictures.profile_flame:plot",
    ("Profile", "flamegraph"): "torchbench_magic.profiling.pictures.profile_flame:flamegraph",
    ("Profile", "explore"): "torchbench_magic.notebook.widgets:ProfileExplorer",
    ("RankProfile", "document"): "torchbench_magic.cluster.rank_view:document",
    ("RankProfile", "facts"): "torchbench_magic.cluster.rank_view:facts",
    ("RankProfile", "explore"): "torchbench_magic.notebook.widgets:RankExplorer",
    ("Profile", "timeline"): "torchbench_magic.profiling.pictures.timeline:timeline",
}

OF_EVERY: dict[str, str] = {
    "repr": "torchbench_magic.show.renderers:to_text",
    "mimebundle": "torchbench_magic.show.renderers:mimebundle",
    "to_markdown": "torchbench_magic.show.renderers:to_markdown",
    "to_html": "torchbench_magic.show.renderers:to_html",
    "framed": "torchbench_magic.show.renderers:framed",
    "to_json": "torchbench_magic.show.json_output:to_json",
}
"""What all results that have a document show of themselves alike."""

HANDED_ON: dict[tuple[str, str], str] = {
    ("Comparison", "rebase"): "torchbench_magic.timing.across_runs:rebase",
    ("Comparison", "save"): "torchbench_magic.storage.store:save",
    ("Insight", "try_"): "torchbench_magic.levers.trial:try_insight",
    ("Profile", "export_trace"): "torchbench_magic.profiling.chrome_trace:write_chrome_trace",
    ("Profile", "insights"): "torchbench_magic.insights.kinds:insights_of",
    ("Profile", "peak_parts"): "torchbench_magic.insights.peak:peak_parts",
    ("Profile", "save"): "torchbench_magic.storage.store:save",
    ("RankProfile", "insights"): "torchbench_magic.cluster.rank_analysis:rank_insights",
    ("RankProfile", "save"): "torchbench_magic.storage.store:save",
    ("RankProfile", "merged_trace"): "torchbench_magic.cluster.rank_traces:write_merged_trace",
}


def show(result: object, verb: str, **options: Any) -> Any:
    """Call the view function that shows ``verb`` of ``result``."""
    return _call(TABLE.get((type(result).__name__, verb)) or OF_EVERY[verb], result, options)


def hand_on(result: object, verb: str, **options: Any) -> Any:
    """Call the function that does ``verb`` with ``result``: one of a module that is made of such results."""
    return _call(HANDED_ON[type(result).__name__, verb], result, options)


def _call(target: str, result: object, options: dict[str, Any]) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)(result, **options)


# ---- every_result ----------------------------------------------------------------------------------------------------
# What every result can do: show itself, live or as text, and become a page of its own.


class Shown:
    """A result that a notebook displays. What draws it is found on first call, see `TABLE`."""

    def to_html(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str | None:
        """The result as one page that sorts, filters and zooms without session and network.

        Args:
            path: the file to write, whole or not at all; a page of ours that is there is replaced. None returns the
                text instead.
            overwrite: replace any other file too.

        Raises:
            InputError: the file cannot be written.
        """
        written: str | None = show(self, "to_html", path=path, overwrite=overwrite)
        return written

    def to_markdown(self, **options: Any) -> str:
        """The tables as GitHub markdown; ``options`` are those of the view, such as ``sort_by`` of a profile. A
        comparison is written as for a pull request, see `timing.reports`."""
        return str(show(self, "to_markdown", **options))

    def to_json(self, *, max_bytes: int | None = None) -> str:
        """The result as strict JSON in ASCII, of a documented and versioned layout: the sentence with the answer,
        verdicts with their intervals, doubts, insights, where it ran, how to repeat it. Seconds and bytes; what is not
        known, or has no end, is null.

        Args:
            max_bytes: the most that it takes; None is 4 KB for a comparison of a few measurements, 16 KB for whatever
                else. What does not fit is left out and counted in ``left_out``.

        Raises:
            OptionError: ``max_bytes`` is too small for any result.
        """
        return str(show(self, "to_json", max_bytes=max_bytes))

    def explore(self) -> Any:
        """A live widget over this result (ipywidgets)."""
        return show(self, "explore")

    def __repr__(self) -> str:
        return str(show(self, "repr"))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return show(self, "mimebundle")

    def _mime_(self) -> tuple[str, str]:
        """What marimo asks for."""
        framed: tuple[str, str] = show(self, "framed")
        return framed


class Storable(Shown):
    """A result that a store keeps."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add it to the store at ``path``, which is made where there is none; read it back with
        ``torchbench_magic.load``. What is stored there already is not stored twice.

        Raises:
            StoreError: the file cannot be written as it stands.
        """
        hand_on(self, "save", path=path)


# ---- doubts ----------------------------------------------------------------------------------------------------------
# Warnings as values: what is doubtful about a result, with the facts, and what to do about it.

_FIRST = frozenset(
    (
        *("partial", "not-counted", "not-stored", "not-stored-before", "resumed", "measured-again"),
        *("events-lost", "lines-lost", "no-lines", "clock-set"),
        *("compiled-away", "not-run", "no-steps"),
        *("engine-lost", "engine-left-out", "engines-left-out", "process-died"),
        *("rank-not-back", "missing-ranks", "file-left-out"),
    )
)
"""Kinds that say that a result is not, or not all of, what was asked for."""
_LAST = frozenset(
    (
        *("bimodal", "clock", "lever", "medians", "one-of-several", "this-kernel"),
        *("after-profile", "compiled-modules", "device-after", "torch-threads"),
        "void-process",
    )
)
"""Kinds that explain a figure, and leave it as it is."""


@dataclass(frozen=True)
class Doubt:
    """One thing that spoils, or may spoil, a result.

    Attributes:
        kind: one word or a hyphenated pair, stable: tests and callers select by it.
        text: what, how much, what still stands, what does not, in this order; one line.
        action: the next step, with code in backticks; may be empty.
        facts: the numbers behind the text, in SI units.
    """

    kind: str
    text: str
    action: str = ""
    facts: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))

    def __str__(self) -> str:
        return f"{self.text} {self.action}".rstrip()

    def __reduce__(self) -> tuple[type[Doubt], tuple[str, str, str, dict[str, object]]]:
        return Doubt, (self.kind, self.text, self.action, dict(self.facts))  # a mapping proxy does not pickle


def most_important_first(doubts: Iterable[Doubt]) -> list[Doubt]:
    """What is missing, what spoils a figure, what explains one; each in the order given."""
    return sorted(doubts, key=lambda doubt: 0 if doubt.kind in _FIRST else 2 if doubt.kind in _LAST else 1)


def with_doubts(frame: pd.DataFrame, doubts: Iterable[Doubt]) -> pd.DataFrame:
    """The frame with ``attrs["doubts"]``: a list with ``{"kind": ..., "text": ...}`` for each doubt.

    Plain values: pandas copies ``attrs`` with the frame, compares them where frames are joined (``concat`` keeps them
    where they are equal), and writes them into files as JSON.
    """
    frame.attrs["doubts"] = _Plain({"kind": doubt.kind, "text": doubt.text} for doubt in doubts)
    return frame


class _Plain(list[dict[str, str]]):
    """A list of flat dictionaries, copied as such: pandas makes a deep copy with every column that is taken."""

    def __deepcopy__(self, memo: dict[int, object]) -> _Plain:
        return _Plain(map(dict, self))

    def __reduce__(self) -> tuple[type[list[dict[str, str]]], tuple[list[dict[str, str]]]]:
        return list, (list(self),)  # a pickled frame is read where this package is not


# ---- insights --------------------------------------------------------------------------------------------------------
# Insights as values: why code is slow, with the facts behind it, and what would help.
#
# A doubt (`doubts`) is about a number, an insight about the code. What an insight says at most, a cure can save.


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
        share: ``seconds`` of the wall time, 0 to 1, as the text has it; where recording surely added a tenth or more to
            that, of what is left.
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
