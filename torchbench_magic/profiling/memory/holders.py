"""Who holds memory: the search from the reader's names to the blocks that are there."""

from __future__ import annotations

import functools
import gc
import inspect
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
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

import numpy as np
import pandas as pd

from torchbench_magic.cell_body import CellText
from torchbench_magic.printable import printable
from torchbench_magic.process.frame_owner import is_users_class, is_users_file
from torchbench_magic.process.reach import ATTRIBUTES, dict_of, function_parts, is_users_module
from torchbench_magic.process.static_introspection import class_dict, class_order, memory_of, saved_names
from torchbench_magic.profiling.events import Events
from torchbench_magic.profiling.kineto import without_overrides
from torchbench_magic.profiling.schema import HOLDER_COLUMNS, frame_of

# ---- holder_search ---------------------------------------------------------------------------------------------------
# The search for holders: breadth first from names, so that the shortest way to a block says who holds it.
#
# It runs after the recording, asks no code of the user's, and holds what it meets only while it runs. It ends after
# `MOST_SECONDS`; what was not met then is not said to have no holder. What only C++ or a library holds is not met
# either.

MOST_SECONDS = 2.0
"""Of one search. A transformer of six layers with its graph took 0.03 s, a list of 100,000 tensors 2.4 to 3.2 s, on two
cores that others used too."""
_CLOCK_EVERY = 256  # objects between two looks at the clock
_ITEMS_EVERY = 4096  # of one object
_INNER = frozenset({"_modules", "_parameters", "_buffers"})  # dicts of a module, whose keys are attributes to its user
_LONGEST_KEY = 24
_LINKS = 3
"""Attributes of one name after another, each of an object of the same type, from which on they are a chain: a model in
a wrapper in a wrapper has two."""
_ENDS_NAME = frozenset({"closure", "default", "cache", "hook"})


@dataclass(frozen=True)
class HeldBlock:
    """One storage and who holds it.

    Attributes:
        address, nbytes, device: of the storage.
        holder: in words, with code in backticks: "the list `history`", "`Out[3]`".
        kind: ``variable``, ``attribute``, ``graph``, ``closure``, ``default``, ``cache``, ``hook``, ``output``,
            ``history``, ``traceback``, ``chain`` (objects of which each holds the one before by the same attribute), or
            the kind of a container: ``list``, ``dict``, ``set``, ``deque`` ...
        name: the variable that leads there.
        role: ``parameter``, ``buffer``, ``gradient``, ``optimizer state`` or empty.
        through_graph: the holder's tensors keep it in their autograd graph.
        limit: of a container on the way, how many things it may hold; -1 for none.
    """

    address: int
    nbytes: int
    device: str
    holder: str
    kind: str
    name: str
    role: str = ""
    through_graph: bool = False
    limit: int = -1


@dataclass(frozen=True)
class Holdings:
    """What a search met.

    Attributes:
        blocks: storages of tensors, each once.
        seconds, objects: what it took, and how much it looked at.
        cut: it ended for lack of time.
        left_out: what was not searched, in words.
    """

    blocks: tuple[HeldBlock, ...] = ()
    seconds: float = 0.0
    objects: int = 0
    cut: bool = False
    left_out: tuple[str, ...] = ()


