"""``torch.utils.benchmark.utils.compare`` with a `Compare` that shows what torch's cannot, and itself richly."""

from __future__ import annotations

from torch.utils.benchmark.utils.compare import Colorize

from torchbench_magic.benchmark.reexport import torch_names
from torchbench_magic.timing.torch_compare import Compare

__all__ = ["Colorize", "Compare"]
__getattr__ = torch_names("torch.utils.benchmark.utils.compare")
