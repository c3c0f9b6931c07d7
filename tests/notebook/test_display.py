"""What is displayed while a run is long, after it, with ``-q``, and of torch's own results."""

from __future__ import annotations

import gc
import io
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from torchbench_magic.notebook import display
from torchbench_magic.notebook.display import Output, ShownOnce

# ==== display =========================================================================================================
# Progress appears when a run is long, and the result takes its place.


class Publisher:
    def __init__(self) -> None:
        self.published: list[dict[str, Any]] = []

    def publish(self, **message: Any) -> None:
        self.published.append(message)


class FakeShell:
    """What `Output` needs of a shell: a kernel or none, and a publisher."""

    def __init__(self, *, kernel: bool, somebody: bool = False) -> None:
        self.kernel = SimpleNamespace(_allow_stdin=somebody) if kernel else None
        self.display_pub = Publisher()
        self.display_formatter = SimpleNamespace(format=lambda view: ({"text/html": "", "view": view}, {}))


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_run_shorter_than_a_second_shows_no_progress(clock: FakeClock) -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, clock=clock)
    for _ in range(9):
        clock.now += 0.1
        output.update(clock.now - 100, 1.0, "a")
    output.show({"text/plain": "result"})
    assert [(m["data"], m["update"]) for m in shell.display_pub.published] == [({"text/plain": "result"}, False)]


def test_progress_and_result_stand_in_one_place(clock: FakeClock) -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, clock=clock)
    clock.now += 1.2
    output.update(1.2, 3.0, "mul_sum, 2 threads")
    output.show({"text/plain": "result"})
    first, last = shell.display_pub.published
    line = "measuring mul_sum, 2 threads · 1.2 of 3.0 s · interrupt the kernel to stop and keep partial results"
    assert first["data"] == {"text/plain": line}
    assert (first["update"], last["update"]) == (False, True)
    assert first["transient"] == last["transient"]


def test_progress_changes_at_most_four_times_a_second(clock: FakeClock) -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, clock=clock)
    for _ in range(300):
        clock.now += 0.01
        output.update(1.0, None, "a")
    assert len(shell.display_pub.published) == 9  # from 1.0 to 3.0 s


