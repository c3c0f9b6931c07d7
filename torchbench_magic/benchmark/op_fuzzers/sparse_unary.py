"""torch's ``UnaryOpSparseFuzzer`` with the repaired distributions; arguments and draws are torch's."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import torch_names
from torchbench_magic.timing.fuzzers import op_fuzzer

__all__ = ["UnaryOpSparseFuzzer"]

UnaryOpSparseFuzzer = op_fuzzer("sparse-unary")
__getattr__ = torch_names("torch.utils.benchmark.op_fuzzers.sparse_unary")
