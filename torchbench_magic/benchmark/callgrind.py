"""``Timer.collect_callgrind`` through the process that already runs under valgrind, with torch's meaning.

Kept of torch: setup runs in the counting process, the statement stands at the level of a module and is unrolled by
100, the counts are totals over ``number`` calls, the empty loop is counted once and kept apart, and functions that
are nothing but the frame around the whole count are left out of the inclusive counts.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, CopyIfCallgrind

from torchbench_magic.core.counting.callgrind_file import Costs
from torchbench_magic.core.counting.client import the_server
from torchbench_magic.core.counting.count import Job, LibraryJob, count_instructions
from torchbench_magic.core.process.heard_progress import HeardProgress
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.errors import CountError, MissingTool
from torchbench_magic.results.cell_text import Body
from torchbench_magic.results.counting.counts import stats_of

from .statement import dedented, source_of

__all__ = ["CollectionFailed", "collect_callgrind", "python_job"]


class CollectionFailed(CountError, OSError):
    """Instructions could not be counted. An OSError too, which is what torch raises."""


def collect_callgrind(
    spec: TaskSpec, job: Job | LibraryJob, *, repeats: int, collect_baseline: bool, retain_out_file: bool
) -> tuple[CallgrindStats, ...]:
    """Count a statement ``repeats`` times; the options are torch's.

    Raises:
        CollectionFailed: what the counting process had to say, in one line.
    """
    try:
        with interrupts_held():
            counted = [count_instructions(job, the_server(), progress=HeardProgress())[0] for _ in range(repeats)]
    except (CountError, MissingTool) as error:
        raise CollectionFailed(f"Failed to collect callgrind profile: {error}") from error
    return tuple(_stats(spec, job.number, *costs, collect_baseline, retain_out_file) for costs in counted)


def python_job(
    written: tuple[str, str],
    globals: Mapping[str, Any],  # noqa: A002  (torch's name for it)
    number: int,
    threads: int,
) -> Job:
    """What is counted of a Python timer.

    Args:
        written: the texts of (statement, setup) as the user gave them.
        globals: of the timer, in `CopyIfCallgrind` or not.
        number: calls.
        threads: of torch.

    Raises:
        ValueError: ``torch`` is another object in ``globals``.
    """
    if globals.get("torch", torch) is not torch:
        raise ValueError("`collect_callgrind` does not support mocking out `torch`.")
    setups = [value.setup for value in globals.values() if isinstance(value, CopyIfCallgrind)]
    setup, imported = _without_main(source_of(written[1]))
    before = "\n".join([*(dedented(text) for text in setups if text), setup])
    given = CopyIfCallgrind.unwrap_all(dict(globals)) | imported
    return Job(Body(source_of(written[0])), given, number, threads, "module", setup=before)


def _stats(
    spec: TaskSpec, number: int, statement: Costs, empty: Costs, with_baseline: bool, with_file: bool
) -> CallgrindStats:
    nothing: dict[str, dict[str, int]] = {"inclusive": {}, "exclusive": {}}
    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    stats = stats_of(_by_kind(statement), _by_kind(empty) if with_baseline else nothing, number, **fields)
    return dataclasses.replace(stats, stmt_callgrind_out=statement.text if with_file else None)


def _by_kind(costs: Costs) -> dict[str, dict[str, int]]:
    inclusive = {name: cost for name, cost in costs.inclusive.items() if cost != costs.total}
    return {"inclusive": inclusive, "exclusive": costs.exclusive}


def _without_main(setup: str) -> tuple[str, dict[str, Any]]:
    """Setup without its ``from __main__ import ...``, and what that brings: the counting process has another main.

    Torch's tutorials hand functions to timers that way; torch's own collector cannot count them.
    """
    tree, main = ast.parse(setup), sys.modules["__main__"]
    found: dict[str, Any] = {}
    for node in [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__main__" and not n.level]:
        found |= {alias.asname or alias.name: getattr(main, alias.name) for alias in node.names}
        tree.body.remove(node)
    return (ast.unparse(tree) if found else setup), found
