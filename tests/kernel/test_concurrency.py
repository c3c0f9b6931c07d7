"""``%%tprofile --concurrency`` in a real kernel: what it shows, whose threads it counts, and that it ends."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs Linux' schedstat"),
]


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel("import torch, time\nx = torch.ones(300, 300)\ntorch.set_num_threads(1)")


@pytest.mark.slow
def test_it_shows_the_verdict_its_evidence_and_the_cell_to_compare(kernel: Kernel) -> None:
    ran = kernel.run("%%tprofile --concurrency\ntime.sleep(0.4)\ny = x @ x")
    assert not ran.error
    assert re.search(r"cores: [a-z -]+, \d", " ".join(ran.text().split()))
    assert "how the cores were used" in ran.text()
    assert "tb-cores" in ran.text("text/html")
    assert kernel.run("print(repr(_tprofile.concurrency.proof))").stdout.strip() == "''"  # threads wait no less


@pytest.mark.slow
def test_the_line_that_it_ends_with_runs(kernel: Kernel) -> None:
    cell = "%%tprofile --concurrency -q\nfor i in range(300): y = x @ x"
    given = f"from torchbench_magic.profiling.cores.verdict import proof_of\nproof = proof_of({cell!r}, 2, 1)"
    assert not kernel.run(given).error  # a run gives it, unless its threads waited most of the time
    ran = kernel.run("get_ipython().run_cell(proof.replace('--threads', '-n 2 -r 2 --threads')).raise_error()")
    assert not ran.error
    assert kernel.run("print(_timer.frame['num_threads'].tolist()[0])").stdout.strip() == "1"


def test_no_process_stays(kernel: Kernel) -> None:
    kernel.run("%%tprofile --concurrency -q\ntime.sleep(0.5)")
    left = "import subprocess, os\nprint(open(f'/proc/self/task/{os.getpid()}/children').read().split())"
    assert kernel.run(left).stdout.strip() == "[]"
