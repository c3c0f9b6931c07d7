"""What page faults take: the cost of one on this machine, measured, and the seconds of an op's calls that they are.

The processor time that the system reports as its own is sampled (a few ticks in the time that an op is looked at), so
the same op had 0.2 to 0.5 of it from run to run. What filling fresh memory takes longer than filling memory that is
there repeats within some per cent.
"""

from __future__ import annotations

import math
import mmap
import statistics
import time
from collections.abc import Iterable, Mapping

from torchbench_magic.core.machine.process_use import ProcessUse, read_use
from torchbench_magic.results.profiling.efficiency import OpEfficiency

from .once_more import MoreCalls
from .op_classes import FASTER, FAULTED, LARGE_FRESH, PAGE, accounts_for

__all__ = ["cost_of_fault", "faults_in_call", "run_faulting"]

_BYTES = 16 << 20
"""Filled each time: more than caches of the second level hold, and a few milliseconds of faults."""
_TIMES = 8


def cost_of_fault(threads: int) -> float:
    """Seconds that one page fault adds where so many threads fill memory: the fault itself, and giving the page back.

    NaN where it cannot be measured: no anonymous memory, no count of faults, or none that were counted.
    """
    import torch

    if not hasattr(mmap, "MAP_PRIVATE") or math.isnan(read_use().faults):
        return math.nan
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        kept = torch.empty(_BYTES, dtype=torch.uint8, device="cpu").fill_(1)
        there, fresh, faults = [], [], []
        for _ in range(_TIMES):
            begin = time.perf_counter()
            kept.fill_(2)
            there.append(time.perf_counter() - begin)
            use, begin = read_use(), time.perf_counter()
            _fill_fresh()
            fresh.append(time.perf_counter() - begin)
            faults.append((read_use() - use).faults)
    except (OSError, RuntimeError):  # no memory left
        return math.nan
    finally:
        torch.set_num_threads(before)
    counted = statistics.median(faults)
    more = min(fresh) - min(there)  # the turns that others took least of
    return max(more, 0.0) / counted if counted else math.nan


def _fill_fresh() -> None:
    """As an allocator without free memory does for an output: taken from the system, filled, given back."""
    import torch

    with mmap.mmap(-1, _BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        filled = torch.frombuffer(memory, dtype=torch.uint8).fill_(2)
        del filled  # it holds the memory


def faults_in_call(row: OpEfficiency, more: MoreCalls | None, cost: float, of_run: float) -> tuple[float, float, float]:
    """(faults, seconds that they take, their share of the op's time) of one call; NaN faults where none were counted.

    Args:
        more: calls of the op after the run; None without.
        cost: seconds of a fault; NaN: what the system says of its processor time is taken.
        of_run: share of the run's fresh pages for which faults were counted in it, see `run_faulting`.
    """
    if more is None:
        return math.nan, 0.0, 0.0
    is_of_run = row.fresh >= LARGE_FRESH and of_run >= FAULTED and not accounts_for(more.faults, row.fresh)
    if is_of_run and more.seconds <= FASTER * row.seconds:  # the memory was there only after the run
        faults = of_run * row.fresh / PAGE
        longer = row.seconds - more.seconds
        seconds = min(max(longer, 0.0 if math.isnan(cost) else faults * cost), row.seconds)
        return faults, seconds, 1.0
    if math.isnan(more.faults) or not accounts_for(more.faults, row.fresh):
        return more.faults, 0.0, 0.0
    of_call = more.seconds if more.seconds > 0 else row.seconds
    seconds = more.system_share * row.seconds if math.isnan(cost) else min(more.faults * cost, row.seconds)
    share = more.system_share if math.isnan(cost) else min(more.faults * cost / of_call, 1.0)
    return more.faults, seconds, share


def run_faulting(
    rows: Iterable[OpEfficiency], called: Mapping[OpEfficiency, MoreCalls], spent: ProcessUse
) -> float:
    """Share of the fresh pages of the run for which page faults were counted in the run, less those of the calls after
    it that faulted too; 0 where they were not counted.

    The system takes memory back when a run frees it, and a few calls of one op alone may never see that.
    """
    pages = counted = 0.0
    for row in rows:
        if row.fresh >= LARGE_FRESH:
            more = called.get(row)
            faults = more.faults if more is not None and not math.isnan(more.faults) else 0.0
            if not accounts_for(faults, row.fresh):
                pages += row.calls * row.fresh / PAGE
            counted += row.calls * faults
    if not pages or math.isnan(spent.faults):
        return 0.0
    return min(max(spent.faults - counted, 0.0) / pages, 1.0)
