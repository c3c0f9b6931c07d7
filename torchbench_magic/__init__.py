"""Measurements of PyTorch code that can be trusted, on the line of the cell that caused them.

In a notebook: ``%load_ext torchbench_magic``, then ``%%timer`` and ``%%tprofile``. In a script: `compare` and
`profile`. Importing this package imports neither torch nor IPython: names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.doctor.examination import doctor
    from .core.profiling.load_trace import load_trace
    from .core.profiling.op_benchmark import benchmark_op
    from .core.profiling.profiler import profile
    from .core.profiling.recording.steps import step, step_num
    from .core.ranks.load_ranks import load_ranks
    from .core.ranks.rank_recording import rank_profile
    from .core.script_entrance import compare
    from .magics import load_ipython_extension, unload_ipython_extension
    from .results.counting.counts import Counts
    from .results.counting.differences import CountsDiff
    from .results.insights import Insight
    from .results.machine.diagnosis import Diagnosis
    from .results.profiling.profile import Profile
    from .results.profiling.profile_diff import ProfileDiff
    from .results.ranks.rank_profiles import RankProfile
    from .results.storage.store import load
    from .results.storage.torch_pickles import load_torch_pickle
    from .results.timing.comparison import Comparison

__version__ = "0.1.0"

_HOMES = {
    "Comparison": "results.timing.comparison",
    "Counts": "results.counting.counts",
    "CountsDiff": "results.counting.differences",
    "Diagnosis": "results.machine.diagnosis",
    "Insight": "results.insights",
    "Profile": "results.profiling.profile",
    "ProfileDiff": "results.profiling.profile_diff",
    "RankProfile": "results.ranks.rank_profiles",
    "benchmark_op": "core.profiling.op_benchmark",
    "compare": "core.script_entrance",
    "doctor": "core.doctor.examination",
    "load": "results.storage.store",
    "load_ipython_extension": "magics",
    "load_ranks": "core.ranks.load_ranks",
    "load_torch_pickle": "results.storage.torch_pickles",
    "load_trace": "core.profiling.load_trace",
    "profile": "core.profiling.profiler",
    "rank_profile": "core.ranks.rank_recording",
    "step": "core.profiling.recording.steps",
    "step_num": "core.profiling.recording.steps",
    "unload_ipython_extension": "magics",
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
        from .core.process.torch_import import import_torch

        import_torch()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
