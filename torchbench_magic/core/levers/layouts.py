"""Levers that lay tensors out otherwise in memory, before the clock starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .copied_names import copied_training_state, copied_with
from .lever import Change, DoesNotApply, Site

__all__ = ["ChannelsLast", "Contiguous"]


@dataclass(frozen=True)
class ChannelsLast:
    """Images with their channels innermost, which convolutions like. Sums may be taken in another order.

    The modules and the inputs are copies, laid out anew before the clock starts; what the body makes itself comes in
    whatever layout its operations give it.
    """

    name: str = "channels_last"

    def change(self, site: Site) -> Change:
        import torch

        convolving = [
            name
            for name, model in site.of_kind(torch.nn.Module).items()
            if any(isinstance(part, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)) for part in model.modules())
        ]
        if not convolving:
            raise DoesNotApply("the cell reads no module with a 2-d convolution")
        images = copied_with(site, _channels_last)
        copies = copied_training_state(site)
        for name, value in copies.items():
            if isinstance(value, torch.nn.Module):
                copies[name] = value.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs
        names = ", ".join(f"`{name}`" for name in sorted({*convolving, *images}))
        first = convolving[0]
        how = f"{first} = {first}.to(memory_format=torch.channels_last)"
        how += "".join(f"; {name} = {name}.to(memory_format=torch.channels_last)" for name in sorted(images)[:1])
        changed = f"{names} converted once, before the timing"
        if not images:
            changed += "; the images that the body makes are converted in it, by the first convolution"
        return Change(names={**images, **copies}, how=how, changed=changed)


def _channels_last(tensor: Any) -> Any:
    import torch

    if tensor.dim() != 4 or tensor.is_contiguous(memory_format=torch.channels_last) or not _is_plain(tensor):
        return tensor
    return tensor.detach().contiguous(memory_format=torch.channels_last).requires_grad_(tensor.requires_grad)


@dataclass(frozen=True)
class Contiguous:
    """Inputs whose elements lie scattered in memory, laid out row by row before the clock starts. Values stay; sums
    may be taken in another order."""

    name: str = "contiguous"

    def change(self, site: Site) -> Change:
        made = copied_with(site, _contiguous)
        if not made:
            raise DoesNotApply("every tensor that the cell reads by a name is contiguous")
        first = min(made)
        names = ", ".join(f"`{name}`" for name in sorted(made))
        return Change(
            names=made, how=f"{first} = {first}.contiguous()", changed=f"{names} laid out once, before the timing"
        )


def _contiguous(tensor: Any) -> Any:
    import torch

    if not _is_plain(tensor) or tensor.is_contiguous() or tensor.layout is not torch.strided:
        return tensor
    return tensor.detach().contiguous().requires_grad_(tensor.requires_grad)


def _is_plain(tensor: Any) -> bool:
    """Of no subclass, and an input rather than a step of a graph or a module's parameter."""
    import torch

    return type(tensor) is torch.Tensor and tensor.is_leaf
