"""``torch.utils.benchmark.utils._stubs``: torch's own."""

from __future__ import annotations

from torchbench_magic.benchmark.reexport import names_of

__getattr__ = names_of("torch.utils.benchmark.utils._stubs")