@dataclass
class _Met:
    """The objects that were met, each with what led there. Held while the search runs, so that ids stay theirs."""

    objects: list[Any] = field(default_factory=list)
    above: list[int] = field(default_factory=list)  # -1 for a root
    steps: list[Lead] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)  # of each
    graphs: list[int] = field(default_factory=list)  # of what a graph led to: the graph's first node; else -1
    chains: list[int] = field(default_factory=list)  # of what a chain led to: the object that makes it one; else -1
    seen: set[int] = field(default_factory=set)
    broken: int = 0  # objects that could not be looked into

    def add(self, value: Any, above: int, step: Lead, root: Root) -> int:
        self.seen.add(id(value))
        self.objects.append(value)
        self.above.append(above)
        self.steps.append(step)
        self.roots.append(root)
        at = len(self.objects) - 1
        graph = self.graphs[above] if above >= 0 else -1
        self.graphs.append(at if graph < 0 and step.way in ("graph", "saved") else graph)
        chain = self.chains[above] if above >= 0 else -1
        self.chains.append(at if chain < 0 and step.way == "attribute" and self._is_linked(at) else chain)
        return at

    def _is_linked(self, at: int) -> bool:
        """Whether the last steps to it are a chain's."""
        kind, link = type(self.objects[at]), self.steps[at]
        for _ in range(_LINKS):
            if self.above[at] < 0 or self.steps[at] != link or type(self.objects[self.above[at]]) is not kind:
                return False
            at = self.above[at]
        return True

    def way_to(self, at: int) -> list[tuple[Any, Lead]]:
        """(object, step from it) from the root on; into a graph, which may be as long as a training, one step; of a
        chain, which may be as long, those that tell it."""
        way: list[tuple[Any, Lead]] = []
        at = self.graphs[at] if self.graphs[at] >= 0 else at
        at = self.chains[at] if self.chains[at] >= 0 else at
        while self.above[at] >= 0:
            way.append((self.objects[self.above[at]], self.steps[at]))
            at = self.above[at]
        return way[::-1]


def find_holders(
    namespace: Mapping[str, Any],
    *,
    running: Sequence[FrameType] = (),
    last: Root | None = None,
    clock: Callable[[], float] = time.perf_counter,
    most_seconds: float = MOST_SECONDS,
) -> Holdings:
    """Who holds which storages, now. Variables come before what a notebook keeps by itself: an output is the holder of
    what no variable leads to.

    Args:
        running: frames of the user's code that have not ended.
        last: the value of a cell's last expression.
    """
    import torch

    started = clock()
    met, found = _Met(), dict[int, HeldBlock]()
    apart = [namespace, *map(dict_of, list(sys.modules.values()))]  # held, since an id that is free is taken again
    met.seen.update(map(id, apart))
    cut = False
    with without_overrides():
        visible = (variable_roots(namespace), local_roots(running), module_roots(namespace))
        for roots in (*visible, [*([last] if last is not None else []), *hidden_roots(namespace)]):
            if not cut:
                cut = _walk(roots, met, found, torch.Tensor, lambda: clock() - started > most_seconds)
    left_out = []
    if running and not CAN_READ_LOCALS:
        left_out.append("variables of functions that are still running")
    if any(graph >= 0 for graph in met.graphs) and not _reads_what_was_saved():
        left_out.append("what autograd graphs have saved, which this torch does not show (2.11 does)")
    if met.broken:
        left_out.append("an object" if met.broken == 1 else f"{met.broken} objects")
        left_out[-1] += " that cannot be looked into"
    return Holdings(tuple(found.values()), clock() - started, len(met.objects), cut, tuple(left_out))


def _walk(
    roots: Iterable[Root], met: _Met, found: dict[int, HeldBlock], tensor: type, is_over: Callable[[], bool]
) -> bool:
    """Search from these roots on. Whether it was cut off."""
    todo, later = deque[int](), deque[int]()  # a graph leads to what variables and modules hold by themselves, too
    for root in roots:
        if type(root.value) not in ATOMS and id(root.value) not in met.seen:
            todo.append(met.add(root.value, -1, Lead("within"), root))
    count = 0
    while todo or later:
        at = todo.popleft() if todo else later.popleft()
        value = met.objects[at]
        count += 1
        if count % _CLOCK_EVERY == 0 and is_over():
            return True
        try:
            if issubclass(type(value), tensor):
                _note(value, at, met, found)
            for number, (step, each) in enumerate(node_parts(value) if met.steps[at].way == "graph" else parts(value)):
                if type(each) not in ATOMS and id(each) not in met.seen:
                    (later if step.way == "graph" else todo).append(met.add(each, at, step, met.roots[at]))
                if number % _ITEMS_EVERY == _ITEMS_EVERY - 1 and is_over():
                    return True
        except Exception:  # noqa: BLE001  # an object may be broken in any way; it is said that it was not searched
            met.broken += 1
    return False


def _note(value: Any, at: int, met: _Met, found: dict[int, HeldBlock]) -> None:
    address, nbytes = memory_of(value)
    known = found.get(address)
    if nbytes and address and (known is None or known.through_graph):
        made = _described(value, at, met, address, nbytes)
        if known is None or not made.through_graph:  # a graph saves what a variable or module holds too
            found[address] = made


