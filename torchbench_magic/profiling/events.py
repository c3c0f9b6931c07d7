"""Kineto's events as numpy columns, with the allocation of each free."""

from __future__ import annotations

import marshal
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, compress, count, repeat
from operator import not_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.arrays import Ints

from .kineto import collector_paused, event_getters, tree_types

# ---- freed_blocks ----------------------------------------------------------------------------------------------------
# Finds the allocation of each free. Kineto's memory events do not hold addresses; the nodes of its tree do.


_ROOTS_AT_ONCE = 256  # roots whose trees are read together: the processor still holds what it just touched
_MEMORY = "[memory]"  # torch's name of an allocation or a freeing


def number_blocks(results: Any, start: Ints, nbytes: Ints) -> tuple[Ints, Ints, bool]:
    """A number for the block of each memory event: an allocation and the event that frees it share it; -1: not known.

    Also the address of each block, 0 where it is not known, and whether all are known to be on the CPU, which the tree
    tells sooner than the events do.

    Args:
        results: ``kineto_results``.
        start, nbytes: int64 [n], of the memory events, in any order.
    """
    blocks, addresses = np.full(len(start), -1, dtype=np.int64), np.zeros(len(start), dtype=np.int64)
    times, sizes, address, given, devices = _memory_nodes(results)
    if len(times) != len(start) or not len(times):
        return blocks, addresses, False
    mine, theirs = np.lexsort((nbytes, start)), np.lexsort((sizes, times))
    if (start[mine] != times[theirs]).any() or (nbytes[mine] != sizes[theirs]).any():
        return blocks, addresses, False
    blocks[mine] = _pairs(address[theirs], nbytes[mine] > 0)
    addresses[mine] = given[address[theirs]]
    return blocks, addresses, {device.type for device in devices} <= {"cpu"}


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


def _memory_nodes(results: Any) -> tuple[Ints, Ints, Ints, Ints, set[Any]]:
    """Moments, bytes and addresses (numbered) of the allocations and freeings in the tree, the address of each number,
    and their devices (which are not asked for where there is none but the CPU)."""
    import torch

    only_cpu = not torch.accelerator.is_available()
    types = tree_types()
    if types is None:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none, none, set()
    node, of_memory = types  # unbound getters in C loops: a tree has as many nodes as there are events
    name, children = node.name.fget, node.children.fget
    times, sizes, address = array("q"), array("q"), array("q")
    places: defaultdict[int, int] = defaultdict(count().__next__)
    devices: set[Any] = set()
    roots = results.experimental_event_tree() if results is not None else []
    for at in range(0, len(roots), _ROOTS_AT_ONCE):
        level = roots[at : at + _ROOTS_AT_ONCE]
        while level:
            below = list(map(children, level))
            leaves = list(compress(level, map(not_, below)))  # a change of memory is one
            changes = list(compress(leaves, map(_MEMORY.__eq__, map(name, leaves))))
            fields = list(map(node.extra_fields.fget, changes))
            if not {of_memory}.issuperset(map(type, fields)):  # a range of the user's has that name
                changes = [each for each, has in zip(changes, fields, strict=True) if type(has) is of_memory]
                fields = list(map(node.extra_fields.fget, changes))
            times.extend(map(node.start_time_ns.fget, changes))
            sizes.extend(map(of_memory.alloc_size.fget, fields))
            address.extend(map(places.__getitem__, map(of_memory.ptr.fget, fields)))
            if not only_cpu:
                devices.update(map(of_memory.device.fget, fields))
            level = list(chain.from_iterable(below))
    first, second, third = (np.frombuffer(each, dtype=np.int64) for each in (times, sizes, address))
    by_number = np.fromiter(places, np.uint64, len(places)).astype(np.int64)
    return first, second, third, by_number, devices


