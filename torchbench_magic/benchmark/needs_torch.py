"""Imported before all that imports torch: says in one line what is wrong with it."""

from __future__ import annotations

from torchbench_magic.process.torch_import import import_torch

__all__: list[str] = []

import_torch()
