"""torch's ``SpectralOpFuzzer`` with the repaired distributions; arguments and draws are torch's."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import torch_names
from torchbench_magic.timing.fuzzers import op_fuzzer

__all__ = ["SpectralOpFuzzer"]

SpectralOpFuzzer = op_fuzzer("spectral")
__getattr__ = torch_names("torch.utils.benchmark.op_fuzzers.spectral")
