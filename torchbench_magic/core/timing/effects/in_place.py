"""What timed code does to the objects it shares with the notebook: tensors changed in place, globals shadowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from torchbench_magic import units
from torchbench_magic.core.code.code_reads import globals_read, variables_read
from torchbench_magic.results.doubts import Doubt

__all__ = ["TensorVersions", "in_place", "shadowed_globals"]

_MOST_ITEMS = 1000


def shadowed_globals(functions: Iterable[FunctionType], rebound: set[str]) -> Iterator[Doubt]:
    """Warn of each global that setup binds while a notebook function reads the notebook's own."""
    for function in functions:
        for name in sorted(globals_read(function.__code__) & rebound):
            where = function.__qualname__
            yield Doubt(
                "shadowed-global",
                f"setup binds `{name}`, but {where} reads the notebook's own `{name}`.",
                f"Pass it as an argument, or define {where} in the setup section.",
                {"name": name, "function": where},
            )


def _tensors(label: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The tensors that a value is, or holds, with a label for each."""
    import torch

    if isinstance(value, torch.Tensor):
        yield label, value
    elif isinstance(value, torch.nn.Module):
        for name, tensor in (*value.named_parameters(), *value.named_buffers()):
            yield f"{label}.{name}", tensor
    elif depth < 2 and isinstance(value, (list, tuple)) and len(value) <= _MOST_ITEMS:
        for i, item in enumerate(value):
            yield from _tensors(f"{label}[{i}]", item, depth + 1)
    elif depth < 2 and isinstance(value, dict) and len(value) <= _MOST_ITEMS:
        for key, item in value.items():
            yield from _tensors(f"{label}[{key!r}]", item, depth + 1)


class TensorVersions:
    """The in-place versions (``tensor._version``) of every tensor that some code may read, at one moment."""

    def __init__(self, names: Iterable[str], namespace: Mapping[str, Any], functions: Iterable[FunctionType]) -> None:
        read = variables_read(names, namespace, functions)
        self.tensors = [pair for name, value in sorted(read.items()) for pair in _tensors(name, value)]
        self._before = [_version(tensor) for _, tensor in self.tensors]

    @property
    def devices(self) -> set[str]:
        """Device of each tensor, as "cpu" or "cuda:0"."""
        return {str(tensor.device) for _, tensor in self.tensors}

    def changed(self) -> dict[str, int]:
        """Label -> in-place changes since this record was made, for the tensors that have any."""
        now = (_version(tensor) for _, tensor in self.tensors)
        return {
            label: after - before
            for (label, _), before, after in zip(self.tensors, self._before, now, strict=True)
            if after != before
        }


def _version(tensor: Any) -> int:
    try:
        return int(tensor._version)
    except RuntimeError:  # inference tensors keep no version
        return 0


def in_place(changes: Mapping[str, int], calls: int, alternatives: int = 2) -> Iterator[Doubt]:
    """Say which tensors the timed code changed, and how often."""
    if not changes:
        return
    names = sorted(changes, key=lambda n: -changes[n])
    shown = ", ".join(f"`{n}`" for n in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    most = changes[names[0]]
    yield Doubt(
        "in-place",
        f"{shown} changed in place {units.count(most)} times in {units.count(calls)} calls: names are restored after"
        f" each call, objects are not{', and the alternatives share them' if alternatives > 1 else ''}.",
        "",
        {"changes": dict(changes), "calls": calls},
    )
