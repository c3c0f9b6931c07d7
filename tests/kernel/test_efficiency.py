"""`%%tprofile --efficiency` in a real kernel."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel

CELL = """\
%%tprofile --efficiency
for i in range(20):
    y = a @ a
    z = y + 1
z.shape"""
PLANTED = """\
from torchbench_magic.profiling.efficiency import judge
from torchbench_magic.process.peak_performance import Peaks
measured = judge.peaks_here
judge.peaks_here = lambda threads, progress: Peaks(
    threads, (("float32", threads, 2e11),), ((1 << 20, threads, 1e11), (1 << 28, threads, 3e10)), 1e-6,
    (("L1", 1 << 15), ("L2", 1 << 20), ("L3", 1 << 25)), 0.0, True)
judge.class_of = lambda seconds, roof, *args, **kwargs: roof[1]"""
"""On a busy machine peaks of several threads are not known, and what is far below its roof has no class."""
MORE = 25_000
"""Bytes that the option may add to an output."""


def prepared(made: Kernel) -> Kernel:
    assert not made.run("import os\nos.environ['XDG_CACHE_HOME'] = os.path.abspath('cache')").error
    assert not made.run("import torch\ntorch.manual_seed(0)\na = torch.rand(512, 512)").error
    return made


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    made = prepared(start_kernel())
    assert not made.run(PLANTED).error
    return made


@pytest.mark.slow
def test_classes_the_roofline_and_what_is_stored(kernel: Kernel) -> None:
    before = kernel.run("torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled()").text()
    ran = kernel.run(CELL)
    assert not ran.error
    (value,) = (each for each in ran.outputs if each["output_type"] == "execute_result")
    assert value["data"]["text/plain"] == "torch.Size([512, 512])"
    shown = ran.text()
    assert "of roof" in shown
    assert "Bandwidth, GB/s" in shown
    assert "Hardware counters" in shown
    assert "tb-roof" in ran.text("text/html")
    assert kernel.run("torch.get_num_threads(), torch.initial_seed(), torch.is_grad_enabled()").text() == before

    after = kernel.run(
        "_tprofile.save('p.sqlite')\nfrom torchbench_magic import load\n"
        "repr(load('p.sqlite')[-1].efficiency) == repr(_tprofile.efficiency)"
    )
    assert not after.error
    assert after.text() == "True"

    plain = kernel.run(CELL.replace(" --efficiency", " --flops"))
    again = kernel.run(CELL.replace("20", "21"))
    sizes = [len(json.dumps(each.outputs, ensure_ascii=False).encode()) for each in (plain, again)]
    assert sizes[1] - sizes[0] < MORE


@pytest.mark.slow
def test_nothing_of_the_machine_can_be_read(start_kernel: Callable[..., Kernel]) -> None:
    """As on macOS, or where /proc and /sys are hidden: each missing thing is one line, and the rest is there."""
    kernel = prepared(start_kernel())
    hide = """\
import glob, pathlib
from torchbench_magic.process import contention
from torchbench_magic.profiling.efficiency import judge
import os
os.environ["XDG_CACHE_HOME"] = os.path.abspath("other")
contention._stat = lambda: (float("nan"), float("nan"))
glob.glob = lambda *a, **k: []
def denied(self):
    raise PermissionError(self)
pathlib.Path.iterdir = denied
unknown = lambda: contention.ProcessUse()
from torchbench_magic.profiling import recorder
judge.read_use = recorder.read_use = unknown"""
    assert not kernel.run(hide).error
    ran = kernel.run(f"{CELL}  # other peaks: none are kept for this cache")
    assert not ran.error
    shown = " ".join(ran.text().split())
    for said in (
        "Cache sizes: unknown here",
        "Whether other processes used the CPU while peaks were measured is unknown here",
        "Page faults of the run: not available here",
        "Hardware counters: not read",
    ):
        assert said in shown
    assert kernel.run("_tprofile.efficiency.coverage >= 0").text() == "True"
