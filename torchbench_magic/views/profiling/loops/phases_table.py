"""The phases of a training loop in a clause of the sentence, a table and a line of the footer."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.machine.load_doubts import LOAD_KINDS
from torchbench_magic.results.profiling.loops.looks import FEWEST_LOOKS, is_most
from torchbench_magic.results.profiling.loops.modes import EVALUATION
from torchbench_magic.results.profiling.loops.outliers import Outlier, long_first_step, outliers_of
from torchbench_magic.results.profiling.loops.phases import StepShare, shares_of, step_seconds
from torchbench_magic.results.profiling.loops.worker_shares import busy_shares
from torchbench_magic.results.profiling.profile import Profile

from ...built_columns import built_table, measured_columns, share, texts
from ...document import Phrase, StyledText, clipped, code
from ...name_in_notebook import of_result
from ...table import Table

__all__ = ["loop_clause", "loop_footer", "phases_table"]

_WORDS = {
    "input": "waits for input",
    "transfer": "moves tensors",
    "forward": "is the forward pass",
    "loss": "is the loss",
    "backward": "is the backward pass",
    "optimizer": "is the optimizer",
    "zero_grad": "clears gradients",
    "other": "is other code",
}
_BY_LOOKS = " The lines of loss and other come from samples of the stack, about 10 per second."
_UNSEEN = " Samples that Python code delayed are on no line: %%tprofile without --phases records each line."
_MOST_WORKERS = 8  # that are named one by one
_ALIKE = 0.05  # of the mean: a median that is as near to it may stand for it
_OUTSIDE = 0.1  # of the wall time: from which on it is said that no step has it
_MOST = 0.5  # of a phase: from which on its line is said in the sentence


def loop_clause(profile: Profile) -> Iterator[Phrase]:
    """``a step takes 212 ms: 48 % waits for input at In[4]:3; step 7 took 3.1 times the median, 88 % of it at In[4]:9
    torch.save(...)``; nothing without steps."""
    seconds = step_seconds(profile.phases)
    if seconds.empty or seconds.sum() <= 0:
        return
    top = max(shares_of(profile.phases_by_line), key=lambda each: each.share)
    usual, mean = float(seconds.median()), float(seconds.mean())
    if _differ(seconds):  # shares are of all steps together, and so of their mean
        yield Phrase(f"a step takes {units.seconds_text(mean)} on average (median {units.seconds_text(usual)}): ")
    else:
        yield Phrase(f"a step takes {units.seconds_text(usual)}: ")
    yield Phrase(f"{units.percent(top.share)} % {_WORDS[top.phase]}")
    if (where := _said_place(profile, top)) is not None:
        yield Phrase(" at ")
        yield code(where)
    for outlier in _outliers(profile)[:1]:
        yield Phrase("; ")
        yield from _outlier(profile, outlier)


def _differ(seconds: pd.Series[float]) -> bool:
    """Whether a step's median is another number than the mean of all steps."""
    mean = float(seconds.mean())
    return abs(float(seconds.median()) - mean) > _ALIKE * mean


def place_in_clause(profile: Profile) -> str | None:
    """The line that `loop_clause` names for the phase with most of the time; None where it names none."""
    if not step_seconds(profile.phases).sum() > 0:
        return None
    return _said_place(profile, max(shares_of(profile.phases_by_line), key=lambda each: each.share))


def _said_place(profile: Profile, top: StepShare) -> str | None:
    is_said = top.line is not None and top.line_share >= _MOST and (top.looks is None or is_most(*top.looks))
    return _place(profile, top.source_id, top.line) if is_said else None


def _first_step(profile: Profile) -> Outlier | None:
    if any(doubt.kind in LOAD_KINDS for doubt in profile.warnings):
        return None
    return long_first_step(profile.phases_by_line)


def _outliers(profile: Profile) -> tuple[Outlier, ...]:
    """Steps that took long by what they did: where other processes had the processor, that is not known."""
    if any(doubt.kind in LOAD_KINDS for doubt in profile.warnings):
        return ()
    return outliers_of(profile.phases_by_line)


def _outlier(profile: Profile, outlier: Outlier, name: str = "") -> Iterator[Phrase]:
    yield Phrase(f"{name or f'step {outlier.step}'} took {_times(outlier.times)} times the median")
    if not outlier.phase:
        return
    yield Phrase(f", {'at least ' * outlier.is_least}{units.percent(outlier.share)} % of it")
    if outlier.phase != "other":
        yield Phrase(f" {outlier.phase}")
    elif outlier.line is None:
        yield Phrase(" in other code")
    if outlier.line is not None:
        yield Phrase(" at ")
        yield code(_place(profile, outlier.source_id, outlier.line))
        source = profile.sources.get(str(outlier.source_id))
        text = source.line(outlier.line).strip() if source is not None else ""
        if text:
            yield Phrase(" ")
            yield code(clipped(text, 40))


def _times(times: float) -> str:
    return f"{times:.1f}" if times < 9.95 else units.count(round(times))


def _place(profile: Profile, source_id: str | None, line: int | None) -> str:
    source = profile.sources.get(str(source_id))
    return f"{source.label if source is not None else '?'}:{line}"


