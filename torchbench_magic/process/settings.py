"""Settings of the process and of torch: how each is read, set for a run, and put back whatever happens."""

from __future__ import annotations

import contextlib
import gc
import operator
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, wraps
from typing import Any, Literal, ParamSpec, TypeVar

from torchbench_magic.errors import Busy

from .machine import HOOKS, called_by

# ---- state_kind ------------------------------------------------------------------------------------------------------

Role = Literal["setting", "incidental", "generator", "gradient"]


@dataclass(frozen=True)
class StateKind:
    """One kind of state.

    Attributes:
        name: unique, as `ProcessState` and tests look it up.
        read: its value now; the value does not change afterwards.
        put: make a value that was read the present one.
        words: (value, the one it is told apart from) -> a noun phrase such as "grad mode off".
        same: whether two values are equal.
        role: "setting"; "incidental": modules change it while they are imported (torch's compiler sets variables of the
            environment), and count on it from then on; "generator": random numbers, which change with every draw;
            "gradient": what a backward pass leaves, which is the code's work.
    """

    name: str
    read: Callable[[], Any]
    put: Callable[[Any], object]
    words: Callable[[Any, Any], str]
    same: Callable[[Any, Any], bool] = operator.eq
    role: Role = "setting"


def on_off(name: str) -> Callable[[bool, bool], str]:
    """The words of a switch."""
    return lambda value, than: f"{name} {'on' if value else 'off'}"


# ---- torch_state -----------------------------------------------------------------------------------------------------
# Settings of torch that code can change for the whole process, or for the thread that runs it.
#
# Private to torch: `torch._GLOBAL_DEVICE_CONTEXT`. Where it is not there, no default device and one that was set to the
# CPU are taken for the same.


def of_torch() -> list[StateKind]:
    """Every kind; inference mode stands before grad mode, which it changes too."""
    import torch

    switches = {
        "torch.backends.cudnn.benchmark": (torch.backends.cudnn, "benchmark"),
        "torch.backends.cudnn.deterministic": (torch.backends.cudnn, "deterministic"),
        "torch.backends.cudnn.enabled": (torch.backends.cudnn, "enabled"),
        "torch.backends.mkldnn.enabled": (torch.backends.mkldnn, "enabled"),
    }
    products: Any = torch.backends.cuda.matmul
    for name in ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction", "fp16_accumulation"):
        if hasattr(products, f"allow_{name}"):
            switches[f"torch.backends.cuda.matmul.allow_{name}"] = (products, f"allow_{name}")
    return [
        StateKind("inference mode", torch.is_inference_mode_enabled, _inference_mode.put, on_off("inference mode")),
        StateKind("grad mode", torch.is_grad_enabled, torch.set_grad_enabled, on_off("grad mode")),
        StateKind(
            "default dtype",
            torch.get_default_dtype,
            torch.set_default_dtype,
            lambda value, than: f"default dtype {str(value).removeprefix('torch.')}",
        ),
        StateKind("default device", _default_device, _put_device, _device),
        StateKind("threads", torch.get_num_threads, torch.set_num_threads, _threads),
        StateKind("autocast", _autocast, _put_autocast, _autocast_words),
        StateKind(
            "deterministic algorithms",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
            lambda value, than: f"deterministic algorithms {('off', 'on (warn only)', 'on')[value]}",
        ),
        StateKind("matmul precision", _precision, _put_precision, _precision_words),
        StateKind("cuDNN precision", _cudnn_precision, _put_cudnn_precision, _cudnn_words),
        StateKind("attention backends", _attention, _put_attention, _attention_words),
        StateKind(
            "flush denormal", _flushes_denormals, torch.set_flush_denormal, on_off("flushing of denormal numbers")
        ),
        StateKind(
            "anomaly detection",
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda value: torch.set_anomaly_enabled(*value),
            lambda value, than: f"anomaly detection {'on' if value[0] else 'off'}",
        ),
        *(_switch(name, *where) for name, where in switches.items()),
        *modes(),
    ]


def _switch(name: str, home: Any, attribute: str) -> StateKind:
    read, put = lambda: getattr(home, attribute), lambda value: setattr(home, attribute, value)
    return StateKind(name, read, put, on_off(name))


def _flushes_denormals() -> bool:
    """torch has no getter; the processor's switch holds for Python's numbers as well."""
    return sys.float_info.min * _HALF == 0


