"""Copies of the state that timed code reaches, from which it is put back in place (``--restore``)."""

from __future__ import annotations

import contextlib
import operator
import pickle
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchbench_magic.process.frame_owner import is_users_class
from torchbench_magic.process.reach import ATTRIBUTES, Attributes, dict_of
from torchbench_magic.process.settings import generator_state
from torchbench_magic.process.static_introspection import (
    ABSENT,
    asked,
    elements,
    has_values,
    is_module,
    is_tensor,
    shape_of,
)
from torchbench_magic.result_base import Doubt

from .equality import is_compared_by_value, is_equal
from .iterators import at_end, rewinder, second_copy
from .written_objects import WrittenObjects, refill

# ---- held_state ------------------------------------------------------------------------------------------------------
# The state that timed code reaches: tensors, and the dicts and lists in which modules and optimizers keep it.
#
# A training step changes more than the tensors in sight: what an optimizer keeps of each parameter, the numbers in its
# groups, the counts of a schedule, the buffers of modules. Nothing of theirs is called; what is followed are their
# dicts.

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
        return any(kind is not None and issubclass(type(value), kind) for kind in self._keepers)

    def _visit(self, label: str, value: Any, depth: int, is_kept: bool = False) -> None:
        import torch

        if is_tensor(value):
            self.tensors.setdefault(id(value), (label, value))
            if is_kept and not isinstance(value, torch.nn.Parameter):
                self.kept_state.add(id(value))
        elif is_module(value):
            self._visit_module(label, value)
        elif self._is_keeper(value):
            self._visit_kept(label, dict_of(value))
        elif is_kept:
            self._visit_kept(label, value)
        elif depth < _DEEPEST:
            for where, item in _items(value, _MOST_ITEMS) or ():
                self._visit(f"{label}[{where}]", item, depth + 1)

    def _visit_module(self, label: str, module: Any) -> None:
        """A module and those within it, each once: what its class says of them is not asked."""
        inside = dict_of(module) or {}
        if id(inside) in self._seen:
            return
        self._seen[id(inside)] = inside
        if "training" in inside:
            self.modes[id(inside)] = inside
        # the first call of a lazy module makes it one of another class, which its hooks would not fit
        is_lazy = any(tensor is not None and elements(tensor) is None for tensor in _tensors_of(inside))
        for key, held in inside.items():
            if _HOOKS in key and isinstance(held, dict) and not is_lazy:
                self.holders.setdefault(id(held), (label, held))
        for key in ("_parameters", "_buffers"):
            held = inside.get(key)
            if isinstance(held, dict) and id(held) not in self.holders:
                self.holders[id(held)] = (label, held)
                for name, tensor in held.items():
                    if tensor is not None:
                        self._visit(f"{label}.{name}", tensor, 0)
        for name, within in (inside.get("_modules") or {}).items():
            if within is not None:
                self._visit_module(f"{label}.{name}", within)

    def _visit_kept(self, label: str, held: Any) -> None:
        """A dict or a list of an optimizer or the like, with all that stands in it."""
        at = id(held.owner if type(held) is Attributes else held)
        if (items := _items(held)) is None or at in self._seen or len(self._seen) > _MOST_HELD:
            return
        self._seen[at] = held
        if not issubclass(type(held), tuple):
            self.holders[at] = (label, held)
        for where, item in items:
            if not issubclass(type(item), _PLAIN):
                self._visit(_inner(label, where), item, 0, is_kept=True)


def _tensors_of(inside: Mapping[str, Any]) -> list[Any]:
    """The parameters and buffers in the dict of a module's own attributes."""
    return [t for key in ("_parameters", "_buffers") if isinstance(inside.get(key), dict) for t in inside[key].values()]


def is_training_state(value: Any) -> bool:
    """Whether an object is a module, an optimizer, a schedule or a scaler, or has one as an attribute: by a copy of one
    of them, other tensors would be trained than by the rest."""
    kinds = tuple(kind for name in (*_KEEPERS, _MODULE) if (kind := _class_of(*name)) is not None)
    held = dict_of(value)
    return any(issubclass(type(one), kinds) for one in (value, *(held.values() if type(held) in ATTRIBUTES else ())))


_PLAIN = (str, bytes, int, float, complex, type(None))


