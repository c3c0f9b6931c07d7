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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from .state_kind import Kind, Role
from .torch_state import of_torch

__all__ = [
    "Kind",
    "ProcessState",
    "all_kinds",
    "generators_and_filters",
    "in_words",
    "put_generators_and_filters",
    "put_settings",
    "settings_in_words",
    "unusual_settings",
]

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

    def __init__(self, kinds: Sequence[Kind] | None = None) -> None:
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
    kinds: Sequence[Kind], values: Sequence[Any], than: Sequence[Any], which: Iterable[int]
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
        "matmul precision": ("highest", "none", "none", "none"),
        "attention backends": {},  # all are on
        "anomaly detection": (False, True),
        "flush denormal": False,
        "decimal context": decimal.DefaultContext,
        "torch.backends.mkldnn.enabled": True,
        "NumPy error handling": {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
    }
    found = {kind.name: kind.read() for kind in _sent_kinds() if kind.name in fresh}
    if "autocast" in found:  # the other process counts what the CPU does
        found["autocast"] = {name: found["autocast"][name] for name in ("cpu", "cache")}
    found["attention backends"] = {name: is_on for name, is_on in found["attention backends"].items() if not is_on}
    if "decimal context" in found and _same_decimal(found["decimal context"], decimal.DefaultContext):
        del found["decimal context"]
    return {name: value for name, value in found.items() if value != fresh[name]}


def settings_in_words() -> dict[str, str]:
    """The same, and grad mode and the default dtype, as texts that tell two of them apart."""
    import torch

    found = {name: str(value) for name, value in unusual_settings().items()}
    if "autocast" in found and torch.is_autocast_enabled("cpu"):
        found["autocast"] = f"on, {torch.get_autocast_dtype('cpu')}".replace("torch.", "")
    if "decimal context" in found:
        found["decimal context"] = str(_settings(decimal.getcontext()))
    if not torch.is_grad_enabled():
        found["grad mode"] = "off"
    if torch.get_default_dtype() is not torch.float32:
        found["default dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
    return found


def put_settings(settings: Mapping[str, Any]) -> None:
    """Put what `unusual_settings` found."""
    if settings:
        for kind in _sent_kinds():
            if kind.name in settings:
                kind.put(settings[kind.name])


def generators_and_filters() -> dict[str, Any]:
    """Where the random generators of the CPU stand, Python's warning filters, and how deep it calls: by name, for a
    process that is to run this code as if it were here. Filters of the classes of other packages stay: naming one would
    import it there."""
    found = {kind.name: kind.read() for kind in _generators() if kind.name in _OF_CPU}
    known = tuple(each for each in warnings.filters if each[2].__module__.partition(".")[0] in _OWN)
    found["warning filters"] = known
    return found | {"recursion limit": sys.getrecursionlimit()}


def put_generators_and_filters(found: Mapping[str, Any]) -> None:
    """Put what `generators_and_filters` found."""
    sys.setrecursionlimit(found["recursion limit"])
    for kind in [*_generators(), *_of_python()]:
        if kind.name in found:
            kind.put(found[kind.name])


def _sent_kinds() -> list[Kind]:
    numpy = sys.modules.get("numpy")
    return [*of_torch(), _of_decimal(), *(_of_numpy(numpy) if numpy is not None else [])]


def all_kinds() -> list[Kind]:
    """Every kind that this process has; inference mode stands before grad mode, which it changes too."""
    found = [*of_torch(), *_of_python()]
    if (numpy := sys.modules.get("numpy")) is not None:
        found += _of_numpy(numpy)
    return [*found, *_generators()]


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
        _of_decimal(),
    ]


def _of_decimal() -> Kind:
    return Kind("decimal context", lambda: decimal.getcontext().copy(), _put_decimal, _decimal_words, _same_decimal)


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

_OF_CPU = ("torch generator", "Python generator", "NumPy generator")


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
