"""Levers that are a setting of the process: it is exchanged between blocks, outside of the clocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torchbench_magic.core.machine.environment import read_environment
from torchbench_magic.core.process.run_settings import set_threads

from .lever import Change, DoesNotApply, Site

__all__ = ["FlushDenormal", "MatmulMedium", "Threads"]

SHORT_S = 2e-3
"""A call below which handing work to threads may cost more than it saves: then one thread is tried."""


@dataclass(frozen=True)
class Threads:
    """Another number of torch's threads. Sums may be taken in another order, which changes the last bits.

    Attributes:
        count: how many; None chooses: one for short calls and where two run now, half as many for long ones, and all
            cores where one runs now.
    """

    count: int | None = None

    @property
    def name(self) -> str:
        return "threads" if self.count is None else f"threads:{self.count}"

    def chosen(self, site: Site) -> Threads:
        """The same with a number."""
        if self.count is not None:
            return self
        if site.threads == 1:
            return Threads(read_environment().usable_cores)
        return Threads(1 if site.call_seconds < SHORT_S else site.threads // 2)

    def change(self, site: Site) -> Change:
        count = self.chosen(site).count or 1
        if count == site.threads:
            raise DoesNotApply(f"the cell runs with {count} thread{'' if count == 1 else 's'} as it is")
        return Change(before=partial(set_threads, count), how=f"torch.set_num_threads({count})")


@dataclass(frozen=True)
class MatmulMedium:
    """float32 matrix products may be computed in bfloat16, where the processor can: three digits of the result stay."""

    name: str = "matmul-medium"

    def change(self, site: Site) -> Change:
        import torch

        if torch.get_float32_matmul_precision() == "medium":
            raise DoesNotApply("the precision of float32 matrix products is already medium")
        if not site.has_dtype(torch.float32):
            raise DoesNotApply("the cell reads no float32 tensor")
        how = 'torch.set_float32_matmul_precision("medium")'
        return Change(before=partial(torch.set_float32_matmul_precision, "medium"), precision=torch.bfloat16, how=how)


@dataclass(frozen=True)
class FlushDenormal:
    """Numbers too small for full precision (below 1.2e-38 in float32) become zero: arithmetic on them is slow."""

    name: str = "flush-denormal"

    def change(self, site: Site) -> Change:
        import torch

        smallest = torch.tensor([1e-39])
        if float(smallest * 1) == 0:
            raise DoesNotApply("denormal numbers are already flushed to zero")
        if not torch.set_flush_denormal(True):
            raise DoesNotApply("this processor cannot flush denormal numbers")
        torch.set_flush_denormal(False)
        return Change(before=_flush, how="torch.set_flush_denormal(True)")


def _flush() -> None:
    import torch

    torch.set_flush_denormal(True)