def _described(value: Any, at: int, met: _Met, address: int, nbytes: int) -> HeldBlock:
    import torch

    way, root, through_graph = met.way_to(at), met.roots[at], met.graphs[at] >= 0
    holder, kind = _holder(way, root, is_chain=met.chains[at] >= 0)
    limits = [limit for each, _ in way if (limit := limit_of(each)) is not None]
    role = ""
    if not through_graph:
        if way and way[-1][1].way == "gradient":
            role = "gradient"
        elif isinstance(value, torch.nn.Parameter):  # a key of an optimizer's state, too, whose values are none
            role = "parameter"
        elif any(isinstance(each, torch.optim.Optimizer) and step.name == "state" for each, step in way):
            role = "optimizer state"
        elif any(step.name == "_buffers" for _, step in way):
            role = "buffer"
    device = str(value.device)
    return HeldBlock(address, nbytes, device, holder, kind, root.name, role, through_graph, min(limits, default=-1))


def _holder(way: list[tuple[Any, Lead]], root: Root, *, is_chain: bool) -> tuple[str, str]:
    """In words, and its kind: the first thing on the way that may hold many, else the name that leads there.

    Args:
        is_chain: the way ends with the steps that tell a chain.
    """
    if root.kind != "variable":
        return root.says or f"`{root.name}`", root.kind
    name, kind = root.name, "variable"
    for number, (each, step) in enumerate(way):
        if step.way in ("graph", "saved"):
            return f"the autograd graph of `{name}`", "graph"
        if step.way in _ENDS_NAME:
            return _ended(name, step), step.way
        if step.way == "item":
            before = way[number - 1][1] if number else None
            if before is not None and before.way == "within":  # of a partial, of a generator: it has no name
                continue
            if before is None or before.name not in _INNER:
                kind = next((said for base, said in CONTAINERS.items() if isinstance(each, base)), "container")
                return f"the {kind} `{name}`" if root.says == "" else f"the {kind} {root.says}", kind
            name += f".{_key(step.name)}"
        elif step.way == "attribute" and step.name not in _INNER:
            name, kind = f"{name}.{_key(step.name)}", "attribute"
        elif step.way == "class":
            name, kind = _key(step.name), "attribute"
        elif step.way == "gradient":
            name += ".grad"
    if is_chain:
        return f"the chain of `{name.removesuffix(f'.{_key(way[-1][1].name)}' * (_LINKS - 1))}`", "chain"
    return (root.says if root.says and kind == "variable" else f"`{name}`"), kind


def _ended(name: str, step: Lead) -> str:
    if step.way == "closure":
        return f"`{_key(step.name)}` in the closure of `{name}`"
    if step.way == "default":
        return f"the default argument `{_key(step.name)}` of `{name}`"
    return f"the cache of `{name}`" if step.way == "cache" else f"a hook of `{name}`"


def _key(name: object) -> str:
    """As it may stand within a sentence's code."""
    text = printable(name if isinstance(name, str) else str(name) if isinstance(name, int) else type(name).__name__)
    text = text.replace("`", "'")
    return text if len(text) <= _LONGEST_KEY else text[: _LONGEST_KEY - 1] + "…"


# ---- held_objects ----------------------------------------------------------------------------------------------------
# What an object holds, with how one gets there: the steps of the search for holders.
#
# No code of the user's runs: no property, no ``__getattr__``, no hook that unpacks a saved tensor. Dicts are read as
# objects hold them (see `process.reach`); of an autograd node the tensors that it saved are taken as they lie
# there, packed or not.


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
        *(CodeType, BuiltinFunctionType, MemberDescriptorType, GetSetDescriptorType, Context),
    }
)
"""Types of what holds nothing, or leads away from what the reader holds."""
CONTAINERS = {list: "list", tuple: "tuple", dict: "dict", set: "set", frozenset: "frozenset", deque: "deque"}
_HOOKS = frozenset({"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"})
"""Attributes of an ``nn.Module`` that hold what was registered."""
_SHELLS = frozenset({"IPython", "ipykernel", "traitlets", "torchbench_magic"})
"""Libraries whose objects lead to all that a notebook has, and hold no tensor of their own."""

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
        yield from ((Lead(how, name), held) for how, name, held in function_parts(value))
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
    elif issubclass(kind, (ModuleType, threading.local)) or _library_of(kind) in _SHELLS:
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
    if type(held) in ATTRIBUTES:
        yield from ((Lead("attribute", name), item) for name, item in list(held.items()))


