"""Measurements of PyTorch code that can be trusted, on the line of the cell that caused them.

In a notebook: ``%load_ext torchbench_magic``, then ``%%timer`` and ``%%tprofile``. In a script: `compare` and
`profile`. Importing this package imports neither torch nor IPython: names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchbench_magic.cluster.job_profile import RankProfile
    from torchbench_magic.cluster.rank_recording import rank_profile
    from torchbench_magic.cluster.rank_traces import load_ranks
    from torchbench_magic.counting.counts import Counts
    from torchbench_magic.counting.diff import CountsDiff
    from torchbench_magic.notebook import load_ipython_extension, unload_ipython_extension
    from torchbench_magic.profiling.chrome_trace import load_trace
    from torchbench_magic.profiling.diff import ProfileDiff
    from torchbench_magic.profiling.op_benchmark import benchmark_op
    from torchbench_magic.profiling.profile import Profile
    from torchbench_magic.profiling.run import profile
    from torchbench_magic.profiling.steps import step, step_num
    from torchbench_magic.result_base import Insight
    from torchbench_magic.script.compare import compare
    from torchbench_magic.storage.store import load
    from torchbench_magic.storage.torch_pickles import load_torch_pickle
    from torchbench_magic.tdoctor.examination import doctor
    from torchbench_magic.tdoctor.findings import Diagnosis
    from torchbench_magic.timing.comparison import Comparison

__version__ = "0.1.0"

_HOMES = {
    "Comparison": "timing.comparison",
    "Counts": "counting.counts",
    "CountsDiff": "counting.diff",
    "Diagnosis": "tdoctor.findings",
    "Insight": "result_base",
    "Profile": "profiling.profile",
    "ProfileDiff": "profiling.diff",
    "RankProfile": "cluster.job_profile",
    "benchmark_op": "profiling.op_benchmark",
    "compare": "script.compare",
    "doctor": "tdoctor.examination",
    "load": "storage.store",
    "load_ipython_extension": "notebook",
    "load_ranks": "cluster.rank_traces",
    "load_torch_pickle": "storage.torch_pickles",
    "load_trace": "profiling.chrome_trace",
    "profile": "profiling.run",
    "rank_profile": "cluster.rank_recording",
    "step": "profiling.steps",
    "step_num": "profiling.steps",
    "unload_ipython_extension": "notebook",
}

_WITH_TORCH = frozenset(("compare", "doctor", "load_torch_pickle"))
"""Names whose modules, or whose first act, import torch: what is wrong with it is said in one line."""

__all__ = [
    "Comparison",
    "Counts",
    "CountsDiff",
    "Diagnosis",
    "Insight",
    "Profile",
    "ProfileDiff",
    "RankProfile",
    "__version__",
    "benchmark_op",
    "compare",
    "doctor",
    "load",
    "load_ipython_extension",
    "load_ranks",
    "load_torch_pickle",
    "load_trace",
    "profile",
    "rank_profile",
    "step",
    "step_num",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    __tracebackhide__ = True
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _WITH_TORCH:
        from torchbench_magic.process.require_torch import import_torch

        import_torch()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
