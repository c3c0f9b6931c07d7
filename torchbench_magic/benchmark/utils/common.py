"""``torch.utils.benchmark.utils.common``: torch's own records and functions."""

from __future__ import annotations

from torch.utils.benchmark.utils.common import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)

from torchbench_magic.benchmark.reexport import torch_names

__all__ = [
    "TaskSpec",
    "Measurement",
    "select_unit",
    "unit_to_english",
    "trim_sigfig",
    "ordered_unique",
    "set_torch_threads",
]
__getattr__ = torch_names("torch.utils.benchmark.utils.common")
