"""How near the operations of a run came to what the machine can do: the roof of each, and what keeps it below."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, fields

import pandas as pd

from torchbench_magic.process.peak_performance import Peaks

CLASSES = ("compute", "memory", "page-fault", "overhead", "serial", "below-roof")
"""What an op, or a line, is: near the roof of arithmetic, near that of bandwidth, held up by pages that the system
gives to fresh memory, mostly the call itself, no faster than one thread would be, or far below the roof."""
NARROW = 32
"""Sizes of a product up to which it is a narrow one: below, the vector registers and blocks of a processor (16 numbers
of float32, blocks of 32 to 64) are not filled. The gist's product with N = 13 reached 24 % of the peak, and with 13 as
the size that is summed over 41 to 58 %, at the same FLOPs and bytes (design notes on threads)."""
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


@dataclass(frozen=True)
class OpEfficiency:
    """One op at one place with one kind of inputs.

    Attributes:
        op, input_shapes, input_dtypes, source_id, line, thread: as in ``.ops``.
        calls: of this kind.
        seconds: of one call, without what recording is estimated to have added; with all that it calls where torch has
            a formula for its FLOPs.
        flops: of one call; NaN without a formula.
        bytes: that one call reads and writes at least, each byte of its inputs and outputs once; NaN where not known.
        written: of these, written.
        fresh: of these, written into memory that the op took for it.
        output: shape of the first output as text; empty where not known.
        dtype: that of the arithmetic, "float32"; empty where not known.
        roof: seconds of one call at this machine's peaks; NaN where not known.
        side: ``compute`` or ``memory``, which of the two the roof is; empty where there is none.
        kind: one of `CLASSES`; empty where it cannot be told.
        is_bounded: the roof is one for this op: its FLOPs are counted, or moving bytes is all it does.
        faults: minor page faults of one call, counted in calls after the run; NaN where none was counted.
        fault_seconds: that these faults take of one call, with giving the pages back: by the measured cost of a fault.
        again: seconds of one call after the run, with warm memory and caches; NaN where there was none.
    """

    op: str
    input_shapes: str
    input_dtypes: str
    source_id: str | None
    line: int | None
    thread: int
    calls: int
    seconds: float
    flops: float = math.nan
    bytes: float = math.nan
    written: float = 0.0
    fresh: float = 0.0
    output: str = ""
    dtype: str = ""
    roof: float = math.nan
    side: str = ""
    kind: str = ""
    is_bounded: bool = False
    faults: float = math.nan
    fault_seconds: float = 0.0
    again: float = math.nan

    @property
    def narrow(self) -> tuple[str, int] | None:
        """(name, size) of a narrow size of a product whose other sizes are not; None of any other op."""
        if self.op.removeprefix("aten::") not in _PRODUCTS or not self.flops > 0:
            return None
        try:
            shapes = [each for each in ast.literal_eval(self.input_shapes) if isinstance(each, list) and len(each) >= 2]
        except (ValueError, SyntaxError):
            return None
        if len(shapes) < 2:
            return None
        first, second = shapes[-2], shapes[-1]
        sizes = {"M": first[-2], "K": first[-1], "N": second[-1]}
        if not all(isinstance(size, int) for size in sizes.values()):
            return None
        name = min(sizes, key=lambda each: sizes[each])
        rest = [size for other, size in sizes.items() if other != name]
        return (name, sizes[name]) if sizes[name] <= NARROW < min(rest) else None

    @property
    def fraction(self) -> float:
        """Of the roof that was reached; NaN where there is none."""
        return self.roof / self.seconds if self.seconds > 0 else math.nan

    @property
    def intensity(self) -> float:
        """FLOP for each byte; NaN where either is not known."""
        return self.flops / self.bytes if self.bytes > 0 else math.nan


@dataclass(frozen=True)
class Efficiency:
    """Of one run.

    Attributes:
        peaks: of this machine, for the run's threads.
        rows: the ops, the most seconds first; of very many the first 500.
        coverage: share of the time in ops whose class is told.
        page_faults: minor faults of the process during the run; NaN where not known.
        system_time: seconds that the system worked for the process during the run; NaN where not known.
        worker_share: processor time of the process's other threads over that of the cell's own; NaN where not known.
        notes: what is not available here, one line each.
    """

    peaks: Peaks
    rows: tuple[OpEfficiency, ...] = ()
    coverage: float = math.nan
    page_faults: float = math.nan
    system_time: float = math.nan
    worker_share: float = math.nan
    notes: tuple[str, ...] = ()

    @property
    def ops(self) -> pd.DataFrame:
        """A row per op, place and kind of inputs: the fields of `OpEfficiency`, ``fraction_of_peak``, and the rates
        ``flops_per_second`` and ``bytes_per_second``."""
        names = [item.name for item in fields(OpEfficiency)]
        table = pd.DataFrame([[getattr(row, name) for name in names] for row in self.rows], columns=names)
        table["fraction_of_peak"] = [row.fraction for row in self.rows]
        table["flops_per_second"] = table["flops"] / table["seconds"]
        table["bytes_per_second"] = table["bytes"] / table["seconds"]
        return table
