"""Whether two values are the same: one comparison, by their numbers, whatever library holds them.

A value has one normal form (`form`): `Numbers` of whatever is an array, a tensor or a number, containers of such, and
what is neither. `walk_both` walks two values at once, `gap` compares the numbers that it meets. ``--check`` asks it of
what alternatives return, ``--try`` of what a cell comes to with a lever and without.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torchbench_magic.process.static_introspection import ABSENT, TOO_MANY, is_a

_FAR = 0.1
"""Of the largest value: numbers that differ by more agree by the absolute tolerance only."""
_MOST = 10_000
"""Objects of a column that are compared one by one."""
_HALF, _SINGLE, _DOUBLE = (1e-3, 1e-5), (1.3e-6, 1e-5), (1e-7, 1e-7)
_TOLERANCES = {
    "bfloat16": (1.6e-2, 1e-5), "float16": _HALF, "complex32": _HALF, "float32": _SINGLE, "complex64": _SINGLE,
    **dict.fromkeys(("float", "complex", "float64", "complex128"), _DOUBLE),
}  # fmt: skip
"""Dtype -> (rtol, atol), as the documentation of ``torch.testing.assert_close`` has them; others have `_DOUBLE`."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """What a tensor, an array or a number is numerically.

    Attributes:
        values: on the CPU; a dtype that NumPy has not, as float32.
        dtype: as its library calls it; of a number of Python its class.
        kind: its class in words, one word for all tensors and one for all numbers of NumPy.
        library: "torch", "numpy", "pandas", ...; empty for a number of Python.
        traits: as `Object` has them.
    """

    values: NDArray[Any]
    dtype: str
    kind: str
    library: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)

    def copy(self) -> Numbers:
        return replace(self, values=self.values.copy())


@dataclass(frozen=True, eq=False)
class Object:
    """An object that is compared by its parts: its class and what it holds.

    Attributes:
        traits: phrase -> what is told of two that agree where it is another: "on" -> "cpu".
    """

    kind: type
    attributes: Mapping[str, Any]
    traits: Mapping[str, str] = field(default_factory=dict)


def form(value: Any) -> Any:
    """The normal form of a value: `Numbers`, a list of them (a nested tensor), an `Object` (a frame, a masked or a
    structured array), or the value itself, where it is none of these or has no numbers at hand (meta, fake)."""
    import torch

    kind = type(value)
    if is_a(value, torch.Tensor):
        return [*value.detach().unbind()] if value.is_nested else _of_tensor(value)
    if kind in (bool, int, float, complex):
        held = np.asarray(value)
        return value if held.dtype == object else Numbers(held, kind.__name__, kind.__name__)  # of 65 bits and more
    if is_a(value, np.ma.MaskedArray):  # what is masked counts for nothing
        return Object(kind, {"mask": np.ma.getmaskarray(value), "data": value.filled(value.dtype.type())})
    if not any(hasattr(kind, name) for name in ("__array__", "__array_interface__")) or is_a(value, type):
        return value
    try:
        held = np.asarray(value)
    except Exception:  # noqa: BLE001  # whatever the library, or a class of the user's, says
        return value
    if held.dtype.names is not None:
        return Object(kind, {name: held[name] for name in held.dtype.names})
    if held.dtype.kind not in "biufcmM":
        return held.tolist()
    word = "NumPy number" if is_a(value, np.generic) else kind.__qualname__
    return Numbers(held, held.dtype.name, word, kind.__module__.partition(".")[0], _names(value))


def _of_tensor(tensor: Any) -> Any:
    import torch

    layout = "" if tensor.layout is torch.strided else f" ({str(tensor.layout).removeprefix('torch.')})"
    try:
        plain = tensor.detach()
        plain = plain.dequantize() if plain.is_quantized else plain.to_dense() if layout else plain
        if plain.dtype in (torch.bfloat16, torch.complex32) or "float8" in str(plain.dtype):
            plain = plain.to(torch.complex64 if plain.is_complex() else torch.float32)
        values = plain.numpy(force=True)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):  # it has no values
        return tensor
    traits = {"on": f"{tensor.device}{layout}", "with requires_grad": str(tensor.requires_grad)}
    return Numbers(values, _name(tensor.dtype), "Tensor", "torch", traits)


def is_compared_by_value(kind: type) -> bool:
    """Whether objects of a class of a library are compared by their values, and are no plain arrays or numbers."""
    import torch

    is_plain = issubclass(kind, (np.ndarray, np.generic, torch.Tensor))
    return not is_plain and any(hasattr(kind, name) for name in ("__array__", "__array_interface__", "to_numpy"))


def is_equal(one: Any, other: Any) -> bool:
    """Whether two objects have the same values, to the last bit, and dtypes; not where a column holds over `_MOST`
    objects."""

    def is_same(a: Any, b: Any) -> bool:
        if isinstance(a, Numbers) and isinstance(b, Numbers):
            return gap(a, b, (0.0, 0.0)).word == "equal"
        return a is not TOO_MANY and (a is b or (type(a) is type(b) and bool(a == b)))

    try:
        if repr(getattr(one, "dtypes", None)) != repr(getattr(other, "dtypes", None)):
            return False
        return all(is_same(a, b) for _, a, b in walk_both(one, other, most=_MOST, by_kind=True))
    except Exception:  # noqa: BLE001  # whatever their library says
        return False


def frame_parts(value: Any) -> Object | None:
    """The columns of a frame by name, or the values of a series, and the index; the values of an index alone; None of
    what is none of these."""
    index: Any = getattr(value, "index", value) if hasattr(type(value), "to_numpy") else None
    if not hasattr(index, "to_numpy") or not hasattr(index, "names"):
        return None
    names = list(getattr(value, "columns", ()))
    columns: Any = {name: value[name].to_numpy() for name in names} if hasattr(value, "columns") else value.to_numpy()
    held = {"columns" if names else "values": columns, **({} if index is value else {"index": index.to_numpy()})}
    return Object(type(value), held, {**_names(value), **({"with columns": repr(names)} if names else {})})


def _names(value: Any) -> dict[str, str]:
    """What an array, a series or the axes of a frame are called, as traits."""
    axes = {"with an index named": getattr(value, "index", None), "with columns named": getattr(value, "columns", None)}
    found = {}
    for phrase, one in {**({} if hasattr(value, "columns") else {"named": value}), **axes}.items():
        names = [*getattr(one, "names", ())] or [getattr(one, "name", None)]
        found[phrase] = repr(names if len(names) > 1 else names[0])
    return found


def _traits(value: Any) -> Mapping[str, str]:
    """What is told of a value in normal form beside what it holds."""
    kind = next((kind.__name__ for kind in (list, tuple, deque) if is_a(value, kind)), "")
    traits: Mapping[str, str] = value.traits if is_a(value, (Numbers, Object)) else {"in": f"a {kind}"} if kind else {}
    return traits


def walk_both(
    one: Any,
    other: Any,
    *,
    deepest: int = 100,
    most: int | None = None,
    by_kind: bool = False,
    unlike: dict[str, None] | None = None,
) -> Iterator[tuple[str, Any, Any]]:
    """Walk two values at once: (place, part, part), both in normal form. Parts that do not go together, such as lists
    of other lengths, come as they are.

    Args:
        deepest: containers within each other that are gone into.
        most: items of a container that are gone into; of a longer one `TOO_MANY` comes in place of both.
        by_kind: a list and a tuple do not go together, nor a list and an array, nor mappings with other keys: there
            `ABSENT` stands for what one of them lacks.
        unlike: gets the traits that are not the same, such as "on cpu and cuda:0".
    """
    seen: dict[tuple[int, int], Any] = {}  # ids -> what they are of, which keeps them its own

    def walk(one: Any, other: Any, place: str, depth: int) -> Iterator[tuple[str, Any, Any]]:
        if (id(one), id(other)) in seen:
            return
        seen[id(one), id(other)] = one, other
        tables = [frame_parts(each) for each in (one, other)] if type(one) is type(other) else [None]
        one, other = tables if all(tables) else map(form, (one, other))
        if unlike is not None:
            ours, theirs = _traits(one), _traits(other)
            apart = (key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key])
            unlike.update((f"{key} {ours[key]:.60} and {theirs[key]:.60}", None) for key in sorted(apart))
        parts = _parts(one, other, by_kind) if depth < deepest else None
        if parts is None:
            yield place, one, other
            return
        ours, theirs, written = parts
        if most is not None and max(len(ours), len(theirs)) > most:
            yield place, TOO_MANY, TOO_MANY
        elif ours.keys() != theirs.keys() and not by_kind:
            yield place, one, other
        else:
            for key in {**theirs, **ours}:
                inside = place + written.format(key)
                yield from walk(ours.get(key, ABSENT), theirs.get(key, ABSENT), inside, depth + 1)

    yield from walk(one, other, "", 0)


def _parts(one: Any, other: Any, by_kind: bool) -> tuple[Mapping[Any, Any], Mapping[Any, Any], str] | None:
    """What two values that go together hold, and how a place in it is written."""
    if is_a(one, Object) and is_a(other, Object):
        return (one.attributes, other.attributes, ".{}") if one.kind is other.kind else None
    if is_a(one, Mapping) and is_a(other, Mapping):
        return one, other, "[{!r}]"
    kinds: tuple[Any, ...] = ((list,), (tuple,)) if by_kind else ((list, tuple, deque),)
    if is_a(one, kinds[0]) is not is_a(other, kinds[0]) and not by_kind:  # an array beside a list
        one, other = _rows(one), _rows(other)
    if not any(is_a(one, alike) and is_a(other, alike) for alike in kinds):
        return None
    return dict(enumerate(one)), dict(enumerate(other)), "[{}]"


def _rows(value: Any) -> Any:
    if is_a(value, Numbers) and value.values.ndim:
        return [replace(value, values=np.asarray(row)) for row in value.values]
    return value


@dataclass(frozen=True)
class Gap:
    """How far apart the numbers of two values are.

    Attributes:
        word: "equal" (the dtype too), "close" or "differs".
        apart, largest: the largest absolute difference, and the largest value; NaN where shapes or kinds differ.
        tolerances: (rtol, atol) that they were compared with.
        is_floating: whether there are numbers with a fraction.
        has_nan: whether NaN stands at the same place in both, which counts as equal.
        text: what is different, in words; empty where nothing is.
    """

    word: Literal["equal", "close", "differs"]
    apart: float = float("nan")
    largest: float = float("nan")
    tolerances: tuple[float, float] = (0.0, 0.0)
    is_floating: bool = False
    has_nan: bool = False
    text: str = ""


def gap(one: Numbers, other: Numbers, tolerances: tuple[float | None, float | None] | None = None) -> Gap:
    """Compare two sets of numbers; with the tolerances of ``torch.testing.assert_close`` for the less precise of the
    two dtypes, where none are given. Integers are compared as they are."""
    a, b = one.values, other.values
    kinds = {a.dtype.kind, b.dtype.kind}
    if a.shape != b.shape:
        return Gap("differs", text=f"shapes {a.shape} and {b.shape}")
    if len(kinds) > 1 and kinds & {*"bmM"}:  # True and 1 are not the same
        words = [str(each.values) if not each.values.ndim else each.dtype for each in (one, other)]
        return Gap("differs", text=f"{words[0]} and {words[1]}")
    is_floating = bool(kinds & {*"fc"})
    wide = np.result_type(a, b, np.float64) if is_floating else np.dtype(np.float64)
    rtol, atol = _tolerances(one, other, tolerances) if is_floating else (0.0, 0.0)
    x, y = a.astype(wide), b.astype(wide)
    nans = np.isnan(a) & np.isnan(b)
    is_same = ((x == y) if is_floating else (a == b)) | nans
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.where(is_same, 0.0, np.abs(x - y))
        is_close = is_same | (np.isfinite(apart) & (apart <= atol + rtol * np.abs(y)) if is_floating else False)
        known = np.isfinite(x) & np.isfinite(y)
        largest = float(np.max(np.maximum(np.abs(x), np.abs(y)), initial=0.0, where=known))
    word: Literal["equal", "close", "differs"] = "close"
    if not is_close.all():
        word = "differs"
    elif is_same.all() and one.dtype == other.dtype:
        word = "equal"
    furthest = float(np.max(apart, initial=0.0, where=~np.isnan(apart)))
    text = _told(a, b, apart, is_close, f" (rtol={rtol:g}, atol={atol:g})" if is_floating else "")
    return Gap(word, furthest, largest, (rtol, atol), is_floating, bool(nans.any()), text)


def _told(a: NDArray[Any], b: NDArray[Any], apart: NDArray[Any], is_close: NDArray[Any], allowed: str) -> str:
    off = int(np.count_nonzero(~is_close))
    if not off:
        return ""
    if not a.ndim:
        return f"{a!s} and {b!s}{allowed}"
    at = np.unravel_index(int(np.argmax(np.where(is_close, -1.0, np.nan_to_num(apart, nan=np.inf)))), a.shape)
    where = ", ".join(map(str, at))
    return f"{off} of {a.size} numbers differ{allowed}, most at [{where}]: {a[at]!s} and {b[at]!s}"


def tolerances_at(dtype: Any) -> tuple[float, float] | None:
    """(rtol, atol) of a floating-point dtype of torch; None of None."""
    return None if dtype is None else _TOLERANCES.get(_name(dtype), _DOUBLE)


def _tolerances(one: Numbers, other: Numbers, given: tuple[float | None, float | None] | None) -> tuple[float, float]:
    usual = max(_TOLERANCES.get(each.dtype) or _TOLERANCES.get(each.values.dtype.name, _DOUBLE)
                for each in (one, other) if each.values.dtype.kind in "fc")  # fmt: skip
    rtol, atol = given or (None, None)
    return usual[0] if rtol is None else rtol, usual[1] if atol is None else atol


def only_absolutely_close(gaps: Iterable[Gap]) -> tuple[float, float] | None:
    """(largest difference, largest value) of numbers that are close, where the one is more than `_FAR` of the other:
    the absolute tolerance (1e-5 in float32) passes whatever is that small. None: they are near."""
    floating = [each for each in gaps if each.is_floating]
    apart = max((each.apart for each in floating), default=0.0)
    largest = max((each.largest for each in floating), default=0.0)
    return (apart, largest) if apart > _FAR * largest else None


def gap_text(found: tuple[float, float]) -> str:
    """What `only_absolutely_close` found, as a clause."""
    return f"they differ by up to {found[0]:.2g}, and the largest value is {found[1]:.2g}"


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
