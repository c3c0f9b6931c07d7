"""What notes the phases of a loop: each is seen where it is, and nothing of it is left."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, dataloader

from tests.interrupting import lines_run, one_in, with_interrupt_at
from torchbench_magic import profile
from torchbench_magic.errors import OptionError
from torchbench_magic.profiling import loops
from torchbench_magic.profiling.loops import marks as marks_module
from torchbench_magic.profiling.loops.hooks import TrainingHooks
from torchbench_magic.profiling.loops.marks import (
    BACKWARD,
    CLOSURE,
    FORWARD,
    INPUT,
    LOSS,
    OPTIMIZER,
    ZERO_GRAD,
    LoopMarks,
)
from torchbench_magic.profiling.loops.spans import Span, spans_of


def state() -> tuple[object, ...]:
    """Everything that hooks change."""
    from torch._dynamo import eval_frame
    from torch._dynamo.callback import callback_handler
    from torch.autograd.profiler import record_function

    return (
        list(sys.meta_path),
        {name: list(each) if isinstance(each, list) else each for name, each in vars(callback_handler).items()},
        torch.autograd.backward,
        torch.autograd.grad,
        vars(torch.autograd)["_engine_run_backward"],
        torch.compile,
        vars(nn.Module).get("__call__"),
        vars(nn.Module).get("zero_grad"),
        vars(torch.optim.Optimizer).get("zero_grad"),
        vars(torch.optim.Optimizer).get("_optimizer_step_code"),
        vars(DataLoader).get("__iter__"),
        vars(dataloader._BaseDataLoaderIter).get("__next__"),
        *(vars(torch.amp.GradScaler).get(name) for name in ("step", "unscale_", "update")),
        record_function.__enter__,
        record_function.__exit__,
        eval_frame._callback_from_stance,
        tuple(name in vars(torch.Tensor) for name in ("to", "cuda", "cpu")),
    )


def marked(code: Callable[[], Any]) -> tuple[LoopMarks, list[Span]]:
    """The marks of what ran, and the spans that they make."""
    marks = LoopMarks()
    hooks = TrainingHooks(marks, with_modules=True)
    hooks.start()
    try:
        code()
    finally:
        hooks.stop()
    return marks, spans_of(marks.record)


def noted(code: Callable[[], Any]) -> list[int]:
    """The phases that ran, in their order."""
    return [span.phase for span in marked(code)[1] if not span.is_inner]


def test_every_phase_is_noted_and_everything_is_put_back() -> None:
    before = state()
    net, loss = nn.Linear(2, 2), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step() -> None:
        for x in DataLoader(torch.ones(2, 2), batch_size=2):
            optimizer.zero_grad()
            loss(net(x), x).backward()
            optimizer.step()

    assert noted(step) == [INPUT, INPUT, ZERO_GRAD, FORWARD, LOSS, BACKWARD, OPTIMIZER, INPUT]
    assert state() == before


def test_a_module_within_a_module_is_part_of_its_call() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    assert noted(lambda: net(torch.ones(2))) == [FORWARD]


def test_after_an_exception_in_a_forward_pass_the_next_one_is_noted() -> None:
    net = nn.Linear(2, 2)

    def code() -> None:
        with pytest.raises(RuntimeError):
            net(torch.ones(3))
        net(torch.ones(2))

    assert noted(code) == [FORWARD, FORWARD]


def test_an_iterator_from_before_is_input_too() -> None:
    batches = iter(DataLoader(torch.ones(4, 2)))
    assert noted(lambda: next(batches)) == [INPUT]


def test_a_step_that_the_scaler_leaves_out_is_one_all_the_same() -> None:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu")

    def code() -> None:
        scaler.scale(net(torch.full((2,), float("inf"))).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    assert noted(code) == [FORWARD, BACKWARD, OPTIMIZER, OPTIMIZER]


def test_other_threads_are_not_noted() -> None:
    net = nn.Linear(2, 2)

    def code() -> None:
        thread = threading.Thread(target=lambda: net(torch.ones(2)).sum().backward())
        thread.start()
        thread.join()

    assert noted(code) == []


def test_what_the_users_code_put_in_our_place_stays() -> None:
    before = nn.Module.zero_grad
    mine = lambda *args, **kwargs: None

    def code() -> None:
        nn.Module.zero_grad = mine  # type: ignore[method-assign]

    try:
        noted(code)
        assert nn.Module.zero_grad is mine
    finally:
        nn.Module.zero_grad = before  # type: ignore[method-assign]


def test_objects_of_the_loop_are_not_kept_alive() -> None:
    marks = LoopMarks()
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)
    number = marks.number_of(optimizer)
    assert marks.number_of(optimizer) == number
    before = sys.getrefcount(optimizer)
    gc.collect()
    assert before <= 2
    assert marks.number_of(torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)) != number


COMPILED = """\
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
fast = torch.compile(net, backend="eager")
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def train():
    for _ in range(4):
        optimizer.zero_grad()
        fast(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("warm", [pytest.param(True, marks=pytest.mark.compiler), False])
def test_observing_compiles_no_frame_more(warm: bool) -> None:
    def frames(run: Callable[[Callable[[], None]], object]) -> int:
        import torch._dynamo
        from torch._dynamo.utils import counters

        torch._dynamo.reset()
        names: dict[str, Any] = {"torch": torch}
        exec(COMPILED, names)
        if warm:
            names["train"]()
        counters.clear()
        run(names["train"])
        return int(counters["frames"]["total"])

    plain = frames(lambda train: train())
    assert frames(lambda train: profile(train, phases=True)) == plain
    assert frames(lambda train: profile(train)) == plain


RESET = """\
import sys
import torch
from torchbench_magic import profile
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
def train():
    for _ in range(2):
        HOW.reset()
        fast = torch.compile(lambda x: net(x).sum(), fullgraph=FULL, backend="eager")
        for _ in range(2):
            fast(torch.ones(2, 4)).backward()
        HOW.reset()
        fast(torch.ones(2, 4)).backward()
"""
COUNTED = """
before = "torch._dynamo" in sys.modules, list(sys.meta_path), torch.compile
profile(train, phases=True)
from torch._dynamo.callback import callback_handler
from torch._dynamo.utils import counters
print(counters["stats"]["unique_graphs"], len(counters["graph_break"]), before[0])
assert (sys.meta_path, torch.compile) == (before[1], before[2])
assert "clear" not in vars(callback_handler) and not callback_handler.start_callbacks + callback_handler.end_callbacks
"""


@pytest.mark.parametrize(
    ("how", "full"), [pytest.param("torch.compiler", True, marks=pytest.mark.compiler), ("torch._dynamo", False)]
)
def test_a_reset_of_the_compiler_leaves_compiled_code_as_it_is(how: str, full: bool) -> None:
    from torch._dynamo.utils import counters

    def seen(run: Callable[[Callable[[], None]], object]) -> list[int]:
        counters.clear()
        run(anew(RESET.replace("HOW", how).replace("FULL", str(full))))
        return [counters["stats"]["unique_graphs"], len(counters["graph_break"]), counters["frames"]["total"]]

    plain = seen(lambda train: train())
    assert plain[:2] == [4, 0]
    before = state()
    for phases in (True, False):
        assert seen(lambda train, phases=phases: profile(train, phases=phases)) == plain, f"{phases=}"
        assert state() == before, f"{phases=}"


@pytest.mark.interpreter
@pytest.mark.slow
def test_a_reset_of_a_compiler_that_is_imported_only_in_the_run_leaves_compiled_code_as_it_is() -> None:
    code = RESET.replace("HOW", "torch.compiler").replace("FULL", "True") + COUNTED
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout.split(), ran.returncode) == (["4", "0", "False"], 0), ran.stderr


