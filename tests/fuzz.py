"""Damaged input of each kind that is read: ``python -m tests.fuzz KIND SEED COUNT`` prints what came of it as JSON.

An input is a good one with some of its bytes, or some of its values, changed. It may be read, or be refused by an error
of this package in one line; whatever else happens is a fault. The memory is that of the whole process above what it
takes to read the good inputs.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import pickle
import random
import re
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ODD: list[Any] = [
    0, 1, -1, 2**31, -(2**31), 2**63 - 1, -(2**63), 10**30, 1e308, float("nan"), float("inf"), "", "a", "\x00",
    "\udc80", "\u202e", None, True, [], {}, [[]], [None], {"float": "x"}, {"tuple": 1}, {"Doubt": {}}, "9" * 5000,
    "x" * 10_000,
]  # fmt: skip
ONE_LINE = re.compile(r"[^\n]+\Z")


def mutated_bytes(good: bytes, draw: random.Random) -> bytes:
    """Some bytes flipped, cut, doubled, moved or replaced."""
    data = bytearray(good)
    for _ in range(draw.choice((1, 1, 1, 2, 5, 20))):
        at = draw.randrange(len(data) + 1) if data else 0
        size = min(draw.choice((1, 1, 2, 4, 8, 100)), len(data) - at)
        match draw.randrange(8):
            case 0 if data and at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            case 1 if data and at < len(data):
                data[at] = draw.randrange(256)
            case 2:
                del data[at:]
            case 3:
                del data[at : at + size]
            case 4:
                data[at:at] = data[at : at + size] * draw.choice((1, 2, 50))
            case 5:
                data[at : at + size] = bytes(size)
            case 6:
                data[at : at + size] = b"\xff" * size
            case _:
                digits = [found.span() for found in re.finditer(rb"\d+", data)]
                if digits:
                    start, end = draw.choice(digits)
                    data[start:end] = draw.choice((b"0", b"-1", b"1e999", b"9" * 25, b"4294967295", b"x"))
    return bytes(data)


def mutated_json(value: Any, draw: random.Random) -> Any:
    """One value of a JSON document replaced, removed or doubled."""
    places = [*_places(value)]
    holder, key = draw.choice(places)
    match draw.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 2 if isinstance(holder, dict):
            holder[draw.choice(["a", "float", "tuple", "map", "Subject", "kind"])] = holder.pop(key)
        case _:
            holder[key] = draw.choice(ODD)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


@dataclass
class Kind:
    """Good inputs, how one is made bad, and what reads it.

    Attributes:
        make: draws a bad input.
        read: reads it.
    """

    make: Callable[[random.Random], Any]
    read: Callable[[Any], object]


def of_stores(folder: Path) -> Kind:
    from tests.profiling.profiles import profile_of_two_kernels
    from tests.timing.samples import pair
    from torchbench_magic import load

    path, bad = folder / "good.sqlite", folder / "bad.sqlite"
    pair(1e-6, 2e-6).save(path)
    profile_of_two_kernels().save(path)
    good = path.read_bytes()

    def make(draw: random.Random) -> bytes:
        if draw.random() < 0.5:
            return mutated_bytes(good, draw)
        shutil.copy(path, bad)
        with contextlib.closing(sqlite3.connect(bad)) as connection, connection:
            _change(connection, draw)
        return bad.read_bytes()

    def read(data: bytes) -> object:
        bad.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = load(bad)
            return [result.frame if hasattr(result, "frame") else result.ops for result in results]

    return Kind(make, read)


def _change(connection: sqlite3.Connection, draw: random.Random) -> None:
    """One value of a store replaced: a header, a number, bytes that are unpacked."""
    table, columns = draw.choice(
        [
            ("record", ["run", "kind", "version", "saved", "header", "header", "header", "header"]),
            ("packed", ["name", "position", '"column"', "dtype", "rows", "codec", "data", "data"]),
            ("measurement", ["identity", "median", "likeness", "row"]),
        ]
    )
    column = draw.choice(columns)
    rows = connection.execute(f"SELECT rowid, {column} FROM {table}" if table != "measurement" else
                              f"SELECT row, {column} FROM {table}").fetchall()  # fmt: skip
    number, value = draw.choice(rows)
    if column == "header" and draw.random() < 0.9:
        new: Any = json.dumps(mutated_json(json.loads(value), draw))
    elif column == "data" and draw.random() < 0.9:
        new = mutated_bytes(value, draw)
    else:
        new = draw.choice([item for item in ODD if not isinstance(item, list | dict) and item != 10**30])
        new = new.encode("utf-8", "replace").decode() if isinstance(new, str) else new
    key = "rowid" if table != "measurement" else "row"
    with contextlib.suppress(sqlite3.Error):  # a table that is STRICT refuses some
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (new, number))


def of_traces(folder: Path) -> Kind:
    from tests.profiling.profiles import profile_of_two_kernels
    from torchbench_magic import load_trace
    from torchbench_magic.profiling.chrome_trace import OWN_KEY

    path, bad = folder / "good.json", folder / "bad.json"
    profile_of_two_kernels().export_trace(path)
    ours = path.read_bytes()
    torchs = json.loads(ours)
    del torchs[OWN_KEY]
    packed = gzip.compress(ours, mtime=0)

    def make(draw: random.Random) -> bytes:
        match draw.randrange(5):
            case 0:
                return mutated_bytes(ours, draw)
            case 1:
                return mutated_bytes(packed, draw)
            case 2:
                return json.dumps(mutated_json(json.loads(ours), draw)).encode()
            case 3:
                return mutated_bytes(json.dumps(torchs).encode(), draw)
            case _:
                return json.dumps(mutated_json(json.loads(json.dumps(torchs)), draw)).encode()

    def read(data: bytes) -> object:
        bad.write_bytes(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load_trace(bad).ops

    return Kind(make, read)


def of_pickles(folder: Path) -> Kind:
    from torch.utils.benchmark import Measurement
    from torch.utils.benchmark.utils.common import TaskSpec

    from torchbench_magic import load_torch_pickle

    spec = TaskSpec("x + 1", "x = 1", label="l", sub_label="s", description="d", num_threads=2)
    given = [Measurement(10, [1e-6, 2e-6], spec, {"a": 1}), Measurement(1, [1.0], spec)]
    goods = [pickle.dumps(given, protocol) for protocol in range(6)]
    bad = folder / "bad.pkl"

    def read(data: bytes) -> object:
        bad.write_bytes(data)
        return load_torch_pickle(bad)

    return Kind(lambda draw: mutated_bytes(draw.choice(goods), draw), read)


CALLGRIND = """\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 1
cmd: python
part: 2

