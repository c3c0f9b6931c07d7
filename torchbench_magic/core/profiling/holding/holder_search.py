"""The search for holders: breadth first from names, so that the shortest way to a block says who holds it.

It runs after the recording, asks no code of the user's, and holds what it meets only while it runs. It ends after
`MOST_SECONDS`; what was not met then is not said to have no holder. What only C++ or a library holds is not met either.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass, field
from itertools import chain
from types import FrameType
from typing import Any

from torchbench_magic.core.code.reached_objects import dict_of
from torchbench_magic.printable import printable

from ..torch_events.older_blocks import without_overrides
from .held_objects import ATOMS, CONTAINERS, Lead, limit_of, node_parts, parts
from .roots import CAN_READ_LOCALS, Root, context_roots, hidden_roots, local_roots, module_roots, variable_roots

__all__ = ["MOST_SECONDS", "HeldBlock", "Holdings", "find_holders"]

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
        holder: in words, with code in backticks: "the list `losses`", "`Out[3]`".
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
        visible = (chain(variable_roots(namespace), context_roots()), local_roots(running), module_roots(namespace))
        for roots in (*visible, [*([last] if last is not None else []), *hidden_roots(namespace)]):
            if not cut:
                cut = _walk(roots, met, found, torch.Tensor, lambda: clock() - started > most_seconds)
    left_out = []
    if running and not CAN_READ_LOCALS:
        left_out.append("variables of functions that are still running")
    if met.broken:
        left_out.append("an object" if met.broken == 1 else f"{met.broken} objects")
        left_out[-1] += " that cannot be looked into"
    return Holdings(tuple(found.values()), clock() - started, len(met.objects), cut, tuple(left_out))


def _walk(
    roots: Iterable[Root], met: _Met, found: dict[int, HeldBlock], tensor: type, is_over: Callable[[], bool]
) -> bool:
    """Search from these roots on. Whether it was cut off."""
    todo, later = deque[int](), deque[int]()  # a graph leads to what variables and modules hold by themselves, too,
    for root in roots:  # and the token of a context variable to what that still holds
        if type(root.value) not in ATOMS and id(root.value) not in met.seen:
            into = later if type(root.value) is Token else todo
            into.append(met.add(root.value, -1, Lead("within"), root))
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
                    into = later if step.way == "graph" or type(each) is Token else todo
                    into.append(met.add(each, at, step, met.roots[at]))
                if number % _ITEMS_EVERY == _ITEMS_EVERY - 1 and is_over():
                    return True
        except Exception:  # noqa: BLE001  # an object may be broken in any way; it is said that it was not searched
            met.broken += 1
    return False


def _note(value: Any, at: int, met: _Met, found: dict[int, HeldBlock]) -> None:
    with contextlib.suppress(RuntimeError, NotImplementedError, ValueError):  # fake, meta, sparse, wrapped
        if type(value).__name__ == "FakeTensor":
            return
        storage = value.untyped_storage()
        address, nbytes = storage.data_ptr(), storage.nbytes()
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