def test_a_clear_of_the_users_own_stays_and_adds_nothing_of_ours() -> None:
    from torch._dynamo.callback import callback_handler

    calls = []

    def code() -> None:
        was = callback_handler.clear
        callback_handler.clear = lambda: (calls.append(1), was())  # type: ignore[method-assign,assignment]
        torch._dynamo.reset()
        assert len(callback_handler.start_callbacks) == 1

    try:
        noted(code)
        torch._dynamo.reset()
    finally:
        del callback_handler.clear  # type: ignore[method-assign]
    assert calls == [1, 1]
    assert callback_handler.start_callbacks == callback_handler.end_callbacks == []


COMPILED_STEP = """\
import torchbench_magic
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
@torch.compile(backend=BACKEND)
def step():
    optimizer.step()
def train():
    for _ in range(4):
        net(torch.ones(2, 4)).sum().backward()
        step()
"""
COMPILED_TRAINING = """\
import torchbench_magic
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(net.parameters(), 0.1)
@torch.compile(backend=BACKEND)
def one(x):
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()
def train():
    for _ in range(4):
        one(torch.ones(2, 4))
        torchbench_magic.step()
"""


COMPILED_GRADIENTS = """\
import torchbench_magic
weight = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
@torch.compile(backend=BACKEND)
def loss():
    with torch.enable_grad():
        return weight.square().sum()
def closure():
    made = loss()
    made.backward()
    return made
def train():
    for _ in range(4):
        optimizer.step(closure)
"""


def anew(code: str, backend: str = "eager") -> Callable[[], None]:
    import torch._dynamo

    torch._dynamo.reset()
    names: dict[str, Any] = {"torch": torch, "BACKEND": backend}
    exec(code, names)
    train: Callable[[], None] = names["train"]
    return train


