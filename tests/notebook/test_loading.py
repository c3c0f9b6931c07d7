"""Loading, unloading, reloading, the startup file, and cells that await."""

from __future__ import annotations

import linecache
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic.notebook import startup

# ==== loading =========================================================================================================


ROOT = Path(__file__).parents[2]
STARTUP = ROOT / "jupyter-config" / "50-torchbench_magic.py"
Run = Callable[..., str]


def state(shell: Any) -> dict[str, Any]:
    """Everything of a shell that an extension might change."""
    if hasattr(shell.magics_manager, "load_all_lazy_magics"):  # IPython 9.10 has none of its own
        shell.magics_manager.load_all_lazy_magics()  # so that they are there before and after
    formatter = shell.display_formatter.mimebundle_formatter
    table = shell.magics_manager
    return {
        "magics": {kind: dict(found) for kind, found in table.magics.items()},
        "registry": set(table.registry),
        "lazy": dict(table.lazy_magics),
        "configurables": [type(item).__name__ for item in shell.configurables],
        "events": {name: list(found) for name, found in shell.events.callbacks.items()},
        "transformers": list(shell.input_transformers_cleanup),
        "tracebacks": {name: dict(vars(getattr(shell, name))) for name in ("InteractiveTB", "SyntaxTB")},
        "deferred": dict(formatter.deferred_printers),
        "types": set(formatter.type_printers),
        "display hook": sys.displayhook,
        "names": {name for name in shell.user_ns if not name.startswith("_")},
        "compiler": shell.compile.flags,
    }


def test_unloading_undoes_loading(shell: InteractiveShell) -> None:
    before = state(shell)
    for _ in range(2):
        shell.run_line_magic("load_ext", "torchbench_magic")
        assert state(shell) != before
        shell.run_line_magic("unload_ext", "torchbench_magic")
        assert state(shell) == before


def test_unloading_undoes_what_the_magics_did(shell: InteractiveShell) -> None:
    others = set(linecache.cache)  # other tests of this process keep sources there too
    shell.run_cell("x = 1", store_history=True)
    shell.run_line_magic("load_ext", "torchbench_magic")
    shell.run_cell("%timer -n 2 -r 2 -q x\nget_ipython().run_line_magic('timer', '-n 2 -r 2 -q x')", store_history=True)
    ours = {name for name in linecache.cache if name.startswith("<timer")} - others
    assert ours
    shell.run_line_magic("unload_ext", "torchbench_magic")
    assert not ours & set(linecache.cache)
    assert "_timer" in shell.user_ns  # a result is the user's


def test_reloading_is_loading_once(shell: InteractiveShell, run: Run) -> None:
    shell.run_line_magic("load_ext", "torchbench_magic")
    once = state(shell)["events"]["pre_run_cell"]
    shell.run_line_magic("reload_ext", "torchbench_magic")
    shell.run_line_magic("reload_ext", "torchbench_magic")
    assert len(state(shell)["events"]["pre_run_cell"]) == len(once)
    assert "UsageError" not in run(shell, "%timer -n 2 -r 2 1")


def test_an_explicit_load_takes_the_names_and_gives_them_back(shell: InteractiveShell, run: Run) -> None:
    mine = lambda line: "mine"
    shell.register_magic_function(mine, "line", "timer")
    shell.run_line_magic("load_ext", "torchbench_magic")
    assert shell.find_line_magic("timer") is not mine
    shell.run_line_magic("unload_ext", "torchbench_magic")
    assert shell.find_line_magic("timer") is mine


def start_up(shell: InteractiveShell) -> None:
    """Run the startup file as IPython does."""
    shell.safe_execfile(str(STARTUP), shell.user_ns, raise_exceptions=True)


def test_the_startup_file_declares_and_leaves_no_name_behind(shell: InteractiveShell) -> None:
    names = {name for name in shell.user_ns if not name.startswith("__")}
    start_up(shell)
    assert {name for name in shell.user_ns if not name.startswith("__")} == names
    assert "TorchBench" in [type(item).__name__ for item in shell.configurables]
    assert shell.magics_manager.lazy_magics["timer"] == shell.magics_manager.lazy_magics["tprofile"]
    assert "torchbench_magic" not in shell.extension_manager.loaded