def test_progress_is_taken_away_when_nothing_follows(clock: FakeClock) -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, clock=clock)
    clock.now += 2
    output.update(1.0, None, "a")
    output.clear()
    assert [m["data"]["text/plain"] for m in shell.display_pub.published][1:] == [""]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_written_over(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    shell = FakeShell(kernel=False)
    output = Output(shell, clock=clock)
    clock.now += 2
    output.update(1.0, 2.0, "a")
    assert terminal.getvalue() == "\r\x1b[Kmeasuring a · 1.0 of 2.0 s · Ctrl-C to stop and keep partial results"
    output.show({"text/plain": "result"})
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert [m["update"] for m in shell.display_pub.published] == [False]


def test_where_output_goes_to_a_file_no_progress_is_written(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stdout", written)
    output = Output(FakeShell(kernel=False), clock=clock)
    clock.now += 2
    output.update(1.0, 2.0, "a")
    assert written.getvalue() == ""


def test_what_was_shown_is_not_shown_again_but_stays_in_out(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.user_ns["mark"] = lambda value: ShownOnce.mark(shell, value) or value
    result = shell.run_cell("x = [1234]\nmark(x)", store_history=True)
    assert "1234" not in capsys.readouterr().out
    assert shell.user_ns["Out"][1] is shell.user_ns["_"] is result.result is shell.user_ns["x"]


def test_another_value_and_the_next_cell_are_shown_as_ever(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    hook = sys.displayhook
    shell.user_ns["mark"] = lambda value: ShownOnce.mark(shell, value)
    shell.run_cell("x = [1234]\nmark(x)\n5678", store_history=True)
    assert "5678" in capsys.readouterr().out
    shell.run_cell("x", store_history=True)
    assert "1234" in capsys.readouterr().out
    assert sys.displayhook is hook


def test_outside_a_cell_the_display_hook_is_left_alone(shell: Any) -> None:
    hook = sys.displayhook
    ShownOnce.mark(shell, [1])
    assert sys.displayhook is hook


# ---- where somebody sits before the kernel -----------------------------------------------------------------


def opened(clock: FakeClock, **options: Any) -> tuple[Output, FakeShell]:
    """An output whose run has just taken longer than a second."""
    shell = FakeShell(kernel=True, somebody=True)
    output = Output(shell, clock=clock, **options)
    clock.now += 1.2
    output.update(1.2, 3.0, "mul, 2 threads")
    return output, shell


def partial() -> Any:
    from torchbench_magic import compare

    return compare({"one": "x + 1", "two": "x * 2"}, globals={"x": 3}, min_run_time=0.002)


def test_a_live_view_takes_the_place_of_the_line_and_gives_way_to_the_result(clock: FakeClock) -> None:
    output, shell = opened(clock)
    (first,) = shell.display_pub.published
    view = first["data"]["view"]
    assert first["data"]["text/plain"].startswith("measuring mul, 2 threads · 1.2 of 3.0 s")
    assert (view.bar.what, view.bar.done, view.bar.total) == ("measuring mul, 2 threads", 1.2, 3.0)
    output.show({"text/html": "result"})
    last = shell.display_pub.published[-1]
    assert (last["data"], last["update"], last["transient"]) == ({"text/html": "result"}, True, first["transient"])
    assert view.comm is None, "no model stays for the notebook to save"


def test_the_table_is_drawn_once_a_second_and_in_a_twentieth_of_the_time(clock: FakeClock) -> None:
    output, shell = opened(clock)
    view, made = shell.display_pub.published[0]["data"]["view"], []

    def known() -> Any:
        made.append(clock.now)
        clock.now += 0.1  # what making it takes
        return partial()

    for _ in range(80):
        clock.now += 0.1
        output.watch(known)
    assert len(made) == 4
    assert min(b - a for a, b in pairwise(made)) >= 2.0
    assert [row["key"] for group in view.table.spec["tables"][0]["groups"] for row in group["rows"]] == ["0", "1"]
    assert view.children == (view.bar, view.table)


def test_nothing_is_drawn_of_a_run_that_knows_nothing_yet(clock: FakeClock) -> None:
    output, shell = opened(clock)
    clock.now += 5
    output.watch(lambda: None)
    view = shell.display_pub.published[0]["data"]["view"]
    assert view.children == (view.bar,)


def test_stop_is_offered_once_the_browser_was_heard_and_ends_the_run(clock: FakeClock) -> None:
    output, shell = opened(clock)
    view = shell.display_pub.published[0]["data"]["view"]
    assert not view.bar.can_stop
    view._on_message(view.bar, {"type": "hello"}, [])
    clock.now += 0.3
    output.update(1.5, 3.0, "mul")
    assert view.bar.can_stop
    view._on_message(view.bar, {"type": "stop"}, [])
    with pytest.raises(KeyboardInterrupt):
        output.update(1.6, 3.0, "mul")
    assert view.bar.stopping


def test_an_executed_notebook_has_a_line_of_text_and_no_widget(clock: FakeClock) -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, clock=clock)
    clock.now += 1.2
    output.update(1.2, 3.0, "mul")
    output.watch(lambda: pytest.fail("nobody would see it"))
    assert set(shell.display_pub.published[0]["data"]) == {"text/plain"}


def test_html_and_text_modes_have_a_line_of_text(clock: FakeClock) -> None:
    _, shell = opened(clock, live=False)
    assert set(shell.display_pub.published[0]["data"]) == {"text/plain"}


def test_a_long_first_call_is_shown_without_being_told_again() -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, delay=0.01)
    output.await_end(0.0, 1.0, "running the first call of a")
    assert output._alarm is not None
    output._alarm.join()
    (shown,) = shell.display_pub.published
    assert "running the first call of a" in str(shown)
    output.clear()


def test_a_short_first_call_is_not_shown() -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, delay=60.0)
    output.await_end(0.0, 1.0, "running the first call of a")
    output.update(0.0, 1.0, "warming up a")
    assert output._alarm is None
    assert not shell.display_pub.published


def test_what_is_cut_off_is_reached_by_the_name_that_holds_the_result(loaded: Any, run: Callable[..., str]) -> None:
    run(loaded, "import torch\nfrom torchbench_magic import profile\nx = torch.ones(3)")
    ops = "+".join(f"x.{name}()" for name in ("cos", "sin", "tan", "exp", "abs", "neg", "sqrt", "log", "ceil", "floor"))
    many = "; ".join(f"x.{name}_()" for name in ("cos", "sin", "tan", "exp", "abs", "neg", "sqrt", "ceil", "floor"))
    text = f"y = {ops}; {many}; y.sigmoid().relu().cumsum(0).sort().values.unique().sum()"
    assert "All rows: _tprofile.ops" in run(loaded, f"%%tprofile\n{text}")
    shown = run(loaded, f"p = profile('{text}', globals={{'x': x}})\np")
    assert "All rows: p.ops" in shown
    shown = run(loaded, f"profile('{text}', globals={{'x': x}})")
    assert "All rows: .ops" in shown
    shown = run(loaded, f"print(profile('{text}', globals={{'x': x}}))")
    assert "All rows: .ops" in shown
    assert "_tprofile" not in shown


def test_the_name_is_not_that_of_a_later_result(loaded: Any, run: Callable[..., str]) -> None:
    from torchbench_magic.notebook.display import _name_of

    run(loaded, "%timer -n 1 -r 2 -o first -- 1 + 1")
    assert _name_of(loaded, loaded.user_ns["first"]) == "_timer"
    run(loaded, "%timer -n 1 -r 2 1 + 1")
    assert _name_of(loaded, loaded.user_ns["first"]) == "first"
    assert _name_of(loaded, object()) == ""


class Waiting:
    """Takes what is published, and lets a test wait for it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.came = threading.Event()

    def publish(self, **message: Any) -> None:
        self.lines.append(message["data"]["text/plain"])
        self.came.set()


def test_the_seconds_of_a_compilation_are_counted_while_nobody_calls(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_EACH", 0.001)
    shell = FakeShell(kernel=True)
    shell.display_pub = waiting = Waiting()  # type: ignore[assignment]
    output = Output(shell, delay=0.0, clock=clock)
    output.count_up("compiling f")
    clock.now += 12
    waiting.came.clear()
    assert waiting.came.wait(20)
    output.counted()
    assert any(line.startswith("compiling f, 12 s · interrupt") for line in waiting.lines)
    published = len(waiting.lines)
    output.counted()
    assert len(waiting.lines) == published


def test_a_short_compilation_is_not_shown(clock: FakeClock) -> None:
    shell = FakeShell(kernel=True)
    output = Output(shell, clock=clock)
    output.count_up("compiling f")
    output.counted()
    assert shell.display_pub.published == []


def test_outside_of_a_cell_of_an_older_ipython_the_hook_stays_as_it_is() -> None:
    """Up to 9.0 IPython's trap counts the cells that run, and does not say whether one does."""
    hook = sys.displayhook
    ShownOnce.mark(SimpleNamespace(display_trap=SimpleNamespace(_nested_level=0)), [1])
    assert sys.displayhook is hook


# ==== quiet ===========================================================================================================
# What ``-q`` did not show is in no output either, and goes when its variable goes.


Run = Callable[..., str]


@pytest.mark.parametrize("keeping", ["del {name}", "{name} = None", "%reset -f"])
@pytest.mark.parametrize(
    ("cell", "name"),
    [("%%tprofile -q\ny = x + 1", "_tprofile"), ("%tprofile -q x + 1", "_tprofile"),
     ("%timer -q -n 2 -r 2 x + 1", "_timer"), ("%%timer -q -n 2 -r 2\nx + 1", "_timer")],
)  # fmt: skip
@pytest.mark.slow
def test_a_quiet_result_is_in_its_variable_and_nowhere_else(
    loaded: Any, run: Run, cell: str, name: str, keeping: str
) -> None:
    loaded.user_ns["x"] = 1.0
    run(loaded, cell)
    result = loaded.user_ns[name]
    assert all(loaded.user_ns.get(place) is not result for place in ("_", "__", "___"))
    assert not loaded.user_ns["Out"]
    assert all(value is not result for value in loaded.user_ns_hidden.values())
    assert loaded.last_execution_result.result is None
    gone = weakref.ref(result)
    del result
    gc.collect()
    gc.disable()  # what is collected at some time is held until then
    try:
        run(loaded, keeping.format(name=name))
        assert gone() is None
    finally:
        gc.enable()


def test_what_could_not_be_stored_is_told_though_nothing_else_is(
    loaded: Any, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    run(loaded, "import shutil")
    said = run(loaded, "%%tprofile -q --trace runs/t.json\nshutil.rmtree('runs')")
    assert "The trace could not be written: " in said
    assert "`.export_trace(PATH)` writes it." in said
    assert "wall time" not in said


def test_a_result_that_was_shown_stays_in_out_as_ever(loaded: Any, run: Run) -> None:
    loaded.user_ns["x"] = 1.0
    run(loaded, "%tprofile x + 1")
    assert loaded.user_ns["Out"][1] is loaded.user_ns["_"] is loaded.user_ns["_tprofile"]


# ==== torch display ===================================================================================================
# torch's own results, as the last value of a cell in a shell with the extension loaded.


SETUP = """
import torch
from torch.utils.benchmark import Timer, Compare
made = Timer("x * x", globals={"x": torch.ones(8)}, description="one").timeit(5)
with torch.profiler.profile() as prof:
    torch.ones(8) * 2
events = prof.key_averages()
"""


@pytest.fixture
def filled(loaded: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.setattr(loaded, "kernel", SimpleNamespace(), raising=False)  # a terminal keeps torch's text
    assert loaded.run_cell(SETUP).success
    return loaded


def shown(shell: InteractiveShell, expression: str) -> dict[str, Any]:
    data, _ = shell.display_formatter.format(shell.ev(expression))
    return data


@pytest.mark.parametrize("expression", ["made", "Compare([made])", "events", "prof", "prof.events()"])
def test_torchs_results_are_shown_richly(filled: InteractiveShell, expression: str) -> None:
    data = shown(filled, expression)
    assert "<table" in data["text/html"]
    assert "object at" not in data["text/plain"].splitlines()[-1]


def test_events_read_as_torchs_table_and_not_as_a_list(filled: InteractiveShell) -> None:
    assert shown(filled, "events")["text/plain"].startswith("----")


def test_text_mode_and_terminals_have_text_alone(filled: InteractiveShell) -> None:
    filled.run_line_magic("config", 'TorchBench.display = "text"')
    assert set(shown(filled, "made")) == {"text/plain"}
    filled.run_line_magic("config", 'TorchBench.display = "auto"')
    filled.kernel = None
    assert set(shown(filled, "made")) == {"text/plain"}


def test_unloading_leaves_torchs_own_display(filled: InteractiveShell) -> None:
    filled.run_line_magic("unload_ext", "torchbench_magic")
    for expression in ("made", "Compare([made])", "events", "prof"):
        assert set(shown(filled, expression)) == {"text/plain"}
    assert shown(filled, "events")["text/plain"].startswith("[<FunctionEventAvg")


def test_a_printer_of_the_users_own_stays(shell: InteractiveShell) -> None:
    formatter = shell.display_formatter.mimebundle_formatter
    mine = ("torch.utils.benchmark.utils.common", "Measurement")
    formatter.for_type_by_name(*mine, lambda value, **_: {"text/plain": "mine"})
    shell.run_line_magic("load_ext", "torchbench_magic")
    assert shell.run_cell(SETUP).success
    assert shown(shell, "made") == {"text/plain": "mine"}
    shell.run_line_magic("unload_ext", "torchbench_magic")
    assert shown(shell, "made") == {"text/plain": "mine"}


def test_the_names_are_those_that_the_views_know() -> None:
    from torchbench_magic.show import torch_results

    assert all(callable(getattr(torch_results, shower)) for shower in display._TORCHS.values())


@pytest.mark.interpreter
def test_the_types_are_where_torch_has_them_and_torch_is_not_imported_for_it() -> None:
    code = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nshell.run_line_magic('load_ext', 'torchbench_magic')\n"
        "assert 'torch' not in sys.modules\n"
        "from torchbench_magic.notebook.display import _TORCHS\nfrom importlib import import_module\n"
        "for module, name in _TORCHS: assert getattr(import_module(module), name).__module__ == module, name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
