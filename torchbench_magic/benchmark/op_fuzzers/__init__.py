"""torch's op fuzzers, one module each as in ``torch.utils.benchmark.op_fuzzers``."""

from __future__ import annotations

from . import binary, sparse_binary, sparse_unary, spectral, unary

__all__ = ["binary", "sparse_binary", "sparse_unary", "spectral", "unary"]
