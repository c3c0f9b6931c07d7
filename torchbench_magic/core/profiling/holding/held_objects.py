"""What an object holds, with how one gets there: the steps of the search for holders.

No code of the user's runs: no property, no ``__getattr__``, no hook that unpacks a saved tensor. Dicts are read as
objects hold them (see `core.code.reached_objects`); of an autograd node the tensors that it saved are taken as they lie
there, packed or not.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary

from torchbench_magic.core.code.held_values import class_dict, class_order
from torchbench_magic.core.code.reached_objects import dict_of, is_users_class

__all__ = ["ATOMS", "CONTAINERS", "Lead", "limit_of", "node_parts", "parts"]


class Lead(NamedTuple):
    """How one gets from an object to what it holds.

    Attributes:
        way: ``item``, ``attribute``, ``class``, ``closure``, ``default``, ``cache``, ``hook``, ``gradient``, ``graph``,
            ``saved``, ``within`` (by no name).
        name: of the attribute, the closed-over variable, the argument; the key or index of an item.
    """

    way: str
    name: object = None


ATOMS = frozenset(
    {
        *(int, float, complex, bool, str, bytes, bytearray, type(None), type(...), range, slice),
        *(CodeType, BuiltinFunctionType, MemberDescriptorType, GetSetDescriptorType),
    }
)
"""Types of what holds nothing, or leads away from what the reader holds."""
CONTAINERS = {list: "list", tuple: "tuple", dict: "dict", set: "set", frozenset: "frozenset", deque: "deque"}
_HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
"""Attributes of an ``nn.Module`` that hold what was registered."""
_SHELLS = frozenset({"IPython", "ipykernel", "traitlets", "torchbench_magic"})
"""Libraries whose objects lead to all that a notebook has, and hold no tensor of their own."""
_RAW = "_raw_saved_"
"""Attributes of torch's autograd nodes: what they saved, as `SavedTensor`s that were not unpacked."""

_Parts = Iterator[tuple[Lead, Any]]


def parts(value: Any) -> _Parts:
    """(step, what it leads to) of all that ``value`` holds."""
    kind = type(value)
    if kind in CONTAINERS or issubclass(kind, (list, tuple, dict, deque)):
        yield from _items(value)
    elif _is_tensor(kind):
        yield from _of_tensor(value)
        return
    elif kind is FunctionType:
        yield from _of_function(value)
        return
    elif kind is MethodType:
        yield Lead("within"), value.__self__
        yield Lead("within"), value.__func__
        return
    elif kind is functools._lru_cache_wrapper:
        yield from ((Lead("cache"), each) for each in gc.get_referents(value) if each is not value.__wrapped__)
        yield Lead("within"), value.__wrapped__
        return
    elif issubclass(kind, type):
        yield from _of_class(value)
        return
    elif kind is Context:
        yield from ((Lead("within"), each) for each in value.values())
        return
    elif issubclass(kind, ModuleType) or _library_of(kind) in _SHELLS:
        return
    elif issubclass(kind, BaseException):
        yield from ((Lead("within"), each) for each in _of_error(value))
        return
    elif kind.__name__ == "ndarray" and _library_of(kind) == "numpy":
        yield Lead("within"), value.base  # of `tensor.numpy()` the tensor
        return
    elif kind is TracebackType:
        yield Lead("within"), value.tb_frame
        yield Lead("within"), value.tb_next
        return
    yield from _attributes(value, kind)


def _library_of(kind: type) -> str:
    try:
        module = _module_of(kind)
    except AttributeError:
        return ""
    return module.partition(".")[0] if isinstance(module, str) else ""


_module_of = type.__dict__["__module__"].__get__  # as the class holds it, whatever a metaclass says


def _is_tensor(kind: type) -> bool:
    import torch

    return issubclass(kind, torch.Tensor)


def _items(value: Any) -> _Parts:
    """What a container holds, by the methods of its builtin base: a subclass may compute what it gives."""
    kind = type(value)
    if issubclass(kind, dict):
        for key, item in list(dict.items(value)):
            if type(key) not in ATOMS:
                yield Lead("within"), key
            if type(item) not in ATOMS:
                yield Lead("item", key), item
        return
    plain = next((base for base in (list, tuple, deque) if issubclass(kind, base)), None)
    if plain is None:
        yield from ((Lead("within"), item) for item in list(value) if type(item) not in ATOMS)
        return
    for at, item in enumerate(list(plain.__iter__(value))):
        if type(item) not in ATOMS:
            yield Lead("item", at), item


