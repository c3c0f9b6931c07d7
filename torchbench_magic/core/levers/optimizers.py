"""Levers that have an optimizer update all its parameters at once."""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from .copied_names import have_own_parts
from .lever import Change, DoesNotApply, Site

__all__ = ["OptimizerForm"]


@dataclass(frozen=True)
class OptimizerForm:
    """``fused=True`` or ``foreach=True`` of the optimizers that the cell reads: one call for all parameters, or one
    operation for each step of the formula. The formula stays; its last bits may not.

    The parameters are the same; a copy of the optimizer updates them, with copies of its state.

    Attributes:
        name: ``fused-optimizer`` or ``foreach``.
    """

    name: str

    @property
    def word(self) -> str:
        return "fused" if self.name == "fused-optimizer" else "foreach"

    def change(self, site: Site) -> Change:
        import torch

        found = site.of_kind(torch.optim.Optimizer)
        if not found:
            raise DoesNotApply("the cell reads no optimizer by a name")
        made = {name: self._made(name, optimizer) for name, optimizer in found.items()}
        for name, schedule in site.of_kind(torch.optim.lr_scheduler.LRScheduler).items():
            twin = next((made[n] for n, o in found.items() if o is schedule.optimizer), None)
            if twin is not None:
                made[name] = copy.copy(schedule)
                made[name].optimizer = twin
        first = next(iter(found))
        how = f"{type(found[first]).__name__}(..., {self.word}=True)"
        return Change(names=made, how=how, changed=f"a copy of `{first}`, with {self.word}=True")

    def _made(self, name: str, optimizer: Any) -> Any:
        import torch

        groups = optimizer.param_groups
        kind = type(optimizer).__name__
        inner = [key for key, one in vars(optimizer).items() if isinstance(one, torch.optim.Optimizer)]
        if inner:
            raise DoesNotApply(f"`{name}` wraps the optimizer that steps: try it on `{name}.{inner[0]}`, by a name")
        if any(self.word not in group for group in groups):
            raise DoesNotApply(f"{kind} has no {self.word}=True")
        if all(group[self.word] for group in groups):
            raise DoesNotApply(f"`{name}` has {self.word}=True already")
        on_cpu = any(parameter.device.type == "cpu" for group in groups for parameter in group["params"])
        if self.word == "foreach" and not on_cpu and all(group["foreach"] is None for group in groups):
            raise DoesNotApply(f"`{name}` already uses foreach by default on this device")
        if self.word == "fused" and any(group.get("differentiable") for group in groups):
            raise DoesNotApply(f"`{name}` has differentiable=True, which fused=True does not support")
        forms = {"fused": self.word == "fused", "foreach": self.word == "foreach"}
        made = copy.copy(optimizer)
        made.defaults = {**optimizer.defaults, **{key: on for key, on in forms.items() if key in optimizer.defaults}}
        made.state = defaultdict(dict, {p: _copied(held) for p, held in optimizer.state.items()})
        # `add_param_group` of a new one would check what fused=True needs; the constructor does so too
        made.param_groups = [
            {**group, **{key: on for key, on in forms.items() if key in group}, "params": list(group["params"])}
            for group in groups
        ]
        have_own_parts(made, optimizer)
        return made


def _copied(held: Any) -> Any:
    import torch

    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in held.items()}