_HALF = 0.5
_BACKENDS = {"flash": "flash", "mem_efficient": "memory-efficient", "math": "math", "cudnn": "cuDNN"}


def _attention() -> dict[str, bool]:
    """Which ways of `scaled_dot_product_attention` may be taken; they hold for the CPU too."""
    from torch.backends import cuda

    readers = {name: getattr(cuda, f"{name}_sdp_enabled", None) for name in _BACKENDS}
    return {name: bool(read()) for name, read in readers.items() if read is not None}


def _put_attention(value: dict[str, bool]) -> None:
    from torch.backends import cuda

    for name, is_on in value.items():
        getattr(cuda, f"enable_{name}_sdp")(is_on)


def _attention_words(value: dict[str, bool], than: dict[str, bool]) -> str:
    changed = [name for name in value if value[name] != than.get(name)]
    return "attention backends " + ", ".join(f"{_BACKENDS[name]} {'on' if value[name] else 'off'}" for name in changed)


class _InferenceMode:
    """torch has no setter for it, only guards; the end of a guard brings back what was there when it began."""

    def __init__(self) -> None:
        self._guards: list[Any] = []

    def put(self, mode: bool) -> None:
        import torch

        while self._guards and torch.is_inference_mode_enabled() != mode:
            self._guards.pop().__exit__(None, None, None)
        if torch.is_inference_mode_enabled() != mode:
            guard: Any = torch.inference_mode(mode)
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


def _put_device(value: Any) -> None:
    import torch

    torch.set_default_device(value)
    holder = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if value is None and getattr(holder, "device_context", value) is None and hasattr(holder, "device_context"):
        del holder.device_context  # type: ignore[union-attr]  # torch 2.8 asks even None for its device


def _device(value: Any, than: Any) -> str:
    return "no default device" if value is None else f"default device {value}"


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


@cache  # to ask whether they are there takes longer than to read them
def _precision_homes() -> tuple[Any, ...]:
    import torch

    backends: Any = torch.backends  # that of mkldnn is a module whose attributes are made at run time
    homes = (backends, getattr(backends.mkldnn, "matmul", None), backends.cuda.matmul)
    return tuple(home for home in homes if hasattr(home, "fp32_precision"))  # torch 2.9 and newer


def _put_precision(value: tuple[str | None, ...]) -> None:
    import torch

    if value[0] is not None:
        torch.set_float32_matmul_precision(value[0])
    for home, word in zip(_precision_homes(), value[1:], strict=True):
        if home.fp32_precision != word:
            home.fp32_precision = word


def _precision_words(value: tuple[str | None, ...], than: tuple[str | None, ...]) -> str:
    return f"matmul precision {next((word for word in value if word not in (None, 'none')), 'as torch has it')}"


def _cudnn_precision() -> dict[str, Any]:
    """Whether TF32 is allowed by torch's one word (None where its newer switches differ, which it raises for), and the
    newer switches, of convolutions and of recurrent layers."""
    import torch

    try:
        found: dict[str, Any] = {"TF32": bool(torch.backends.cudnn.allow_tf32)}
    except RuntimeError:
        found = {"TF32": None}
    homes: dict[str, Any] = {name: getattr(torch.backends.cudnn, name, None) for name in ("conv", "rnn")}
    return found | {name: home.fp32_precision for name, home in homes.items() if hasattr(home, "fp32_precision")}


def _put_cudnn_precision(value: dict[str, Any]) -> None:
    import torch

    if value["TF32"] is not None:
        torch.backends.cudnn.allow_tf32 = value["TF32"]
    for name in value.keys() - {"TF32"}:
        home = getattr(torch.backends.cudnn, name)
        if home.fp32_precision != value[name]:
            home.fp32_precision = value[name]


def _cudnn_words(value: dict[str, Any], than: dict[str, Any]) -> str:
    changed = [f"{name} {value[name]}" for name in value if name != "TF32" and value[name] != than.get(name)]
    if value["TF32"] is None or value["TF32"] == than["TF32"]:
        return f"cuDNN's float32 precision {', '.join(changed)}"
    return f"cuDNN's TF32 {'on' if value['TF32'] else 'off'}"


# ---- modes -----------------------------------------------------------------------------------------------------------
# Modes of torch (`TorchDispatchMode`, ``TorchFunctionMode``) are code of the user's, and so is ``__torch_function__``
# of a tensor's class: torch runs both for whatever is asked of a tensor. They are on where the user's code runs. What
# measures asks without them, as a ``FakeTensorMode`` answers with tensors that have no values.
#
# Private to torch: what `torch.utils._python_dispatch` and `torch.overrides` have to read and change a stack of modes,
# and what `torch._C` has to switch ``__torch_function__`` off and on.


