"""``%%tprofile --engines``: what its line may ask for, the cell as a job on engines, and the files that it writes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchbench_magic.core.code.body import CompiledBody
from torchbench_magic.errors import BodyError, InputError, Interrupted, OptionError

from ..reading.profiler_options import ProfilerOptions
from ..saving import open_store

if TYPE_CHECKING:
    from torchbench_magic.core.progress import Progress
    from torchbench_magic.core.ranks.engine_job import RankCell, RankOutcome
    from torchbench_magic.results.doubts import Doubt
    from torchbench_magic.results.ranks.rank_profiles import RankProfile

    from ..session import Delivery, Session

__all__ = ["check_engine_options", "deliver_ranks", "run_ranks"]

_REFUSED = {
    "memory": "torch does not record the threads of gloo with it, so waiting would not be visible",
    "host_memory": "tracemalloc makes Python several times slower, by a different factor on each rank",
    "twice": "the cell is one job",
    "concurrency": "it watches one process",
    "efficiency": "it measures peaks, which ranks on one host would disturb",
    "python": "its samples are of one process",
    "schedule": "a job is recorded as a whole: run a few steps in the cell",
    "steps": "a job is recorded as a whole: run a few steps in the cell",
    "warmup": "a job is recorded as a whole: run a few steps in the cell",
    "on_trace": "a job is recorded as a whole; `--trace FILE` writes all ranks into one trace",
    "stacks": "stacks are of one process: `.profiles[0].export_stacks(PATH)` writes those of a rank",
    "group_by": "the tables of a job have one row per rank or operation",
    "sort_by": "the tables of a job have one row per rank or operation",
    "row_limit": "the tables of a job have one row per rank or operation",
}
"""Field of the options -> why it makes no sense with ``--engines``."""


def check_engine_options(options: ProfilerOptions, body: CompiledBody | None, *, is_cell: bool) -> None:
    """
    Raises:
        OptionError: an option that does not go with ``--engines``, and why.
        BodyError: the cell awaits; it is a line.
    """
    defaults = ProfilerOptions()
    for name, why in _REFUSED.items():
        if getattr(options, name) != getattr(defaults, name):
            raise OptionError(f"--{name.replace('_', '-')} does not go with --engines: {why}")
    if not is_cell:
        raise BodyError("--engines profiles a cell: write %%tprofile --engines, and the code below it")
    if body is not None and body.is_coroutine:
        raise BodyError("a cell that awaits cannot run as ranks: put the coroutine into asyncio.run(...)")


def run_ranks(session: Session, name: str, cell: RankCell, progress: Progress) -> RankOutcome:
    """Connect, run, disconnect."""
    from torchbench_magic.core.engines.cluster import connected
    from torchbench_magic.core.ranks.engine_job import profile_on_engines

    with connected(name, getattr(session.shell, "ipython_dir", None)) as cluster:
        return profile_on_engines(cluster, cell, progress)


def deliver_ranks(outcome: RankOutcome, options: ProfilerOptions, doubts: list[Doubt], delivery: Delivery) -> None:
    """The result goes to the reader; after it, what ended the job early."""
    profile: Any = outcome.profile
    is_interrupted = False
    for rank, text in outcome.printed.items():  # there is no result to hold it
        sys.stdout.write("".join(f"rank {rank}: {line}\n" for line in text.splitlines()))
    if profile is not None:
        profile = replace(profile, warnings=[*doubts, *profile.warnings])
        profile, is_interrupted = _written(profile, options, delivery.progress)
    if isinstance(outcome.error, Interrupted) or is_interrupted:
        raise Interrupted(profile)
    if outcome.error is not None:
        delivery.deliver(profile)
        raise outcome.error
    delivery.result = profile


def _written(profile: RankProfile, options: ProfilerOptions, progress: Progress) -> tuple[RankProfile, bool]:
    """With a warning for each file that cannot be written; and whether a Ctrl-C ended the wait for a store."""
    from torchbench_magic.results.doubts import Doubt

    found, is_interrupted = [], False
    for path, write, way in (
        (options.save, lambda path: open_store(path, progress).append(profile), "`.save(PATH)`"),
        (options.trace, lambda path: profile.merged_trace(path, overwrite=options.overwrite), "`.merged_trace(PATH)`"),
    ):
        try:
            if path is not None:
                write(path)
        except InputError as error:
            found.append(Doubt("not-stored", f"The job could not be written: {error}.", f"{way} writes it."))
        except KeyboardInterrupt:
            text = f"The job could not be written: interrupted while another process had locked {path}."
            found.append(Doubt("not-stored", text, f"{way} writes it."))
            is_interrupted = True
    return (replace(profile, warnings=[*found, *profile.warnings]) if found else profile), is_interrupted