positions: line
events: Ir
summary: 61

ob=(1) /usr/lib/libtorch.so
fl=(1) add.cpp
fn=(1) at::add
10 20
+1 1
cob=(2) /usr/lib/libc.so
cfi=(2) malloc.c
cfn=(2) malloc
calls=2 5
12 40

ob=(2)
fl=(2)
fn=(2)
5 40
totals: 61
"""


def of_callgrind_files(folder: Path) -> Kind:
    from torchbench_magic.counting.callgrind_file import parse

    def read(data: bytes) -> object:
        return parse(data.decode(errors="replace"))

    assert parse(CALLGRIND).total == 61
    return Kind(lambda draw: mutated_bytes(CALLGRIND.encode(), draw), read)


def of_configs(folder: Path) -> Kind:
    from traitlets.config import Config

    from torchbench_magic.notebook.config import TorchBench, declare

    names = [*TorchBench.class_own_traits(config=True)]

    class Shell:
        """What `declare` needs of one."""

        def __init__(self, values: dict[str, Any]) -> None:
            self.config, self.configurables = Config({"TorchBench": values}), list[Any]()

    def make(draw: random.Random) -> dict[str, Any]:
        return {name: draw.choice([*ODD, 0.5, "html", -0.0, b"x", {1}]) for name in draw.sample(names, 2)}

    def read(values: dict[str, Any]) -> object:
        with contextlib.redirect_stderr(io.StringIO()):
            return declare(Shell(values)).defaults()

    return Kind(make, read)


KINDS = {
    "stores": of_stores,
    "traces": of_traces,
    "pickles": of_pickles,
    "callgrind files": of_callgrind_files,
    "configs": of_configs,
}


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz(kind: str, seed: int, count: int) -> dict[str, Any]:
    """What came of ``count`` inputs: read, refused (by kind of error), and faults with the input that makes them."""
    from torchbench_magic.errors import TorchBenchError

    with tempfile.TemporaryDirectory() as folder:
        made, draw = KINDS[kind](Path(folder)), random.Random(seed)
        outcomes, faults, longest = Counter[str](), list[dict[str, str]](), 0.0
        before = 0.0
        for number in range(count):
            data = made.make(draw)
            began = time.monotonic()
            try:
                made.read(data)
                outcomes["read"] += 1
            except TorchBenchError as error:
                outcomes[type(error).__name__] += 1
                if not ONE_LINE.match(str(error)):
                    faults.append({"error": f"more than one line: {error}"})
            except Exception as error:
                shown = base64.b64encode(data[:20_000]).decode() if isinstance(data, bytes) else repr(data)
                said = f"{type(error).__name__}: {error}"[:300]
                faults.append({"error": said, "number": str(number), "input": shown})
            longest = max(longest, time.monotonic() - began)
            if number == min(200, count // 10):
                before = peak_mib()
    return {"count": count, "outcomes": outcomes, "faults": faults[:20], "faulty": len(faults), "longest": longest,
            "mib": peak_mib() - before}  # fmt: skip


if __name__ == "__main__":
    json.dump(fuzz(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])), sys.stdout)
