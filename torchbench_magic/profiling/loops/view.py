"""The steps of a training loop: a clause, a table of phases, a strip a step, two profiles compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.process.contention import LOAD_KINDS
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.profile import Profile, has_device
from torchbench_magic.profiling.recording_cost import added_factors, first_without_recording
from torchbench_magic.profiling.trace import line_label
from torchbench_magic.show.document import Phrase, StyledText, clipped, code, of_result
from torchbench_magic.show.drawing import figure, round_ticks, svg_text, tenths
from torchbench_magic.show.palette import GREY, HUES
from torchbench_magic.show.table import Table, built_table, measured_columns, share, texts

from .phases import (
    EVALUATION,
    FEWEST_LOOKS,
    PHASES,
    Outlier,
    StepShare,
    is_most,
    long_first_step,
    outliers_of,
    shares_of,
    step_seconds,
    without_recording,
)

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
_ALIKE = 0.05  # of the mean: a median that is as near to it may stand for it
_OUTSIDE = 0.1  # of the wall time: from which on it is said that no step has it
_MOST_OF_PHASE = 0.5  # of a phase: from which on its line is said in the sentence
_ALL_OF_PHASE = 0.9  # from here on without its share


def loop_clause(profile: Profile) -> Iterator[Phrase]:
    """``a step takes 212 ms: 48 % waits for input at In[4]:3; step 7 took 3.1 times the median, 88 % of it at In[4]:9
    torch.save(...)``; nothing without steps."""
    seconds, top = step_seconds(profile.phases), _top(profile)
    if top is None:
        return
    usual, mean = float(seconds.median()), float(seconds.mean())
    slowed = " with the profiler" * top.is_slowed
    if _differ(seconds):  # shares are of all steps together, and so of their mean
        yield Phrase(f"a step takes {units.seconds_text(mean)}{slowed} on average (median {units.seconds_text(usual)})")
    else:
        yield Phrase(f"a step takes {units.seconds_text(usual)}{slowed}")
    yield from _most_of_step(profile, top)
    for outlier in _outliers(profile)[:1]:
        yield Phrase("; ")
        yield from _outlier(profile, outlier)


def _differ(seconds: pd.Series[float]) -> bool:
    """Whether a step's median is another number than the mean of all steps."""
    mean = float(seconds.mean())
    return abs(float(seconds.median()) - mean) > _ALIKE * mean


def place_in_clause(profile: Profile) -> str | None:
    """The line that `loop_clause` names for the phase with most of the time; None where it names none."""
    top = _top(profile)
    return _said_place(profile, top) if top is not None else None


@dataclass(frozen=True)
class _Top:
    """The phase with most of the time.

    Attributes:
        phase: with most of it without what recording added, where that is sure; else with it.
        perhaps: another phase that may have most of it without; None where it is sure.
        shares: the least and the largest share without, where that with is not among them.
        is_slowed: recording added much to the steps.
        likely: the phase as it is without what recording is estimated to have added, and with the least and the most
            that it may have.
    """

    phase: StepShare
    perhaps: StepShare | None = None
    shares: tuple[float, float] | None = None
    is_slowed: bool = False
    likely: tuple[StepShare | None, ...] = ()


def _top(profile: Profile) -> _Top | None:
    """None where no phase took any time."""
    parts = profile.phases_by_line
    each = shares_of(parts)
    if not each:
        return None
    costs, whole = [one.seconds for one in each], sum(one.seconds for one in each)
    found = first_without_recording(profile, costs, [one.recording for one in each], whole)
    if found is None:
        return _Top(max(each, key=lambda one: one.share))
    top, perhaps, shares = found
    if perhaps != top:
        return _Top(each[top], each[perhaps], is_slowed=True)
    without = [shares_of(without_recording(parts, times)) for times in (1.0, *added_factors(profile))]
    likely = tuple(next((one for one in some if one.phase == each[top].phase), None) for some in without)
    return _Top(each[top], None, shares, is_slowed=True, likely=likely)


