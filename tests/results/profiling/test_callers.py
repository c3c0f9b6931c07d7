"""From an op to the lines, modules and shapes it is called with."""

from __future__ import annotations

import pytest

from tests.views.builders import profile_of
from torchbench_magic.errors import InputError
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import OP_COLUMNS, frame_of
from torchbench_magic.profiling.trace import Source

OPS = frame_of(
    OP_COLUMNS,
    {
        "op": ["aten::bmm", "aten::bmm", "aten::bmm", "mine"],
        "input_shapes": ["[[1]]", "[[1]]", "[[2]]", "[]"],
        "calls": [1, 2, 4, 1],
        "self_cpu_time": [0.1, 0.2, 0.1, 9.0],
        "cpu_time": [0.2, 0.2, 0.6, 9.0],
        "module": ["net.a", "net.a", "net.b", None],
        "cell": [3, 3, 3, 3],
        "line": [2, 2, 3, 3],
        "source_id": ["cell"] * 4,
        "file": ["<cell>"] * 4,
        "thread": [0] * 4,
    },
)


def made() -> Profile:
    sources = {"cell": Source("cell", "<cell>", "first\nsecond\nthird", cell=3)}
    return Profile(lines=profile_of().lines, ops=OPS, wall_time=1.0, num_threads=1, sources=sources)


def test_calls_of_one_line_module_and_shape_are_one_row_the_most_time_first() -> None:
    found = made().where("bmm")
    assert found[["line", "module", "input_shapes", "calls"]].to_numpy().tolist() == [
        [3, "net.b", "[[2]]", 4],
        [2, "net.a", "[[1]]", 3],
    ]
    assert found["cpu_time"].tolist() == pytest.approx([0.6, 0.4])
    assert found["share"].tolist() == pytest.approx([0.6, 0.4])
    assert found["source"].tolist() == ["third", "second"]


def test_the_full_name_and_a_range_are_found_too() -> None:
    assert len(made().where("aten::bmm")) == 2
    assert made().where("mine")["cpu_time"].tolist() == [9.0]


def test_an_unknown_op_is_a_one_line_error_with_those_near_it() -> None:
    with pytest.raises(InputError, match=r"no op 'bm' in this profile; similar names: bmm"):
        made().where("bm")
    with pytest.raises(InputError, match=r"^no op 'zzzzzz' in this profile$"):
        made().where("zzzzzz")