def _items(value: Any, most: int | None = None) -> list[tuple[Any, Any]] | None:
    """(how a label says where, item) of a dict, a list or a tuple, as these keep them, whatever a class of the user's
    says; keys that are no texts or numbers, such as parameters, by their place. None of what has more than ``most``."""
    if type(value) is Attributes:
        return [(repr(key), item) for key, item in value.items()]
    base: Any = next((base for base in (dict, list, tuple) if issubclass(type(value), base)), None)
    if base is None or (most is not None and base.__len__(value) > most):
        return None
    if base is not dict:
        return [*enumerate(base.__iter__(value))]
    held = enumerate(dict.items(value))
    return [(repr(key) if type(key) in (str, int) else at, item) for at, (key, item) in held]


def _inner(label: str, where: Any) -> str:
    """``opt.state[3]['exp_avg']``: the names in an object's own dict are attributes."""
    is_own = isinstance(where, str) and "[" not in label and where[1:-1].isidentifier()
    return f"{label}.{where[1:-1]}" if is_own else f"{label}[{where}]"


def _class_of(module: str, name: str) -> Any:
    """A class of torch, where it was imported; without, nothing is one."""
    return getattr(sys.modules.get(module), name, None)


# ---- state_copies ----------------------------------------------------------------------------------------------------
# Copies of the state that timed code reaches, from which it is put back in place: values, gradients, their holders,
# whether modules train, random generators in variables (those of the whole process are of its settings).
#
# The copy goes back into the same tensor and the same dict: another buffer can differ in speed by up to 11 %, and what
# the user's names and the optimizer refer to stays what it was. Whether a tensor changed is told by its in-place
# version where the code's operations count it; some do not (running statistics of a batch norm, state of a fused
# optimizer, whatever goes through ``.data``), and nobody counts the changes of arrays: values are compared after the
# first calls and after the last block, and what was found changed is put back before each block from then on.


@dataclass
class _Kept:
    """An array as it was.

    Attributes:
        is_changed: its values were found changed.
    """

    label: str
    value: Any
    copy: Any
    is_changed: bool = False

    def is_same(self) -> bool:
        return _hold_same_bytes(self.value, self.copy)

    def is_counted(self) -> bool:
        """Whether a change was counted since it was put back."""
        return False

    def put_object(self) -> None:
        """What it is, beside its values."""

    def put(self) -> None:
        """ValueError or RuntimeError where it has another shape or dtype, or cannot be written to."""
        if self.value.shape != self.copy.shape or self.value.dtype != self.copy.dtype:
            raise ValueError(f"{self.label} has another shape or dtype")
        self.value[...] = self.copy


class _KeptFrame(_Kept):
    """Of an object of a library that has values and keeps them in its attributes, as those of pandas do: it gets those
    of a copy, whatever shape it has now."""

    def is_same(self) -> bool:
        return is_equal(self.value, self.copy)

    def put(self) -> None:
        attributes = vars(deepcopy(self.copy))
        vars(self.value).clear()
        vars(self.value).update(attributes)


class _KeptTensor(_Kept):
    """``data`` shares its memory (None: it has no shape yet), ``copy`` holds its values (None: it has none)."""

    def __init__(self, label: str, tensor: Any) -> None:
        super().__init__(label, tensor, asked(_copy, tensor, otherwise=None))
        self.data = None if elements(tensor) is None else asked(tensor.detach, otherwise=None)
        self._at, self._version, self._requires_grad = _address(tensor), version(tensor), tensor.requires_grad
        self.has_grad = tensor.is_leaf and tensor.requires_grad
        self.grad = tensor.grad if self.has_grad else None

    def is_same(self) -> bool:
        import torch

        if self.copy is not None and self.value.layout is torch.sparse_coo:  # which has no ``==``
            return not self.is_counted()
        return self.copy is None or hold_equal_values(self.value, self.copy)

    def is_counted(self) -> bool:
        return version(self.value) != self._version

    def put_object(self) -> None:
        """The memory, the gradient and the flag, where code gave it others."""
        tensor = self.value
        if (data := self.data) is not None:
            is_other = _address(tensor) != self._at or shape_of(tensor) != shape_of(data)
            if is_other or tensor.dtype != data.dtype:
                tensor.data = data
        if tensor.requires_grad is not self._requires_grad and tensor.is_leaf:
            tensor.requires_grad_(self._requires_grad)
        if self.has_grad and tensor.grad is not self.grad:
            tensor.grad = self.grad

    def put(self) -> None:
        import torch

        tensor = self.value
        try:
            if self.copy is None or tensor.layout is torch.sparse_coo:  # the ``.data`` of which is another tensor
                raise RuntimeError(f"{self.label} cannot be written to")
            if tensor.is_inference():
                with torch.inference_mode():
                    _once(tensor).copy_(_once(self.copy))
            else:
                with torch.no_grad():  # through .data: the version counts only what the code changes
                    _once(tensor.data).copy_(_once(self.copy))
        finally:
            self._version = version(tensor)


