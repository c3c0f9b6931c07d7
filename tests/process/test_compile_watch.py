"""torch.compile seen from outside: what it compiles, why a graph breaks, which guard failed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.torch_versions import LIMIT_OF_2, compiles_as_today
from torchbench_magic.process import dynamo_internals
from torchbench_magic.process.compile_watch import CompileWatch, break_in_words, why_given_up
from torchbench_magic.process.dynamo_internals import CompiledFrame, change_of, guard_text, value_after

pytestmark = pytest.mark.usefixtures("compiled_anew")

# ==== compile watch ===================================================================================================
# What is noted as torch.compile runs, with the compiler itself.


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
    net, x = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.ones(64, 4)
    g = torch.compile(net, backend="eager")
    g(x)
    with torch.no_grad():
        g(x)
    (again,) = seen(lambda: g(x[:32]))
    assert again.guard == "tensor 'input' size mismatch at index 0. expected 64, actual 32"


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
    monkeypatch.setattr(dynamo_internals, "being_compiled", lambda: 1 / 0)
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
    assert dynamo_internals.frames_given() == 0
    assert not dynamo_internals.switched_off_by()
    assert dynamo_internals.being_compiled() is None


@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_a_compiler_that_the_environment_switches_off_is_known_to_be(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not dynamo_internals.switched_off_by()
    monkeypatch.setenv(name, "1")
    assert dynamo_internals.switched_off_by()


# ==== breaks ==========================================================================================================
# Why a graph broke, in one sentence.


BUILTIN = """Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types ['str'] (has_kwargs False)
  Hint: Avoid calling builtin `print`."""
C_FUNCTION = """Attempted to call function marked as skipped
  Explanation: Dynamo does not know how to trace the builtin `time.sleep.` This function is a Python builtin or not.
  Hint: If it is a Python builtin, file an issue."""
ITEM = """Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs=False.
  Hint: Set it."""
SHAPE = """Dynamic shape operator
  Explanation: Operator `aten.nonzero.default`'s output shape depends on input Tensor data.
  Hint: Enable it"""
METHOD = """Unsupported method call
  Explanation: Dynamo does not know how to trace method `close` of class `TextIOWrapper`
  Hint: Avoid it."""
NEW = """Something new
  Explanation: It is not known. At all.
  Hint: Do this. Or that."""
UNKNOWN = "a branch depends on a value that is not known while compiling"
TEXTS = (  # torch 2.13's own, shortened
    ("generic_jump TensorVariable()", "a branch depends on the values of a tensor", "torch.where"),
    ("generic_jump UserDefinedObject()", UNKNOWN, "torch.where"),
    (BUILTIN, "`print` cannot be compiled", "Move the `print` out of the compiled code"),
    (C_FUNCTION, "`time.sleep` is not Python and cannot be compiled", "Move it out"),
    (ITEM, "`.item()` reads a number from a tensor", "capture_scalar_outputs"),
    (
        SHAPE,
        "the shape of the result of `nonzero` depends on the values of a tensor",
        "capture_dynamic_output_shape_ops",
    ),
    (METHOD, "`TextIOWrapper.close` cannot be compiled", "Move it out"),
    (NEW, "It is not known", "Do this"),
    ("Something without more", "Something without more", ""),
)


@pytest.mark.parametrize(("text", "reason", "hint"), TEXTS)
def test_a_graph_break_has_a_reason_and_a_hint_in_a_sentence(text: str, reason: str, hint: str) -> None:
    said, helps = break_in_words(text)
    assert said == reason
    assert hint in helps
    assert bool(helps) == bool(hint)
    assert len(said) <= 160 >= len(helps)


def test_a_break_that_torch_itself_asks_for_is_no_call_of_the_users_to_remove() -> None:
    text = "Call to `graph_break()`\n  Explanation: User-inserted graph break. Message: None\n  Hint: Remove."
    assert break_in_words(text, "/tmp/cell.py", 3) == ("`torch._dynamo.graph_break()` is called", "Remove the call")
    import torch

    file = str(Path(torch.__file__).parent / "optim" / "optimizer.py")
    reason, hint = break_in_words(text, file, 79)
    assert reason == "torch's own code breaks it on purpose, in an optimizer's step (`optimizer.py:79`)"
    assert hint == ""


# ==== guards ==========================================================================================================
# A guard that failed, in words.


RECORDED = (  # torch 2.13's own texts
    ("0/0: n == 1        # y = x * n  # cell.py:14 in f\nUser stack trace:\n  File", "n == 1"),
    ("0/1: tensor 'x' rank mismatch. expected 1, actual 2", "tensor 'x' rank mismatch. expected 1, actual 2"),
    (
        "0/0: ___check_type_id(l, 139985), type=<class 'tuple'>  # for e in l  # c.py:53 in g (HINT: type tuple)",
        "___check_type_id(l, 139985), type=<class 'tuple'>",
    ),
    ("", ""),
)


@pytest.mark.parametrize(("reason", "expected"), RECORDED)
def test_the_guard_is_told_from_what_torch_writes_round_it(reason: str, expected: str) -> None:
    assert guard_text(reason) == expected


KEYS = (
    "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU),"
    " actual DispatchKeySet(Meta, AutogradMeta)"
)
WORDS = (
    ("n == 1", "2", ("n", "1", "2", "`n` was 1, now 2")),
    ("f == 1.0", "2.0", ("f", "1.0", "2.0", "`f` was 1.0, now 2.0")),
    (
        "BACKEND_MATCH failure: torch.compile detected different backend callables. Cached backend: <b at 0x7f>.",
        "",
        ("", "", "", "it was compiled for another backend; each new backend function is another one"),
    ),
    ("h(f) != <function g at 0x7f12>", "", ("", "", "", "the guard `h(f) != <function g>` failed")),
    ("n == 1", "", ("n", "1", "", "`n` is no longer 1")),
    ("G['scale'] == 2.0", "4.0", ("scale", "2.0", "4.0", "`scale` was 2.0, now 4.0")),
    ("self._modules['bn'].training == True", "False", ("self.bn.training", "True", "False", None)),
    ("dd is None", "a dict", ("dd", "None", "a dict", "`dd` was None, now a dict")),
    ("len(l) == 2", "3", ("l", "2", "3", "`l` was of length 2, now 3")),
    ("___check_type_id(n, 1), type=<class 'int'>", "float", ("n", "int", "float", "`n` was of type int, now float")),
    ("___check_obj_id(o, 1)", "", ("o", "", "", "`o` is another object")),
    ("___check_obj_id(___stack0, 1)", "", ("", "", "", "a value kept across the graph break changed")),
    ("___stack1 == 2", "3", ("", "", "", "a value kept across the graph break changed")),
    ("tensor 'x' dtype mismatch. expected Float, actual Double", "", ("x", "float32", "float64", None)),
    ("tensor 'x' rank mismatch. expected 1, actual 2", "", ("x", "1", "2", "`x` had 1 dimension, now 2")),
    (
        "tensor 'x' size mismatch at index 0. expected 4, actual 9",
        "",
        ("x", "4", "9", "`x` had size 4 in dimension 0, now 9"),
    ),
    (
        "tensor 'x' stride mismatch at index 0. expected 1, actual 2",
        "",
        ("x", "1", "2", "`x` had stride 1 in dimension 0, now 2"),
    ),
    (
        "tensor 'x' requires_grad mismatch. expected requires_grad=0",
        "",
        ("x.requires_grad", "False", "True", "`x.requires_grad` was False, now True"),
    ),
    (
        KEYS,
        "",
        ("x", "cpu", "meta", "`x` was on cpu, now on meta"),
    ),
    ("GLOBAL_STATE changed: num_threads ", "", ("", "", "", "the number of threads changed")),
    ("GLOBAL_STATE changed: autocast(cpu)_enabled ", "", ("", "", "", "autocast(cpu) enabled changed")),
    ("2 <= x.size()[0]", "", ("", "", "", "the guard `2 <= x.size()[0]` failed")),
    ("", "", ("", "", "", "torch does not say why")),
)


@pytest.mark.parametrize(("guard", "after", "expected"), WORDS)
def test_a_guard_says_which_argument_changed_from_what_to_what(
    guard: str, after: str, expected: tuple[Any, ...]
) -> None:
    change = change_of(guard, after)
    assert (change.argument, change.before, change.after) == expected[:3]
    if expected[3] is not None:
        assert change.text == expected[3]


class Watched:
    """Its attributes are looked up without a word from its own code."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("code of the user's ran")

    @property
    def asked(self) -> int:
        raise AssertionError("code of the user's ran")


def test_what_a_variable_is_now_is_read_without_running_the_users_code() -> None:
    watched = Watched()
    watched.__dict__["k"] = 3
    names = {"n": 2, "o": watched, "d": {"k": 1.5}, "l": [1, 2, 3], "x": object(), "long": "a" * 99}
    names["self"] = SimpleNamespace(_modules={"bn": SimpleNamespace(training=False)})
    read = lambda guard: value_after(guard, names, {"scale": 4})
    assert read("n == 1") == "2"
    assert read("o.k == 1") == "3"
    assert read("o.asked == 1") == ""
    assert read("d['k'] == 1.0") == "1.5"
    assert read("len(l) == 2") == "3"
    assert read("G['scale'] == 2") == "4"
    assert read("self._modules['bn'].training == True") == "False"
    assert read("___check_type_id(l, 5), type=<class 'tuple'>") == "list"
    assert read("x is None") == "a object"
    assert read("___check_obj_id(d, 5)") == ""
    assert read("gone == 1") == ""
    assert read("f(n) == 1") == ""
    assert len(read("long == 'b'")) < 50
    assert read("2 <= n") == ""
