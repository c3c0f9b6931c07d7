"""Records travel: what is measured here loads where only torch is installed, and the other way round."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils.benchmark import Compare as TorchCompare

from torchbench_magic.benchmark import CallgrindStats, Compare, Measurement, Timer
from torchbench_magic.counting.counts import stats_of
from torchbench_magic.storage.torch_pickles import load_torch_pickle

pytestmark = pytest.mark.interpreter

# what runs in a process that has torch and not this package
READ = """
import pickle, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torchbench_magic":
            raise ImportError("this process has torch alone")
sys.meta_path.insert(0, Absent())
from torch.utils.benchmark import Compare
with open(sys.argv[1], "rb") as file:
    measurement, stats = pickle.load(file)
print(repr(measurement).partition("\\n")[2])
print(repr(stats).partition("\\n")[2])
print(Compare([measurement]))
"""
WRITE = """
import pickle, sys
from torch.utils.benchmark import Timer
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import CallgrindStats, FunctionCounts
measured = Timer("1 + 1", label="L", description="d", env="e").blocked_autorange(min_run_time=0.01)
assert not any(name.startswith("torchbench_magic") for name in sys.modules)
none = FunctionCounts._from_dict({"f": 3}, False), FunctionCounts._from_dict({"f": 4}, True)
stats = CallgrindStats(measured.task_spec, 10, True, none[1], none[0], none[1], none[0], "the file")
with open(sys.argv[1], "wb") as file:
    pickle.dump((measured, stats), file)
"""


def _alone(code: str, path: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=200, env=environment, cwd=path.parent
    ).stdout


def test_what_is_measured_here_loads_where_only_torch_is(tmp_path: Path) -> None:
    measured = Timer("1 + 1", label="L", description="d", env="e").blocked_autorange(min_run_time=0.01)
    counts = {"inclusive": {"a.c:f [lib.so]": 7}, "exclusive": {"a.c:f [lib.so]": 5}}
    stats = stats_of(counts, counts, 100, stmt="1 + 1", setup="pass")
    path = tmp_path / "records.pkl"
    path.write_bytes(pickle.dumps((measured, stats)))
    said = _alone(READ, path)
    assert repr(measured).partition("\n")[2] in said
    assert repr(stats).partition("\n")[2] in said
    assert str(TorchCompare([measured])) in said


def test_what_torch_alone_measured_loads_here(tmp_path: Path) -> None:
    path = tmp_path / "records.pkl"
    _alone(WRITE, path)
    measured, stats = pickle.loads(path.read_bytes())
    assert type(measured) is Measurement
    assert type(stats) is CallgrindStats
    assert (stats.counts(), stats.stmt_callgrind_out) == (3, "the file")
    assert str(Compare([measured])) == str(TorchCompare([measured]))
    assert [type(record) for record in load_torch_pickle(path)] == [Measurement, CallgrindStats]
