"""``torch.utils.benchmark.utils.sparse_fuzzer``: torch's own."""

from __future__ import annotations

from torch.utils.benchmark.utils.sparse_fuzzer import FuzzedSparseTensor

from torchbench_magic.benchmark.reexport import torch_names

__all__ = ["FuzzedSparseTensor"]
__getattr__ = torch_names("torch.utils.benchmark.utils.sparse_fuzzer")
