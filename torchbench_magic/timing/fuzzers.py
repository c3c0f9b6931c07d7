"""torch's fuzzers, repaired, and the points that a fuzzer and a sweep draw together."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch.utils.benchmark.utils import fuzzer as torch_fuzzer

from torchbench_magic.errors import OptionError
from torchbench_magic.process.interrupts import interrupts_held, interrupts_let_through

from .sweep import MOST_POINTS, LazyPoints, Point, check_size, sweep_points

# torch's fuzzers, repaired, and the points that a fuzzer draws.
#
# In torch 2.13 ``FuzzedParameter`` has its check of a distribution the wrong way round: it refuses every dict of
# probabilities that sum to one, and with it each of torch's op fuzzers. `FuzzedParameter` here checks as torch's
# documentation says. The op fuzzers are torch's own constructors run with that class in the place of torch's, so that
# parameters, draws and signatures stay torch's, whatever version is installed, and torch itself is not patched.

OP_FUZZERS = {
    "binary": ("binary", "BinaryOpFuzzer"),
    "unary": ("unary", "UnaryOpFuzzer"),
    "spectral": ("spectral", "SpectralOpFuzzer"),
    "sparse-binary": ("sparse_binary", "BinaryOpSparseFuzzer"),
    "sparse-unary": ("sparse_unary", "UnaryOpSparseFuzzer"),
}
"""Name on the command line -> (torch's module, class)."""

DEFAULT_COUNT = 10
DEFAULT_SEED = 0
"""Fixed, so that a cell that runs again meets the same inputs."""

_UNUSED = ("random_value", "y_step_0", "y_step_1", "y_step_2")
"""Drawn by torch's op fuzzers and used for no tensor (the steps of y are those of x, in torch's source)."""


class FuzzedParameter(torch_fuzzer.FuzzedParameter):
    """torch's ``FuzzedParameter`` (same arguments), which takes a dict of probabilities that sum to one."""

    def _check_distribution(self, distribution: Any) -> Any:
        if not isinstance(distribution, dict):
            return super()._check_distribution(distribution)
        if any(probability < 0 for probability in distribution.values()):
            raise AssertionError("Probabilities cannot be negative")
        if abs(sum(distribution.values()) - 1) > 1e-5:
            raise AssertionError("Distribution is not normalized")
        if self._minval is not None or self._maxval is not None:
            raise AssertionError("When passing a custom distribution, 'minval' and 'maxval' must be None")
        return distribution


@cache
def op_fuzzer(name: str) -> type[torch_fuzzer.Fuzzer]:
    """The repaired op fuzzer called ``name`` in `OP_FUZZERS`: a subclass of torch's, with torch's signature."""
    module_name, class_name = OP_FUZZERS[name]
    module = importlib.import_module(f"torch.utils.benchmark.op_fuzzers.{module_name}")
    theirs: Any = getattr(module, class_name)
    init = theirs.__init__
    ours = FunctionType(
        init.__code__,
        {**vars(module), "FuzzedParameter": FuzzedParameter},
        init.__name__,
        init.__defaults__,
        init.__closure__,  # holds torch's class for its super()
    )
    ours.__kwdefaults__, ours.__doc__ = init.__kwdefaults__, init.__doc__
    ours.__annotations__ = init.__annotations__
    members = {
        "__init__": ours,
        "__module__": f"torchbench_magic.benchmark.op_fuzzers.{module_name}",
        "__doc__": f"torch's ``{class_name}`` (same arguments, same draws), which torch 2.13 cannot construct.",
    }
    made: type[torch_fuzzer.Fuzzer] = type(class_name, (theirs,), members)
    return made


def fuzz_points(text: str, namespace: Mapping[str, Any], *, seed: int | None = None, cuda: bool = False) -> FuzzPoints:
    """The points that ``--fuzz text`` asks for, nothing drawn yet.

    Args:
        text: ``KIND[:COUNT]`` with a name of `OP_FUZZERS`, or ``NAME[:COUNT]`` with a Fuzzer of ``namespace``.
        seed: of the draws; None is the fuzzer's own seed, 0 for one made here.
        cuda: tensors of the op fuzzers are made on the GPU.

    Raises:
        OptionError: no such fuzzer, or a count that is none.
    """
    name, colon, counted = text.strip().partition(":")
    count = DEFAULT_COUNT
    if colon:
        if not (counted.isascii() and counted.isdecimal() and 1 <= int(counted) <= MOST_POINTS):
            raise OptionError(f"--fuzz {text}: after the colon give how many points, 1 to {MOST_POINTS}")
        count = int(counted)
    if name in OP_FUZZERS:
        chosen = DEFAULT_SEED if seed is None else seed
        return FuzzPoints(op_fuzzer(name)(seed=chosen, cuda=cuda), count, with_parameters=False)  # type: ignore[call-arg]
    found = namespace.get(name)
    if not isinstance(found, torch_fuzzer.Fuzzer):
        there = f"is a {type(found).__name__}" if name in namespace else "is not defined"
        raise OptionError(
            f"--fuzz: {name} {there}; give {', '.join(OP_FUZZERS)} or the name of a torch.utils.benchmark.Fuzzer"
        )
    return FuzzPoints(found if seed is None else _seeded(found, seed), count, with_parameters=True)


def _seeded(fuzzer: torch_fuzzer.Fuzzer, seed: int) -> torch_fuzzer.Fuzzer:
    import copy

    other = copy.copy(fuzzer)
    other._seed = seed
    return other


class FuzzPoints(LazyPoints):
    """The first ``count`` points of a fuzzer, in the order and with the tensors of ``fuzzer.take(count)``.

    Tensors are made when a point's names are asked for and are not kept: visiting the points one after the other
    draws each once and holds one point's tensors. Going back draws from the start again.

    Args:
        fuzzer: of torch or of a subclass.
        count: how many points.
        with_parameters: whether the parameters are names of the point too, beside the tensors.
    """

    def __init__(self, fuzzer: torch_fuzzer.Fuzzer, count: int, *, with_parameters: bool) -> None:
        self._fuzzer, self._count, self._with_parameters = fuzzer, count, with_parameters
        self._labels: dict[str, int] = {}
        self._points: list[Point] = []
        self._key = uuid.uuid4().hex
        self._restart()

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process nothing is drawn yet, and one that arrives there twice goes on from where it is."""
        return _arrived, (self._key, self._fuzzer, self._count, self._with_parameters)

    @property
    def names(self) -> frozenset[str]:
        """The names that each point gives."""
        parameters = [p.name for p in self._fuzzer._parameters] if self._with_parameters else []
        return frozenset([*parameters, *(t.name for t in self._fuzzer._tensors)])

    def _restart(self) -> None:
        self._draws: Iterator[Any] | None = None
        self._generator = torch.get_rng_state()
        self._at = -1
        self._names: dict[str, Any] | None = None

    def __len__(self) -> int:
        return self._count

    def point(self, at: int) -> Point:
        if at >= len(self._points):
            self._go_to(at)
        return self._points[at]

    def _make(self, at: int) -> dict[str, Any]:
        """The names of point ``at``; drawn anew if they were handed out before, since bodies may have changed them."""
        if at != self._at or self._names is None:
            if at <= self._at:
                self._restart()
            self._go_to(at)
        names, self._names = self._names, None
        assert names is not None
        return names

    def _go_to(self, at: int) -> None:
        while self._at < at:
            tensors, properties, parameters = self._next()
            self._at += 1
            self._names = {**parameters, **tensors} if self._with_parameters else tensors
            if self._at == len(self._points):
                self._points.append(self._point(tensors, properties, parameters))

    def _next(self) -> Any:
        """The next draw. The generator of torch's tensors goes on from where the last draw left it."""
        with interrupts_held():
            return self._drawn()

    def _drawn(self) -> Any:
        before = torch.get_rng_state()
        try:
            if self._draws is None:
                self._draws = iter(self._fuzzer.take(self._count))
            else:
                torch.set_rng_state(self._generator)
            with interrupts_let_through():
                return next(self._draws)
        except StopIteration:
            raise OptionError(f"--fuzz: the fuzzer gave only {self._at + 1} of {self._count} points") from None
        except ValueError as error:
            if "valid parameters" not in str(error):
                raise
            raise OptionError(
                "--fuzz: the fuzzer found no parameters within its limits in 1000 tries: widen the limits"
            ) from None
        finally:
            self._generator = torch.get_rng_state()
            torch.set_rng_state(before)

    def _point(self, tensors: Mapping[str, Any], properties: Mapping[str, Any], parameters: Mapping[str, Any]) -> Point:
        scattered = [name for name, seen in properties.items() if not seen.get("is_contiguous", True)]
        parts = [_shapes(tensors), *_others(self._fuzzer, properties, parameters)]
        if scattered:
            parts.append("discontiguous" if len(tensors) == 1 else f"{' and '.join(scattered)} discontiguous")
        label = ", ".join(part for part in parts if part) or f"point {len(self._points) + 1}"
        seen = self._labels[label] = self._labels.get(label, 0) + 1
        return Point(
            make=partial(self._make, len(self._points)),
            sub_label=label if seen == 1 else f"{label} #{seen}",
            drawn=True,
        )


_last_to_arrive: list[tuple[str, FuzzPoints]] = []
"""At most one: visiting its points in order draws each once, also where each is asked for by itself."""


def _arrived(key: str, fuzzer: torch_fuzzer.Fuzzer, count: int, with_parameters: bool) -> FuzzPoints:
    if not (_last_to_arrive and _last_to_arrive[0][0] == key):
        _last_to_arrive[:] = [(key, FuzzPoints(fuzzer, count, with_parameters=with_parameters))]
    return _last_to_arrive[0][1]


def _shapes(tensors: Mapping[str, Any]) -> str:
    """``64 x 8`` where all tensors have that shape, else each with its name."""
    shapes = {name: " x ".join(map(str, tensor.shape)) or "scalar" for name, tensor in tensors.items()}
    if len(set(shapes.values())) == 1:
        return next(iter(shapes.values()))
    return ", ".join(f"{name} {shape}" for name, shape in shapes.items())


def _others(fuzzer: torch_fuzzer.Fuzzer, properties: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    """The parameters that the shapes do not show: neither a size nor a step, nor a draw that another one picks from.

    A property of that name says what became of it (``sparse_dim`` is cut to the number of dimensions).
    """
    shown = set(_UNUSED)
    for tensor in fuzzer._tensors:
        shown.update(map(str, (*tensor._size, *(tensor._steps or ()), tensor._dim_parameter)))
    for parameter in fuzzer._parameters:
        choices = parameter._distribution if isinstance(parameter._distribution, dict) else ()
        shown.update(choice.alias_to for choice in choices if isinstance(choice, torch_fuzzer.ParameterAlias))
    became = {**parameters, **{name: value for seen in properties.values() for name, value in seen.items()}}
    return [f"{name}={_short(became[name])}" for name in parameters if name not in shown]


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def points_of(
    sweep: Sequence[str], fuzz: str | None, namespace: Mapping[str, Any], *, seed: int | None = None, cuda: bool = False
) -> Sequence[Point]:
    """The points that ``--sweep`` (any number of them) and ``--fuzz`` ask for; none when neither is given.

    With both, every point of the sweep meets every point of the fuzzer.

    Args:
        sweep: texts ``NAME=EXPR``.
        fuzz: ``KIND[:COUNT]`` or ``NAME[:COUNT]``, see `fuzz_points`.
        namespace: the user's names, in which EXPR is evaluated and NAME looked up.
        seed: of the fuzzer.
        cuda: tensors of the op fuzzers are made on the GPU.

    Raises:
        OptionError: what cannot be used, in one line.
    """
    if fuzz is None:
        return sweep_points(sweep, namespace) if sweep else ()
    drawn = fuzz_points(fuzz, namespace, seed=seed, cuda=cuda)
    if not sweep:
        return drawn
    swept = sweep_points(sweep, namespace)
    twice = sorted({name for name, _ in swept[0].axes} & drawn.names)
    if twice:
        raise OptionError(f"--sweep {twice[0]}: the fuzzer draws its own {twice[0]}: rename the axis")
    check_size(len(swept) * len(drawn))
    return _Grid(swept, drawn)


class _Grid(LazyPoints):
    """Every point of a sweep with every point of a fuzzer; the fuzzer's vary fastest, so each is drawn in order."""

    def __init__(self, outer: Sequence[Point], inner: Sequence[Point]) -> None:
        self._outer, self._inner = outer, inner

    def __len__(self) -> int:
        return len(self._outer) * len(self._inner)

    def point(self, at: int) -> Point:
        out, into = divmod(at, len(self._inner))
        outer, inner = self._outer[out], self._inner[into]
        return Point(
            make=lambda: {**outer.make(), **inner.make()},
            axes=outer.axes,
            sub_label=f"{outer.sub_label}, {inner.sub_label}",
            drawn=inner.drawn,
        )
