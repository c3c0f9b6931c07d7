"""What is noted as torch.compile runs, with the compiler itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.torch_versions import LIMIT_OF_2, compiles_as_today  # noqa: E402
from torchbench_magic.process import dynamo  # noqa: E402
from torchbench_magic.process.compile_watch import CompiledFrame, CompileWatch, why_given_up  # noqa: E402

pytestmark = pytest.mark.usefixtures("compiled_anew")


class Told:
    """A progress that can count."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def update(self, done: float, total: float | None, what: str) -> None:
        raise AssertionError("nobody told it anything")

    def count_up(self, what: str) -> None:
        self.said.append(what)

    def counted(self) -> None:
        self.said.append("")


def seen(run: Callable[[], object], progress: Any = None) -> tuple[CompiledFrame, ...]:
    watch = CompileWatch(progress)
    watch.start()
    try:
        run()
    finally:
        frames = watch.stop()
    assert watch.failed is None
    return frames


def times(x: Any, n: Any) -> Any:
    return x * n


def test_a_recompile_has_the_guard_and_what_the_variable_is_now() -> None:
    g = torch.compile(times, backend="eager")
    first, second = seen(lambda: (g(torch.ones(3), 1), g(torch.ones(3), 2)))
    assert (first.name, first.guard, first.code) == ("times", "", times.__code__)
    assert (second.guard, second.after) == ("n == 1", "2")
    assert first.seconds > 0
    assert second.line == times.__code__.co_firstlineno


def test_a_new_size_is_told_though_the_newest_compilation_was_of_another_gradient_mode() -> None:
    """Each compilation that is kept failed by a guard of its own: what is new is that of the nearest."""
    net, x = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.ones(64, 4)
    g = torch.compile(net, backend="eager")
    g(x)
    with torch.no_grad():
        g(x)
    (again,) = seen(lambda: g(x[:32]))
    assert again.guard == "tensor 'input' size mismatch at index 0. expected 64, actual 32"
    (mode,) = seen(lambda: torch.no_grad()(g)(x[:16]))  # a dynamic size was compiled with gradients: only they are new
    assert mode.guard == "GLOBAL_STATE changed: grad_mode"


def test_what_was_compiled_before_is_not_said_and_warm_code_compiles_nothing() -> None:
    g = torch.compile(times, backend="eager")
    g(torch.ones(3), 1)
    assert seen(lambda: g(torch.ones(3), 1)) == ()


@pytest.mark.slow
def test_more_frames_than_the_compiler_remembers_are_all_noted() -> None:
    def run() -> None:
        for at in range(70):  # it keeps 64 records
            torch.compile(eval(f"lambda x: x + {at}"), backend="eager")(torch.ones(2))

    assert len(seen(run)) == 70


def test_a_progress_is_told_what_is_being_compiled_and_when_it_has_ended() -> None:
    told = Told()
    g = torch.compile(times, backend="eager")
    seen(lambda: g(torch.ones(3), 1), told)
    assert told.said[0] == "compiling times"
    assert told.said[-1] == ""


def test_the_backward_pass_that_is_compiled_later_belongs_to_its_function() -> None:
    g = torch.compile(times, backend="aot_eager")
    x = torch.ones(3, requires_grad=True)
    out: list[Any] = []
    (forward,) = seen(lambda: out.append(g(x, 2)))
    (backward,) = seen(lambda: out[0].sum().backward())
    assert backward.compile_id == forward.compile_id
    assert backward.name == "times"


def test_callbacks_are_gone_afterwards_and_those_of_the_user_stay() -> None:
    from torch._dynamo.callback import callback_handler

    mine = lambda args: None
    callback_handler.register_start_callback(mine)
    try:
        g = torch.compile(times, backend="eager")
        seen(lambda: g(torch.ones(3), 1))
        assert callback_handler.start_callbacks == [mine]
        assert callback_handler.end_callbacks == []
    finally:
        callback_handler.clear()
    seen(callback_handler.clear)