def _of_error(error: BaseException) -> Iterator[Any]:
    yield from error.args
    yield error.__traceback__
    yield error.__cause__
    yield error.__context__
    held = dict_of(error)
    if type(held) in ATTRIBUTES:
        yield from list(held.values())


def _attributes(value: Any, kind: type) -> _Parts:
    """Of an instance: its own attributes, those of a user's class; of what has none by name, whatever it refers to."""
    held = dict_of(value)
    if type(held) in ATTRIBUTES:
        for name, item in list(held.items()):
            yield Lead("hook" if name in _HOOKS else "attribute", name), item
    if not issubclass(kind, (list, tuple, dict, deque)):  # what C code holds: slots, a partial's arguments, iterators
        referents = (each for each in gc.get_referents(value) if each is not held)
        yield from ((Lead("within"), each) for each in referents if type(each) not in ATOMS and not _leads_away(each))
    yield from ((Lead("within"), base) for base in class_order(kind) if is_users_class(base))


def _of_class(kind: type) -> _Parts:
    """What a user's class holds itself."""
    if is_users_class(kind):
        name_of_class = kind.__qualname__.rpartition("<locals>.")[2]
        for name, item in list(class_dict(kind).items()):
            yield Lead("class", f"{name_of_class}.{name}"), item


def _leads_away(value: Any) -> bool:
    """What leads from an object to all that a notebook has: a context does from a token, a task or a thread."""
    return isinstance(value, type | ModuleType) or type(value) in (FrameType, Context)


def node_parts(node: Any) -> _Parts:
    """What a node of the autograd graph holds: the nodes before it, and what it saved for the backward pass."""
    for before, _ in node.next_functions:
        if before is not None:
            yield Lead("graph"), before
    leaf = getattr(node, "variable", None)  # of AccumulateGrad
    if leaf is not None:
        yield Lead("within"), leaf
    for name in saved_names(type(node)):
        try:
            saved = getattr(node, name)
        except RuntimeError:  # it was freed
            continue
        for each in saved if isinstance(saved, tuple | list) else (saved,):
            yield from ((Lead("saved"), kept) for kept in _kept_by(each))
    held = dict_of(node)
    if type(held) in ATTRIBUTES:  # of a node of one's own: attributes of ``ctx``
        yield from ((Lead("saved"), item) for item in list(held.values()))


def _reads_what_was_saved() -> bool:
    """Whether torch shows what a `SavedTensor` holds without unpacking it, which may run code of the user."""
    from torch._C import _autograd

    return hasattr(getattr(_autograd, "SavedTensor", None), "data")


def _kept_by(saved: Any) -> Iterator[Any]:
    """The tensor in a ``SavedTensor``, or what a hook has packed it into."""
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


# ---- roots -----------------------------------------------------------------------------------------------------------
# Where the search for holders begins: what the reader sees, and what a notebook keeps without showing it.

_HISTORY = re.compile(r"_+|_i+|_i?\d+")
_IPYTHONS = frozenset({"In", "Out", "_ih", "_oh", "_dh", "get_ipython", "exit", "quit", "open"})
_OURS = frozenset({"_timer", "_tprofile", "__builtins__", "__builtin__", "__annotations__"})


CAN_READ_LOCALS = sys.version_info >= (3, 13)
"""Variables of a running function; before, a dict of them stays with its frame and would hold them itself."""


@dataclass(frozen=True, eq=False)
class Root:
    """Something that stands by itself.

    Attributes:
        name: as the reader would write it: ``losses``, ``Out[3]``.
        kind: ``variable``; of what a notebook keeps by itself ``output``, ``history`` or ``traceback``.
        value: the object.
        says: in words with code in backticks, of what is no variable.
    """

    name: str
    kind: str
    value: Any
    says: str = ""