def _is_slowed(profile: Profile) -> bool:
    """Whether recording added much to the steps."""
    top = _top(profile)
    return top is not None and top.is_slowed


def _most_of_step(profile: Profile, top: _Top) -> Iterator[Phrase]:
    """``: 48 % waits for input at In[4]:3``; where the profiler's own work decides which phase is the first, that."""
    share = units.percent(top.phase.share)
    if top.perhaps is not None:
        yield Phrase("; which phase takes the most time is not known: with the profiler it is ")
        yield code(top.phase.phase)
        yield Phrase(f" ({share} %)")
        if top.perhaps.seconds - top.perhaps.recording > max(top.phase.seconds - top.phase.recording, 0.0):
            yield Phrase(", without it probably ")
            yield code(top.perhaps.phase)
        return
    before = ": " if top.shares is None else "; without it "
    said = share if top.shares is None else units.percent_range(*top.shares)
    yield Phrase(f"{before}{said} % {_WORDS[top.phase.phase]}")
    if (where := _said_place(profile, top)) is not None:
        part = (top.likely[0] if top.likely else None) or top.phase
        yield Phrase(" at " if part.line_share >= _ALL_OF_PHASE else f", {units.percent(part.line_share)} % of it at ")
        yield code(where)


def _said_place(profile: Profile, top: _Top) -> str | None:
    """The line with most of the phase, whatever recording added to it."""
    if top.perhaps is not None:
        return None
    of = top.phase
    for each in top.likely or (of,):
        is_said = each is not None and each.line is not None and each.line_share >= _MOST_OF_PHASE
        if each is None or not is_said or (each.source_id, each.line) != (of.source_id, of.line):
            return None
        if each.looks is not None and not is_most(*each.looks):
            return None
    return line_label(profile.sources, of.source_id, of.line)


def _outliers(profile: Profile) -> tuple[Outlier, ...]:
    """Steps that took long by what they did, not by what recording added: where other processes had the processor, that
    is not known."""
    if any(doubt.kind in LOAD_KINDS for doubt in profile.warnings):
        return ()
    parts = profile.phases_by_line
    found = outliers_of(parts)
    if not found or not _is_slowed(profile):
        return found
    key = lambda each: (each.step, each.phase, each.source_id, each.line)
    without = {key(each) for each in outliers_of(without_recording(parts, added_factors(profile)[1]), len(parts))}
    return tuple(each for each in found if key(each) in without)


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
        yield code(line_label(profile.sources, outlier.source_id, outlier.line))
        source = profile.sources.get(str(outlier.source_id))
        text = source.line(outlier.line).strip() if source is not None else ""
        if text:
            yield Phrase(" ")
            yield code(clipped(text, 40))


def _times(times: float) -> str:
    return f"{times:.1f}" if times < 9.95 else units.count(round(times))


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
    place = line_label(profile.sources, each.source_id, each.line)
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
    added = of_result('.phases_by_line["recording_seconds"]')
    yield (
        Phrase(
            "Phases: of the thread that runs the loop; they add up to the step. Loss: between the forward and the"
            " backward pass. Other: the rest."
            + (f" They include what the profiler added ({added}, estimated)." if _is_slowed(profile) else "")
            + (_BY_LOOKS if profile.phases_by_line["looks"].notna().any() else "")
            + (_UNSEEN if any(each.looks and each.unseen for each in shares_of(profile.phases_by_line)) else "")
            + (" Work on a device overlaps with them." if has_device(profile) else "")
        ),
    )
    yield from _outside(profile)
    yield from _evaluated(profile)
    is_loaded = any(doubt.kind in LOAD_KINDS for doubt in profile.warnings)
    begun = None if is_loaded else long_first_step(profile.phases_by_line)
    if begun is not None:
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
    """The evaluation, with its line with the most time: what is no part of a step, and what counts for one."""
    parts = profile.phases_by_line
    is_evaluation = parts["mode"].map(lambda mode: EVALUATION in str(mode).split()).astype(bool)
    every = parts[is_evaluation & parts["line"].notna()].sort_values("seconds", ascending=False)
    for where, counts, mine in (
        ("outside of the steps", "", every[every["step"].isna()]),
        ("within the loop", ", counted in the step before it", every[every["step"].notna()]),
    ):
        seconds = float(mine["seconds"].sum())
        if seconds <= 0:
            continue
        lines = mine.groupby(["source_id", "line"], sort=False)["seconds"].sum()
        top: Any = lines.idxmax()
        number = int(mine["calls"].sum())
        passes = f"{units.count(number)} forward pass{'es' if number != 1 else ''}"
        yield (
            Phrase(f"Evaluation {where}: {passes}, {units.seconds_text(seconds)} in them, at "),
            code(line_label(profile.sources, *top)),
            Phrase(f"{'' if len(lines) == 1 else ' and other lines'}{counts}."),
        )


