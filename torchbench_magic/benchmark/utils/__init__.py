"""The modules of ``torch.utils.benchmark.utils``, under the names that they have there (see `torch_modules`)."""

from __future__ import annotations
