"""Kineto's events as numpy columns, with the allocation of each free."""

from __future__ import annotations

import marshal
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.array_types import Ints

from .kineto import collector_paused, event_getters, tree_types

# ---- freed_blocks ----------------------------------------------------------------------------------------------------
# Finds the allocation of each free. Kineto's memory events do not hold addresses; the nodes of its tree do.


_MEMORY = "[memory]"  # torch's name of an allocation or a freeing


def number_blocks(results: Any, start: Ints, nbytes: Ints) -> tuple[Ints, Ints]:
    """A number for the block of each memory event: an allocation and the event that frees it share it; -1: not known.
    Also the address of each block, 0 where it is not known.

    Args:
        results: ``kineto_results``.
        start, nbytes: int64 [n], of the memory events, in any order.
    """
    blocks, addresses = np.full(len(start), -1, dtype=np.int64), np.zeros(len(start), dtype=np.int64)
    times, sizes, address, given = _memory_nodes(results)
    if len(times) != len(start) or not len(times):
        return blocks, addresses
    mine, theirs = np.lexsort((nbytes, start)), np.lexsort((sizes, times))
    if (start[mine] != times[theirs]).any() or (nbytes[mine] != sizes[theirs]).any():
        return blocks, addresses
    blocks[mine] = _pairs(address[theirs], nbytes[mine] > 0)
    addresses[mine] = given[address[theirs]]
    return blocks, addresses


def _pairs(address: Ints, is_allocation: NDArray[np.bool_]) -> Ints:
    """For each change of memory, in order of time, the number of its allocation: its own if it is one, else that of the
    change before it at the same address; -1 where that is no allocation."""
    order = np.argsort(address, kind="stable")
    given = is_allocation[order]
    goes_on = np.append(False, address[order][1:] == address[order][:-1])
    freed = ~given & goes_on & np.append(False, given[:-1])
    found = np.where(given, order, np.where(freed, np.append(-1, order[:-1]), -1))
    numbers = np.empty_like(found)
    numbers[order] = found
    return numbers


def _memory_nodes(results: Any) -> tuple[Ints, Ints, Ints, Ints]:
    """Moments, bytes and addresses (numbered) of the allocations and freeings in the tree, and the address of each
    number."""
    types = tree_types()
    if types is None:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none, none
    _, of_memory = types
    times, sizes, address = array("q"), array("q"), array("q")
    places: defaultdict[int, int] = defaultdict(count().__next__)
    todo = list(results.experimental_event_tree()) if results is not None else []
    while todo:
        node = todo.pop()
        below = node.children
        todo += below
        if not below and node.name == _MEMORY and type(fields := node.extra_fields) is of_memory:  # else a user's range
            times.append(node.start_time_ns)
            sizes.append(fields.alloc_size)
            address.append(places[fields.ptr])
    first, second, third = (np.frombuffer(each, dtype=np.int64) for each in (times, sizes, address))
    by_number = np.fromiter(places, np.uint64, len(places)).astype(np.int64)
    return first, second, third, by_number


# ---- events ----------------------------------------------------------------------------------------------------------
# Kineto's events as numpy columns, read in one pass over the C++ objects.
#
# ``prof.events()`` makes a Python object of each event: 40-70 us and several KB an event. One pass of unbound
# methods over ``kineto_results.events()`` takes 4 us and keeps some 80 bytes.

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# what torch's own tables leave out (``_filter_name`` of its profiler_util), besides memory
_HIDDEN = frozenset(
    {
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    }
)
_STEP = re.compile(r"^ProfilerStep#\d+$")  # a step is a range, whatever made it
_READ = ("name", "kind", "device", "start", "end", "native", "tid", "fwd", "seq", "scope", "nbytes")  # of every event
_MOST_CALLS = 64  # of one op with one kind of inputs, whose scalars are looked at
_WITH_INPUTS = ("cpu_op",)
_TORCHS = ("cpu_op", "user_annotation")  # kinds of ops and ranges; others have no place in the autograd graph
_INSTANT = "cpu_instant_event"  # of no length
_WITHOUT_IDS = frozenset({"cpu_op", "user_annotation", "cpu_instant_event"})  # a run of these alone launched nothing
_RANGE = "user_annotation"
_NO_INPUTS = ("[]", "[]", "[]")


@dataclass(frozen=True)
class OpInputs:
    """Inputs of ops as text, each distinct one once; ``index[i]`` belongs to event i."""

    texts: tuple[tuple[str, str, str], ...]  # (shapes, dtypes, strides)
    index: Ints
    calls: tuple[tuple[int, int, str, str, int], ...] = ()  # (name, text, overload, scalars, how often seen)


