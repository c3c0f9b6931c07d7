"""Reading torch's pickles of measurements without running what a pickle may run.

`pickle.load` calls whatever the file names. Here a file can name torch's five benchmark records and a few builtins,
nothing else, and even those names stand for empty stand-ins while the file is read: its instructions can neither
import a module, nor reach torch's classes (an instruction of a pickle may set attributes of any class it names), nor
call anything but the stand-ins' constructors. What they then hold is checked field by field, and the real records
are made from it.

Source of the way: "Restricting Globals" in the documentation of Python's pickle module, and fickling's list of ways
around a `find_class` that admits real classes.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import pickletools
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_type_hints

import pandas as pd

from torchbench_magic.errors import InputError, StoreError
from torchbench_magic.files import path_of
from torchbench_magic.process.environment import Environment
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

from .records import fits

_COMMON = "torch.utils.benchmark.utils.common"
_TIMER = "torch.utils.benchmark.utils.valgrind_wrapper.timer_interface"
_RECORDS = {
    (_COMMON, "Measurement"),
    (_COMMON, "TaskSpec"),
    (_TIMER, "CallgrindStats"),
    (_TIMER, "FunctionCount"),
    (_TIMER, "FunctionCounts"),
}
_MOST_ITEMS = 1_000_000
_BUILTINS: dict[str, type] = {"set": set, "frozenset": frozenset, "complex": complex}


class _Standin:
    """What a record of the file holds, before it is checked. Each file has subclasses of its own."""

    arguments: tuple[Any, ...] = ()

    def __new__(cls, *arguments: Any) -> _Standin:
        made = super().__new__(cls)
        made.arguments = arguments
        return made


class _Reader(pickle.Unpickler):
    """Reads data, and the stand-ins of torch's records."""

    def __init__(self, file: io.BufferedIOBase) -> None:
        super().__init__(file)
        self._standins = {name: type(name[1], (_Standin,), {}) for name in _RECORDS}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._standins:
            return self._standins[module, name]
        if module in ("builtins", "__builtin__") and name in _BUILTINS:
            return _BUILTINS[name]
        raise _Refused(f"it names {module}.{name}")

    def persistent_load(self, pid: object) -> Any:
        raise _Refused("it refers to something outside it")


class _Refused(Exception):
    """The file asks for something that is not admitted."""


def load_torch_pickle(path: str | os.PathLike[str]) -> list[Any]:
    """The torch records in a pickle: ``Measurement``, ``TaskSpec``, ``CallgrindStats``, ``FunctionCounts``.

    Lists, tuples and dicts of them are laid out in order, and so are several pickles one after the other in a file.
    Nothing that the file names is run or imported.

    Raises:
        StoreError: no such file, no pickle, or one that holds or asks for anything else.
    """
    path = path_of(path, StoreError)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from None
    file = io.BytesIO(content)
    found: list[Any] = []
    try:
        _check_memo(content)
        while file.tell() < len(content):
            found += _records(_Reader(file).load())
    except _Refused as refused:
        raise StoreError(
            f"{path}: refused, nothing was run: {refused}; only torch's benchmark records are read"
        ) from None
    except Exception as error:  # noqa: BLE001  (a damaged pickle raises anything)
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise StoreError(f"{path}: is not a readable pickle ({said})") from None
    if not found:
        raise StoreError(f"{path}: holds no measurement")
    return found


def _check_memo(content: bytes) -> None:
    """Python's reader makes room for as many objects as the largest number that one is kept under."""
    file = io.BytesIO(content)
    while file.tell() < len(content):
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name.endswith("PUT") and isinstance(argument, int) and argument > len(content):
                raise _Refused(f"it keeps an object under the number {argument:,}")


# ---- from stand-ins to torch's records ----------------------------------------------------------------------


def _records(value: Any, left: list[int] | None = None) -> Iterator[Any]:
    left = [_MOST_ITEMS] if left is None else left
    left[0] -= 1
    if left[0] < 0:  # a list may hold one list many times, and that another
        raise _Refused(f"it holds more than {_MOST_ITEMS:,} records")
    if isinstance(value, list | tuple):
        for item in value:
            yield from _records(item, left)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _records(item, left)
    elif isinstance(value, _Standin):
        if type(value).__name__ == "FunctionCount":
            raise _Refused("it holds a FunctionCount by itself")
        yield _made(value)
    else:
        raise _Refused(f"it holds a {type(value).__name__}")


def _made(value: Any) -> Any:
    """The same with torch's records in place of their stand-ins; all else is data of builtin types."""
    if isinstance(value, _Standin):
        return _record(value)
    if isinstance(value, dict):
        return {_made(key): _made(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_made(item) for item in value)
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return value
    raise _Refused(f"it holds a {type(value).__name__}")


def _record(value: _Standin) -> Any:
    """The torch record that a stand-in holds the fields of, each of the type that torch declares."""
    name = type(value).__name__
    kind: Any = getattr(importlib.import_module(next(module for module, each in _RECORDS if each == name)), name)
    if name == "FunctionCount":
        if list(map(type, value.arguments)) != [int, str]:
            raise _Refused("a FunctionCount is not a number and a text")
        return kind(*value.arguments)
    hints, held = get_type_hints(kind), vars(value)
    state: dict[str, Any] = {}
    for item in (each for each in fields(kind) if each.name in held):
        found = state[item.name] = _made(held[item.name])
        if not fits(found, hints[item.name]):
            raise _Refused(f"{item.name} of a {name} is a {type(found).__name__}, not {item.type}")
    if state.get("number_per_run", 1) < 1:
        raise _Refused(f"number_per_run of a {name} is below 1")
    return kind(**state)


# ---- into a comparison --------------------------------------------------------------------------------------


def comparison_of_measurements(measurements: Any) -> Comparison:
    """torch's Measurements as a Comparison, each a group by itself: they were not sampled side by side.

    They carry no CPU clock, no order and no environment.

    Raises:
        InputError: something else than measurements that hold samples.
    """
    from torch.utils.benchmark import Measurement

    given = [measurements] if isinstance(measurements, Measurement) else list(measurements)
    if not given or not all(isinstance(m, Measurement) and m.raw_times for m in given):
        raise InputError("give torch Measurements that hold samples")
    subjects, frames = [], []
    for at, m in enumerate(given):
        spec = m.task_spec
        names = {name: getattr(spec, name) for name in ("label", "sub_label", "description", "env", "num_threads")}
        subjects.append(Subject(**names, group=at, look="once", stmt=spec.stmt, setup=spec.setup))
        frames.append(
            pd.DataFrame(
                {
                    "round": range(len(m.raw_times)),
                    "measurement": at,
                    "wall": m.raw_times,
                    "cpu": float("nan"),
                    "number": m.number_per_run,
                    "position": 0,
                }
            )
        )
    unknown = Environment(python="not known", torch="not known")
    return Comparison(tuple(subjects), pd.concat(frames, ignore_index=True), unknown)
