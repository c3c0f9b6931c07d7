"""torch's profiler, started and stopped so that it stays out of the measurement; all of its private names.

The one place that knows torch's profiler by its private names: what is assumed of each, and what if it is missing.

Kineto and the profiler's C++ side are on the move inside torch; what moves is mended here. Read and tried on torch
2.13; the sources of 2.15 have the same names. What 2.8 to 2.12 lack is made good here, see `with_missing_getters`.

=============================================  ======================================  ================================
name                                           assumed                                 where it is missing
=============================================  ======================================  ================================
``torch.profiler.profile``                     ``prepare_trace``, ``start_trace``,     an AttributeError ends the
                                               ``stop_trace``, ``.profiler``           profile before the body runs
``...profile.profiler.kineto_results``         torch's events, None where another      None: "events-lost" is said
                                               profiler took them
``_ExperimentalConfig``                        takes ``profile_all_threads``,          that option is left out: no ops
                                               ``capture_overload_names``              of threads, no overloads
``_KinetoEvent``                               unbound getters, times in Unix ns       AttributeError with its name;
                                                                                       three of them are made
``_ProfilerEvent``, ``_ExtraFields_Allocation``  nodes of the event tree, with         no addresses of blocks: bytes
                                               addresses                               are not joined to what frees them
``_RecordFunctionFast``                        a range that no torch mode sees         ``record_function``: a mode of
                                                                                       the user's sees the marker's op
``_is_profiler_enabled``, ``_profiler_enabled``  whether one runs                      taken as: none runs
=============================================  ======================================  ================================

Names of torch's C++ library libc10 that no Python API gives, found by their symbols.

Two: the reporter that tells a profiler of memory (`memory_reporter`, for `OlderBlocks`), and the level of C++'s log
(`log_level`, for `allocator_silenced`). libc10 is loaded with torch; asking for it again gives the same library.

What is assumed, how it is checked, and what happens where it does not hold:

**A file ``torch/lib/libc10.*``** (Linux, macOS). Checked by looking for it and loading it. Otherwise both are None, as
on Windows, whose library has other names.

**The reporter's symbols**, as g++ and clang write them (the Itanium C++ ABI, any processor):

- ``c10::ProfiledCPUMemoryReporter& c10::profiledCPUMemoryReporter()``: the one reporter of the process, its address;
- ``void c10::ProfiledCPUMemoryReporter::New(void*, size_t)``: enters a block, not virtual;
- ``void c10::ProfiledCPUMemoryReporter::Delete(void*)``: takes it out again.

A symbol spells its parameters: a function that takes others has another name and is not found. It does not spell what
is returned: that the first still returns an address is read in the sources of torch 2.13 (c10/core/CPUAllocator.h), and
checked by the tests on each torch that they run with: bytes of older blocks that are freed must be right, and torch's
own profile after ours must begin at zero. Checked at run time by looking the three names up, all or none.
Otherwise: a profile of memory says "Blocks from before the cell are in no table when they are freed, or with a wrong
size: this torch does not tell" (the doubt "older-unseen"). What the cell itself allocates and frees is right.

**``FLAGS_caffe2_log_level``**, an int. Checked by looking it up. Otherwise: c10's line "Memory block of unknown size
was allocated before the profiling started" shows on stderr, nothing more.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from torchbench_magic.errors import Busy
from torchbench_magic.process.device import note_tracer
from torchbench_magic.process.interrupts import Progress
from torchbench_magic.process.static_introspection import memory_of

# ---- torch_profiler --------------------------------------------------------------------------------------------------

TreeTypes = tuple[Any, Any]


def new_profiler(*, memory: bool, shapes: bool, all_threads: bool) -> Any:
    """A ``torch.profiler.profile`` that is not started."""
    import torch.profiler

    options = {"profile_all_threads": all_threads, "capture_overload_names": shapes}
    return torch.profiler.profile(profile_memory=memory, record_shapes=shapes, experimental_config=_config(options))


def _config(options: dict[str, bool]) -> Any:
    """torch's experimental configuration with those of the options that it knows."""
    from torch._C import _profiler

    kind = getattr(_profiler, "_ExperimentalConfig", None)
    if kind is None:
        return None
    known = dict(options)
    while True:
        try:
            return kind(**known)
        except TypeError:
            if not known:
                return None
            known.popitem()


