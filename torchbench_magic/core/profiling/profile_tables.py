"""From a joined run to the tables of a `Profile`: what a live run and a stored trace have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from torchbench_magic.results.profiling.profile import Profile, Source

from .joining.joined_run import JoinedRun
from .tables.flops import attribute_flops, recorded_calls
from .tables.frame_table import frame_table
from .tables.line_rows import line_rows
from .tables.lines_and_ops import table_of_lines, table_of_ops
from .tables.memory_table import memory_timeline
from .traces.tracks import trace_of

__all__ = ["lay_out"]


def lay_out(
    run: JoinedRun, sources: Mapping[str, Source], names: Sequence[str], *, with_flops: bool = False
) -> Profile:
    """The tables, the memory over time and the trace; the rest of the profile is its caller's to fill in.

    Args:
        sources: the text of each code's file.
        names: of the threads, by number.
        with_flops: count the ops' FLOPs; needs their shapes.
    """
    joined, ops = run.joined, run.joined.ops
    rows, calls = line_rows(joined, sources), recorded_calls(ops)
    launched = run.on_device.op if run.on_device is not None else None
    flops = attribute_flops(joined, calls, launched) if with_flops else None
    return Profile(
        lines=table_of_lines(run, rows),
        ops=table_of_ops(run, rows, flops),
        frames=frame_table(run, sources, names),
        memory=memory_timeline(joined, rows, run.held) if run.held is not None else None,
        trace=trace_of(run, sources, names),
        wall_time=joined.wall / 1e9,
        num_threads=0,
        sources={source.source_id: source for source in sources.values()},
        ranges=tuple(sorted({ops.names[i] for i in np.unique(ops.name[ops.is_range])})),
        threads=tuple(names),
        calls=calls,
        flops_coverage=flops.coverage if flops is not None else math.nan,
    )
