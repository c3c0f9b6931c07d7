"""``torch.utils.benchmark.utils.compile``: torch's own. Imported on first use: it brings ``torch._dynamo`` with it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["bench_all", "benchmark_compile"]  # noqa: F822  (found by __getattr__)


def __getattr__(name: str) -> Any:
    return getattr(import_module("torch.utils.benchmark.utils.compile"), name)
