"""``torch.utils.benchmark.utils.compile``: torch's own. Imported on first use: it brings ``torch._dynamo`` with it."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import names_of

__all__ = ["bench_all", "benchmark_compile"]  # noqa: F822  (found by __getattr__)
__getattr__ = names_of("torch.utils.benchmark.utils.compile")
