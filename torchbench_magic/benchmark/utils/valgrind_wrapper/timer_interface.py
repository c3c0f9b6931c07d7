"""``torch.utils.benchmark.utils.valgrind_wrapper.timer_interface``: torch's own records of counts."""

from __future__ import annotations

from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import (
    CallgrindStats,
    CopyIfCallgrind,
    FunctionCount,
    FunctionCounts,
    GlobalsBridge,
    Serialization,
    wrapper_singleton,
)

from torchbench_magic.benchmark.reexport import torch_names

__all__ = [
    "FunctionCount",
    "FunctionCounts",
    "CallgrindStats",
    "CopyIfCallgrind",
    "GlobalsBridge",
    "Serialization",
    "wrapper_singleton",
]
__getattr__ = torch_names("torch.utils.benchmark.utils.valgrind_wrapper.timer_interface")
