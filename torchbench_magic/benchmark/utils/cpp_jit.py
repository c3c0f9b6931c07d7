"""``torch.utils.benchmark.utils.cpp_jit``: torch's own. The timers here compile their own way."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import torch_names

__getattr__ = torch_names("torch.utils.benchmark.utils.cpp_jit")
