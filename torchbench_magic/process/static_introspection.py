"""What objects hold, read without running any code of the user's: attributes, slots, functions, what code says.

No property, no ``__getattr__`` and no ``__repr__`` is called: dicts are read as objects and classes hold them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .frame_owner import is_users_class

Answer = TypeVar("Answer")

ARRAYS = frozenset(("cupy", "jax", "jaxlib", "numpy", "pandas", "polars", "scipy"))  # their shape is cheap to ask

ABSENT = object()
"""Stands for what an object does not keep."""
class_dict = type.__dict__["__dict__"].__get__  # as the class holds it, whatever a metaclass says
class_order = type.__dict__["__mro__"].__get__


class TOO_MANY:  # noqa: N801  # a mark, as ABSENT is one
    """Stands for what was too much to keep."""


@functools.lru_cache(maxsize=2048)
def code_digest(code: CodeType) -> str:
    """A digest of what a function does; it does not depend on line numbers and file names."""
    plain = (sorted(map(repr, c)) if isinstance(c, frozenset) else c for c in code.co_consts)
    constants = [code_digest(c) if isinstance(c, CodeType) else repr(c) for c in plain]
    return digest(repr((code.co_qualname, code.co_code, code.co_names, code.co_varnames, constants)))


def class_attributes(kind: type) -> dict[str, Any]:
    """What a class and its bases hold, as far as users wrote them: each name as an instance finds it."""
    held: dict[str, Any] = {}
    for base in reversed(class_order(kind)):
        if is_users_class(base):
            held |= class_dict(base)
    return held


def is_a(value: Any, kinds: Any) -> bool:
    """``isinstance`` without asking the object for its class: a proxy makes what it stands for, or raises."""
    return issubclass(type(value), kinds)


def is_tensor(value: Any) -> bool:
    import torch

    return issubclass(type(value), torch.Tensor)


def is_plain_tensor(value: Any) -> bool:
    """A tensor of torch's own classes: what is asked of it runs no code of a subclass."""
    import torch

    return type(value) in (torch.Tensor, torch.nn.Parameter)


def asked(question: Callable[..., Answer], *of: Any, otherwise: Answer) -> Answer:
    """What objects answer; ``otherwise`` where they raise, as a tensor that has no memory, and code of the user's may
    raise anything."""
    try:
        return question(*of)
    except Exception:  # noqa: BLE001
        return otherwise


def elements(tensor: Any) -> int | None:
    """How many numbers a tensor has; None of one that does not know yet, as a parameter of a lazy module."""
    from torch.nn.parameter import is_lazy

    if is_lazy(tensor):  # `outside_modes`, it would answer 0
        return None
    return asked(lambda: int(tensor.numel()), otherwise=None)


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The shape of a tensor; None of one that has none as a whole (nested), or not yet."""
    return asked(lambda: tuple(tensor.shape), otherwise=None)


def has_values(tensor: Any) -> bool:
    """Whether a tensor has numbers to read and to copy: not one that is meta or fake, or has no shape yet."""
    return elements(tensor) is not None and not tensor.is_meta and not _is_fake(tensor)


def memory_of(tensor: Any) -> tuple[int, int]:
    """(address, bytes) of the memory in which a tensor keeps its numbers; (0, 0) of one that has none of its own: fake,
    meta, sparse, wrapped, without a shape yet."""
    return (0, 0) if _is_fake(tensor) else asked(_memory, tensor, otherwise=(0, 0))


def _memory(tensor: Any) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return int(storage.data_ptr()), int(storage.nbytes())


def _is_fake(tensor: Any) -> bool:
    """One that a compiler left behind is said to be on the CPU, and warns when it is asked for its memory."""
    return type(tensor).__name__ == "FakeTensor"


_names_saved: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()  # a node's class may be the user's


def saved_names(kind: type) -> tuple[str, ...]:
    """Attributes of a node of the autograd graph: what it saved, as ``SavedTensor`` objects that were not unpacked."""
    found = _names_saved.get(kind)
    if found is None:
        found = _names_saved[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    return found


def is_array(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ARRAYS and any(
        "shape" in class_dict(base) for base in class_order(kind)
    )


def is_module(value: Any) -> bool:
    import torch

    return issubclass(type(value), torch.nn.Module)


def digest(text: str) -> str:
    return hashlib.sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()[:10]