def _kept(label: str, value: Any) -> Iterator[_Kept]:
    """A copy of an array (with those that one of a subclass has beside it, as a mask), a frame or an image; nothing of
    whatever else, and of what cannot be copied."""
    kind, inside = type(value), dict_of(value)
    if issubclass(kind, np.ndarray):
        beside = inside.values() if type(inside) is dict else ()
        own = value if kind is np.ndarray else value.view(np.ndarray)
        arrays = [own, *(part for part in beside if type(part) is np.ndarray)]
        yield from (_Kept(label, each, each.copy()) for each in arrays)
    elif not is_users_class(kind) and is_compared_by_value(kind) and type(inside) is dict:
        with contextlib.suppress(Exception):  # whatever its library says
            yield _KeptFrame(label, value, deepcopy(value))


_FEW = 10_000
"""Items of a container that are compared before each block: to compare 10 million takes 0.2 s."""


class _KeptItems(_Kept):
    """A container from which items may be taken, or which may get another order. One that only grew, or holds new
    results, may be a log and is left alone. In a large one another order is looked for where all is compared, and from
    then on taken for granted.

    Attributes:
        is_taken_from: that was found.
    """

    is_taken_from = False

    def is_same(self) -> bool:
        """No ``==`` of the items' own is asked."""
        one, other = self.value, self.copy
        if len(one) != len(other) or not isinstance(one, (list, deque)):
            return len(one) >= len(other)
        if all(map(operator.is_, one, other)):
            return True
        ids, others = (np.sort(np.fromiter(map(id, each), np.uint64)) for each in (one, other))
        return not np.array_equal(ids, others)

    def is_counted(self) -> bool:
        if len(self.value) >= len(self.copy):
            self.is_changed = len(self.value) <= _FEW and not self.is_same()
        return len(self.value) < len(self.copy) or self.is_changed

    def put(self) -> None:
        if len(self.value) <= len(self.copy):
            self.is_taken_from = True
            refill(self.value, self.copy)


def container_of(value: Any) -> Any:
    """A container that can be filled again: itself, or the one within a queue of the standard library."""
    if type(value).__module__ == "queue" and type(value).__name__ in ("Queue", "LifoQueue", "PriorityQueue"):
        return value.queue
    return value if type(value) in (list, dict, set, deque, bytearray) else None


