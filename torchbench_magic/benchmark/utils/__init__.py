"""The modules of ``torch.utils.benchmark.utils``, under the names that they have there."""

from __future__ import annotations

from . import cpp_jit

__all__ = ["cpp_jit"]
