"""Settings of the whole process that code can change: how each is read, put back, and told in words.

Most are torch's; Python's and numpy's are here too, since a benchmark that leaves one of them changed slows or speeds
what runs after it. Reading all takes about 0.1 ms, nearly all of it numpy's generator and the environment.
"""

from __future__ import annotations

import contextlib
import decimal
import gc
import operator
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Kind", "ProcessState", "all_kinds", "in_words"]

Role = Literal["setting", "incidental", "generator"]


@dataclass(frozen=True)
class Kind:
    """One kind of state.

    Attributes:
        name: unique, as `ProcessState` and tests look it up.
        read: its value now; the value does not change afterwards.
        put: make a value that was read the present one.
        words: (value, the one it is told apart from) -> a noun phrase such as "grad mode off".
        same: whether two values are equal.
        role: "setting"; "incidental": an import may change it on its way, which nobody needs to be told;
            "generator": random numbers, which change with every draw.
    """

    name: str
    read: Callable[[], Any]
    put: Callable[[Any], object]
    words: Callable[[Any, Any], str]
    same: Callable[[Any, Any], bool] = operator.eq
    role: Role = "setting"


class ProcessState:
    """The values of all kinds at one moment.

    Attributes:
        kinds: in the order in which they must be put back.
        values: one each.
        modules: how many modules were loaded then.
    """

    def __init__(self, kinds: Sequence[Kind] | None = None) -> None:
        self.kinds = tuple(all_kinds()) if kinds is None else tuple(kinds)
        self.values = [kind.read() for kind in self.kinds]
        self.modules = len(sys.modules)

    def put_back(self, *, generators: bool = True) -> None:
        """Make these values the present ones, where they are not; ``generators``: those of random numbers too."""
        for kind, value in zip(self.kinds, self.values, strict=True):
            if (generators or kind.role != "generator") and not kind.same(kind.read(), value):
                kind.put(value)

    def index(self, name: str) -> int:
        return next(i for i, kind in enumerate(self.kinds) if kind.name == name)


def in_words(
    kinds: Sequence[Kind], values: Sequence[Any], than: Sequence[Any], which: Iterable[int]
) -> tuple[str, ...]:
    """The values of the kinds with the indices ``which``, as they are told apart from those of ``than``."""
    found = [i for i in sorted(which) if kinds[i].role != "generator"]
    if "inference mode" in {kinds[i].name for i in found}:  # it switches grad mode along with itself
        found = [i for i in found if kinds[i].name != "grad mode"]
    return tuple(kinds[i].words(values[i], than[i]) for i in found)


def all_kinds() -> list[Kind]:
    """Every kind that this process has; inference mode stands before grad mode, which it changes too."""
    found = [*_of_torch(), *_of_python()]
    if (numpy := sys.modules.get("numpy")) is not None:
        found += _of_numpy(numpy)
    return [*found, *_generators()]


# ---- torch -------------------------------------------------------------------------------------------------------


def _of_torch() -> list[Kind]:
    import torch

    switches = {
        "torch.backends.cudnn.benchmark": (torch.backends.cudnn, "benchmark"),
        "torch.backends.cudnn.deterministic": (torch.backends.cudnn, "deterministic"),
        "torch.backends.cudnn.enabled": (torch.backends.cudnn, "enabled"),
        "torch.backends.mkldnn.enabled": (torch.backends.mkldnn, "enabled"),
    }
    return [
        Kind("inference mode", torch.is_inference_mode_enabled, _inference_mode.put, _on_off("inference mode")),
        Kind("grad mode", torch.is_grad_enabled, torch._C._set_grad_enabled, _on_off("grad mode")),
        Kind("default dtype", torch.get_default_dtype, torch.set_default_dtype, _dtype),
        Kind("default device", _default_device, torch.set_default_device, _device),
        Kind("threads", torch.get_num_threads, torch.set_num_threads, _threads),
        Kind("autocast", _autocast, _put_autocast, _autocast_words),
        Kind(
            "deterministic algorithms",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
            lambda value, than: f"deterministic algorithms {('off', 'on (warn only)', 'on')[value]}",
        ),
        Kind("matmul precision", _precision, _put_precision, _precision_words),
        Kind("anomaly detection", _anomaly, lambda value: torch.set_anomaly_enabled(*value), _anomaly_words),
        *(_switch(name, *where) for name, where in switches.items()),
    ]


