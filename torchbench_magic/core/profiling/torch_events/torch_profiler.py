"""The one place that knows torch's profiler by its private names: what is assumed of each, and what if it is missing.

Kineto and the profiler's C++ side are on the move inside torch; what moves is mended here. Read and tried on torch
2.13; the sources of 2.15 have the same names.

=============================================  ======================================  ================================
name                                           assumed                                 where it is missing
=============================================  ======================================  ================================
``torch.profiler.profile``                     ``prepare_trace``, ``start_trace``,     an AttributeError ends the
                                               ``stop_trace``, ``.profiler``           profile before the body runs
``...profile.profiler.kineto_results``         torch's events, None where another      None: "events-lost" is said
                                               profiler took them
``_ExperimentalConfig``                        takes ``profile_all_threads``,          that option is left out: no ops
                                               ``capture_overload_names``              of threads, no overloads
``_KinetoEvent``                               unbound getters, times in Unix ns       AttributeError with its name
``_ProfilerEvent``, ``_ExtraFields_Allocation``  nodes of the event tree, with         no addresses of blocks: bytes
                                               addresses                               are not joined to what frees them
``_RecordFunctionFast``                        a range that no torch mode sees         ``record_function``: a mode of
                                                                                       the user's sees the marker's op
``_is_profiler_enabled``, ``_profiler_enabled``  whether one runs                      taken as: none runs
``_disable_profiler``                          stops one that nobody holds             Busy: restart the kernel
=============================================  ======================================  ================================
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = [
    "event_type",
    "torch_profiler_runs",
    "marker",
    "new_profiler",
    "profiler_type",
    "records_cuda",
    "range_type",
    "results_of",
    "step_range",
    "stop_nameless",
    "tree_types",
]

TreeTypes = tuple[Any, Any]


def new_profiler(*, memory: bool, shapes: bool, all_threads: bool) -> Any:
    """A ``torch.profiler.profile`` that is not started."""
    import torch.profiler

    options = {"profile_all_threads": all_threads, "capture_overload_names": shapes}
    return torch.profiler.profile(
        profile_memory=memory, record_shapes=shapes, experimental_config=_config(options)
    )


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


def event_type() -> Any:
    """The class of an event, for its unbound getters."""
    from torch._C import _autograd

    return _autograd._KinetoEvent


def tree_types() -> TreeTypes | None:
    """(class of a node of ``experimental_event_tree``, class of what one of an allocation holds); None: not there."""
    from torch._C import _profiler

    node, allocation = (getattr(_profiler, name, None) for name in ("_ProfilerEvent", "_ExtraFields_Allocation"))
    return None if node is None or allocation is None else (node, allocation)


def marker(name: str) -> AbstractContextManager[object]:
    """A range for the profiler alone: no op that a mode of the user's could see."""
    from torch._C import _profiler

    fast: Callable[[str], AbstractContextManager[object]] | None = getattr(_profiler, "_RecordFunctionFast", None)
    return fast(name) if fast is not None else step_range(name)


def step_range(name: str) -> AbstractContextManager[object]:
    """A range as the user makes them: ``torch.profiler.record_function``."""
    from torch.profiler import record_function

    made: AbstractContextManager[object] = record_function(name)
    return made


def range_type() -> Any:
    """``record_function``, as Python code opens it."""
    from torch.autograd.profiler import record_function

    return record_function


def profiler_type() -> type:
    """The class whose objects run inside every profiler of torch's."""
    from torch.autograd import profiler

    return profiler.profile


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


def stop_nameless(*, switch: bool) -> None:
    """Stop a profiler whose object nobody has any more; without ``switch`` only torch's note that one runs is taken
    back."""
    from torch._C import _autograd
    from torch.autograd import profiler

    if switch and hasattr(_autograd, "_disable_profiler"):
        _autograd._disable_profiler()
    if hasattr(profiler, "_set_is_profiler_enabled"):
        profiler._set_is_profiler_enabled(False)
