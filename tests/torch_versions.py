"""Where an older torch does less than the one of constraints.txt: what a test asks of it then, and why."""

from __future__ import annotations

from inspect import signature

import pytest

torch = pytest.importorskip("torch")

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

shows_what_graphs_save = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "data"), reason="this torch does not show what a graph has saved"
)
compiles_as_today = pytest.mark.skipif(
    VERSION < (2, 10), reason="before torch 2.10 compiled code is not called as a module, less is told of what failed"
)
has_time_unit = pytest.mark.skipif(
    "time_unit" not in signature(torch.autograd.profiler_util.EventList.table).parameters,
    reason="this torch's table takes no time_unit",
)
LIMIT_OF_2 = "recompile_limit of 2 reached" if VERSION >= (2, 11) else "recompile_limit reached"
"""Why a function was given up at a limit of 2; before 2.11 torch does not say how many."""