# ---- events ----------------------------------------------------------------------------------------------------------
# Kineto's events as numpy columns, read in one pass over the C++ objects.
#
# ``prof.events()`` makes a Python object of each event: 40-70 us and several KB an event. One pass of unbound
# methods over ``kineto_results.events()`` takes 2-3 us and keeps some 80 bytes.

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
_READ = ("name", "kind", "start", "end", "native", "tid", "fwd", "seq", "scope", "nbytes")  # of every event
_EVENTS_AT_ONCE = 1024  # events that are read together
_MOST_CALLS = 64  # of one op with one kind of inputs, whose scalars are looked at
_WITH_INPUTS = ("cpu_op",)
_TORCHS = ("cpu_op", "user_annotation")  # kinds of ops and ranges; others have no place in the autograd graph
_INSTANT = "cpu_instant_event"  # of no length
_WITHOUT_IDS = frozenset({"cpu_op", "user_annotation", "cpu_instant_event"})  # a run of these alone launched nothing
_FORWARD = 0  # RecordScope::FUNCTION
_BACKWARD = 1  # RecordScope::BACKWARD_FUNCTION


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

    def without_inputs(self) -> Events:
        return replace(self, inputs=None)

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

    Each number is a call into C++, and those calls are most of the time of a profile's result: what follows from the
    kind of an event is not asked for. Above ``limit`` events inputs, which take long, are not read.
    """
    with collector_paused():
        events = results.events() if results is not None else []
        n = len(events)
        in_detail = limit is None or n <= limit
        kineto = event_getters(results, shapes=shapes and in_detail)
        name_of, kind_of, input_of = _Numbers(), _Numbers(), _Numbers()
        methods = _input_methods(kineto) if shapes and in_detail else ()
        read: dict[str, list[Ints]] = {}
        for at in range(0, n, _EVENTS_AT_ONCE):
            for key, part in _read(
                kineto, events[at : at + _EVENTS_AT_ONCE], name_of, kind_of, input_of, methods
            ).items():
                read.setdefault(key, []).append(part)
        columns: dict[str, Any] = {
            key: np.concatenate(read.get(key, [np.zeros(0, dtype=np.int64)])) for key in (*_READ, "input")
        }
        given = columns.pop("input")
        name, kind = columns["name"], columns["kind"]
        is_memory, on_device = name_of.among(name, {_MEMORY}), kind_of.among(kind, ON_DEVICE)
        _name_threads(kineto, events, columns, kind_of.among(kind, _TORCHS))
        for key, method in (("corr", kineto.correlation_id), ("link", kineto.linked_correlation_id)):
            has_ids = not _WITHOUT_IDS.issuperset(kind_of)
            columns[key] = np.fromiter(map(method, events), np.int64, n) if has_ids else np.zeros(n, dtype=np.int64)
        on_cpu = False
        if memory and in_detail:
            columns["block"], columns["address"] = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
            columns["block"][is_memory], columns["address"][is_memory], on_cpu = number_blocks(
                results, columns["start"][is_memory], columns["nbytes"][is_memory]
            )
        none = on_cpu and not on_device.any()  # then all of them are on the CPU
        devices, columns["device"] = _devices(kineto, events, (is_memory | on_device) & (not none), n)
        inputs = _inputs(kineto, events, kind_of.among(kind, _WITH_INPUTS), name, given) if methods else None
    is_step = np.array([_STEP.match(each) is not None for each in name_of], dtype=bool)
    columns["kind"] = np.where(is_step[columns["name"]], kind_of["user_annotation"], columns["kind"])
    names, kinds = list(name_of), list(kind_of)
    made = Events(
        tuple(_STEP.sub("ProfilerStep*", each) for each in names),
        tuple(kinds),
        tuple(devices),
        **columns,
        inputs=inputs,
    )
    return made.where(np.lexsort((-made.end, made.start)))


class _Numbers(defaultdict[Any, int]):
    """Numbers values in the order of their first; no bytecode runs per value."""

    def __init__(self) -> None:
        super().__init__(count().__next__)

    def of(self, values: Iterable[Any], n: int = -1) -> Ints:
        return np.fromiter(map(self.__getitem__, values), np.int64, n)

    def among(self, numbers: Ints, wanted: Container[Any]) -> NDArray[np.bool_]:
        """Whether each is the number of one of ``wanted``."""
        return np.array([value in wanted for value in self], dtype=bool)[numbers]


def _chosen(events: Sequence[Any], mask: NDArray[np.bool_]) -> Iterator[Any]:
    return compress(events, mask.tobytes())


def _read(
    kineto: Any,
    events: Sequence[Any],
    name_of: _Numbers,
    kind_of: _Numbers,
    input_of: _Numbers,
    inputs: tuple[Callable[[Any], list[Any]], ...],
) -> dict[str, Ints]:
    """Columns of a few events, while the processor still holds what one method touched for the next.

    ``input`` has what the methods ``inputs`` say, of ops only.
    """
    n = len(events)

    def numbers(method: Callable[[Any], int], asked: NDArray[np.bool_], otherwise: int = 0) -> Ints:
        column = np.full(n, otherwise, dtype=np.int64)
        column[asked] = _signed(lambda: map(method, _chosen(events, asked)))
        return column

    name = name_of.of(map(kineto.name, events), n)
    nbytes = numbers(kineto.nbytes, name_of.among(name, {_MEMORY}))
    kind = np.full(n, kind_of[_INSTANT], dtype=np.int64)  # only a change of memory has bytes, and it is an instant
    kind[nbytes == 0] = kind_of.of(map(kineto.activity_type, _chosen(events, nbytes == 0)))
    start = _signed(lambda: map(kineto.start_ns, events))
    is_torchs = kind_of.among(kind, _TORCHS)
    seq = numbers(kineto.sequence_nr, is_torchs, -1)
    given = np.zeros(0, dtype=np.int64)
    if inputs:
        chosen = list(_chosen(events, kind_of.among(kind, _WITH_INPUTS)))
        # lists cannot be hashed; their bytes can, and take a quarter of the time of their text (2: no references)
        listed = zip(*(map(method, chosen) for method in inputs), strict=True)
        given = input_of.of(map(marshal.dumps, listed, repeat(2)), len(chosen))
    return {
        "name": name,
        "kind": kind,
        "start": start,
        "end": start + numbers(kineto.duration_ns, ~kind_of.among(kind, {_INSTANT})),
        "native": np.fromiter(map(kineto.device_resource_id, events), np.int64, n),
        "tid": numbers(kineto.start_thread_id, seq >= 0),
        "fwd": numbers(kineto.fwd_thread_id, seq >= 0),
        "seq": seq,
        "scope": numbers(kineto.scope, seq >= 0),
        "nbytes": nbytes,
        "input": given,
    }


def _signed(values: Callable[[], Iterable[int]]) -> Ints:
    """What C++ told as 64 bits. The time of an op in which another thread is as the recording ends may be none, and
    comes as a number beyond those of times: it is one before them here, and so outside of the run."""
    try:
        return np.fromiter(values(), np.int64)
    except OverflowError:
        return np.array([(value + 2**63) % 2**64 - 2**63 for value in values()], dtype=np.int64)


def _name_threads(kineto: Any, events: Sequence[Any], columns: dict[str, Ints], is_torchs: NDArray[np.bool_]) -> None:
    """torch's number of the thread of ops without a sequence number, too: one is asked for all of a thread."""
    at = np.flatnonzero(is_torchs)
    threads, which = np.unique(columns["native"][at], return_inverse=True)
    first = np.zeros(len(threads), dtype=np.int64)
    first[which[::-1]] = at[::-1]
    tids = np.array([kineto.start_thread_id(events[i]) for i in first.tolist()], dtype=np.int64)[which]
    columns["tid"][at] = np.where(columns["seq"][at] >= 0, columns["tid"][at], tids)


