"""The modules of ``torch.utils.benchmark.utils``, under the names that they have there (see `benchmark`)."""

from __future__ import annotations
