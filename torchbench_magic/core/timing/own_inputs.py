"""Do the alternatives read the same tensors, or each its own? Where a tensor lies moves the time of what reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["own_inputs"]

Names = dict[str, tuple[str, ...]]

_LEAST = 1 << 12
"""Bytes; what is smaller fits any cache wherever it lies."""


def own_inputs(used: Mapping[str, Iterable[str]], names: Mapping[str, Any], baseline: str) -> Names:
    """Alternative -> names of the tensors and arrays that it reads where the baseline reads one as large elsewhere.

    Args:
        used: alternative -> the names that it reads.
        names: what they hold.

    Only what stands in a variable is looked at, not what a module holds. Two views of one memory are one place.
    """
    read = {name: _places(variables, names) for name, variables in used.items()}
    first = read.get(baseline, {})
    found: Names = {}
    for name, places in read.items():
        twins = [kind for place, (_, kind) in first.items() if place not in places]
        own = []
        for place, (variable, kind) in places.items():
            if place not in first and kind in twins:
                twins.remove(kind)
                own.append(variable)
        if own and name != baseline:
            found[name] = tuple(own)
    return found


def _places(used: Iterable[str], names: Mapping[str, Any]) -> dict[int, tuple[str, Any]]:
    """Address of the memory -> (variable, shape and dtype of what reads it)."""
    import numpy as np
    import torch

    found = {}
    for variable in sorted(used):
        value = names.get(variable)
        if type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu":
            place, size = value.untyped_storage().data_ptr(), value.nbytes
        elif type(value) is np.ndarray:
            size, whole = value.nbytes, value
            while type(whole.base) is np.ndarray:
                whole = whole.base
            place = whole.__array_interface__["data"][0]
        else:
            continue
        if size >= _LEAST:
            found[place] = (variable, (tuple(value.shape), str(value.dtype)))
    return found
