"""Folded stacks: never empty, one stack a line whatever is in the names, and they add up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torchbench_magic.errors import InputError, OptionError
from torchbench_magic.profiling.call_tree_tables import folded, write_stacks
from torchbench_magic.profiling.schema import FRAME_COLUMNS, frame_of

HOSTILE = ('a;b"c', "two\nlines", "\u2028", 'x" 12', "", "</script>")

# thread > line > op > op, and a range with a hostile name
FRAMES = frame_of(
    FRAME_COLUMNS,
    {
        "parent": [-1, 0, 1, 2, 1],
        "kind": ["thread", "line", "op", "op", "python"],
        "name": ["MainThread", "In[3]:4", "aten::linear", "aten::addmm", 'r;"\n'],
        "source": [None, "y = f(x)", None, None, None],
        "self_time": [0.001, 0.002, 0.003, 4e-7, 0.005],
        "self_cpu_time": [0.0, 0.0, 0.003, 4e-7, 0.0],
        "allocated": [0, 0, 0, 400, 0],
    },
)


def test_each_line_is_a_stack_and_its_own_cost_in_nanoseconds() -> None:
    assert folded(FRAMES, "time") == (
        "MainThread 1000000\n"
        "MainThread;In[3]:4 y = f(x) 2000000\n"
        "MainThread;In[3]:4 y = f(x);aten::linear 3000000\n"
        "MainThread;In[3]:4 y = f(x);aten::linear;aten::addmm 400\n"
        "MainThread;In[3]:4 y = f(x);r\\x3b'\\n 5000000\n"
    )


def test_torchs_own_metric_is_the_time_in_ops() -> None:
    lines = folded(FRAMES).splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["3000000", "400"]
    assert folded(FRAMES, "bytes") == "MainThread;In[3]:4 y = f(x);aten::linear;aten::addmm 400\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_can_neither_end_a_frame_nor_a_line(name: str) -> None:
    (line,) = folded(FRAMES.iloc[:4].assign(name=name, source=None), "bytes").splitlines()
    found = re.fullmatch(r"([^;]+;){3}[^;]+ (\d+)", line)
    assert found is not None
    assert found[2] == "400"


def test_what_was_not_recorded_is_an_error_that_names_what_was(tmp_path: Path) -> None:
    file = tmp_path / "stacks.txt"
    with pytest.raises(InputError, match=r"no device time was recorded.*self_cpu_time_total.*bytes") as raised:
        write_stacks(FRAMES, file, "self_cuda_time_total")
    assert "\n" not in str(raised.value)
    assert not file.exists(), "never 0 bytes"


def test_an_unknown_metric_lists_those_there_are() -> None:
    with pytest.raises(OptionError, match=r"'tiem' is unknown; use one of self_cpu_time_total, .*self_cuda_time_total"):
        folded(FRAMES, "tiem")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        write_stacks(FRAMES, tmp_path / "no such folder" / "stacks.txt")
