"""``.table()`` beside torch's ``key_averages().table()`` of the same run; grouping by line, module and stack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch_versions import has_time_unit  # noqa: E402
from torchbench_magic import profile  # noqa: E402
from torchbench_magic.errors import InputError, OptionError  # noqa: E402
from torchbench_magic.profiling import recorder as run_module  # noqa: E402
from torchbench_magic.profiling import torch_table  # noqa: E402
from torchbench_magic.profiling.call_tree_tables import ops_by_stack  # noqa: E402
from torchbench_magic.profiling.ops_view import operations  # noqa: E402
from torchbench_magic.profiling.profile import Profile  # noqa: E402

from .running import KeptKineto  # noqa: E402

CODE = """def scaled(x):
    return x * 2
for _ in range(3):
    y = scaled(net(x))
y.sum().backward()
z = scaled(y)
"""


@pytest.fixture(scope="module")
def both() -> tuple[Profile, Any]:
    """A profile, and torch's averages of the same events."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    kept, run_module.Kineto = run_module.Kineto, KeptKineto  # type: ignore[misc]
    try:
        made = profile(CODE, globals={"net": net, "x": torch.ones(4, 8)}, memory=True, shapes=True)
    finally:
        run_module.Kineto = kept  # type: ignore[misc]
    return made, KeptKineto.last


def header(table: str) -> list[str]:
    return re.split(r"\s{2,}", table.splitlines()[1].strip())


def rows(table: str) -> dict[str, dict[str, str]]:
    """Name -> header -> cell; the columns lie where the dashes are."""
    rule, head, *_ = table.splitlines()
    spans = [found.span() for found in re.finditer(r"-+", rule)]
    names = [head[a:b].strip() for a, b in spans]
    found = {}
    for line in table.splitlines()[3:]:
        if line.startswith("--"):
            break
        cells = [line[a:b].strip() for a, b in spans]
        found[cells[0]] = dict(zip(names, cells, strict=True))
    return found


@pytest.mark.parametrize("by_shape", [False, True])
def test_the_headers_are_torchs(both: tuple[Profile, Any], by_shape: bool) -> None:
    ours, torchs = both
    theirs = torchs.key_averages(group_by_input_shape=by_shape).table()
    found = header(ours.table(group_by_input_shape=by_shape))
    # torch has a column for shapes whenever they were recorded; without grouping it holds those of any call
    expected = [name for name in header(theirs) if by_shape or name != "Input Shapes"]
    assert found == expected


def test_calls_and_bytes_are_torchs(both: tuple[Profile, Any]) -> None:
    ours, torchs = both
    theirs = rows(torchs.key_averages().table(row_limit=-1, max_name_column_width=55))
    mine = rows(ours.table(row_limit=-1))
    assert len(mine) > 15
    for name, cells in mine.items():
        for column in ("# of Calls", "CPU Mem", "Self CPU Mem"):
            assert cells[column] == theirs[name][column], (name, column)


def test_times_are_torchs_to_a_tenth(both: tuple[Profile, Any]) -> None:
    """Of ops; a range of torch's holds what the profiler itself does, ours too."""
    ours, torchs = both
    theirs = {row.key: row for row in torchs.key_averages()}
    for name, group in ours.ops.groupby("op"):
        assert group["self_cpu_time"].sum() * 1e6 == pytest.approx(theirs[name].self_cpu_time_total, rel=0.1, abs=5)


@pytest.mark.parametrize(
    ("key", "column"),
    [
        ("self_cpu_time_total", "self_cpu_time"),
        ("cpu_time", "cpu_time"),
        ("count", "calls"),
        ("self_cpu_memory_usage", "allocated"),
        ("calls", "calls"),
    ],
)
def test_old_and_new_names_sort(both: tuple[Profile, Any], key: str, column: str) -> None:
    ours, _ = both
    sums = ours.ops.groupby("op")[column].sum()
    order = [float(sums[name]) for name in rows(ours.table(sort_by=key, row_limit=-1)) if name in sums.index]
    assert order == sorted(order, reverse=True)
    assert order[0] > order[-1]