def results_of(profiler: Any) -> Any:
    """The events of a profiler that was stopped, which lets go of them; None where another profiler took them.

    torch's profiler refers to itself: with its events it would stay, a kilobyte an event, until a collection.
    """
    inner = profiler.profiler
    results = getattr(inner, "kineto_results", None)
    if results is not None:
        inner.kineto_results = None
    return results


def event_getters(results: Any = None, *, shapes: bool = False) -> Any:
    """What has the unbound getters of an event: its class, or up to torch 2.12 what makes good what that one lacks.

    Args:
        results: torch's kineto results, whose events will be asked.
        shapes: whether they will be asked for the shapes of inputs.
    """
    from torch._C import _autograd

    kineto = _autograd._KinetoEvent
    if hasattr(kineto, "activity_type"):
        return kineto
    return with_missing_getters(kineto, results, shapes=shapes)


def tree_types() -> TreeTypes | None:
    """(class of a node of ``experimental_event_tree``, class of what one of an allocation holds); None: not there."""
    from torch._C import _profiler

    node, allocation = (getattr(_profiler, name, None) for name in ("_ProfilerEvent", "_ExtraFields_Allocation"))
    return None if node is None or allocation is None else (node, allocation)


def marker(name: str) -> AbstractContextManager[object]:
    """A range for the profiler alone: no op that a mode of the user's could see."""
    from torch._C import _profiler
    from torch.profiler import record_function

    fast: Callable[[str], AbstractContextManager[object]] = getattr(_profiler, "_RecordFunctionFast", record_function)
    return fast(name)


def range_type() -> Any:
    """``record_function``, as Python code opens it."""
    from torch.autograd.profiler import record_function

    return record_function


def records_cuda() -> bool:
    """Whether every profiler traces the kernels of CUDA, too: torch built for NVIDIA, with its tracing library."""
    import torch.profiler

    return torch.version.cuda is not None and (
        torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities()
    )


def torch_profiler_runs() -> bool:
    """Whether a torch profiler runs, of whatever kind."""
    from torch._C import _autograd
    from torch.autograd import profiler

    asked: Callable[[], bool] = getattr(_autograd, "_profiler_enabled", bool)
    return bool(getattr(profiler, "_is_profiler_enabled", False) or asked())


def forget_running() -> None:
    """Take back torch's note that a profiler runs, where another one has ended it."""
    from torch.autograd import profiler

    if hasattr(profiler, "_set_is_profiler_enabled"):
        profiler._set_is_profiler_enabled(False)


def end_warm_up(profiler: Any) -> None:
    """End the warm-up of a profiler that was prepared and not started, from which up to torch 2.12 only a start leads.
    Where that fails, each later one says that one is in its warm-up."""
    with contextlib.suppress(RuntimeError, AttributeError):
        profiler.profiler._start_trace()
        profiler.stop_trace()
    forget_running()


def _is_out_of_step(error: RuntimeError) -> bool:
    """Whether torch up to 2.12 says that the profiler it is to stop does not run."""
    return "not running" in str(error)


# ---- paused_collector ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """No collection meanwhile: half a million new objects set the collector off again and again, to find nothing."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


# ---- c10_symbols -----------------------------------------------------------------------------------------------------

_REPORTER = "_ZN3c1025profiledCPUMemoryReporterEv"
_NEW = "_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm"
_DELETE = "_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv"
_LOG_LEVEL = "FLAGS_caffe2_log_level"

Reporter = tuple[Callable[[int, int], None], Callable[[int], None]]
"""Enter a block (address, bytes); take one out (address)."""


def memory_reporter() -> Reporter | None:
    """What tells a profiler of the CPU's blocks; None where libc10 does not show it."""
    library = _libc10()
    try:
        reporter_of, new, delete = (getattr(library, name) for name in (_REPORTER, _NEW, _DELETE))
    except AttributeError:
        return None
    reporter_of.restype, reporter_of.argtypes = ctypes.c_void_p, []
    new.restype, new.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    delete.restype, delete.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
    reporter = reporter_of()

    def enter(address: int, nbytes: int) -> None:
        new(reporter, address, nbytes)

    def take_out(address: int) -> None:
        delete(reporter, address)

    return enter, take_out


def log_level() -> ctypes.c_int | None:
    """The variable that says from which level on c10 logs (2: errors); None where libc10 does not show it."""
    library = _libc10()
    if library is None:
        return None
    try:
        return ctypes.c_int.in_dll(library, _LOG_LEVEL)
    except ValueError:
        return None