def test_a_value_of_a_config_file_that_cannot_be_is_one_line_and_the_default_holds(
    shell: InteractiveShell, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.config.TorchBench.min_run_time = float("nan")
    shell.config.TorchBench.display = "no such"
    shell.config.TorchBench.store = "kept.sqlite"
    start_up(shell)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" is ignored, and its default used: ")[0] for line in sorted(lines)] == [
        "torchbench_magic: c.TorchBench.display",
        "torchbench_magic: c.TorchBench.min_run_time",
    ]
    (settings,) = (item for item in shell.configurables if type(item).__name__ == "TorchBench")
    assert settings.defaults() == {"min_run_time": 0.2, "max_run_time": None, "store": "kept.sqlite"}
    assert settings.display == "auto"
    for value in ("inf", "float('nan')", "-1"):
        run(shell, f"%config TorchBench.max_run_time = {value}")
    assert settings.max_run_time is None


def test_the_startup_file_is_turned_off_by_an_environment_variable(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHBENCH_MAGIC_AUTOLOAD", "0")
    before = state(shell)
    start_up(shell)
    assert state(shell) == before


def test_the_first_use_loads_and_unloading_forgets_the_declaration_too(shell: InteractiveShell, run: Run) -> None:
    before = state(shell)
    start_up(shell)
    run(shell, "%config TorchBench.min_run_time = 0.03")
    assert "UsageError" not in run(shell, "%timer -n 2 -r 2 1")
    (settings,) = (item for item in shell.configurables if type(item).__name__ == "TorchBench")
    assert settings.min_run_time == 0.03  # set before the first use, kept by it
    assert "torchbench_magic" in shell.extension_manager.loaded
    run(shell, "%unload_ext torchbench_magic")
    assert state(shell) == before
    assert "not found" in run(shell, "%timer 1")


def test_a_magic_of_the_users_wins_over_the_lazy_one(shell: InteractiveShell, run: Run) -> None:
    mine = lambda line: "mine"
    start_up(shell)
    shell.register_magic_function(mine, "line", "timer")
    run(shell, "%tprofile -q 1 + 1")
    assert "_tprofile" in shell.user_ns
    assert shell.find_line_magic("timer") is mine
    run(shell, "%load_ext torchbench_magic")  # told explicitly that it is loaded already
    run(shell, "%reload_ext torchbench_magic")
    assert shell.find_line_magic("timer") is not mine


def test_a_lazy_declaration_of_the_users_is_not_replaced(shell: InteractiveShell) -> None:
    shell.magics_manager.lazy_magics["timer"] = "my.own.module"
    start_up(shell)
    assert shell.magics_manager.lazy_magics["timer"] == "my.own.module"


def test_config_lists_and_checks_the_traits(loaded: InteractiveShell, run: Run) -> None:
    shown = run(loaded, "%config TorchBench")
    for name in ("min_run_time", "max_run_time", "display"):
        assert f"TorchBench.{name}=" in shown
    assert "Current: 0.2" in shown
    run(loaded, "%config TorchBench.min_run_time = -1")
    assert "Current: 0.2" in run(loaded, "%config TorchBench")


def test_traits_of_the_config_file_are_taken(shell: InteractiveShell) -> None:
    shell.config.TorchBench.min_run_time = 0.7
    shell.run_line_magic("load_ext", "torchbench_magic")
    (settings,) = (item for item in shell.configurables if type(item).__name__ == "TorchBench")
    assert settings.min_run_time == 0.7


@pytest.mark.parametrize(
    "code",
    [
        "shell.run_line_magic('load_ext', 'torchbench_magic')",
        f"shell.safe_execfile({str(STARTUP)!r}, shell.user_ns, raise_exceptions=True)",
    ],
)
def test_loading_imports_nothing_heavy(code: str) -> None:
    program = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
{code}
new = set(sys.modules) - before
heavy = {{"torch", "pandas", "numpy", "ipywidgets", "anywidget", "tabulate"}}
print(sorted(heavy & {{name.partition(".")[0] for name in new}}))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout.strip().splitlines()[-1] == "[]"


# ==== awaiting ========================================================================================================
# Cells that await are rewritten to await their magic; all others are left alone.


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
    shell.magics_manager.register_lazy("tprofile", "torchbench_magic.notebook.startup")
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