def _on_off(name: str) -> Callable[[bool, bool], str]:
    return lambda value, than: f"{name} {'on' if value else 'off'}"


def _switch(name: str, home: Any, attribute: str) -> Kind:
    return Kind(name, lambda: getattr(home, attribute), lambda value: setattr(home, attribute, value), _on_off(name))


class _InferenceMode:
    """torch has no setter for it, only guards; the end of a guard brings back what was there when it began."""

    def __init__(self) -> None:
        self._guards: list[Any] = []

    def put(self, mode: bool) -> None:
        import torch

        while self._guards and torch.is_inference_mode_enabled() != mode:
            self._guards.pop().__exit__(None, None, None)
        if torch.is_inference_mode_enabled() != mode:
            guard = torch._C._InferenceMode(mode)  # what torch.inference_mode enters
            guard.__enter__()
            self._guards.append(guard)  # its end would switch back


_inference_mode = _InferenceMode()


def _default_device() -> Any:
    """The device that `torch.set_default_device` was given, None where it was not: a set one slows every call, even
    where it is the CPU. `torch.get_default_device` does not tell the two apart, so torch's own record is read."""
    import torch

    holder = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if holder is None:  # a torch that keeps it elsewhere
        return torch.get_default_device()
    context = getattr(holder, "device_context", None)
    return None if context is None else context.device


def _device(value: Any, than: Any) -> str:
    return "no default device" if value is None else f"default device {value}"


def _dtype(value: Any, than: Any) -> str:
    return f"default dtype {str(value).removeprefix('torch.')}"


def _threads(value: int, than: int) -> str:
    return f"{value} torch thread{'' if value == 1 else 's'}"