_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Taken(threading.local):
    """The dispatch modes that are put aside in this thread, innermost first; None where they are on."""

    modes: list[Any] | None = None


_taken = _Taken()


class _with_modes:  # noqa: N801
    """A context, and a decorator; no generator, since it is entered around each block of calls."""

    def __init__(self, *, are_on: bool) -> None:
        self._are_on = are_on
        self._switched: Any = None

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def within(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            with _with_modes(are_on=self._are_on):
                return function(*args, **kwargs)

        return within

    def __enter__(self) -> None:
        import torch

        if (_taken.modes is None) is not self._are_on:
            _switch_modes()
            self._switched = torch._C._EnableTorchFunction() if self._are_on else torch._C.DisableTorchFunction()
            self._switched.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._switched is not None:
            self._switched.__exit__(*error)
            _switch_modes()


outside_modes = partial(_with_modes, are_on=False)
"""Within, torch calls no code of the user's for what is asked of it; also a decorator."""
inside_modes = partial(_with_modes, are_on=True)
"""The user's code, within `outside_modes`; elsewhere it does nothing. Modes may be entered and left within."""


def _switch_modes() -> None:
    from torch.utils import _python_dispatch as dispatch

    if _taken.modes is None:
        _taken.modes = [dispatch._pop_mode() for _ in dispatch._get_current_dispatch_mode_stack()]
    else:
        for mode in reversed(_taken.modes):
            dispatch._push_mode(mode)
        _taken.modes = None


def modes() -> list[StateKind]:
    """The modes of torch, outermost first, but for that of the default device."""
    import torch
    from torch import overrides
    from torch.utils import _python_dispatch as dispatch

    def functions() -> list[Any]:
        of_device = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
        return [mode for mode in overrides._get_current_function_mode_stack() if mode is not of_device]

    dispatching = _of_modes("dispatch mode", dispatch._get_current_dispatch_mode_stack, dispatch._pop_mode)
    return [dispatching, _of_modes("function mode", functions, overrides._pop_mode)]


def _of_modes(name: str, read: Callable[[], list[Any]], pop: Callable[[], object]) -> StateKind:
    def put(value: list[Any]) -> None:
        while not _are_same(now := read(), value[: len(now)]):
            with contextlib.suppress(Exception):  # the user's own
                now[-1].__exit__(None, None, None)
            if _are_same(read()[-1:], now[-1:]):  # or: ``FakeTensorMode`` brings back the one before it
                pop()
        for mode in value[len(now) :]:
            mode.__enter__()
        if not value:
            _note_none()

    def words(value: list[Any], than: list[Any]) -> str:
        return f"{name} {', '.join(dict.fromkeys(map(called_by, value)))}" if value else f"no {name}"

    return StateKind(name, inside_modes()(read), inside_modes()(put), words, _are_same)


def _note_none() -> None:
    """Has torch note that no dispatch mode is on. What it noted is wrong where the exit of one raised, or they ended in
    another order than they began; torch 2.8 compiles nothing while it has noted one."""
    from torch.utils import _python_dispatch as dispatch

    if not dispatch._get_current_dispatch_mode_stack():
        for name in [each for each in vars(dispatch) if each.startswith("_is_in_")]:
            setattr(dispatch, name, False)
        getattr(dispatch, "set_is_in_mode_without_ignore_compile_internals", lambda _: None)(False)


def _are_same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def end_mode(mode: Any) -> None:
    """End a dispatch mode; what the code entered within it and did not leave goes on."""
    kind = modes()[0]
    kind.put([each for each in kind.read() if each is not mode])


# ---- process_state ---------------------------------------------------------------------------------------------------
# Most are torch's; Python's and numpy's are here too, since a benchmark that leaves one of them changed slows or speeds
# what runs after it. Reading all takes about 0.1 ms, nearly all of it numpy's generator and the environment.

_OWN = frozenset({"torch", "torchbench_magic", "numpy"}) | sys.stdlib_module_names
"""Packages whose further modules set no environment variable and no warning filter that must stay ..."""
_COMPILERS = ("torch._dynamo", "torch._inductor")
"""... but these: they set variables for their caches."""


class ProcessState:
    """The values of all kinds at one moment.

    Attributes:
        kinds: in the order in which they must be put back.
        values: one each.
        modules: names of the modules that were loaded then.
    """

    def __init__(self, kinds: Sequence[StateKind] | None = None) -> None:
        self.kinds = tuple(all_kinds()) if kinds is None else tuple(kinds)
        self.values = [kind.read() for kind in self.kinds]
        self.modules = frozenset(sys.modules)

    def put_back(self, *, without: Collection[Role] = ()) -> None:
        """Make these values the present ones, where they are not, but for kinds of the roles ``without``."""
        for kind, value in zip(self.kinds, self.values, strict=True):
            if kind.role not in without and not kind.same(kind.read(), value):
                kind.put(value)

    @property
    def has_imported(self) -> bool:
        """Packages were loaded since; more of torch, or of this one, sets nothing of this kind."""
        loaded = sys.modules.keys() - self.modules
        return any(name.partition(".")[0] not in _OWN or name.startswith(_COMPILERS) for name in loaded)

    @property
    def left_to_imports(self) -> tuple[Role, ...]:
        """Roles that are not put back at the end of a run: what imports set stays, since the modules stay."""
        return ("incidental",) if self.has_imported else ()

    def index(self, name: str) -> int:
        return next(i for i, kind in enumerate(self.kinds) if kind.name == name)


def in_words(
    kinds: Sequence[StateKind], values: Sequence[Any], than: Sequence[Any], which: Iterable[int]
) -> tuple[str, ...]:
    """The values of the kinds with the indices ``which``, as they are told apart from those of ``than``."""
    found = [i for i in sorted(which) if kinds[i].role != "generator"]
    if "inference mode" in {kinds[i].name for i in found}:  # it switches grad mode along with itself
        found = [i for i in found if kinds[i].name != "grad mode"]
    return tuple(kinds[i].words(values[i], than[i]) for i in found)


def unusual_settings() -> dict[str, Any]:
    """Settings of torch and NumPy, by name, that are not as a process begins with: for another process to put."""
    import torch

    fresh: dict[str, Any] = {
        "inference mode": False,
        "default device": None,
        "autocast": {"cpu": (False, torch.bfloat16), "cache": True},
        "deterministic algorithms": 0,
        "matmul precision": ("highest", *("none" for _ in _precision_homes())),
        "attention backends": {},  # all are on
        "anomaly detection": (False, True),
        "flush denormal": False,
        "torch.backends.mkldnn.enabled": True,
        "NumPy error handling": {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
    }
    found = {kind.name: kind.read() for kind in _sent_kinds() if kind.name in fresh}
    if "autocast" in found:  # the other process counts what the CPU does
        found["autocast"] = {name: found["autocast"][name] for name in ("cpu", "cache")}
    found["attention backends"] = {name: is_on for name, is_on in found["attention backends"].items() if not is_on}
    return {name: value for name, value in found.items() if value != fresh[name]}


def settings_in_words() -> dict[str, str]:
    """The same, and grad mode and the default dtype, as texts that tell two of them apart."""
    import torch

    found = {name: str(value) for name, value in unusual_settings().items()}
    if "autocast" in found and torch.is_autocast_enabled("cpu"):
        found["autocast"] = f"on, {torch.get_autocast_dtype('cpu')}".replace("torch.", "")
    if not torch.is_grad_enabled():
        found["grad mode"] = "off"
    if torch.get_default_dtype() is not torch.float32:
        found["default dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
    return found


def put_settings(settings: Mapping[str, Any]) -> None:
    if settings:
        for kind in _sent_kinds():
            if kind.name in settings:
                kind.put(settings[kind.name])


def generators_and_filters() -> dict[str, Any]:
    """Where the random generators of the CPU stand, Python's warning filters, and how deep it calls: by name, for a
    process that is to run this code as if it were here. Filters of the classes of other packages stay: naming one would
    import it there."""
    found = {kind.name: kind.read() for kind in generators() if kind.name in _OF_CPU}
    known = tuple(each for each in warnings.filters if each[2].__module__.partition(".")[0] in _OWN)
    found["warning filters"] = known
    return found | {"recursion limit": sys.getrecursionlimit()}


def put_generators_and_filters(found: Mapping[str, Any]) -> None:
    sys.setrecursionlimit(found["recursion limit"])
    for kind in [*generators(), *_of_python()]:
        if kind.name in found:
            kind.put(found[kind.name])


def _sent_kinds() -> list[StateKind]:
    return [*of_torch(), *_of_numpy()]


def all_kinds() -> list[StateKind]:
    """Every kind that this process has; inference mode stands before grad mode, which it changes too."""
    return [*of_torch(), *_of_python(), *_of_numpy(), *generators()]


# ---- Python and numpy --------------------------------------------------------------------------------------------


def _of_python() -> list[StateKind]:
    return [
        StateKind("gc", lambda: (gc.isenabled(), gc.get_threshold()), _put_collector, _collector_words),
        StateKind(
            "warning filters",
            lambda: tuple(warnings.filters),
            _put_filters,
            lambda value, than: "other warning filters",
            role="incidental",
        ),
        StateKind("environment", lambda: dict(os.environ), _put_environment, _environment_words, role="incidental"),
        StateKind("working directory", _directory, _put_directory, lambda value, than: f"working directory {value}"),
        *(StateKind(name, read, put, _hook_words(name), operator.is_) for name, (read, put) in HOOKS.items()),
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


def _hook_words(name: str) -> Callable[[Any, Any], str]:
    return lambda value, than: f"{name}({'None' if value is None else called_by(value)})"


def _of_numpy() -> list[StateKind]:
    if (numpy := sys.modules.get("numpy")) is None:
        return []

    def words(value: dict[str, str], than: dict[str, str]) -> str:
        changed = ", ".join(f"{name}={value[name]!r}" for name in value if value[name] != than[name])
        return f"NumPy error handling {changed}"

    return [StateKind("NumPy error handling", numpy.geterr, lambda value: numpy.seterr(**value), words)]


# ---- random numbers ----------------------------------------------------------------------------------------------

_OF_CPU = ("torch generator", "Python generator", "NumPy generator")


def generators() -> list[StateKind]:
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


def generator_state(value: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """(reads the state, puts it) of a generator that is no whole process's; None for whatever else."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy.random")
    if torch is not None and type(value) is torch.Generator and value is not torch.default_generator:
        return value.get_state, value.set_state
    if numpy is not None and type(value) is numpy.Generator:
        own = value.bit_generator
        return lambda: own.state, lambda state: setattr(own, "state", state)
    if numpy is not None and type(value) is numpy.RandomState and value is not numpy.mtrand._rand:
        return value.get_state, value.set_state
    if type(value) is random.Random and value is not random._inst:
        return value.getstate, value.setstate
    return None


def _generator(name: str, read: Callable[[], Any], put: Callable[[Any], object], same: Any) -> StateKind:
    apart = outside_modes()
    return StateKind(name, apart(read), apart(put), lambda value, than: name, apart(same), role="generator")


def _same_numpy(one: Any, other: Any) -> bool:
    """``numpy.random.get_state()``: a name, an array, and three numbers."""
    return one[0] == other[0] and one[2:] == other[2:] and bool((one[1] == other[1]).all())


# ---- run_settings ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """Put all that `ProcessState` knows back, random generators included.

    Accelerator generators are included where an accelerator was in use before. Where modules were imported meanwhile,
    warning filters and variables of the environment stay as they are: they may be the modules' own.
    """
    before = ProcessState()
    try:
        yield
    finally:
        before.put_back(without=before.left_to_imports)


_alone = threading.RLock()


@contextlib.contextmanager
def measured_alone() -> Iterator[None]:
    """One thread of the process measures; it may measure within what it measures.

    Two at once would be in each other's times, and each would put back what the other had set: of two that send stdout
    elsewhere the one that ends last puts back the other's.

    Raises:
        Busy: another thread does.
    """
    if not _alone.acquire(blocking=False):
        raise Busy("another thread is measuring: run one after the other, or compare both in one cell")
    try:
        yield
    finally:
        _alone.release()


@contextlib.contextmanager
def collector(*, is_on: bool) -> Iterator[None]:
    """Collect what is young, then keep the cyclic collector off, or on.

    A full collection takes 65 to 120 ms with torch loaded, a large part of what a short cell may cost, and what is old
    does not run in the blocks either way.
    """
    was = gc.isenabled()
    gc.collect(1)
    (gc.enable if is_on else gc.disable)()
    try:
        yield
    finally:
        (gc.enable if was else gc.disable)()


def set_threads(threads: int) -> None:
    """Set torch's intra-op threads; nothing happens when that many are set already (a set rebuilds the team)."""
    import torch

    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
