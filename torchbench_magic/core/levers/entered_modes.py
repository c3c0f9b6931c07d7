"""Levers that are a mode which each call of the body runs in: a ``with`` around it, entered inside the clocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from .lever import Change, DoesNotApply, Site

__all__ = ["Autocast", "InferenceMode", "NoGrad"]

_NO_GRAPH = "its result has no graph for a backward pass"


@dataclass(frozen=True)
class InferenceMode:
    """``torch.inference_mode()``: no graph, no counts of changes in place. Values stay; gradients cannot be had."""

    name: str = "inference_mode"

    def change(self, site: Site) -> Change:
        import torch

        if torch.is_inference_mode_enabled():
            raise DoesNotApply("inference mode is already on")
        _without_gradients(site)
        return Change(around=torch.inference_mode, how="with torch.inference_mode():", changed=_NO_GRAPH)


@dataclass(frozen=True)
class NoGrad:
    """``torch.no_grad()``: no graph. Values stay; gradients cannot be had."""

    name: str = "no_grad"

    def change(self, site: Site) -> Change:
        import torch

        if not torch.is_grad_enabled():
            raise DoesNotApply("grad mode is already off")
        _without_gradients(site)
        if not any(tensor.requires_grad for tensor in site.tensors.values()):
            raise DoesNotApply("nothing that the cell reads requires a gradient")
        return Change(around=torch.no_grad, how="with torch.no_grad():", changed=_NO_GRAPH)


def _without_gradients(site: Site) -> None:
    if site.trains:
        raise DoesNotApply("the cell computes gradients")


@dataclass(frozen=True)
class Autocast:
    """``torch.autocast``: matrix products and convolutions in a shorter dtype. Their results have its precision: three
    digits in bfloat16, four in float16, which also ends at 65 504.

    Attributes:
        name: ``bf16`` or ``fp16``.
    """

    name: str

    @property
    def dtype(self) -> Any:
        import torch

        return torch.bfloat16 if self.name == "bf16" else torch.float16

    def change(self, site: Site) -> Change:
        import torch

        device = site.device
        if torch.is_autocast_enabled(device):
            raise DoesNotApply("autocast is already on")
        if not site.has_dtype(*{torch.float32, torch.float16, torch.bfloat16} - {self.dtype}):
            raise DoesNotApply("the cell reads no float32 tensor")
        if self.name == "fp16" and site.trains:
            raise DoesNotApply("training in float16 needs a GradScaler: write that as an alternative in a %%timer cell")
        around = partial(torch.autocast, device, dtype=self.dtype)
        how = f'with torch.autocast("{device}", dtype={self.dtype}):'
        return Change(around=around, precision=self.dtype, how=how)