def _autocast() -> dict[str, Any]:
    """Device type -> (on, dtype) of autocast, and whether it caches casts."""
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    types = ["cpu", *([kind.type] if kind is not None else [])]
    of = {name: (torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in types}
    return {**of, "cache": torch.is_autocast_cache_enabled()}


def _put_autocast(value: dict[str, Any]) -> None:
    import torch

    for name, setting in value.items():
        if name == "cache":
            torch.set_autocast_cache_enabled(setting)
        else:
            torch.set_autocast_enabled(name, setting[0])
            torch.set_autocast_dtype(name, setting[1])


def _autocast_words(value: dict[str, Any], than: dict[str, Any]) -> str:
    changed = [name for name in value if value[name] != than[name]]
    if changed == ["cache"]:
        return f"autocast cache {'on' if value['cache'] else 'off'}"
    name = next(name for name in changed if name != "cache")
    on, dtype = value[name]
    return f"autocast {'on' if on else 'off'} ({name}, {str(dtype).removeprefix('torch.')})"


def _precision() -> tuple[str | None, ...]:
    """torch's one word for all float32 matrix products (None where its newer switches contradict each other, which it
    raises for), and the newer switches: of everything, of mkldnn's and of CUDA's matrix products."""
    import torch

    try:
        word: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        word = None
    return word, *(home.fp32_precision for home in _precision_homes())


def _precision_homes() -> tuple[Any, ...]:
    import torch

    backends: Any = torch.backends  # that of mkldnn is a module whose attributes are made at run time
    return backends, backends.mkldnn.matmul, backends.cuda.matmul


def _put_precision(value: tuple[str | None, ...]) -> None:
    import torch

    if value[0] is not None:
        torch.set_float32_matmul_precision(value[0])
    for home, word in zip(_precision_homes(), value[1:], strict=True):
        if home.fp32_precision != word:
            home.fp32_precision = word


def _precision_words(value: tuple[str | None, ...], than: tuple[str | None, ...]) -> str:
    return f"matmul precision {next((word for word in value if word not in (None, 'none')), 'as torch has it')}"


def _anomaly() -> tuple[bool, bool]:
    import torch

    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _anomaly_words(value: tuple[bool, bool], than: tuple[bool, bool]) -> str:
    return f"anomaly detection {'on' if value[0] else 'off'}"


# ---- Python and numpy --------------------------------------------------------------------------------------------


def _of_python() -> list[Kind]:
    return [
        Kind("gc", lambda: (gc.isenabled(), gc.get_threshold()), _put_collector, _collector_words),
        Kind(
            "warning filters",
            lambda: tuple(warnings.filters),
            _put_filters,
            lambda value, than: "other warning filters",
            role="incidental",
        ),
        Kind("environment", lambda: dict(os.environ), _put_environment, _environment_words, role="incidental"),
        Kind("working directory", _directory, _put_directory, lambda value, than: f"working directory {value}"),
        Kind("decimal context", lambda: decimal.getcontext().copy(), _put_decimal, _decimal_words, _same_decimal),
    ]


def _put_collector(value: tuple[bool, tuple[int, int, int]]) -> None:
    (gc.enable if value[0] else gc.disable)()
    gc.set_threshold(*value[1])


def _collector_words(value: tuple[bool, tuple[int, ...]], than: tuple[bool, tuple[int, ...]]) -> str:
    if value[0] != than[0]:
        return f"garbage collector {'on' if value[0] else 'off'}"
    return f"garbage collector thresholds {value[1]}"


def _put_filters(value: tuple[Any, ...]) -> None:
    warnings.filters[:] = value  # type: ignore[index]  # a list, whatever the stubs say
    with warnings.catch_warnings():  # the public way to have Python forget what it remembers of the other filters
        pass


def _put_environment(value: dict[str, str]) -> None:
    for name in os.environ.keys() - value.keys():
        del os.environ[name]
    for name, text in value.items():
        if os.environ.get(name) != text:
            os.environ[name] = text


def _environment_words(value: dict[str, str], than: dict[str, str]) -> str:
    names = sorted(name for name in value.keys() | than.keys() if value.get(name) != than.get(name))
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"environment variable{'' if len(names) == 1 else 's'} {shown}"


def _directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was deleted
        return ""


def _put_directory(value: str) -> None:
    if value:
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile: there is no way back
            os.chdir(value)


def _put_decimal(value: decimal.Context) -> None:
    decimal.setcontext(value.copy())


def _decimal_words(value: decimal.Context, than: decimal.Context) -> str:
    return f"decimal precision {value.prec}" if value.prec != than.prec else "another decimal context"


def _same_decimal(one: decimal.Context, other: decimal.Context) -> bool:
    return repr(one) == repr(other) or _settings(one) == _settings(other)


def _settings(context: decimal.Context) -> tuple[object, ...]:
    """Without the flags, which every inexact division raises."""
    traps = tuple(sorted(kind.__name__ for kind, is_on in context.traps.items() if is_on))
    return context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps


def _of_numpy(numpy: Any) -> list[Kind]:
    def words(value: dict[str, str], than: dict[str, str]) -> str:
        changed = ", ".join(f"{name}={value[name]!r}" for name in value if value[name] != than[name])
        return f"NumPy error handling {changed}"

    return [Kind("NumPy error handling", numpy.geterr, lambda value: numpy.seterr(**value), words)]


# ---- random numbers ----------------------------------------------------------------------------------------------


def _generators() -> list[Kind]:
    """The generators that code draws from unless it says otherwise; an accelerator's where one is in use already."""
    import torch

    found = [
        _generator("torch generator", torch.get_rng_state, torch.set_rng_state, torch.equal),
        _generator("Python generator", random.getstate, random.setstate, operator.eq),
    ]
    if (numpy := sys.modules.get("numpy")) is not None:
        found.append(_generator("NumPy generator", numpy.random.get_state, numpy.random.set_state, _same_numpy))
    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    backend = getattr(torch, kind.type, None) if kind is not None else None
    if backend is not None and hasattr(backend, "is_initialized") and backend.is_initialized():
        name = f"{backend.__name__} generator"
        found.append(_generator(name, backend.get_rng_state, backend.set_rng_state, torch.equal))
    return found


def _generator(name: str, read: Callable[[], Any], put: Callable[[Any], object], same: Any) -> Kind:
    return Kind(name, read, put, lambda value, than: name, same, role="generator")


def _same_numpy(one: Any, other: Any) -> bool:
    """``numpy.random.get_state()``: a name, an array, and three numbers."""
    return one[0] == other[0] and one[2:] == other[2:] and bool((one[1] == other[1]).all())
