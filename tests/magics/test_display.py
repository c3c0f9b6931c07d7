"""Progress appears when a run is long, and the result takes its place."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.notebook import display
from torchbench_magic.notebook.display import Output, ShownOnce


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