def test_a_reader_of_variables_that_fails_does_not_end_the_users_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamo, "being_compiled", lambda: 1 / 0)
    g = torch.compile(times, backend="eager")
    watch = CompileWatch()
    watch.start()
    assert g(torch.ones(3), 2).tolist() == [2, 2, 2]
    frames = watch.stop()
    assert [frame.name for frame in frames] == ["times"]
    assert isinstance(watch.failed, ZeroDivisionError)


@compiles_as_today
def test_a_limit_an_error_that_is_suppressed_and_a_break_in_a_loop_are_given_up() -> None:
    def lengths(x: Any, name: str) -> Any:
        return x + len(name)

    def fails(gm: Any, inputs: Any) -> Any:
        raise ValueError("no such backend")

    def loop(x: Any) -> Any:
        for _ in range(2):
            x = x + 1
            print(end="")  # noqa: T201
        return x

    g, h = torch.compile(lengths, backend="eager"), torch.compile(times, backend=fails)
    k, x = torch.compile(loop, backend="eager"), torch.ones(3)
    with torch._dynamo.config.patch(recompile_limit=2, suppress_errors=True):
        frames = seen(lambda: ([g(x, "n" * at) for at in range(5)], h(x, 2), k(x)))
    found = {frame.name.rpartition(".")[2]: why for frame in frames if (why := why_given_up(frame))}
    assert found["lengths"] == LIMIT_OF_2
    assert "no such backend" in found["times"]
    assert "`print` cannot be compiled" in found["loop"]


def test_the_short_words_of_older_torch_for_a_limit_are_read() -> None:
    for said in ("recompile_limit reached", "accumulated_recompile_limit reached"):
        assert why_given_up(CompiledFrame("1/0", "f", "f.py", 1, why=said)) == said


def test_compilations_that_are_a_chain_are_read_one_by_one() -> None:
    """As torch up to 2.12 keeps them: nearest is the second, which differs in one guard only."""
    entry = None
    for guards in (["n == 2", "m == 1"], ["n == 1", "m == 2"], ["n == 3", "m == 3"]):
        entry = SimpleNamespace(next=entry, guard_manager=SimpleNamespace(code_parts=guards))
    assert [each.guard_manager.code_parts[0] for each in dynamo._chained(entry)] == ["n == 3", "n == 1", "n == 2"]
    assert dynamo._chained(None) == []


@pytest.mark.slow
def test_a_compiler_that_is_imported_later_is_watched_too() -> None:
    text = (
        "import sys, torch\n"
        "from torchbench_magic.process.compile_watch import CompileWatch\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "watch, before = CompileWatch(), list(sys.meta_path)\n"
        "watch.start()\n"
        "f = torch.compile(lambda x, n: x * n, backend='eager')\n"
        "f(torch.ones(2), 1), f(torch.ones(2), 2)\n"
        "frames = watch.stop()\n"
        "assert [(one.guard, one.after) for one in frames] == [('', ''), ('n == 1', '2')], frames\n"
        "own = [one for one in sys.meta_path if 'torchbench' in type(one).__module__]\n"
        "assert not own, own\n"
        "from torch._dynamo import callback\n"
        "assert 'torchbench' not in type(callback.__spec__.loader).__module__\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_without_the_names_of_the_compiler_nothing_is_known_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("callback", "utils", "config", "convert_frame"):
        monkeypatch.setitem(sys.modules, f"torch._dynamo.{name}", ModuleType(name))
    watch = CompileWatch()
    watch.start()
    assert watch.stop() == ()
    assert dynamo.frames_given() == 0
    assert not dynamo.is_switched_off()
    assert dynamo.being_compiled() is None


@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_compiler_that_the_environment_switches_off_is_known_to_be(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not dynamo.is_switched_off()
    monkeypatch.setenv(name, "1")
    assert dynamo.is_switched_off()