@dataclass
class StateCopies:
    """The state as it is now; `restore` puts it back.

    Attributes:
        late: labels of what was seen to change only by `restore_all` at the end, after blocks that had found it
            changed.
        unrestored: labels of what changed and cannot be written to, with its values.
        have_drawn: a random generator of the code's own was drawn from when all was put back.
        written: what the code writes into objects; of it ``rewritten`` is put back before each block, the rest at the
            end: what only the first call writes is a memo, as a rule.
        copied: names of the iterators that are put back.
    """

    held: HeldState
    late: list[str] = field(default_factory=list)
    unrestored: list[str] = field(default_factory=list)
    have_drawn: bool = False
    written: Sequence[WrittenObjects] = ()
    rewritten: Collection[str] = ()
    copied: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._tensors = [_KeptTensor(*pair) for pair in self.held.tensors.values()]
        grads = [(f"{kept.label}.grad", kept.grad) for kept in self._tensors if kept.grad is not None]
        self._tensors += [_KeptTensor(*pair) for pair in grads if id(pair[1]) not in self.held.tensors]
        self._holders = [(held, held.copy()) for _, held in self.held.holders.values()]
        self._modes = [(inside, inside["training"]) for inside in self.held.modes.values()]
        once = {id(value): (label, value) for label, value in reversed(self.held.roots)}
        arrays = (kept for pair in once.values() for kept in _kept(*pair))
        self._kept: list[_Kept] = [*self._tensors, *arrays]
        self._containers: list[_KeptItems] = []
        generators = (generator_state(value) for _, value in self.held.roots)
        self._generators = [(*pair, pair[0]()) for pair in generators if pair is not None]
        self._iterators: list[tuple[dict[str, Any], str, Callable[[], Any]]] = []
        self._files: list[Callable[[], object]] = []

    def keep_items(self, names: Iterable[str], *namespaces: dict[str, Any]) -> None:
        """Put back, too, what is taken from iterators that can be copied, files that are only read, and containers, of
        these names in the namespaces: the run's own names, and those of alternatives that have others.

        An iterator is not put back, it is replaced, from the start: the user's stays as it is. Items of containers are
        not copied.
        """
        read = [(namespace, n, namespace[n]) for namespace in namespaces for n in names if n in namespace]
        self._iterators = [(space, n, make) for space, n, v in read if (make := second_copy(v)) is not None]
        self.copied = frozenset(name for _, name, _ in self._iterators)
        files = {id(v): rewinder(v) for _, _, v in read if at_end(v) is not None}
        self._files = [back for back in files.values() if back is not None]
        held = {id(c): (n, c) for _, n, v in read if (c := container_of(v)) is not None}
        self._containers = [_KeptItems(name, value, copy(value)) for name, value in held.values()]
        self._kept += self._containers
        self._restore_streams()

    @property
    def takes_items(self) -> bool:
        """Whether it reads iterators or files, or takes items from containers, which a call would use up."""
        return bool(self._iterators or self._files or any(one.is_taken_from for one in self._containers))

    def restore(self) -> None:
        """Put back what is known to have changed: outside the clocks, before each block."""
        self._restore_objects()
        for written in self.written:
            if self.rewritten:
                written.put_back(self.rewritten)
        self._restore_streams()

    def _restore_streams(self) -> None:
        for namespace, name, make in self._iterators:
            namespace[name] = make()
        for back in self._files:
            back()

    def _restore_objects(self) -> None:
        import torch

        with torch.no_grad():
            for held, items in self._holders:
                if held or items:
                    _hold_again(held, items)
            for inside, mode in self._modes:
                inside["training"] = mode
            for kept in self._kept:
                kept.put_object()
                if kept.is_changed or kept.is_counted():
                    self._put(kept)

    def restore_all(self, *, is_last: bool = False) -> None:
        """After the first calls and the last block: whatever changed. The values of all are compared, and those found
        changed are put back from now on. An interrupt does not leave half of it."""
        try:
            self._restore_compared(is_last=is_last)
        except KeyboardInterrupt:
            self._restore_compared(is_last=is_last)
            raise
        finally:
            for written in self.written:
                if is_last or self.rewritten:
                    written.put_back(None if is_last else self.rewritten)
            self._restore_streams()

    def _restore_compared(self, *, is_last: bool) -> None:
        """Generators too, and not before each block: code whose time depends on the numbers would be timed on a single
        draw."""
        self._restore_objects()
        for kept in self._kept:
            if not kept.is_changed and not kept.is_same():
                kept.is_changed = True
                self._put(kept)
                if is_last and kept.label not in self.unrestored:
                    self.late.append(kept.label)
        for read, put, state in self._generators:
            if _bytes(read()) != _bytes(state):
                self.have_drawn = True
                put(state)

    @property
    def shapeless(self) -> frozenset[str]:
        """Labels of tensors that had no shape at first."""
        return frozenset(kept.label for kept in self._tensors if kept.data is None)

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Label -> (before, now) of the tensors, gradients and arrays that are not as they were; None where there was
        none. ``now`` is the object itself, ``before`` its copy."""
        found = {
            kept.label: (kept.copy, kept.value)
            for kept in self._kept
            if not isinstance(kept, _KeptItems) and not kept.is_same()
        }
        for kept in self._tensors:
            if kept.has_grad and kept.value.grad is not kept.grad:
                found[f"{kept.label}.grad"] = (kept.grad, kept.value.grad)
        return found

    def _put(self, kept: _Kept) -> None:
        try:
            kept.put()
        except (RuntimeError, ValueError):  # read-only, memory that several elements share, a kind of tensor
            if kept.label not in self.unrestored:
                self.unrestored.append(kept.label)


def _hold_same_bytes(one: Any, other: Any) -> bool:
    """Whether two arrays hold the same bytes: objects in them by identity, NaN equals itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.hasobject:
        return all(a is b for a, b in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True))
    equal = one == other
    return bool((equal | ((one != one) & (other != other))).all()) if one.dtype.names is None else bool(equal.all())


