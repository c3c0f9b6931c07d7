"""The state that timed code reaches: tensors, and the dicts and lists in which modules and optimizers keep it.

A training step changes more than the tensors in sight: what an optimizer keeps of each parameter, the numbers in its
groups, the counts of a schedule, the buffers of modules. Nothing of theirs is called; what is followed are their dicts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from torchbench_magic.core.code.reached_objects import dict_of

__all__ = ["HeldState", "is_training_state"]

_MOST_ITEMS = 1000
_MOST_HELD = 100_000
_DEEPEST = 2
"""Of lists and dicts of the user's, within each other."""
_KEEPERS = (("torch.optim.optimizer", "Optimizer"), ("torch.optim.lr_scheduler", "LRScheduler"),
            ("torch.amp.grad_scaler", "GradScaler"))  # fmt: skip
_HOOKS = "_hooks"
"""Part of the names of the dicts in which modules keep their hooks of every kind."""
_MODULE = ("torch.nn.modules.module", "Module")


class HeldState:
    """What a set of objects holds at one moment.

    Args:
        roots: (label, object); of an object that is held twice the first label counts.

    Attributes:
        tensors: id -> (label, tensor).
        holders: id -> (label, dict or list) in which a module, an optimizer, a schedule or a scaler of gradients keeps
            its state, or its hooks.
        modes: id -> the dict of a module's own attributes, with its ``training``.
        kept_state: ids of the tensors that optimizers and the like hold, other than by the parameters they were given.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        self.roots = list(roots)
        self.tensors: dict[int, tuple[str, Any]] = {}
        self.holders: dict[int, tuple[str, Any]] = {}
        self.modes: dict[int, dict[str, Any]] = {}
        self.kept_state: set[int] = set()
        self._seen: dict[int, Any] = {}
        self._keepers = tuple(_class_of(*name) for name in _KEEPERS)
        late: list[tuple[str, Any]] = []
        for label, value in self.roots:  # modules first: their names of parameters say more than an optimizer's numbers
            if self._is_keeper(value):
                late.append((label, value))
            else:
                self._visit(label, value, 0)
        for label, value in late:
            self._visit(label, value, 0)

    def again(self) -> HeldState:
        """What the same objects hold now."""
        return HeldState(self.roots)

    def _is_keeper(self, value: Any) -> bool:
        return any(kind is not None and isinstance(value, kind) for kind in self._keepers)

    def _visit(self, label: str, value: Any, depth: int, is_kept: bool = False) -> None:
        import torch

        if isinstance(value, torch.Tensor):
            self.tensors.setdefault(id(value), (label, value))
            if is_kept and not isinstance(value, torch.nn.Parameter):
                self.kept_state.add(id(value))
        elif isinstance(value, torch.nn.Module):
            for name, module in value.named_modules():
                self._visit_module(f"{label}.{name}" if name else label, module)
        elif self._is_keeper(value):
            self._visit_kept(label, dict_of(value))
        elif is_kept:
            self._visit_kept(label, value)
        elif depth < _DEEPEST and isinstance(value, (list, tuple, dict)) and len(value) <= _MOST_ITEMS:
            for where, item in _items(value):
                self._visit(f"{label}[{where}]", item, depth + 1)

    def _visit_module(self, label: str, module: Any) -> None:
        inside = dict_of(module) or {}
        if "training" in inside:
            self.modes[id(inside)] = inside
        for key, held in inside.items():
            if _HOOKS in key and isinstance(held, dict):
                self.holders.setdefault(id(held), (label, held))
        for key in ("_parameters", "_buffers"):
            held = inside.get(key)
            if isinstance(held, dict) and id(held) not in self.holders:
                self.holders[id(held)] = (label, held)
                for name, tensor in held.items():
                    if tensor is not None:
                        self._visit(f"{label}.{name}", tensor, 0)

    def _visit_kept(self, label: str, held: Any) -> None:
        """A dict or a list of an optimizer or the like, with all that stands in it."""
        if not isinstance(held, (dict, list, tuple)) or id(held) in self._seen or len(self._seen) > _MOST_HELD:
            return
        self._seen[id(held)] = held
        if not isinstance(held, tuple):
            self.holders[id(held)] = (label, held)
        for where, item in _items(held):
            if not isinstance(item, _PLAIN):
                self._visit(_inner(label, where), item, 0, is_kept=True)


def is_training_state(value: Any) -> bool:
    """Whether an object is a module, an optimizer, a schedule or a scaler, or has one as an attribute: by a copy of one
    of them, other tensors would be trained than by the rest."""
    kinds = tuple(kind for name in (*_KEEPERS, _MODULE) if (kind := _class_of(*name)) is not None)
    held = dict_of(value)
    return any(issubclass(type(one), kinds) for one in (value, *(held.values() if type(held) is dict else ())))


_PLAIN = (str, bytes, int, float, complex, type(None))


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    """(how a label says where, item); keys that are no texts or numbers, such as parameters, by their place."""
    if isinstance(value, dict):
        for at, (key, item) in enumerate([*value.items()]):
            yield (repr(key) if isinstance(key, (str, int)) else at), item
    else:
        yield from enumerate([*value])


def _inner(label: str, where: Any) -> str:
    """``opt.state[3]['exp_avg']``: the names in an object's own dict are attributes."""
    is_own = isinstance(where, str) and "[" not in label and where[1:-1].isidentifier()
    return f"{label}.{where[1:-1]}" if is_own else f"{label}[{where}]"


def _class_of(module: str, name: str) -> Any:
    """A class of torch, where it was imported; without, nothing is one."""
    return getattr(sys.modules.get(module), name, None)
