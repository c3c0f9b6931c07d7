"""``torch.utils.benchmark.utils.sparse_fuzzer``: torch's own."""

from __future__ import annotations

from torch.utils.benchmark.utils.sparse_fuzzer import FuzzedSparseTensor

from torchbench_magic.benchmark.reexport import names_of

__all__ = ["FuzzedSparseTensor"]
__getattr__ = names_of("torch.utils.benchmark.utils.sparse_fuzzer")