@pytest.mark.parametrize(
    ("code", "warm"),
    [
        pytest.param(COMPILED_STEP, True, marks=pytest.mark.compiler, id="step, warm"),
        pytest.param(COMPILED_STEP, False, id="step"),
        pytest.param(COMPILED_TRAINING, False, marks=pytest.mark.compiler, id="training"),
        pytest.param(COMPILED_GRADIENTS, True, id="gradients on, warm"),
        pytest.param(COMPILED_GRADIENTS, False, marks=pytest.mark.compiler, id="gradients on"),
    ],
)
def test_a_compiled_optimizer_is_compiled_no_more_often_for_being_observed(code: str, warm: bool) -> None:
    from torch._dynamo.utils import counters

    def frames(run: Callable[[Callable[[], None]], object]) -> list[int]:
        train = anew(code)
        if warm:
            train()
        counters.clear()
        run(train)
        given = int(counters["frames"]["total"])
        train()
        return [given, int(counters["frames"]["total"]) - given]

    plain = frames(lambda train: train())
    assert frames(lambda train: profile(train, phases=True)) == plain
    assert frames(lambda train: profile(train)) == plain


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.compiler)])
def test_what_a_compiled_optimizer_runs_is_no_forward_pass(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # the compiler's progress bar would leave a thread
    made = profile(anew(COMPILED_STEP, backend), phases=True)
    calls = made.phases_by_line.groupby("phase")["calls"].sum()
    assert calls[["forward", "backward"]].tolist() == [4, 4]
    assert "optimizer" not in calls
    said = {doubt.kind: doubt for doubt in made.warnings}
    assert said["compiled-phases"].facts == {"calls": 4}
    assert "outside of compiled code" in said["no-steps"].text


@pytest.mark.parametrize(("code", "says"), [(COMPILED_TRAINING, True), (COMPILED, False)], ids=["training", "modules"])
@pytest.mark.parametrize("phases", [True, pytest.param(False, marks=pytest.mark.compiler)])
def test_compiled_training_has_the_steps_that_the_code_says_and_a_loop_of_compiled_modules_its_own(
    code: str, says: bool, phases: bool
) -> None:
    made = profile(anew(code), phases=phases)
    assert made.phases["step"].nunique() == 4
    assert ("compiled-phases" in [doubt.kind for doubt in made.warnings]) == says


@pytest.mark.parametrize("phases", [True, False])
def test_a_step_that_the_code_says_counts_and_not_those_of_optimizers(phases: bool) -> None:
    import torchbench_magic

    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def train() -> None:
        for at in range(8):
            net(torch.ones(2)).sum().backward()
            optimizer.step()
            if at % 4 == 3:
                torchbench_magic.step()

    assert profile(train, phases=phases).phases["step"].nunique() == 2


def test_a_step_that_an_exception_ends_is_none_and_one_of_the_users_own_class_is() -> None:
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {})
            self.fails = True

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            if self.fails:
                raise ValueError("not yet")

    optimizer = Own(nn.Linear(2, 2).parameters())

    def code() -> None:
        with pytest.raises(ValueError, match="not yet"):
            optimizer.step()
        optimizer.fails = False
        optimizer.step()
        with torch.autograd.profiler.record_function("other"):
            pass

    assert [(span.phase, span.fact >= 0, span.is_inner) for span in marked(code)[1]] == [
        (OPTIMIZER, False, False),
        (OPTIMIZER, True, False),
    ]


def fails_in_a_module() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(x)

    Fails()(torch.ones(1))


def fails_in_backward() -> None:
    torch.ones(1).sum().backward()


def fails_in_a_loader() -> None:
    next(iter(DataLoader([object()], collate_fn=lambda _: 1 / 0)))


def fails_in_clearing() -> None:
    nn.Linear(1, 1).zero_grad(1, 2)  # type: ignore[call-arg]


@pytest.mark.parametrize("fails", [fails_in_a_module, fails_in_backward, fails_in_a_loader, fails_in_clearing])
def test_an_exception_that_the_code_prints_shows_no_frame_of_ours(fails: Callable[[], None]) -> None:
    def files(hooks: TrainingHooks | None) -> list[str]:
        if hooks is not None:
            hooks.start()
        try:
            fails()
        except Exception:
            _, _, entry = sys.exc_info()
        finally:
            if hooks is not None:
                hooks.stop()
        found = []
        while entry is not None:
            found.append(f"{entry.tb_frame.f_code.co_filename}:{entry.tb_lineno}")
            entry = entry.tb_next
        return found

    assert files(TrainingHooks(LoopMarks(), with_modules=True)) == files(None)


