"""``torch.utils.benchmark.utils._stubs``: torch's own."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import torch_names

__getattr__ = torch_names("torch.utils.benchmark.utils._stubs")
