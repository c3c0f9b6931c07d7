"""What timed code logs, displays and draws, in a real kernel: of its first call only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import Kernel

pytestmark = pytest.mark.kernel

SETUP = """\
import logging, sys, threading
import ipywidgets, torch
import matplotlib.pyplot as plt
from tqdm.notebook import tqdm
logging.basicConfig(level=logging.INFO, force=True)
log = logging.getLogger("train")
bar = ipywidgets.IntProgress(max=10 ** 9)
known = ipywidgets.widgets.widget._instances
display(bar)
"""


@pytest.fixture(scope="module")
def kernel(start_kernel: Callable[..., Kernel]) -> Kernel:
    return start_kernel(SETUP)


def facts(kernel: Kernel) -> dict[str, int]:
    said = kernel.run("print([dict(d.facts) for d in _timer.warnings if d.kind == 'prints'])").stdout
    (found,) = eval(said)
    return dict(found)


def test_log_lines(kernel: Kernel) -> None:
    ran = kernel.run('%%timer\nlog.info("step %d", 3)\ntorch.rand(3).sum()')
    assert ran.stderr == "INFO:train:step 3\n"
    assert "Output after the first call was dropped" in ran.text()
    assert "grows" not in ran.text()
    assert facts(kernel)["characters"] % len(ran.stderr) == 0
    assert kernel.run('log.info("after")').stderr == "INFO:train:after\n"


def test_displayed_outputs(kernel: Kernel) -> None:
    ran = kernel.run("%%timer\ndisplay(torch.zeros(2))")
    shown = [o["data"]["text/plain"] for o in ran.outputs if o["output_type"] == "display_data"]
    assert len(shown) == 2
    assert shown[0] == "tensor([0., 0.])"
    assert facts(kernel)["displays"] > 1
    assert kernel.run("display(1)").text() == "1"


def test_figures_with_and_without_show(kernel: Kernel) -> None:
    for code in ("plt.figure(); plt.plot([1, 2]); plt.show()", "plt.figure(); plt.plot([1, 2])"):
        ran = kernel.run(f"%%timer -n 1 -r 3\n{code}")
        assert len([o for o in ran.outputs if "image/png" in o.get("data", {})]) == 1
        assert facts(kernel)["displays"] >= 1


def test_a_bar_of_each_call_is_shown_once_and_none_is_left_that_the_page_does_not_know(kernel: Kernel) -> None:
    before = int(kernel.run("print(len(known))").stdout)
    ran = kernel.run("%%timer -n 1 -r 3\nfor _ in tqdm(range(3)): pass")
    view = "application/vnd.jupyter.widget-view+json"
    assert len([o for o in ran.outputs if view in o.get("data", {})]) == 1
    assert facts(kernel)["widgets"] > 1
    after = int(kernel.run("print(len(known))").stdout)
    kernel.run("for _ in tqdm(range(3)): pass")
    assert int(kernel.run("print(len(known))").stdout) - after == after - before


def test_a_bar_that_was_there_shows_in_the_end_what_it_holds(kernel: Kernel) -> None:
    ran = kernel.run("%%timer\nbar.value += 1")
    assert not ran.error
    assert facts(kernel)["widgets"] > 1
    value = int(kernel.run("print(bar.value)").stdout)
    model = kernel.run("print(bar.model_id)").stdout.strip()
    assert kernel._client.widget_state[model]["value"] == value


@pytest.mark.parametrize("ends", ["1 / 0", "signal.raise_signal(signal.SIGINT)"])
def test_after_an_exception_or_an_interrupt_all_is_shown(kernel: Kernel, ends: str) -> None:
    kernel.run("import signal\ncalls = []")
    code = f"display(3)\nlog.info('once')\ncalls.append(1)\nif len(calls) == 5:\n    {ends}"
    ran = kernel.run(f"%%timer -n 1\n{code}")
    assert ("ZeroDivisionError" if "/" in ends else "KeyboardInterrupt") in ran.error
    assert ran.text().splitlines()[0] == "3"
    assert ran.stderr == "INFO:train:once\n"
    ran = kernel.run("display(4); log.info('again')\nprint('send' in vars(get_ipython().kernel.session))")
    assert (ran.text(), ran.stderr, ran.stdout) == ("4", "INFO:train:again\n", "False\n")
