"""``torch.utils.benchmark.utils.fuzzer`` with a `FuzzedParameter` that takes a dict of probabilities."""

from __future__ import annotations

from torch.utils.benchmark.utils.fuzzer import FuzzedTensor, Fuzzer, ParameterAlias, dtype_size, prod

from torchbench_magic.benchmark.reexport import torch_names
from torchbench_magic.timing.fuzzers import FuzzedParameter

__all__ = ["Fuzzer", "FuzzedParameter", "ParameterAlias", "FuzzedTensor", "dtype_size", "prod"]
__getattr__ = torch_names("torch.utils.benchmark.utils.fuzzer")
