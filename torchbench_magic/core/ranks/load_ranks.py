"""Traces of the ranks of a job, from torchrun, Lightning, accelerate or `rank_profile`, as one `RankProfile`."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torchbench_magic.core.profiling.torch_events.paused_collector import collector_paused
from torchbench_magic.errors import TraceError
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.ranks.analysis import RankRun, profile_of_ranks
from torchbench_magic.results.ranks.rank_profiles import RankProfile
from torchbench_magic.results.written_files import path_of

from .rank_events import read_rank

__all__ = ["load_ranks"]

_IN_NAME = re.compile(r"rank[-_.=]?(\d+)|^profile_(\d+)\.json", re.IGNORECASE)
"""``rank3``, ``rank-3``; ``profile_3.json`` is accelerate's."""
_MOST_APART = 60.0
"""Seconds between two ranks of one job, at most, where their recordings do not overlap: clocks of hosts are closer."""


def load_ranks(traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> RankProfile:
    """Read one Chrome trace for each rank (``prof.export_chrome_trace``, gzip or not) and put them on one clock.

    Which rank a file is of is read from the file (``distributedInfo``, or what `rank_profile` wrote), else from its
    name (``rank3``, ``rank-3``, ``rank_3``), else taken from the order of the names, with a warning. A file that cannot
    be read is left out with a warning, as long as another one can be. Clocks: see docs/ranks.md.

    Args:
        traces: a pattern (``"traces/*.json*"``), a folder, or the files.

    Raises:
        TraceError: nothing matches, no file can be read, two are of the same rank, or they are of different jobs.
    """
    paths = _paths(traces)
    runs, doubts = [], []
    for path in paths:
        try:
            with collector_paused():
                runs.append(read_rank(path))
        except TraceError as error:
            if len(paths) == 1:
                raise
            said = f"{error}".removeprefix(f"{path}: ")
            doubts.append(Doubt("file-left-out", f"{path.name} is left out: {said}.", facts={"file": path.name}))
    if not runs:
        raise TraceError(f"none of {len(paths)} files can be read; {paths[0].name}: {doubts[0].text}")
    runs = list(_numbered(runs, doubts))
    runs.sort(key=lambda run: run.rank)
    _check_one_each(runs)
    _check_one_job(runs)
    return profile_of_ranks(runs, doubts)


def _paths(traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    if not isinstance(traces, str | os.PathLike):
        if not isinstance(traces, Iterable):
            raise TraceError(f"traces must be a pattern, a folder or a list of files, not {type(traces).__name__}")
        found = [path_of(each, TraceError) for each in traces]
        if not found:
            raise TraceError("no files were given; give a pattern such as 'traces/*.json*'")
        return list(dict.fromkeys(found))
    pattern = os.path.expanduser(os.fspath(traces))
    if os.path.isdir(pattern):
        found = [*Path(pattern).glob("*.json"), *Path(pattern).glob("*.json.gz")]
        what = f"{pattern}: no file in this folder ends in .json or .json.gz"
    else:
        there = os.path.exists(pattern)  # a name may hold brackets
        found = [Path(pattern)] if there else [Path(each) for each in glob.glob(pattern, recursive=True)]
        what = f"{pattern}: no file matches; a pattern looks like 'traces/*.json*'"
    if not found:
        raise TraceError(what)
    return sorted(found, key=lambda path: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", str(path))])


def _numbered(runs: Sequence[RankRun], doubts: list[Doubt]) -> Iterator[RankRun]:
    """The runs, each with a rank: those that tell none by their name, else by their order among the numbers left."""
    named = [run.rank if run.rank >= 0 else _in_name(run.file) for run in runs]
    taken = {rank for rank in named if rank is not None}
    free = iter(rank for rank in range(len(runs) + len(taken)) if rank not in taken)
    by_order = [Path(run.file).name for run, rank in zip(runs, named, strict=True) if rank is None]
    if by_order:
        many = f"{len(by_order)} files do not say which rank they are" if len(by_order) > 1 else ""
        doubts.append(
            Doubt(
                "ranks-by-order",
                f"{many or f'{by_order[0]} does not say which rank it'} {'are' if many else 'is'} of: ranks are"
                " numbered in the order of the names.",
                "Name the files `rank0.json`, `rank1.json`, ...",
                facts={"files": tuple(by_order)},
            )
        )
    for run, rank in zip(runs, named, strict=True):
        yield replace(run, rank=next(free) if rank is None else rank)


def _in_name(file: str) -> int | None:
    found = ["".join(each) for each in _IN_NAME.findall(Path(file).name)]
    return int(found[-1]) if found and len(found[-1]) < 7 else None


def _check_one_each(runs: Sequence[RankRun]) -> None:
    twice = [rank for rank, count in Counter(run.rank for run in runs).items() if count > 1]
    if twice:
        files = [Path(run.file).name for run in runs if run.rank == twice[0]]
        raise TraceError(f"{files[0]} and {files[1]} are both of rank {twice[0]}; give one file for each rank")


def _check_one_job(runs: Sequence[RankRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        names = f"{Path(first.file).name} and {Path(run.file).name} are of different jobs"
        for what in ("world_size", "backend"):
            one, other = getattr(first, what), getattr(run, what)
            if one and other and one != other:
                shown = "ranks" if what == "world_size" else "as backend"
                raise TraceError(f"{names}: {one} and {other} {shown}; give the traces of one job")
        apart = (max(first.begin, run.begin) - min(first.end, run.end)) / 1e9
        if apart > (0 if run.clock.host and run.clock.host == first.clock.host else _MOST_APART):
            raise TraceError(f"{names}: one ends {apart:.3g} s before the other begins; give the traces of one job")
    too_many = [run for run in runs if run.world_size and run.rank >= run.world_size]
    if too_many:
        one = too_many[0]
        said = f"rank {one.rank} of a job of {one.world_size}"
        raise TraceError(f"{Path(one.file).name}: is named {said}; give the traces of one job")