@dataclass(frozen=True)
class Events:
    """Columns of equal length, one row per event, sorted by (start, -end).

    Attributes:
        names: distinct names; ``name`` indexes it.
        kinds: distinct activity types ("cpu_op", "user_annotation", "kernel", ...); ``kind`` indexes it.
        devices: distinct devices of memory events and of what ran on one ("cpu", "cuda:0"); ``device`` indexes it.
        start, end: Unix ns.
        native: the operating system's thread id of a CPU event; the stream of what ran on a device.
        tid, fwd: torch's own thread numbers: of an op, and of the forward op of a backward node (0: none).
        seq: autograd sequence number; -1 for none.
        scope: RecordScope of what has a sequence number.
        corr, link: correlation ids; 0 where nothing ran on a device.
        nbytes: signed bytes of a memory event.
        inputs: with shapes; else None.
        block: number of a memory event's block, -1 for others and where not known; None without memory.
        address: of that block, 0 for others and where not known; None without memory.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    devices: tuple[str, ...]
    name: Ints
    kind: Ints
    device: Ints
    start: Ints
    end: Ints
    native: Ints
    tid: Ints
    fwd: Ints
    seq: Ints
    scope: Ints
    corr: Ints
    link: Ints
    nbytes: Ints
    inputs: OpInputs | None = None
    block: Ints | None = None
    address: Ints | None = None

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: NDArray[Any]) -> Events:
        """The rows of a mask or an index array."""
        columns = {
            f.name: getattr(self, f.name)[chosen] for f in fields(self) if isinstance(getattr(self, f.name), np.ndarray)
        }
        inputs = None if self.inputs is None else replace(self.inputs, index=self.inputs.index[chosen])
        return Events(self.names, self.kinds, self.devices, **columns, inputs=inputs)

    def shifted(self, by: int) -> Events:
        """The same events ``by`` ns later."""
        return replace(self, start=self.start + by, end=self.end + by)

    def started_in(self, begin: int, end: int) -> Events:
        """Those that started in [begin, end); one of a CPU thread ends with it at the latest."""
        chosen = self.where((self.start >= begin) & (self.start < end))
        return replace(chosen, end=np.where(chosen.is_op, np.minimum(chosen.end, end), chosen.end))

    def is_kind(self, *kinds: str) -> NDArray[np.bool_]:
        return np.isin(self.kind, [i for i, kind in enumerate(self.kinds) if kind in kinds])

    def is_named(self, matches: Callable[[str], bool]) -> NDArray[np.bool_]:
        return np.isin(self.name, [i for i, name in enumerate(self.names) if matches(name)])

    @property
    def is_memory(self) -> NDArray[np.bool_]:
        return self.is_named(_MEMORY.__eq__)

    @property
    def is_range(self) -> NDArray[np.bool_]:
        """``record_function`` ranges: Python code with ops in between, not an op."""
        return self.is_kind("user_annotation")

    @property
    def is_op(self) -> NDArray[np.bool_]:
        """Ops and ranges on CPU threads, without what torch's own tables leave out."""
        return self.is_kind("cpu_op", "user_annotation") & ~self.is_named(_HIDDEN.__contains__)


def read_events(results: Any, *, shapes: bool = False, memory: bool = False, limit: int | None = None) -> Events:
    """Columns of ``kineto_results`` (torch's own object; None: no events).

    Each number is a call into C++: what follows from the kind of an event is not asked for. Above ``limit`` events
    inputs, which take long, are not read.
    """
    import torch

    with collector_paused():
        events = results.events() if results is not None else []
        in_detail = limit is None or len(events) <= limit
        kineto = event_getters(results, shapes=shapes and in_detail)
        reader = _Reader(kineto, has_devices=torch.accelerator.is_available(), shapes=shapes and in_detail)
        for each in events:
            reader.read(each)
        columns = reader.columns()
        if not _WITHOUT_IDS.issuperset(reader.kinds):
            for key, method in (("corr", kineto.correlation_id), ("link", kineto.linked_correlation_id)):
                columns[key] = np.fromiter(map(method, events), np.int64, len(events))
        names, kinds = list(reader.names), list(reader.kinds)
        if memory and in_detail:
            is_memory = columns["name"] == reader.names[_MEMORY]
            columns["block"], columns["address"] = (np.full(len(events), value, dtype=np.int64) for value in (-1, 0))
            columns["block"][is_memory], columns["address"][is_memory] = number_blocks(
                results, columns["start"][is_memory], columns["nbytes"][is_memory]
            )
    is_step = np.array([_STEP.match(name) is not None for name in names], dtype=bool)
    columns["kind"] = np.where(is_step[columns["name"]], reader.kinds[_RANGE], columns["kind"])
    made = Events(
        tuple(_STEP.sub("ProfilerStep*", name) for name in names),
        (*kinds, *([_RANGE] if _RANGE not in kinds else [])),
        tuple(reader.devices),
        **columns,
        inputs=reader.inputs() if shapes and in_detail else None,
    )
    return made.where(np.lexsort((-made.end, made.start)))


