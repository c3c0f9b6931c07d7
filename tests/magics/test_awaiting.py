"""Cells that await are rewritten to await their magic; all others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic.notebook import startup

Run = Callable[..., str]
AWAITING = "%%tprofile -q\nimport asyncio\ny = await asyncio.sleep(0, 7)\n"


@pytest.mark.parametrize(
    "body",
    [
        "await f()",
        "x = [await f() for _ in 'ab']",
        "async with f() as g:\n    pass",
        "async for i in f():\n    pass",
        "!ls\nawait f()",
        "# --- setup\nawait f()\n# --- a\n1\n# --- b\n2",
    ],
)
@pytest.mark.parametrize("magic", ["%%timer", "%%tprofile --memory"])
def test_a_cell_that_awaits_is_awaited(loaded: InteractiveShell, magic: str, body: str) -> None:
    text = loaded.transform_cell(f"{magic}\n{body}")
    assert text.startswith("await ")
    assert loaded.should_run_async("", transformed_cell=text)


@pytest.mark.parametrize(
    "cell",
    [
        "%%timer\nx + 1",
        "%%timer\ns = 'await f()'",
        "%%timer\nasync def f():\n    await g()",
        "%%timer\nawait = = 1",
        "%%time\nawait f()",
        "%%timers\nawait f()",
    ],
)
def test_any_other_cell_is_left_alone(loaded: InteractiveShell, cell: str) -> None:
    assert loaded.transform_cell(cell).startswith("get_ipython().run_cell_magic(")


def test_a_magic_of_the_users_is_left_alone(loaded: InteractiveShell) -> None:
    loaded.register_magic_function(lambda line, cell: None, "cell", "timer")
    assert loaded.transform_cell("%%timer\nawait f()").startswith("get_ipython()")


def test_without_autoawait_one_line_says_so(loaded: InteractiveShell, run: Run) -> None:
    loaded.autoawait = False
    shown = run(loaded, AWAITING)
    assert shown.startswith("UsageError: await needs a cell of its own that begins with %%tprofile, and %autoawait on")


def test_a_cell_is_not_complete_after_its_first_await(loaded: InteractiveShell) -> None:
    assert loaded.check_complete("%%timer\nawait f()")[0] == "incomplete"


def test_the_first_use_of_a_lazy_magic_may_await(shell: Any, run: Run) -> None:
    startup.install(shell)
    shell.magics_manager.register_lazy("tprofile", "torchbench_magic.notebook.lazy")
    assert run(shell, AWAITING) == ""
    assert shell.user_ns["y"] == 7
    lines = shell.user_ns["_tprofile"].lines.dropna(subset=["cell"])
    assert {(1, 2), (1, 3)} <= {(int(row.cell), int(row.line)) for row in lines.itertuples()}


def test_installing_twice_is_installing_once(shell: InteractiveShell) -> None:
    startup.install(shell)
    startup.install(shell)
    assert sum(isinstance(t, startup.AwaitingCells) for t in shell.input_transformers_cleanup) == 1
    startup.withdraw_awaiting(shell)
    assert not any(isinstance(t, startup.AwaitingCells) for t in shell.input_transformers_cleanup)


def test_a_refused_option_in_the_first_cell_of_a_kernel_has_a_traceback_to_reply_with(
    loaded: InteractiveShell, run: Run
) -> None:
    """ipykernel replies with it, and until a cell that does not await has run there is none."""
    assert not hasattr(loaded, "_last_traceback")
    assert run(loaded, "%%timer -t 0\nimport asyncio\nawait asyncio.sleep(0)").startswith("UsageError: %%timer: -t")
    assert loaded._last_traceback is None
    del loaded._last_traceback
