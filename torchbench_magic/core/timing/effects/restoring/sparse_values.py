"""Values of sparse COO tensors: compared, and put back into the same tensor.

``.data`` of a sparse tensor is another one that only begins with the same indices and values, so what is copied to it
does not reach the tensor itself. Names of torch's that are taken here are private: ``_nnz``, ``_indices``, ``_values``
and ``_coalesced_``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["hold_equal_entries", "is_coo", "put_entries"]


def is_coo(tensor: Any) -> bool:
    """Whether a tensor is kept as a list of places and their values."""
    import torch

    return bool(tensor.layout is torch.sparse_coo)


def hold_equal_entries(one: Any, other: Any) -> bool:
    """Whether two COO tensors of one shape and dtype keep the same entries in the same order; NaN equals itself."""
    if one.is_coalesced() != other.is_coalesced() or one._nnz() != other._nnz():
        return False
    values, others = one.detach()._values(), other.detach()._values()
    same = (values == others) | ((values != values) & (others != others))
    return bool((one.detach()._indices() == other.detach()._indices()).all()) and bool(same.all())


def put_entries(tensor: Any, copy: Any) -> None:
    """Have a tensor keep the entries of its copy: in the same memory, where it has as many of them.

    The tensor's in-place version may count this.
    """
    import torch

    with torch.no_grad():
        inside = tensor.detach()
        if inside._nnz() == copy._nnz() and inside._values().shape == copy._values().shape:
            inside._indices().copy_(copy._indices())
            inside._values().copy_(copy._values())
        else:
            tensor.copy_(copy)
        tensor._coalesced_(copy.is_coalesced())
