"""``torch.compile``: what compiling takes is one row on the call line, compiled code stands on its function's."""

from __future__ import annotations

import contextlib
import shutil
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import profile  # noqa: E402
from torchbench_magic.profiling.attribution import COMPILING, gather_compiling  # noqa: E402
from torchbench_magic.profiling.events import Events  # noqa: E402

TEXT = """def work(x):
    y = x.sin()
    return (y + 1).relu()
compiled = torch.compile(work, backend=backend)
x = torch.ones(16)
first = compiled(x)
again = compiled(x)
plain = work(x)
"""


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("aot_eager", marks=pytest.mark.compiler),
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.compiler,
                pytest.mark.one_of_each,
                pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs g++"),
                pytest.mark.skipif(" " in torch.__file__, reason="inductor quotes no path with a space"),
            ],
        ),
    ],
)
def test_compiling_is_one_row_beside_the_call_and_compiled_code_stands_on_its_def_line(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # the compiler's progress bar would leave a thread
    with_one: Any = contextlib.nullcontext()
    if backend == "inductor":
        inductor = pytest.importorskip("torch._inductor.config")
        with_one = inductor.patch({"compile_threads": 1})  # no pool of compilers that stays
    torch._dynamo.reset()
    with with_one:
        result = profile(TEXT, globals={"torch": torch, "backend": backend})
    ops = result.ops.dropna(subset="line")
    (compiling,) = ops[ops["op"] == COMPILING].to_dict("records")
    assert (compiling["line"], compiling["calls"]) == (6, 1)
    assert compiling["cpu_time"] > 0
    assert COMPILING in result.ranges
    rest = ops[ops["op"] != COMPILING]
    assert not rest["op"].str.contains("dynamo_timed").any()
    lines = {line: set(found["op"]) for line, found in rest.groupby("line")}
    assert {"aten::sin", "aten::relu"} <= lines[2] | lines[3], "the plain call has its own lines"
    assert 1 in lines, "compiled code is on its `def`"
    assert result.lines.set_index("line")["calls"][[2, 3, 6, 7, 8]].to_dict() == dict.fromkeys([2, 3, 6, 7, 8], 1)
    if backend == "aot_eager":
        sines = rest[rest["op"] == "aten::sin"].set_index("line")["calls"].to_dict()
        assert sines.keys() == {1, 2}
        assert sines[2] == 1
    else:
        assert any("aten::" not in op for op in lines[7]), "the compiled region and its kernel"
        assert "aten::sin" not in lines[6] | lines[7]
    took = result.lines.set_index("line")
    assert took.loc[6, "wall_time"] >= compiling["cpu_time"]
    assert set(ops[ops["op"] == COMPILING]["line"]) == {6}, "the second call compiles nothing"
    assert took.loc[6, "wall_time"] + took.loc[7, "wall_time"] <= result.wall_time
    own = result.lines[result.lines["thread"] == 0]
    assert (own["self_cpu_time"] + own["python_time"]).sum() == pytest.approx(result.wall_time, rel=0.01)


def events(*rows: tuple[str, int, int, int]) -> Events:
    """(name, start, end, thread) of each."""
    names = tuple(dict.fromkeys(row[0] for row in rows))
    kinds = tuple("user_annotation" if row[0].startswith("my ") else "cpu_op" for row in rows)
    distinct = tuple(dict.fromkeys(kinds))
    numbers: dict[str, Any] = {
        "name": [names.index(row[0]) for row in rows],
        "kind": [distinct.index(kind) for kind in kinds],
        "start": [row[1] for row in rows],
        "end": [row[2] for row in rows],
        "native": [row[3] for row in rows],
    }
    columns = ("device", "tid", "fwd", "seq", "scope", "corr", "link", "nbytes")
    zeros = {name: np.zeros(len(rows), dtype=np.int64) for name in columns}
    return Events(names, distinct, ("cpu",), **{name: np.array(v) for name, v in numbers.items()}, **zeros)


def named(found: Events) -> list[str]:
    return [found.names[i] for i in found.name]


def test_ops_inside_a_compilation_are_part_of_it_and_others_are_not() -> None:
    given = events(
        ("aten::mm", 0, 5, 1),
        ("my dynamo", 0, 100, 3),
        ("dynamo", 10, 50, 1),
        ("aten::sin", 12, 20, 1),
        ("aten::sin", 15, 18, 2),
        ("inner (dynamo_timed)", 22, 40, 1),
        ("aten::relu", 25, 30, 1),
        ("compile (dynamo_timed)", 60, 70, 1),
        ("aten::relu", 71, 72, 1),
    )
    made = gather_compiling(given)
    assert named(made) == ["aten::mm", "my dynamo", COMPILING, "aten::sin", COMPILING, "aten::relu"]
    assert made.native.tolist() == [1, 3, 1, 2, 1, 1]
    assert made.is_range.tolist() == [False, True, True, False, True, False]


def test_without_a_compilation_nothing_changes() -> None:
    given = events(("aten::mm", 0, 5, 1), ("aten::sin", 1, 2, 1))
    assert gather_compiling(given) is given