# ---- step_strip ------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 640, 96  # px
_MOST_STRIPS = 160  # strips: of more steps, neighbours share one
_THINNEST = 0.2  # px: what is thinner is not drawn
_TALLEST = 3.0  # times the median: what goes beyond is cut, and said to be
_HUES = {
    "input": HUES["python"],
    "transfer": HUES["memory"],
    "forward": HUES["torch"],
    "loss": "#7a5fb5",
    "backward": "#5b9bd5",
    "optimizer": "#a4527e",
    "zero_grad": "#c9a9bb",
    "other": "#9aa0a6",
}
_STYLE = (  # the colours are those of the live tables round it; elsewhere text is of the colour around it
    "<style>.tb-steps{margin:8px 0;overflow-x:auto}"
    ".tb-steps text{fill:var(--ink2);font:11px var(--ui,sans-serif);font-variant-numeric:tabular-nums}"
    f".tb-steps .ax{{stroke:var(--rule1,{GREY})}}"
    ".tb-steps .cut{fill:var(--ink0)}"
    ".tb-steps [color]{fill:color-mix(in srgb,currentColor 84%,var(--ink0))}</style>"
)


def step_strips(profile: Profile) -> str:
    """The picture as markup; empty with fewer than two steps."""
    phases = profile.phases
    if phases["step"].nunique() < 2:
        return ""
    table = phases.pivot(index="step", columns="phase", values="seconds")[list(PHASES)]
    shared = -(-len(table) // _MOST_STRIPS)
    if shared > 1:
        table = table.groupby(np.arange(len(table)) // shared).mean()
    whole = table.sum(axis=1)
    top = min(float(whole.max()), _TALLEST * float(whole.median())) or 1.0
    of = f", {shared} a strip (their mean)" if shared > 1 else ""
    cut = "; ▲ goes beyond" if float(whole.max()) > top else ""
    used = [name for name in PHASES if table[name].sum() > 0]
    parts = [
        *_bars(table, top, used),
        *_axes(table, top, phases),
        svg_text(0, -8, f"time of each step{of}{cut}", "start"),
        *_legend(used),
    ]
    said = "The phases of each step, stacked; the table of phases has the numbers."
    drawn = figure((_WIDTH, _HEIGHT), (56, 24, 16, 46), said, parts)
    return f'{_STYLE}<div class="tb-steps">{drawn}</div>'


def _bars(table: pd.DataFrame, top: float, used: list[str]) -> Iterator[str]:
    """One path a phase, its box in the legend included: a mark of its own for each would be most of an output."""
    boxes = dict(_legend_boxes(used))
    wide = _WIDTH / len(table)
    bar = wide - min(1.0, wide * 0.15)
    above = np.minimum(np.cumsum(table.to_numpy(np.float64), axis=1) / top, 1.0) * _HEIGHT
    below = np.hstack([np.zeros((len(table), 1)), above[:, :-1]])
    for column, name in enumerate(table.columns):
        moves = [
            f"M{tenths(at * wide)} {tenths(_HEIGHT - high)}h{tenths(bar)}v{tenths(high - low)}h{tenths(-bar)}"
            for at, (low, high) in enumerate(zip(below[:, column].tolist(), above[:, column].tolist(), strict=True))
            if high - low >= _THINNEST
        ]
        if name in boxes:
            box = f"M{boxes[name]} {_HEIGHT + 25}h10V{_HEIGHT + 35}h-10"
            yield f'<path color="{_HUES[name]}" d="{"".join(moves)}{box}"/>'
    for at in np.nonzero(table.sum(axis=1).to_numpy() > top * 1.0001)[0].tolist():
        yield f'<path class="cut" d="M{tenths(at * wide + bar / 2 - 4)} -1h8l-4 -5z"/>'


def _axes(table: pd.DataFrame, top: float, phases: pd.DataFrame) -> Iterator[str]:
    scale = units.smallest_scale([top])
    ticks = round_ticks(0.0, top / scale.size)
    ticks = ticks[:: 1 + len(ticks) // 5]
    heights = [_HEIGHT * (1 - tick * scale.size / top) for tick in ticks]
    marks = "".join(f"M-4 {tenths(y)}h4" for y in heights)
    yield f'<path class="ax" fill="none" stroke="{GREY}" d="M0 {_HEIGHT}h{_WIDTH}{marks}"/>'
    for at, (tick, y) in enumerate(zip(ticks, heights, strict=True)):
        unit = f" {scale.unit}" if at == len(ticks) - 1 else ""
        yield svg_text(-8, y + 4, f"{tick:g}{unit}", "end")
    first, last = int(phases["step"].min()), int(phases["step"].max())
    yield svg_text(0, _HEIGHT + 14, f"step {first}", "start")
    yield svg_text(_WIDTH, _HEIGHT + 14, f"step {last}", "end")


def _legend_boxes(used: list[str]) -> Iterator[tuple[str, int]]:
    """(phase, px from the left)."""
    x = 0
    for name in used:
        yield name, x
        x += 30 + 6 * len(name)


def _legend(used: list[str]) -> Iterator[str]:
    for name, x in _legend_boxes(used):
        yield svg_text(x + 14, _HEIGHT + 34, name, "start")


# ---- phases_diff -----------------------------------------------------------------------------------------------------

_LONGEST_NAME = 16


def phases_diff_table(diff: ProfileDiff) -> Table | None:
    """A row per phase, and one for the whole step: medians over the steps; None where one of the two has no steps."""
    before, now = _medians(diff.baseline), _medians(diff.other)
    if not before or not now:
        return None
    names = [name for name in (*PHASES, "step") if before[name] or now[name]]
    rows = [
        {"phase": name, "other": now[name], "baseline": before[name], "change": now[name] - before[name]}
        for name in names
    ]
    scale = units.spread_scale([value for name in names for value in (before[name], now[name]) if value])
    base, other = (clipped(name, _LONGEST_NAME) for name in diff.names)
    built = (
        texts("phase", "phase of a step", 12, lambda row: str(row["phase"])),
        measured_columns("baseline", base, scale),
        measured_columns("other", other, scale),
        measured_columns("change", "change", scale),
    )
    return built_table("phases", built, rows, lambda row: str(row["phase"]))


def _medians(profile: Profile) -> dict[str, float]:
    """Phase -> its median seconds in a step, and those of the step; empty without steps."""
    phases = profile.phases
    if phases.empty:
        return {}
    found = {str(name): float(value) for name, value in phases.groupby("phase")["seconds"].median().items()}
    whole = float(step_seconds(phases).median())
    return {name: 0.0 if math.isnan(value) else value for name, value in (found | {"step": whole}).items()}
