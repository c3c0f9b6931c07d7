"""The points of a sweep: on which inputs the alternatives of a cell are measured, one set of alternatives a point."""

from __future__ import annotations

import itertools
import keyword
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from torchbench_magic.errors import OptionError

MOST_POINTS = 10_000
_LONGEST_VALUE = 60

# fmt: off
RESERVED = frozenset((
    "label", "sub_label", "description", "env", "num_threads", "device", "median", "iqr", "mean", "cpu_clock_median",
    "samples", "number_per_run", "ratio", "ratio_low", "ratio_high", "verdict", "method", "instructions",
    "instructions_ratio", "result",
))
# fmt: on
"""The columns of `Comparison.frame`, that of results side by side included, which no axis may be called like."""


@dataclass(frozen=True)
class Point:
    """One point of a sweep or of a fuzzer.

    Attributes:
        make: gives the names of the point (axis values, tensors) for setup and bodies. Call it once, just before the
            point is measured, and drop what it gave afterwards: a fuzzed point holds no tensors until then.
        axes: (name, value) of each sweep axis; values are plain (numbers, text, tuples of them), never tensors.
        sub_label: how the point is called in tables.
        drawn: a fuzzer draws its inputs.
    """

    make: Callable[[], Mapping[str, Any]]
    axes: tuple[tuple[str, object], ...] = ()
    sub_label: str | None = None
    drawn: bool = False


class LazyPoints(Sequence[Point]):
    """Points that are made when they are asked for."""

    @abstractmethod
    def point(self, at: int) -> Point:
        """The point at an index from 0 on."""

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        if isinstance(index, slice):
            return [self.point(at) for at in range(len(self))[index]]
        return self.point(range(len(self))[index])


def sweep_points(texts: Sequence[str], namespace: Mapping[str, Any]) -> list[Point]:
    """The cartesian product of the axes that ``texts`` (``NAME=EXPR``) describe; the last axis varies fastest.

    Raises:
        OptionError: a text, a name or values that cannot be used.
    """
    axes: dict[str, list[Any]] = {}
    for text in texts:
        name, values = _axis(text, namespace)
        if name in axes:
            raise OptionError(f"--sweep: the axis {name} is given twice")
        axes[name] = values
    check_size(math.prod(map(len, axes.values())))
    plain = {name: _plain_values(name, values) for name, values in axes.items()}
    points = []
    for at in itertools.product(*(range(len(values)) for values in axes.values())):
        chosen = dict(zip(axes, at, strict=True))
        names = {name: axes[name][i] for name, i in chosen.items()}
        shown = tuple((name, plain[name][i]) for name, i in chosen.items())
        label = ", ".join(f"{name}={_text(value)}" for name, value in shown)
        points.append(Point(make=names.copy, axes=shown, sub_label=label))
    return points


def check_size(points: int) -> None:
    """Refuse more points than anybody can wait for."""
    if points > MOST_POINTS:
        raise OptionError(f"--sweep: {points} points are more than {MOST_POINTS}: take fewer values")


def _axis(text: str, namespace: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Name and values of one axis, checked."""
    name, equals, expression = (part.strip() for part in text.partition("="))
    if not equals or not expression or expression.startswith("="):
        raise OptionError(f'--sweep {text!r}: give NAME=EXPR, such as --sweep "n=[1, 10, 100]"')
    if not name.isidentifier() or keyword.iskeyword(name):
        raise OptionError(f"--sweep: {name!r} is not a Python name; the axis becomes a variable of setup and body")
    if name in RESERVED:
        raise OptionError(f"--sweep: {name} is a column of the result already; give the axis another name")
    try:
        values = eval(compile(expression, f"<sweep {name}>", "eval"), dict(namespace))
        found = _taken(name, values)
    except OptionError:
        raise
    except Exception as error:  # the user's expression may raise anything
        said = " ".join(str(error).split())
        raise OptionError(
            f"--sweep {name}: {type(error).__name__}: {said}" if said else f"--sweep {name}: {error!r}"
        ) from error
    if not found:
        raise OptionError(f"--sweep {name}: there are no values in {expression}")
    return name, found


def _taken(name: str, values: Any) -> list[Any]:
    """At most `MOST_POINTS` values, scalars of numpy and torch as Python's own."""
    if isinstance(values, str | bytes):
        raise OptionError(f"--sweep {name}: a text is one value: write [{values!r}]")
    if not isinstance(values, Iterable) or getattr(values, "ndim", None) == 0:
        raise OptionError(f"--sweep {name}: give several values, such as [1, 2, 3]; {_described(values)} is one")
    found = list(itertools.islice(values, MOST_POINTS + 1))
    if len(found) > MOST_POINTS:
        raise OptionError(f"--sweep {name}: more than {MOST_POINTS} values, or an endless iterator")
    return [value.item() if getattr(value, "ndim", None) == 0 else value for value in found]


def _plain_values(name: str, values: Sequence[Any]) -> list[object]:
    """What stands for each value in the result's column: itself where it is plain, else its name or its text."""
    found: list[object] = []
    seen: dict[str, int] = {}
    for value in values:
        plain = _plain(value)
        times = seen[_text(plain)] = seen.get(_text(plain), 0) + 1
        if times > 1 and _is_plain(value):
            raise OptionError(f"--sweep {name}: the value {_text(plain)} is given twice")
        found.append(plain if times == 1 else f"{plain} #{times}")
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _plain(value: Any) -> object:
    if _is_plain(value):
        return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else _described(value)


def _described(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _text(value: object) -> str:
    if isinstance(value, float) and not isinstance(value, bool):
        short = f"{value:.6g}"
        return short if float(short) == value else repr(value)
    return str(value)