class _Numbers(defaultdict[Any, int]):
    """Numbers values in the order of their first."""

    def __init__(self, *first: Any) -> None:
        super().__init__(count().__next__)
        for each in first:
            self[each]


class _Reader:
    """Takes in events one by one.

    Args:
        kineto: has the getters of an event, unbound.
        has_devices: something may have run, or may have been allocated, elsewhere than on the CPU.
        shapes: read the inputs of ops.
    """

    def __init__(self, kineto: Any, *, has_devices: bool, shapes: bool) -> None:
        self._kineto, self._has_devices, self._shapes = kineto, has_devices, shapes
        self.names, self.kinds = _Numbers(), _Numbers()
        self.devices, self._texts = _Numbers("cpu"), _Numbers(_NO_INPUTS)
        self._flat = array("q")  # the numbers of `_READ`, event after event
        self._text_of: dict[bytes, int] = {}
        self._index = array("q")
        self._seen: Counter[tuple[int, int]] = Counter()  # calls of an op with one kind of inputs
        self._calls: Counter[tuple[int, int, str, str]] = Counter()

    def read(self, event: Any) -> None:
        of = self._kineto
        name, kind = of.name(event), of.activity_type(event)
        is_torchs, is_memory = kind in _TORCHS, name == _MEMORY
        seq = of.sequence_nr(event) if is_torchs else -1
        start = _signed(of.start_ns(event))
        device = 0
        if self._has_devices and (is_memory or kind in ON_DEVICE):
            device = self.devices[_device_name(of.device_type(event), of.device_index(event))]
        self._flat.extend(
            (
                self.names[name],
                self.kinds[kind],
                device,
                start,
                start if kind == _INSTANT else _signed(start + of.duration_ns(event)),
                of.device_resource_id(event),
                of.start_thread_id(event) if is_torchs else 0,
                of.fwd_thread_id(event) if seq >= 0 else 0,
                seq,
                of.scope(event) if seq >= 0 else 0,
                of.nbytes(event) if is_memory else 0,
            )
        )
        if self._shapes:
            self._index.append(self._input(event, self.names[name]) if kind in _WITH_INPUTS else 0)

    def _input(self, event: Any, name: int) -> int:
        """Number of what an op was given; of its first calls with that the overload and the scalars are kept."""
        of = self._kineto
        given = of.structured_input_shapes(event), of.dtypes(event), of.structured_input_strides(event)
        key = marshal.dumps(given, 2)  # takes a quarter of the time of their text; 2: no references
        text = self._text_of.get(key)
        if text is None:
            text = self._text_of[key] = self._texts[tuple(map(repr, given))]
        self._seen[name, text] += 1
        if self._seen[name, text] <= _MOST_CALLS:
            self._calls[name, text, of.overload_name(event), repr(of.concrete_inputs(event))] += 1
        return text

    def columns(self) -> dict[str, Ints]:
        table = np.array(self._flat, dtype=np.int64).reshape(-1, len(_READ)).T
        made = {name: np.ascontiguousarray(column) for name, column in zip(_READ, table, strict=True)}
        return made | {name: np.zeros(table.shape[1], dtype=np.int64) for name in ("corr", "link")}

    def inputs(self) -> OpInputs:
        calls = tuple((*key, seen) for key, seen in self._calls.items())
        return OpInputs(tuple(self._texts), np.array(self._index, dtype=np.int64), calls)


def _signed(value: int) -> int:
    """What C++ told as 64 bits. The time of an op in which another thread is as the recording ends may be none, and
    comes as a number beyond those of times: it is one before them here, and so outside of the run."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63) % 2**64 - 2**63


def _device_name(kind: Any, index: int) -> str:
    name = str(kind.name).lower()
    return name if name == "cpu" or index < 0 else f"{name}:{index}"
