"""``torch.utils.benchmark.utils.compile``: torch's own. Imported on first use: it brings ``torch._dynamo`` with it."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import torch_names

__all__ = ["bench_all", "benchmark_compile"]  # noqa: F822  (found by __getattr__)
__getattr__ = torch_names("torch.utils.benchmark.utils.compile")
