"""From a join to the tables of a `Profile`: what a run and a stored trace have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from torchbench_magic.results.profiling.profile import Profile, Source

from .joining.attribution import Joined
from .joining.call_tree import call_tree
from .joining.device_time import attribute_device_time, find_launches
from .joining.host_bytes import HostBytes
from .recording.module_calls import ModuleRecord
from .tables.flops import Flops
from .tables.frame_table import frame_table
from .tables.line_rows import line_rows
from .tables.lines_and_ops import table_of_lines, table_of_ops
from .tables.memory_table import attribute_bytes, memory_timeline
from .torch_events.events import Events
from .traces.tracks import trace_of

__all__ = ["lay_out"]


def lay_out(
    joined: Joined,
    every: Events,
    sources: Mapping[str, Source],
    names: Sequence[str],
    changes: Events | None,
    *,
    modules: ModuleRecord | None = None,
    host: HostBytes | None = None,
    flops: Flops | None = None,
) -> Profile:
    """The tables, the memory over time and the trace; the rest of the profile is its caller's to fill in.

    Args:
        every: all events of the run, those of devices that ran on after the body too.
        sources: the text of each code's file.
        names: of the threads, by number.
        changes: the memory events; None where they were not recorded.
    """
    ops, rows = joined.ops, line_rows(joined, sources)
    launches = find_launches(joined, every)
    on_device = attribute_device_time(joined, every, launches)
    held = attribute_bytes(joined, changes) if changes is not None else None
    tree = call_tree(joined, modules or ModuleRecord(), on_device, changes)
    return Profile(
        lines=table_of_lines(joined, rows, held, on_device, host),
        ops=table_of_ops(joined, rows, held, on_device, flops, tree),
        frames=frame_table(tree, joined, sources, names),
        memory=memory_timeline(joined, rows, changes, held) if changes is not None and held is not None else None,
        trace=trace_of(joined, every, launches, sources, names),
        wall_time=(joined.end - joined.begin) / 1e9,
        num_threads=0,
        sources={source.source_id: source for source in sources.values()},
        ranges=tuple(sorted({ops.names[i] for i in np.unique(ops.name[ops.is_range])})),
        threads=tuple(names),
    )