def _devices(kineto: Any, events: Sequence[Any], placed: NDArray[np.bool_], n: int) -> tuple[list[str], Ints]:
    """Devices of the events ``placed``; the others' is the first."""
    chosen = list(_chosen(events, placed))
    kinds = list(map(kineto.device_type, chosen))
    numbers = map(int, kinds)  # of a C++ enumeration, which is slow to hash
    listed = list(zip(numbers, map(kineto.device_index, chosen), strict=True))
    of_place = {place: _device_name(kind, place[1]) for place, kind in dict(zip(listed, kinds, strict=True)).items()}
    names = _Numbers()
    device = np.zeros(n, dtype=np.int64)
    device[placed] = names.of(map(of_place.__getitem__, listed), len(chosen))
    return list(names) or ["cpu"], device


def _device_name(kind: Any, index: int) -> str:
    name = str(kind.name).lower()
    return name if name == "cpu" or index < 0 else f"{name}:{index}"


def _input_methods(kineto: Any) -> tuple[Callable[[Any], list[Any]], ...]:
    """Shapes, dtypes and strides; the structured form has the tensors of a list too (aten::cat)."""
    return kineto.structured_input_shapes, kineto.dtypes, kineto.structured_input_strides


def _inputs(kineto: Any, events: Sequence[Any], is_op: NDArray[np.bool_], name: Ints, given: Ints) -> OpInputs:
    """Inputs of ops as text, which is made once of what was ``given`` alike."""
    chosen = list(_chosen(events, is_op))
    first = np.zeros(int(given.max(initial=-1)) + 1, dtype=np.int64)
    first[given[::-1]] = np.arange(len(given))[::-1]
    texts: dict[tuple[str, str, str], int] = {("[]", "[]", "[]"): 0}
    text_of = np.zeros(len(first), dtype=np.int64)
    for at, each in enumerate(map(chosen.__getitem__, first.tolist())):
        shapes, dtypes, strides = (repr(method(each)) for method in _input_methods(kineto))
        text_of[at] = texts.setdefault((shapes, dtypes, strides), len(texts))
    index = np.zeros(len(name), dtype=np.int64)
    index[is_op] = text_of[given]
    return OpInputs(tuple(texts), index, _calls(kineto, chosen, name[is_op], index[is_op], len(texts)))


def _calls(
    kineto: Any, ops: list[Any], name: Ints, text: Ints, texts: int
) -> tuple[tuple[int, int, str, str, int], ...]:
    """Overload and scalars of the first calls of each op with each kind of inputs; all calls would take too long."""
    keys = name * texts + text
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.append(True, keys[order][1:] != keys[order][:-1])) if len(order) else order
    lengths = np.diff(np.append(first, len(order)))
    nth = np.arange(len(order)) - np.repeat(first, lengths)
    found: dict[tuple[int, int, str, str], int] = {}
    for at in order[nth < _MOST_CALLS].tolist():
        each = ops[at]
        key = (int(name[at]), int(text[at]), kineto.overload_name(each), repr(kineto.concrete_inputs(each)))
        found[key] = found.get(key, 0) + 1
    return tuple((*key, seen) for key, seen in found.items())