def is_users_code(code: CodeType) -> bool:
    """Of a function: the variables of a cell or a module are those of its namespace."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and is_users_file(code.co_filename)


def variable_roots(namespace: Mapping[str, Any]) -> Iterator[Root]:
    """The variables of the cell or script."""
    for name, value in list(namespace.items()):
        if name not in _IPYTHONS | _OURS and not (_is_notebook(namespace) and _HISTORY.fullmatch(name)):
            yield Root(name, "variable", value)


def local_roots(running: Iterable[FrameType]) -> Iterator[Root]:
    """Those of functions of the user's that have not ended."""
    for frame in running if CAN_READ_LOCALS else ():
        code = frame.f_code.co_qualname.replace("<locals>.", "")
        for name, value in list(frame.f_locals.items()):
            yield Root(name, "variable", value, f"`{name}` in `{code}`, which is still running")


def module_roots(namespace: Mapping[str, Any]) -> Iterator[Root]:
    """Those of the user's own modules, but the one that ``namespace`` is of."""
    for module_name, module in list(sys.modules.items()):
        if module is None or not is_users_module(module) or vars(module) is namespace or _is_notebook(vars(module)):
            continue
        prefix = "" if module_name == "__main__" else f"{module_name}."
        for name, value in list(vars(module).items()):
            if not name.startswith("__"):
                yield Root(f"{prefix}{name}", "variable", value)


def last_value(value: Any, cell: CellText | None) -> Root | None:
    """What a cell's last expression gave: the notebook keeps it as ``Out[n]`` and as ``_``."""
    if value is None:
        return None
    name = "_" if cell is None or cell.number is None else f"Out[{cell.number}]"
    return Root(name, "output", value, f"`{name}` (the value of the cell's last expression)")


def hidden_roots(namespace: Mapping[str, Any]) -> Iterator[Root]:
    """What the notebook and Python keep by themselves: outputs, their history, and the last error's frames."""
    if _is_notebook(namespace):
        for number, value in list(namespace["_oh"].items()):
            yield Root(f"Out[{number}]", "output", value)
        for name, value in list(namespace.items()):
            if _HISTORY.fullmatch(name) and not isinstance(value, str):
                yield Root(name, "history", value)
    for name in ("last_exc", "last_value", "last_traceback"):
        value = getattr(sys, name, None)
        if value is not None:
            error = getattr(sys, "last_type", None) if name == "last_traceback" else type(value)
            what = f" (the frames of a {error.__name__})" if isinstance(error, type) else ""
            yield Root(f"sys.{name}", "traceback", value, f"`sys.{name}`{what}")


def _is_notebook(namespace: Mapping[str, Any]) -> bool:
    return isinstance(namespace.get("_oh"), dict)


# ---- holder_table ----------------------------------------------------------------------------------------------------
# ``Profile.holders``: who holds the storages that are there after the body, each with the number of its block.


def holder_table(found: Holdings, changes: Events) -> pd.DataFrame:
    """
    Args:
        changes: of memory within the body, in the order of time.
    """
    numbers = _living_blocks(changes)
    held = found.blocks
    return frame_of(
        HOLDER_COLUMNS,
        {
            "block": [numbers.get(each.address, pd.NA) for each in held],
            "device": [each.device for each in held],
            "bytes": [each.nbytes for each in held],
            "holder": [each.holder for each in held],
            "kind": [each.kind for each in held],
            "name": [each.name for each in held],
            "role": [each.role or None for each in held],
            "through_graph": [each.through_graph for each in held],
            "limit": [pd.NA if each.limit < 0 else each.limit for each in held],
        },
    )


def _living_blocks(changes: Events) -> dict[int, int]:
    """Address -> number of the block that the body allocated there last and did not free."""
    if changes.address is None or changes.block is None:
        return {}
    order = np.argsort(changes.start, kind="stable")
    known = order[(changes.address[order] != 0) & (changes.block[order] >= 0)]
    living: dict[int, int] = {}
    for address, nbytes, block in zip(
        changes.address[known].tolist(), changes.nbytes[known].tolist(), changes.block[known].tolist(), strict=True
    ):
        if nbytes > 0:
            living[address] = block
        else:
            living.pop(address, None)
    return living