def test_wrong_keys_say_what_there_is(both: tuple[Profile, Any]) -> None:
    ours, _ = both
    with pytest.raises(OptionError, match=r"'tiem' is unknown; use one of .*self_cpu_time_total.*cuda_time_total"):
        ours.table(sort_by="tiem")
    with pytest.raises(OptionError, match="use s, ms or us"):
        ours.table(time_unit="h")
    with pytest.raises(OptionError, match="stack:N"):
        operations(ours, group_by="stack:0")
    plain = profile("x + 1", globals={"x": torch.ones(2)})
    for ask in (lambda: plain.table(group_by_input_shape=True), lambda: operations(plain, group_by="shape")):
        with pytest.raises(InputError, match="--shapes"):
            ask()


def test_the_header_is_torchs(both: tuple[Profile, Any]) -> None:
    assert both[0].table(header="a title", row_limit=3).splitlines()[1] == "a title"


@has_time_unit
def test_the_time_unit_is_torchs(both: tuple[Profile, Any]) -> None:
    table = both[0].table(time_unit="ms", row_limit=3)
    assert re.search(r"\d\.\d{3}ms", table)
    assert "us " not in table


def test_a_time_unit_that_torch_does_not_take_is_refused(
    both: tuple[Profile, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = torch_table.EventList.table

    def table(self: Any, row_limit: int, header: str | None) -> str:
        return theirs(self, row_limit=row_limit, header=header)

    monkeypatch.setattr(torch_table.EventList, "table", table)
    with pytest.raises(OptionError, match="this torch has no time_unit"):
        both[0].table(time_unit="ms")
    assert "aten::linear" in both[0].table()


def test_stacks_are_counted_in_frames_of_the_tree(both: tuple[Profile, Any]) -> None:
    ours, _ = both
    by_stack = ops_by_stack(ours.frames, 5)
    label = ours.sources[ours.source_id or ""].label
    found = {
        stack.replace("\n", " < "): int(calls)
        for stack, calls in by_stack[by_stack["op"] == "aten::mul"].groupby("stack")["calls"].sum().items()
    }
    assert found == {
        f"{label}:2 in scaled < {label}:4": 3,
        f"{label}:2 in scaled < {label}:6": 1,
        f"{label}:5": 1,  # only the last y is differentiated
    }
    shallow = ops_by_stack(ours.frames, 1)
    assert shallow[shallow["op"] == "aten::mul"].groupby("stack")["calls"].sum().to_dict() == {
        f"{label}:2 in scaled": 4,
        f"{label}:5": 1,
    }
    assert set(by_stack[by_stack["op"] == "aten::addmm"]["stack"]) == {f"net.0\nnet\n{label}:4"}


def test_every_grouping_holds_the_same_calls_and_self_time(both: tuple[Profile, Any]) -> None:
    ours, _ = both
    wholes = []
    for by in ("op", "shape", "line", "module", "stack", "stack:1"):
        table = operations(ours, group_by=by, row_limit=-1)
        at = [column.name for column in table.columns].index("self")
        cells = [row.cells for row in table.rows()]
        wholes.append((sum(row[1].value or 0 for row in cells), sum(row[at].value or 0 for row in cells)))
    assert len({calls for calls, _ in wholes}) == 1
    for _, seconds in wholes:
        assert seconds == pytest.approx(wholes[0][1], rel=1e-6)


def test_stacks_are_written_to_a_file(both: tuple[Profile, Any], tmp_path: Path) -> None:
    ours, _ = both
    ours.export_stacks(tmp_path / "stacks.txt", metric="time")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[^;]+(;[^;]+)* \d+", line) for line in lines)
    total = sum(int(line.rpartition(" ")[2]) for line in lines) / 1e9
    assert total == pytest.approx(ours.wall_time, rel=1e-6)