def _libc10() -> Any:
    """torch's library; None where there is none of that name."""
    import torch

    try:
        return ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libc10.*"))))
    except (OSError, StopIteration):
        return None


# ---- muted_stderr ----------------------------------------------------------------------------------------------------
# Keeps what torch's profiler writes to file descriptor 2 out of the cell's output.
#
# Each start and stop prints ``USDT: ... profiler_start`` from C++, past ``sys.stderr``. Descriptor 2 is pointed at
# a temporary file for those few milliseconds; what is not the profiler's is written to the real one afterwards.

_STDERR = 2
_PROFILER_LINE = re.compile(
    rb"[A-Z]+(\(\d+\))?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \d+:\d+ \w+\.\w+:\d+\]"  # libkineto's log
    rb"|\[[IWE]\d+ [\d:.]+ *\d* *\w*(profiler|kineto)\w*\.cpp:\d+\]"  # c10's, from torch's side of the profiler
)


@contextlib.contextmanager
def profiler_silenced() -> Iterator[None]:
    """Hold back the profiler's lines on descriptor 2; everything is put back whatever happens."""
    try:
        real = os.dup(_STDERR)
    except OSError:  # closed: there is nothing to keep clean
        yield
        return
    with tempfile.TemporaryFile(buffering=0) as held:
        os.dup2(held.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(real, _STDERR)
            os.close(real)
            held.seek(0)
            others = [line for line in held.read().splitlines(True) if not _PROFILER_LINE.match(line)]
            if others:
                os.write(_STDERR, b"".join(others))


_ERROR = 2  # c10's log level above WARNING


@contextlib.contextmanager
def allocator_silenced() -> Iterator[None]:
    """Keep c10 from logging each second of a run with ``profile_memory`` that it meets older blocks.

    "Memory block of unknown size was allocated before the profiling started" comes from the C++ log, which has no
    Python switch; the level is a variable of libc10. Where that cannot be found the line appears, nothing more.
    """
    level = log_level()
    if level is None:
        yield
        return
    before = level.value
    level.value = max(before, _ERROR)
    try:
        yield
    finally:
        level.value = before


# ---- older_blocks ----------------------------------------------------------------------------------------------------
# Blocks that torch's CPU allocator gave out before a profile, made known to what reports memory to the profiler.
#
# torch's CPU allocator remembers the size of a block only while a profiler records memory; the freeing of an older
# block goes unreported, or is reported with the size that a block at the same address once had in an earlier
# profile. So the storages of the tensors that live as a profile begins are entered into the reporter's table
# (``c10::ProfiledCPUMemoryReporter::New``, as the allocator itself would have done), and what is left of them is taken
# out again at its end. Device allocators report every freeing themselves. The reporter is reached by private symbols of
# C++: the head of this file says what is assumed, and what happens without them.
#
# Tensors are found through Python's garbage collector, and from them their gradients. A block that only C++ holds (what
# autograd saved and no Python name reaches) is not found: its freeing stays unseen.


def living_blocks() -> dict[int, int]:
    """Address -> bytes of the CPU storages that a tensor known to Python holds."""
    import torch

    found: dict[int, int] = {}
    kinds: dict[type, bool] = {}
    with without_overrides():
        for each in gc.get_objects():
            kind = type(each)
            wanted = kinds.get(kind)
            if wanted is None:
                wanted = kinds[kind] = issubclass(kind, torch.Tensor)
            if wanted:
                for tensor in _parts(each):
                    address, size = memory_of(tensor)
                    if address and size and tensor.device.type == "cpu":
                        found[address] = size
    return found


def without_overrides() -> AbstractContextManager[Any]:
    """Within it what a tensor's subclass overrides does not run; without torch's private name it may."""
    import torch

    plain: Any = getattr(torch._C, "DisableTorchFunctionSubclass", contextlib.nullcontext)
    return cast("AbstractContextManager[Any]", plain())


def _parts(tensor: Any) -> Iterator[Any]:
    """The tensor, its gradient, and of a sparse one the tensors it is made of."""
    import torch

    each: Any
    todo = [tensor]
    with contextlib.suppress(RuntimeError, NotImplementedError):
        if tensor.is_leaf and tensor.grad is not None:
            todo.append(tensor.grad)
    for each in todo:
        try:
            layout = each.layout
        except (RuntimeError, NotImplementedError):
            continue
        if layout is torch.strided:
            yield each
        elif layout is torch.sparse_coo:
            yield each._indices()
            yield each._values()
        elif layout in (torch.sparse_csr, torch.sparse_bsr):
            yield from (each.crow_indices(), each.col_indices(), each.values())
        elif layout in (torch.sparse_csc, torch.sparse_bsc):
            yield from (each.ccol_indices(), each.row_indices(), each.values())


class OlderBlocks:
    """Enters living blocks into the reporter while a profiler that records memory runs.

    Attributes:
        nbytes: bytes of the blocks that were entered.
        known: whether older blocks could be entered; where not, their freeing is in no table.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._entered: dict[int, int] = {}
        self._reporter = memory_reporter()

    @property
    def known(self) -> bool:
        return self._reporter is not None

    def enter(self) -> None:
        """Right after the profiler's start: the events of this come before the body's."""
        if self._reporter is None:
            return
        self._entered = living_blocks()
        self.nbytes = sum(self._entered.values())
        for address, nbytes in self._entered.items():
            self._reporter[0](address, nbytes)

    def leave(self) -> None:
        """Right before the profiler's stop. An entry that stayed would give a later block at its address its size."""
        if self._reporter is None:
            return
        for address in self._entered.keys() | living_blocks().keys():
            self._reporter[1](address)
        self._entered = {}


# ---- kineto ----------------------------------------------------------------------------------------------------------

_warm = False
_warming = threading.Lock()


class Kineto:
    """One start and stop of ``torch.profiler``.

    Args:
        memory: record allocations; excludes ``all_threads`` (torch 2.13 drops every memory event with both).
        shapes: record input shapes.
        all_threads: ops of threads that run already or are started later, too.
    """

    marker = "torchbench_magic::marker"

    def __init__(self, *, memory: bool, shapes: bool, all_threads: bool) -> None:
        self._memory, self._shapes, self._all_threads = memory, shapes, all_threads and not memory
        self._profiler: Any = None
        #: what was there before, with memory
        self.older = OlderBlocks() if memory else None
        self._quiet = contextlib.ExitStack()
        #: (before, after) in Unix ns of each marker: its event must start in between
        self.brackets: list[tuple[int, int]] = []

    def start(self) -> None:
        """Start, and place the first marker.

        Raises:
            Busy: a profiler of the user's is in its warm-up: up to torch 2.12 one that was prepared and never started
                makes each later one fail.
        """
        self._profiler = new_profiler(memory=self._memory, shapes=self._shapes, all_threads=self._all_threads)
        try:
            with profiler_silenced():
                self._profiler.prepare_trace()
        except RuntimeError as error:
            if not _is_out_of_step(error):
                raise
            self._profiler = None
            what = "a torch profiler is in its warm-up; stop it first (`prof.stop()`), or restart the session"
            raise Busy(what) from None
        quiet = contextlib.ExitStack()
        with contextlib.ExitStack() as undone_on_error:
            undone_on_error.enter_context(quiet)
            undone_on_error.callback(self._undo_start)
            if self._memory:
                quiet.enter_context(allocator_silenced())
            with profiler_silenced():
                self._profiler.start_trace()
            if records_cuda():
                note_tracer()
            self._mark()
            if self.older is not None:
                self.older.enter()
            undone_on_error.pop_all()
            self._quiet = quiet

    def _stop_quietly(self) -> None:
        with profiler_silenced():
            try:
                self._profiler.stop_trace()
            except RuntimeError as error:  # another profiler took the events: up to torch 2.12 an error
                if not _is_out_of_step(error):
                    raise
                forget_running()

    def _undo_start(self) -> None:
        """Stop what a start that failed has left: it runs, or is in its warm-up still, in which up to torch 2.12 it
        makes each later profiler of the process fail."""
        with profiler_silenced():
            try:
                self._profiler.stop_trace()
            except RuntimeError as error:
                if not _is_out_of_step(error):
                    raise
                if torch_profiler_runs():  # another one
                    return
                end_warm_up(self._profiler)

    def stop(self) -> Any:
        """Place the last marker and stop; torch's kineto results, or None where another profiler took them."""
        with self._quiet:
            self._mark()
            if self.older is not None:
                self.older.leave()
            self._stop_quietly()
        results = results_of(self._profiler)
        self._profiler = None
        return results

    def _mark(self) -> None:
        marked = marker(self.marker)
        before = time.time_ns()
        with marked:
            pass
        self.brackets.append((before, time.time_ns()))


def make_ready(progress: Progress) -> None:
    """See that no profiler runs, and start and stop one once per process: the first loads libraries for seconds.

    Raises:
        Busy: a profiler of the user's runs already: a second start would take its events in silence.
    """
    global _warm
    if torch_profiler_runs():
        raise Busy(
            "a torch profiler is already running; stop it first (`prof.stop()`), leave out the %%tprofile around this,"
            " or restart the session"
        )
    with _warming:
        if not _warm:
            progress.update(0.0, None, "loading torch's profiler, once in a session")
            kineto = Kineto(memory=False, shapes=False, all_threads=True)
            kineto.start()
            kineto.stop()
            _warm = True


# ---- older torch -----------------------------------------------------------------------------------------------------
# What the events of torch before 2.13 do not say themselves, made of what they do say.
#
# Read and tried on torch 2.8, 2.9 and 2.11. An event there has no ``activity_type`` (C++ has it, without a binding; the
# kinds of events on a CUDA device are made of their names and were not tried on one), and no
# ``structured_input_shapes`` and ``structured_input_strides``; ``shapes()`` has nothing for a list of tensors
# (``aten::cat``). The tree of the same run has both, an op with the number that its event calls correlation id.

_RUNTIME = re.compile(r"(cuda|hip|cu)[A-Z]\w*$")
_TRACERS_OWN = re.compile(
    r"Activity Buffer|Buffer Flush|Lazy Function|Runtime Triggered|Instrumentation|Resource|Command Buffer"
)
_INSTANT = ("[memory]", "[OutOfMemory]")
_CPU = 0

Inputs = tuple[list[Any], list[Any]]
"""Shapes and strides of an op's inputs: a list of numbers for a tensor, a list of such lists for a list of tensors."""


def with_missing_getters(kineto: Any, results: Any, *, shapes: bool) -> Any:
    """The unbound getters of the class of events ``kineto``, and those that it lacks.

    Args:
        results: torch's kineto results, whose tree is read for the inputs of ops (about 30 us an op).
        shapes: whether inputs are asked for; without it they are empty.
    """
    inputs = dict(_inputs_of_ops(results)) if shapes and results is not None else {}
    nothing: Inputs = ([], [])
    own = {name: getattr(kineto, name) for name in dir(kineto) if not name.startswith("__")}
    missing: dict[str, Callable[[Any], Any]] = {
        "activity_type": _kind,
        "structured_input_shapes": lambda event: inputs.get(event.correlation_id(), nothing)[0],
        "structured_input_strides": lambda event: inputs.get(event.correlation_id(), nothing)[1],
    }
    return SimpleNamespace(**{**missing, **own})


def _kind(event: Any) -> str:
    """libkineto's word for the kind of an event (its `toString(ActivityType)`)."""
    name, is_annotation = event.name(), event.is_user_annotation()
    if int(event.device_type()) != _CPU:
        if is_annotation:
            return "gpu_user_annotation"
        copied = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
        return next((kind for start, kind in copied.items() if name.startswith(start)), "kernel")
    if is_annotation:
        return "user_annotation"
    if name in _INSTANT:
        return "cpu_instant_event"
    if _RUNTIME.match(name):
        return "cuda_driver" if name[2].isupper() else "cuda_runtime"
    return "overhead" if _TRACERS_OWN.match(name) else "cpu_op"


def _inputs_of_ops(results: Any) -> Iterator[tuple[int, Inputs]]:
    """(correlation id, inputs) of each op of the tree."""
    from torch._C import _profiler

    of_op, of_tensor = _profiler._ExtraFields_TorchOp, _profiler._TensorMetadata

    def parts(value: Any, part: str) -> list[Any]:
        if isinstance(value, of_tensor):
            return list(getattr(value, part))
        if isinstance(value, list) and value and isinstance(value[0], of_tensor):
            return [list(getattr(each, part)) for each in value]
        return []

    level = list(results.experimental_event_tree())
    while level:
        for node in level:
            fields = node.extra_fields
            if isinstance(fields, of_op):
                given = fields.inputs
                both = ([parts(each, part) for each in given] for part in ("sizes", "strides"))
                yield node.correlation_id, (next(both), next(both))
        level = [below for node in level for below in node.children]
