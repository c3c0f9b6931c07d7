"""What a run of ``--phases`` recorded, as a `Profile` without lines and operations."""

from __future__ import annotations

import time

import pandas as pd

from torchbench_magic.core.machine.contention import contention_between
from torchbench_magic.core.machine.environment import read_environment
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.profiling.columns import LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.results.profiling.profile import Profile, ProfileOptions
from torchbench_magic.units import count, seconds_text

from ..machine_load import doubts_of_load
from ..recording.workers import worker_table
from ..sources.code_sources import ProfiledBody
from .loop_table import sampled_loop
from .phases_run import PhasesRun

__all__ = ["profile_of_phases"]


def profile_of_phases(
    run: PhasesRun, options: ProfileOptions, body: ProfiledBody, error: BaseException | None = None
) -> Profile:
    """
    Args:
        error: what ended the body early.
    """
    started = time.perf_counter()
    parts, sources, texts = sampled_loop(run.marks, run.samples.record, body, run.begin, run.end)
    own = texts.of[texts.own[0].co_filename] if body.own else None
    doubts = [_partial(run, error), _full(run), *doubts_of_load(run.load, run.num_threads), _without_steps(parts, error)]
    shown = lambda file, line: (
        (cell.number, cell.visible_line(line)) if (cell := body.cells(file)) is not None else (None, line)
    )
    return Profile(
        lines=frame_of(LINE_COLUMNS, {}),
        ops=frame_of(OP_COLUMNS, {}),
        wall_time=run.wall_time,
        num_threads=run.num_threads,
        sources=dict(sources),
        source_id=own.source_id if own is not None else None,
        options=options,
        warnings=[doubt for doubt in doubts if doubt is not None],
        environment=read_environment(),
        contention=contention_between(run.load.spent) if run.load is not None else None,
        partial=error is not None,
        line_source="none",
        workers=worker_table(run.workers, shown),
        phases_by_line=parts,
        profiler_time=run.overhead + time.perf_counter() - started,
    )


def _partial(run: PhasesRun, error: BaseException | None) -> Doubt | None:
    if error is None:
        return None
    what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"ended by {type(error).__name__}"
    text = f"Partial: {what} after {seconds_text(run.wall_time)}. What ran until then is shown."
    return Doubt("partial", text, facts={"wall_time": run.wall_time})


def _full(run: PhasesRun) -> Doubt | None:
    if not run.marks.is_full:
        return None
    text = f"After {count(len(run.marks.record) // 4)} marks of phases no more were kept: later steps are not shown."
    return Doubt("phases-cut", text, "Profile a part of the job.", {"marks": len(run.marks.record) // 4})


def _without_steps(parts: pd.DataFrame, error: BaseException | None) -> Doubt | None:
    if error is not None or parts["step"].notna().any():
        return None
    return Doubt(
        "no-steps",
        "No steps were seen: fewer than two steps of an optimizer, and no call of `torchbench_magic.step()`.",
        "Call `torchbench_magic.step()` at the end of each step, or profile without `--phases`.",
    )
