"""``%tcompare`` and the store in real kernels: results of one are there for the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchbench_magic import load

from .conftest import Kernel

pytestmark = pytest.mark.kernel

CELL = """\
%%timer -n 1 -r 3 -t 1 --label sum --save {store} --resume
# --- python
f(range(100))
# --- list
sum(list(range(100)))
"""


@pytest.fixture(scope="module")
def kernels(start_kernel: Callable[..., Kernel]) -> tuple[Kernel, Kernel]:
    """Two kernels that live at the same time, one with ``%load_ext`` and one with the startup file."""
    return start_kernel(), start_kernel(startup=True)


@pytest.mark.slow
def test_runs_of_two_kernels_stand_side_by_side(kernels: tuple[Kernel, Kernel], tmp_path: Path) -> None:
    store = tmp_path / "runs.sqlite"
    first, second = kernels
    for kernel, body in ((first, "min(x)"), (second, "max(x)")):
        assert not kernel.run(f"def f(x):\n    return {body}").error
        assert not kernel.run(CELL.format(store=store)).error
    assert len(load(store)) == 2  # the function that the cell calls is another one: --resume measured it again

    ran = second.run(f"%tcompare {store}")
    assert ran.kinds == ["display_data"]
    assert "runs.sqlite[0]" in ran.text()
    assert "runs.sqlite[1]" in ran.text("text/html")
    assert "undecided" in ran.text()
    assert second.run(f"Out[{second.number}] is _tcompare").text() == "True"

    ran = second.run(f"%config TorchBench.store = {str(store)!r}\n%tcompare --last")
    assert "Since the last stored run of python: source of f, line 2: " in " ".join(ran.text().replace("`", "").split())

    taken = first.run(CELL.format(store=store)).text()
    assert "1 point taken from" in " ".join(taken.split())
    assert len(load(store)) == 2
