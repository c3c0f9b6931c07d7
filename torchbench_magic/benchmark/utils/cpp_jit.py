"""``torch.utils.benchmark.utils.cpp_jit``: torch's own. The timers here compile their own way."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import names_of

__getattr__ = names_of("torch.utils.benchmark.utils.cpp_jit")