def phases_table(profile: Profile) -> Table | None:
    """A row per phase that took any time; None without steps."""
    found = shares_of(profile.phases_by_line)
    if not found:
        return None
    seconds = step_seconds(profile.phases)
    steps = len(seconds)
    has_means = _differ(seconds)
    means = [each.seconds / steps for each in found] if has_means else []
    scale = units.spread_scale([each.median for each in found] + means)
    built = [
        texts("phase", "phase of a step", 12, lambda each: each["share"].phase),
        measured_columns("median", "median", scale),
        *([measured_columns("mean", "mean", scale)] if has_means else []),
        share("share", lambda each: each["share"].share),
        texts("place", "line", 30, lambda each: _line(profile, each["share"])),
    ]
    if profile.options.phases:  # else the table of lines has it
        built.append(texts("source", "source", 60, lambda each: _source(profile, each["share"]), quiet=True))
    rows = [{"share": each, "median": each.median, "mean": each.seconds / steps} for each in found]
    said = f"{units.count(steps)} steps; shares are of their total time. All steps: {of_result('.phases')}"
    return built_table("phases", built, rows, lambda each: str(each["share"].phase), hidden=said)


def _line(profile: Profile, each: StepShare) -> str:
    if each.line is None:
        return f"no line in {units.count(each.unseen)} of {units.count(each.looks[1])} samples" if each.looks else ""
    place = _place(profile, each.source_id, each.line)
    if each.looks is not None and each.looks[1] < FEWEST_LOOKS:
        some, of_all = (units.count(number) for number in each.looks)
        return f"{place}, {some} of {of_all} sample{'s' if each.looks[1] > 1 else ''}"
    least = "≥ " * each.is_least
    return place if each.line_share > 0.995 else f"{place} {least}{units.percent(each.line_share)} %"


def _source(profile: Profile, each: StepShare) -> str:
    source = profile.sources.get(str(each.source_id))
    return source.line(each.line).strip() if source is not None and each.line is not None else ""


def loop_footer(profile: Profile) -> Iterator[StyledText]:
    """What the phases are, and the other steps that took long."""
    if profile.phases.empty:
        return
    yield (
        Phrase(
            "Phases: of the thread that runs the loop; they add up to the step. Loss: between the forward and the"
            " backward pass. Other: the rest."
            + (_BY_LOOKS if profile.phases_by_line["looks"].notna().any() else "")
            + (_UNSEEN if any(each.looks and each.unseen for each in shares_of(profile.phases_by_line)) else "")
            + (" Work on a device overlaps with them." if _has_device(profile) else "")
        ),
    )
    yield from _outside(profile)
    yield from _evaluated(profile)
    if said := _workers(profile):
        yield (Phrase(said),)
    if (begun := _first_step(profile)) is not None:
        yield (*_outlier(profile, begun, "The first step"), Phrase("."))
    for outlier in _outliers(profile)[1:]:
        first, *rest = _outlier(profile, outlier)
        yield (Phrase(first.text[0].upper() + first.text[1:]), *rest, Phrase("."))


def _outside(profile: Profile) -> Iterator[StyledText]:
    """Of the run without lines, whose wall time is shown nowhere: what no step has."""
    inside = float(step_seconds(profile.phases).sum())
    if profile.options.phases and 0 < inside < (1 - _OUTSIDE) * profile.wall_time:
        whole = units.seconds_text(profile.wall_time)
        yield (Phrase(f"The steps take {units.seconds_text(inside)} of the {whole} that the cell took."),)


def _evaluated(profile: Profile) -> Iterator[StyledText]:
    """The evaluation that is no part of a step, with its line with the most time."""
    parts = profile.phases_by_line
    outside = parts[parts["step"].isna() & parts["mode"].notna()]
    mine = outside[outside["mode"].map(lambda mode: EVALUATION in str(mode).split()).astype(bool)]
    mine = mine[mine["line"].notna()].sort_values("seconds", ascending=False)
    seconds = float(mine["seconds"].sum())
    if seconds <= 0:
        return
    passes = units.count(int(mine["calls"].sum()))
    yield (
        Phrase(f"Evaluation outside of the steps: {passes} forward passes, {units.seconds_text(seconds)} in them, at "),
        code(_place(profile, mine["source_id"].iloc[0], mine["line"].iloc[0])),
        Phrase("." if len(mine) == 1 else " and other lines."),
    )


def _workers(profile: Profile) -> str:
    """How busy each worker was; of many the range."""
    busy = [units.percent(share) for share in busy_shares(profile.workers)]
    if not busy:
        return ""
    if len(busy) <= _MOST_WORKERS:
        each = ", ".join(f"worker {at} {share} %" for at, share in enumerate(busy))
        return f"DataLoader workers were busy this share of the time: {each}."
    shares = sorted(busy_shares(profile.workers))
    span = f"{units.percent(shares[0])} to {units.percent(shares[-1])} %"
    return f"Each of the {units.count(len(busy))} DataLoader workers was busy {span} of the time."


def _has_device(profile: Profile) -> bool:
    moved = profile.phases.loc[profile.phases["phase"] == "transfer", "seconds"].sum() > 0
    return bool(moved) or float(profile.ops["self_device_time"].fillna(0).sum()) > 0