class PutsGradientsOn(torch.optim.SGD):
    """For work of its own."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            return closure() if closure is not None else None


@pytest.mark.parametrize(
    ("kind", "closures"), [(torch.optim.SGD, 1), (torch.optim.LBFGS, 3), (PutsGradientsOn, 1), (torch.optim.AdamW, 1)]
)
def test_marks_tell_when_the_closure_of_a_step_runs(kind: type[torch.optim.Optimizer], closures: int) -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = kind([weight], **({"max_iter": 3, "lr": 0.1} if closures > 1 else {}))  # type: ignore[call-arg]
    ran = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():  # of its own
            loss = weight.square().sum()
        loss.backward()
        ran.append(1)
        return loss

    def code() -> None:
        optimizer.step(closure)
        if kind is not torch.optim.LBFGS:
            optimizer.step()
            optimizer.step(closure=closure)
        with torch.enable_grad():
            pass

    _, spans = marked(code)
    inside, passes = ([span for span in spans if span.phase == phase] for phase in (CLOSURE, BACKWARD))
    assert len(ran) == len(inside) == len(passes) >= closures
    assert all(a.begin < b.begin and b.end < a.end for a, b in zip(inside, passes, strict=True))


def test_a_range_of_the_users_own_with_the_name_of_a_step_is_none() -> None:
    def own_range() -> torch.autograd.profiler.record_function:
        return torch.autograd.profiler.record_function("Optimizer.step#Own.inner")

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            with own_range():
                pass

    plain = torch.optim.SGD(nn.Linear(2, 2).parameters())

    def around() -> None:
        with own_range():
            plain.step()

    for step in (around, Own(nn.Linear(2, 2).parameters()).step):
        _, spans = marked(lambda step=step: (step(), step()))
        assert [(span.phase, span.fact >= 0, span.is_inner) for span in spans] == [(OPTIMIZER, True, False)] * 2, step


def test_functions_of_autograd_that_were_imported_before_are_backward_passes() -> None:
    weight = torch.rand(3, requires_grad=True)
    backward, grad = torch.autograd.backward, torch.autograd.grad
    def code() -> None:
        backward(weight.sum())
        grad(weight.sum(), weight)
        weight.sum().backward()
        torch.autograd.grad(weight.sum(), weight)

    marks, spans = marked(code)
    passes = [span for span in spans if span.phase == BACKWARD and not span.is_inner]
    first = marks.book.places[passes[0].place]
    assert [marks.book.places[span.place] for span in passes] == [(first[0], first[1] + at) for at in range(4)]
    assert first[0] is code.__code__


def test_each_step_is_of_its_optimizer_wherever_it_is_called() -> None:
    optimizers = [torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1) for _ in range(2)]
    marks, spans = marked(lambda: [each.step() for _ in range(3) for each in optimizers])
    assert [span.fact for span in spans] == [marks.number_of(each) for each in optimizers] * 3


@pytest.mark.usefixtures("compiled_anew")
def test_a_compiled_step_of_an_optimizer_is_not_compiled_again() -> None:
    net, x = nn.Linear(2, 2), torch.ones(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    compiled = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def step() -> None:
        optimizer.step()

    def code() -> None:
        for _ in range(3):
            net(x).sum().backward()
            step()

    code()
    before = len(compiled)
    assert before
    noted(code)
    assert len(compiled) == before


def test_what_is_beyond_the_record_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_module, "MOST", 5)
    marks, frame = LoopMarks(), sys._getframe()
    for _ in range(4):
        marks.begin(FORWARD, frame)
        marks.end(FORWARD)
    assert list(marks.record[1::4]) == [FORWARD, -FORWARD, FORWARD, -FORWARD, FORWARD]
    assert marks.is_full


def test_a_long_record_is_whole() -> None:
    marks, frame = LoopMarks(), sys._getframe()
    for _ in range(3000):
        marks.begin(FORWARD, frame)
        marks.end(FORWARD, 7)
    spans = spans_of(marks.record)
    assert len(spans) == 3000
    assert {(span.phase, span.fact, span.place) for span in spans} == {(FORWARD, 7, 0)}
    assert not marks.is_full


@pytest.mark.slow
def test_a_ctrl_c_at_any_line_leaves_nothing() -> None:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step() -> None:
        for x in DataLoader(torch.ones(2, 2), batch_size=2):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

    def run() -> None:
        profile(step, phases=True)

    run()
    before = state()
    places = lines_run(run, [Path(loops.__path__[0])])
    assert len(places) > 50
    for place in one_in(4, places):
        with_interrupt_at(place, run)
        assert state() == before, place


def test_phases_go_with_no_option_that_needs_operations() -> None:
    for option in ("memory", "shapes", "flops", "twice", "python", "concurrency", "efficiency"):
        with pytest.raises(OptionError, match=f"--phases records no operations, and --{option}"):
            profile(lambda: None, phases=True, **{option: True})
