"""`%%timer --engines` in a real kernel, against a real cluster of two engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import Kernel

from .conftest import RunningCluster, kernel_of

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

SET_UP = """
import os, signal, threading, time, torch
from torchbench_magic import load
def scaled(t, by=3):
    return t.mul(by)
def interrupt_when(file):
    def watch():
        while not os.path.exists(file):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=watch, daemon=True).start()
"""


@pytest.fixture(scope="module")
def kernel(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with kernel_of(cluster, tmp_path_factory.mktemp("notebook")) as kernel:
        assert not kernel.run(SET_UP).error
        yield kernel


def test_a_sweep_of_a_cell_is_measured_on_an_engine_and_stored(kernel: Kernel) -> None:
    ran = kernel.run(
        '%%timer --engines engines --sweep "n=[1, 2]" -n 3 -r 8 -t 1 --save points.sqlite\n'
        "# --- setup\nx = torch.ones(n)\n# --- by_function\nscaled(x)\n# --- by_hand\nx * 3"
    )
    assert not ran.error, ran.error
    text = ran.text()
    assert "load" in text
    assert "measured on " in " ".join(text.split())
    seen = kernel.run(
        "from torchbench_magic import load\n(kept,) = load('points.sqlite')\n"
        "print(kept.frame['n'].tolist(), {s.place.engine for s in kept.subjects}, kept.frame['label'][0])"
    ).stdout
    assert seen.startswith("[1, 1, 2, 2] {0} In[")


def test_an_interrupt_of_the_kernel_keeps_what_is_finished_and_frees_the_engines(
    kernel: Kernel, tmp_path: Path
) -> None:
    mark = tmp_path / "second"
    kernel.run(f"interrupt_when({str(mark)!r})")
    ran = kernel.run(
        '%%timer --engines engines --sweep "n=[0, 30]" -n 1 -r 3 -t 1 --save stopped.sqlite\n'
        f"# --- setup\nimport time\nif n: open({str(mark)!r}, 'w').close()\n# --- nap\ntime.sleep(n)\n# --- none\nn"
    )
    assert "KeyboardInterrupt" in ran.error
    assert "Partial: interrupted" in ran.text()
    seen = kernel.run(
        "print(_timer.partial, _timer.frame['n'].tolist(), [r.frame['n'].tolist() for r in load('stopped.sqlite')])"
    ).stdout
    assert seen == "True [0, 0] [[0, 0]]\n"
    again = kernel.run("%timer --engines engines -n 1 -r 3 -t 1 sum((1, 2))")
    assert not again.error
    assert "2 engines of 1 host" in " ".join(again.text().split())


def test_an_exception_of_the_code_ends_the_cell_on_its_own_line(kernel: Kernel) -> None:
    ran = kernel.run('%%timer --engines engines --sweep "n=[1, 2]" -n 1 -r 3\ny = 1\n(1).nope')
    assert "AttributeError" in ran.error
    assert "Raised on engine 0" in ran.error
    assert "torchbench_magic" not in ran.error.replace("%load_ext torchbench_magic", "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%timer --engines nowhere sum((1, 2))", "ipcluster start -n 2 --profile=nowhere"),
        ("%timer --engines engines --processes sum((1, 2))", "use either processes"),
        ("%timer --engines engines --callgrind sum((1, 2))", "--callgrind counts the same on every engine"),
        ("%%timer --engines engines --cpp\nf();", "--cpp is compiled and timed in this session"),
        ("%%timer --engines engines\nimport asyncio\nawait asyncio.sleep(0)", "code that awaits is timed in this"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(kernel: Kernel, line: str, said: str) -> None:
    ran = kernel.run(line)
    shown = ran.stderr + ran.stdout + ran.error
    assert said in shown
    assert len(shown.strip().splitlines()) == 1, shown