def _bytes(state: Any) -> bytes:
    """A generator's state so that two can be compared: some are dicts with arrays in them."""
    return bytes(state.numpy()) if hasattr(state, "numpy") else pickle.dumps(state)


def version(tensor: Any) -> int:
    """In-place changes that were counted; 0 of inference tensors, which keep no count, and of None."""
    return asked(lambda: int(tensor._version), otherwise=0)


def hold_equal_values(one: Any, other: Any) -> bool:
    """Whether two tensors hold the same; one that is not a number equals itself. What cannot be compared, such as some
    sparse tensors, is taken for the same: there the versions tell."""
    return asked(_hold_equal_values, one, other, otherwise=True)


def _hold_equal_values(one: Any, other: Any) -> bool:
    import torch

    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = one.detach(), other.detach()
    if one.layout is torch.strided and _once(one).shape == _once(other).shape:
        one, other = _once(one), _once(other)
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def _copy(tensor: Any) -> Any:
    """Its values; None where there are none."""
    if not has_values(tensor):
        return None
    tensor = tensor.detach()
    once = _once(tensor)
    return tensor.clone() if once is tensor else once.clone().expand(tensor.shape)


def _once(tensor: Any) -> Any:
    """A view of it that has each element once, where dimensions repeat theirs, as those of ``expand`` do."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_nested:
        return tensor
    for at, (size, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and not step:
            tensor = tensor.narrow(at, 0, 1)
    return tensor


def _address(tensor: Any) -> int:
    return asked(lambda: int(tensor.data_ptr()), otherwise=0) if has_values(tensor) else 0


def _hold_again(held: Any, items: Any) -> None:
    """Have a dict or a list hold the objects that it held; broken off in between, it lacks none of them."""
    if isinstance(held, list):
        if len(held) != len(items) or not all(map(operator.is_, held, items)):
            held[:] = items
        return
    for key, value in items.items():
        if held.get(key, ABSENT) is not value:
            held[key] = value
    if len(held) != len(items):
        for key in [key for key in held if key not in items]:
            del held[key]


# ---- unrestored ------------------------------------------------------------------------------------------------------
# What ``--restore`` does not put back and the timed code was seen to change, by name.

_SHOWN = 4


def not_restored(labels: Iterable[str], late: Iterable[str] = (), shapeless: Collection[str] = ()) -> list[Doubt]:
    """Say by name what was left changed, those that had no shape first, and what was put back only after the last
    block."""
    changed, late = sorted(dict.fromkeys(labels)), list(dict.fromkeys(late))
    labels, made = ([n for n in changed if (n in shapeless) is is_made] for is_made in (False, True))
    said = []
    if made:
        got = f"got {'its' if len(made) == 1 else 'their'} shape in the first call"
        text = f"{_names(made)} {got}, so `--restore` does not put {_them(made)} back."
        said.append(Doubt("not-restored", text, "Call the lazy module once in the setup section.", {"names": made}))
    if labels:
        text = (
            f"{_names(labels)} changed, and `--restore` does not put {_them(labels)} back: later blocks did not start"
            " from the same state."
        )
        action = f"Set {_them(labels)} at the beginning of the body."
        said.append(Doubt("not-restored", text, action, {"names": labels}))
    if late:
        text = (
            f"{_names(late)} changed during the run in a way that is not tracked, and"
            f" {'was' if len(late) == 1 else 'were'} put back only after the last block: some blocks started from a"
            " changed state."
        )
        said.append(Doubt("restored-late", text, "", {"names": late}))
    return said


def _names(labels: list[str]) -> str:
    rest = len(labels) - _SHOWN
    return ", ".join(f"`{n}`" for n in labels[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _them(labels: list[str]) -> str:
    return "it" if len(labels) == 1 else "them"