def _of_tensor(value: Any) -> _Parts:
    """The gradient, the graph, hooks and attributes. To be asked where what a subclass overrides does not run."""
    try:
        if value.is_leaf:
            yield Lead("gradient"), value.grad
        else:
            yield Lead("graph"), value.grad_fn
        yield Lead("hook"), value._backward_hooks
    except (RuntimeError, NotImplementedError, AttributeError):
        return
    held = dict_of(value)
    if type(held) is dict:
        yield from ((Lead("attribute", name), item) for name, item in list(held.items()))


def _of_function(function: FunctionType) -> _Parts:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield Lead("closure", name), cell.cell_contents
        except ValueError:  # nothing is in it yet
            continue
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    yield from (
        (Lead("default", name), value)
        for name, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=False)
    )
    yield from ((Lead("default", name), value) for name, value in (function.__kwdefaults__ or {}).items())
    yield from ((Lead("attribute", name), value) for name, value in list(vars(function).items()))


def _of_error(error: BaseException) -> Iterator[Any]:
    yield from error.args
    yield error.__traceback__
    yield error.__cause__
    yield error.__context__
    held = dict_of(error)
    if type(held) is dict:
        yield from list(held.values())


def _attributes(value: Any, kind: type) -> _Parts:
    """Of an instance: its own attributes, those of a user's class; of what has none by name, whatever it refers to."""
    if issubclass(kind, threading.local):
        yield from _of_threads(value)
        return
    held = dict_of(value)
    if type(held) is dict:
        for name, item in list(held.items()):
            yield Lead("hook" if name in _HOOKS else "attribute", name), item
    if not issubclass(kind, (list, tuple, dict, deque)):  # what C code holds: slots, a partial's arguments, iterators
        referents = (each for each in gc.get_referents(value) if each is not held)
        yield from ((Lead("within"), each) for each in referents if type(each) not in ATOMS and not _leads_away(each))
    yield from ((Lead("within"), base) for base in class_order(kind) if is_users_class(base))


def _of_threads(value: Any) -> _Parts:
    """The attributes that a ``threading.local`` has in each thread: it refers to a dict of them by a weak key."""
    for each in gc.get_referents(value):
        if type(each) is dict and each and all(type(key) is ReferenceType for key in each):
            for held in list(each.values()):
                yield from ((Lead("attribute", name), item) for name, item in list(held.items()))


def _of_class(kind: type) -> _Parts:
    """What a user's class holds itself."""
    if is_users_class(kind):
        name_of_class = kind.__qualname__.rpartition("<locals>.")[2]
        for name, item in list(class_dict(kind).items()):
            yield Lead("class", f"{name_of_class}.{name}"), item


def _leads_away(value: Any) -> bool:
    """A context leads from a token, a task or a thread to what context variables hold by themselves."""
    return isinstance(value, type | ModuleType) or type(value) in (FrameType, Context)


_names_of: WeakKeyDictionary[type, tuple[str, ...]] = WeakKeyDictionary()  # a node's class may be the user's


def _saved_names(kind: type) -> tuple[str, ...]:
    found = _names_of.get(kind)
    if found is None:
        found = _names_of[kind] = tuple(name for name in dir(kind) if name.startswith(_RAW))
    return found


def node_parts(node: Any) -> _Parts:
    """What a node of the autograd graph holds: the nodes before it, and what it saved for the backward pass."""
    for before, _ in node.next_functions:
        if before is not None:
            yield Lead("graph"), before
    leaf = getattr(node, "variable", None)  # of AccumulateGrad
    if leaf is not None:
        yield Lead("within"), leaf
    for name in _saved_names(type(node)):
        try:
            saved = getattr(node, name)
        except RuntimeError:  # it was freed
            continue
        for each in saved if isinstance(saved, tuple | list) else (saved,):
            yield from ((Lead("saved"), kept) for kept in _kept_by(each))
    held = dict_of(node)
    if type(held) is dict:  # of a node of one's own: attributes of ``ctx``
        yield from ((Lead("saved"), item) for item in list(held.values()))


def _kept_by(saved: Any) -> Iterator[Any]:
    """The tensor in a `SavedTensor`, or what a hook has packed it into."""
    read: Callable[[], Any] = lambda: saved.data
    try:
        kept = read()
    except (RuntimeError, AttributeError):
        return
    if kept is not None:
        yield kept


def limit_of(value: Any) -> int | None:
    """How many things a container may hold at most; None where it has no limit."""
    if isinstance(value, deque):
        return value.maxlen
    if type(value) is functools._lru_cache_wrapper:
        most = value.cache_info().maxsize
        return None if most is None else int(most)
    return None
