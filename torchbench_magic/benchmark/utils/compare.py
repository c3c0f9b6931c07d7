"""``torch.utils.benchmark.utils.compare`` with a `Compare` that shows what torch's cannot, and itself richly."""

from __future__ import annotations

from torch.utils.benchmark.utils.compare import Colorize

from torchbench_magic.benchmark.reexport import names_of
from torchbench_magic.views.torch_forms.torch_compare import Compare

__all__ = ["Colorize", "Compare"]
__getattr__ = names_of("torch.utils.benchmark.utils.compare")
