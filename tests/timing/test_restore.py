"""``--restore``: what a training step changes, and what else is put back."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from torchbench_magic import Comparison
from torchbench_magic.cell_body import Body
from torchbench_magic.errors import Interrupted
from torchbench_magic.process.input_shapes import described
from torchbench_magic.process.static_introspection import elements, has_values, memory_of
from torchbench_magic.timing import restore
from torchbench_magic.timing.changes import TensorVersions, in_place
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.restore import HeldState, StateCopies
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task
from torchbench_magic.timing.warnings import still_valid

from .fake_clock import FakeClock, timed

# ==== training state ==================================================================================================
# A training step changes more than the tensors in sight; ``--restore`` has all of it as it was.


STEP = "net(x).sum().backward(); opt.step(); opt.zero_grad(); clock.work(1000)"
OPTIMIZERS: list[Callable[[Any], Any]] = [
    lambda p: torch.optim.AdamW(p, lr=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
    lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: torch.optim.Adagrad(p),
]


def training(make: Callable[[Any], Any] = OPTIMIZERS[0], steps: int = 2) -> dict[str, Any]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    names = {"net": net, "opt": make(net.parameters()), "x": torch.randn(8, 3)}
    for _ in range(steps):
        net(names["x"]).sum().backward()
        names["opt"].step()
    return names


def values(names: dict[str, Any]) -> Any:
    """All of a training's state, apart from its objects."""
    net, opt = names["net"], names["opt"]
    grads = {n: None if p.grad is None else p.grad.clone() for n, p in net.named_parameters()}
    return copy.deepcopy((dict(net.state_dict()), opt.state_dict(), grads))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 2])
def test_after_restore_the_whole_training_is_as_it_was(make: Any, steps: int) -> None:
    names = training(make, steps)
    before, ids = values(names), [{k: id(v) for k, v in s.items()} for s in names["opt"].state.values()]
    result = timed(FakeClock(), {"": STEP}, names=names, restore=True, number=1, repeat=5)
    assert same(values(names), before)
    assert [{k: id(v) for k, v in s.items()} for s in names["opt"].state.values()] == ids, "the same objects"
    assert not result.warnings


def test_each_block_finds_the_state_as_the_setup_left_it() -> None:
    names = training()
    found: list[Any] = []
    names |= {"note": lambda: found.append(values(names))}
    timed(FakeClock(), {"": f"note(); {STEP}"}, names=names, restore=True, number=1, repeat=5)
    assert len(found) > 5
    sampled = found[-5:]
    assert all(same(one, found[0]) for one in sampled)


def test_the_counts_of_schedules_and_of_a_scaler_are_put_back() -> None:
    names = training()
    warm = torch.optim.lr_scheduler.LinearLR(names["opt"])
    names["schedule"] = torch.optim.lr_scheduler.SequentialLR(
        names["opt"], [warm, torch.optim.lr_scheduler.StepLR(names["opt"], 3)], [4]
    )
    names["scaler"] = torch.amp.GradScaler("cpu", init_scale=4.0)
    body = "scaler.scale(net(x).sum()).backward(); scaler.step(opt); scaler.update(); schedule.step(); clock.work(1000)"
    kept = ("schedule", "scaler")
    before = values(names), copy.deepcopy([names[n].state_dict() for n in kept])
    timed(FakeClock(), {"": body}, names=names, restore=True, number=1, repeat=5)
    assert same(values(names), before[0])
    assert same([names[n].state_dict() for n in kept], before[1])


def test_what_only_a_function_or_an_object_of_the_users_reaches_is_put_back_too() -> None:
    names = training()

    class Trainer:
        def __init__(self) -> None:
            self.net, self.opt = names["net"], names["opt"]

        def step(self) -> None:
            self.net(names["x"]).sum().backward()
            self.opt.step()

    before = values(names)
    trainer = Trainer()
    timed(FakeClock(), {"": "trainer.step(); clock.work(1000)"}, names={"trainer": trainer}, restore=True, number=1)
    assert same(values(names), before)


def test_a_step_of_an_optimizer_alone_puts_its_parameters_back() -> None:
    names = training()
    before = values(names)
    step, names_of_it = {"": "opt.step(); clock.work(1000)"}, {"opt": names["opt"]}
    result = timed(FakeClock(), step, names=names_of_it, restore=True, number=1)
    assert same(values(names), before)
    without = timed(FakeClock(), step, names=names_of_it, number=1)
    assert not result.warnings
    assert any("param_groups" in label for d in without.warnings for label in d.facts.get("changes", ()))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("call", [1, 3, 12])
def test_after_an_interrupt_or_an_error_at_any_call_the_training_is_as_it_was(error: Any, call: int) -> None:
    names = training()
    before = values(names)
    calls: list[int] = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == call:
            raise error

    with pytest.raises((Interrupted, ValueError)):
        timed(FakeClock(), {"": f"{STEP}; stop()"}, names={**names, "stop": stop}, restore=True, number=1, repeat=50)
    assert same(values(names), before)


def test_memory_that_code_gave_a_tensor_and_values_written_past_the_count_are_put_back() -> None:
    w = torch.ones(3, requires_grad=True)
    at = w.data_ptr()
    timed(FakeClock(), {"": "w.data = w.data.double() * 2; clock.work(1000)"}, names={"w": w}, restore=True, number=1)
    assert (w.data_ptr(), w.dtype, w.tolist()) == (at, torch.float32, [1, 1, 1])
    found: list[float] = []
    body = "found.append(float(w[0])); w.data.mul_(2); clock.work(1000)"
    names = {"w": w, "found": found}
    timed(FakeClock(), {"": body}, names=names, restore=True, number=1, repeat=5)
    assert set(found) == {1.0}
    assert w.tolist() == [1, 1, 1]


def test_what_cannot_be_put_back_is_said_by_name() -> None:
    class Model:
        def __init__(self) -> None:
            self.hidden, self.same = 0, 1

        def __call__(self) -> int:
            self.hidden += 1
            return self.same

    names = {"model": Model(), "seen": {}}
    body = "model(); seen[1] = object(); clock.work(1000)"
    result = timed(FakeClock(), {"": body}, names=names, restore=True, number=1)
    (doubt,) = [d for d in result.warnings if d.kind == "not-restored"]
    assert doubt.facts["names"] == ["model.hidden", "seen"]


def test_a_change_that_came_late_and_uncounted_is_put_back_at_the_end_and_said() -> None:
    w, calls = torch.ones(3), []
    body = "calls.append(1)\nif len(calls) > 30: w.data.add_(1)\nclock.work(5000)"
    result = timed(FakeClock(), {"": body}, names={"w": w, "calls": calls}, restore=True, number=1, repeat=60)
    assert w.tolist() == [1, 1, 1]
    assert [d.facts["names"] for d in result.warnings if d.kind == "restored-late"] == [["w"]]


def test_without_restore_buffers_and_the_state_of_an_optimizer_are_counted() -> None:
    names = training(OPTIMIZERS[2])
    result = timed(FakeClock(), {"": STEP}, names=names, number=1, repeat=5)
    (doubt,) = [d for d in result.warnings if d.kind == "in-place"]
    changes = doubt.facts["changes"]
    assert {"net.1.running_mean", "net.1.running_var", "net.0.weight"} <= changes.keys()
    assert {"opt.state[0]['exp_avg']", "opt.state[0]['exp_avg_sq']", "opt.state[0]['step']"} <= changes.keys()
    assert not [label for label in changes if "defaults" in label or label == "x"]


def test_state_that_the_first_step_makes_is_counted() -> None:
    names = training(OPTIMIZERS[3], steps=0)
    result = timed(FakeClock(), {"": STEP}, names=names, number=1, repeat=5)
    (doubt,) = [d for d in result.warnings if d.kind == "in-place"]
    assert any("momentum_buffer" in label for label in doubt.facts["changes"])


def test_every_call_finds_what_was_put_back_and_not_what_the_one_before_left() -> None:
    a = np.arange(9.0)[::-1].copy()
    bodies = {"sorts": "clock.work(30 if a[0] else 3)\na.sort()", "copies": "clock.work(29)\nnp.sort(a)"}
    result = timed(FakeClock(), bodies, names={"a": a, "np": np}, restore=True)
    assert result.call_times(0).tolist() == pytest.approx([30e-6] * len(result.call_times(0)), rel=0.01)
    assert result.frame["number_per_run"].tolist() == [1, 1]
    assert a[0] == 8


@pytest.mark.parametrize("is_there", [False, True])
def test_gradients_that_add_up_are_counted_and_put_back_with_restore(is_there: bool) -> None:
    net, x = torch.nn.Linear(3, 1, bias=False), torch.ones(1, 3)
    if is_there:
        net.weight.grad = torch.zeros(1, 3)
    names, body = {"net": net, "x": x}, "clock.work(5000)\nnet(x).sum().backward()"
    restored = timed(FakeClock(), {"": body}, names=names, number=1, repeat=5, restore=True)
    assert net.weight.grad is None or not net.weight.grad.any()
    assert not [d for d in restored.warnings if d.kind == "in-place"]
    result = timed(FakeClock(), {"": body}, names=names, number=1, repeat=5)
    (doubt,) = [d for d in result.warnings if d.kind == "in-place"]
    calls = doubt.facts["calls"]
    assert doubt.facts["changes"] == {"net.weight.grad": calls if is_there else calls - 1}
    assert net.weight.grad.tolist() == [[calls] * 3]


@pytest.mark.parametrize("end", ["net.zero_grad()", "net.weight.grad.mul_(2)\nnet.weight.grad = None"])
def test_gradients_that_each_call_makes_anew_are_not(end: str) -> None:
    names = {"net": torch.nn.Linear(3, 1, bias=False), "x": torch.ones(1, 3)}
    body = f"clock.work(5000)\nnet(x).sum().backward()\n{end}"
    result = timed(FakeClock(), {"": body}, names=names, number=1, repeat=5)
    assert not [d for d in result.warnings if d.kind == "in-place"]


def test_changes_that_nobody_counted_are_said_without_a_count() -> None:
    w = torch.zeros(3)
    versions = TensorVersions(["w"], {"w": w}, [])
    w.data.add_(1)
    (doubt,) = in_place(versions.changed(), {"": 1234}, {})
    assert doubt.text.startswith("`w` changed in place in 1\u202f234 calls")


def test_inference_tensors_and_tensors_that_are_no_numbers_are_put_back() -> None:
    with torch.inference_mode():
        kept = torch.ones(2)
    odd = torch.tensor([float("nan"), 1.0])
    copies = StateCopies(HeldState([("kept", kept), ("odd", odd)]))
    with torch.inference_mode():
        kept.add_(1)
    odd.data[1] = 5
    copies.restore_all()
    assert kept.tolist() == [1, 1]
    assert odd[1] == 1


@pytest.mark.parametrize("wide", [lambda base: base[:1].expand(4), lambda base: base.as_strided((2, 3), (1, 1))])
def test_a_tensor_whose_elements_share_memory_is_put_back(wide: Callable[[Any], Any]) -> None:
    base = torch.zeros(4)
    copies = StateCopies(HeldState([("wide", wide(base))]))
    base.add_(1)
    copies.restore_all()
    assert wide(base).tolist() == wide(torch.zeros(4)).tolist()
    assert copies.unrestored == []


def test_an_expanded_tensor_is_copied_once_and_put_back() -> None:
    one = torch.ones(1, 2)
    names = {"one": one, "many": one.expand(10**9, 2)}
    timed(FakeClock(), {"a": "clock.work(1000)\none.add_(1)"}, names=names, restore=True, number=1, repeat=3)
    assert one.tolist() == [[1, 1]]
    body = "clock.work(1000)\nmany[:1].add_(1)"
    timed(FakeClock(), {"a": body}, names={"many": names["many"]}, restore=True, number=1, repeat=3)
    assert one.tolist() == [[1, 1]]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_no_obstacle() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    result = timed(FakeClock(), {"a": "clock.work(1000)\nnested * 2"}, names={"nested": nested}, restore=True)
    assert len(result.frame) == 1


def lazy() -> dict[str, Any]:
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyConv1d(2, 1))
    return {"net": net, "x": torch.ones(8, 3), "nn": nn, "torch": torch}


LAZY = "net[1](net[0](x)).sum(){}; clock.work(1000)"


@pytest.mark.parametrize("plan", [{}, {"restore": True}, {"restore": True, "number": 1, "repeat": 5}])
@pytest.mark.parametrize("more", ["", ".backward()"])
def test_a_model_that_has_no_shape_yet_is_timed(plan: dict[str, Any], more: str) -> None:
    names = lazy()
    doubts = timed(FakeClock(), {"": LAZY.format(more)}, names=names, **plan).warnings
    assert type(names["net"][0]) is nn.Linear
    said = [doubt.text for doubt in doubts if doubt.kind == "not-restored"]
    assert ("got their shape in the first call, so `--restore` does not put them back" in str(said)) is bool(plan)
    assert not plan or "start from the same state" not in str(said)


def test_two_alternatives_of_a_model_that_has_no_shape_yet_are_checked_and_compared() -> None:
    bodies = {"a": "clock.work(9)\nnet[0](x).sum()", "b": "clock.work(9)\n1 * net[0](x).sum()"}
    assert len(timed(FakeClock(), bodies, names=lazy(), check=True).frame) == 2


def test_a_model_that_has_a_shape_is_put_back_though_another_part_has_none() -> None:
    names = lazy() | training()
    names["both"] = [names["net"], lazy()["net"][2]]
    before = values(names)
    timed(FakeClock(), {"": f"both\n{STEP}"}, names=names, restore=True)
    assert same(values(names), before)


def tensors() -> dict[str, Callable[[], Any]]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    return {
        "uninitialized": lambda: nn.LazyLinear(3).weight,
        "meta": lambda: torch.ones(3, device="meta"),
        "fake": lambda: FakeTensorMode().from_tensor(torch.ones(3)),
        "sparse": lambda: torch.eye(3).to_sparse(),
        "CSR": lambda: torch.eye(3).to_sparse_csr(),
        "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "mkldnn": lambda: torch.ones(3).to_mkldnn(),
        "plain": lambda: torch.ones(3),
    }


@pytest.mark.filterwarnings("ignore")  # torch's own, of layouts in beta
@pytest.mark.parametrize("kind", tensors())
def test_a_tensor_of_any_kind_is_asked_for_its_size_and_its_memory(kind: str) -> None:
    tensor = tensors()[kind]()
    assert (elements(tensor) is None) is (kind == "uninitialized")
    assert has_values(tensor) is (kind not in ("uninitialized", "meta", "fake"))
    has_memory = kind in ("plain", "nested")
    address, size = memory_of(tensor)
    assert not has_memory or (address and size), kind
    assert has_memory or not address, kind
    assert timed(FakeClock(), {"": "t; clock.work(9)"}, names={"t": tensor}, restore=True).warnings is not None


def test_a_tensor_within_vmap_is_asked_for_its_size() -> None:
    seen: list[Any] = []

    def look(x: Any) -> Any:
        seen.append((elements(x), has_values(x), memory_of(x)[0]))
        return x

    torch.vmap(look)(torch.ones(2, 3))
    assert seen == [(3, True, 0)]


def test_a_model_without_a_shape_is_described_with_what_is_known() -> None:
    net = lazy()["net"]
    assert described(net[0].weight) == "no shape yet, float32, requires grad"
    assert described(net).startswith("Sequential with ")
    assert described(torch.optim.SGD(net.parameters(), lr=0.1)) == "SGD of 0 values in 6 tensors"
    assert described(net) != described(nn.Sequential(net[0]))


# ==== restored objects ================================================================================================
# What ``--restore`` puts back besides plain tensors: slots, arrays, modes and hooks; what it says.


def restored(body: str, **names: Any) -> Comparison:
    return timed(FakeClock(), {"": f"{body}\nclock.work(10)"}, names=names, restore=True, number=1, repeat=5)


def unrestored(result: Comparison) -> list[str]:
    return [name for d in result.warnings if d.kind == "not-restored" for name in d.facts["names"]]


@pytest.mark.parametrize("body", ["s.mul_(2)", "s.add_(s)", "s.zero_()", "s._values().mul_(2)"])
def test_a_sparse_tensor_that_changes_is_said_by_name(body: str) -> None:
    s = torch.eye(2).to_sparse()
    assert unrestored(restored(body, s=s)) == ["s"]
    assert unrestored(restored("s * 2", s=s)) == []


class Slotted:
    __slots__ = ("count", "kept")

    def __init__(self) -> None:
        self.kept, self.count = torch.ones(3), 0

    def step(self) -> None:
        self.kept.mul_(2)


@dataclasses.dataclass(slots=True)
class SlottedData:
    kept: Any

    def step(self) -> None:
        self.kept.mul_(2)


@pytest.mark.parametrize("make", [Slotted, lambda: SlottedData(torch.ones(3))])
def test_a_tensor_in_a_slot_is_put_back(make: Any, users_classes: None) -> None:
    held = make()
    kept = held.kept
    restored("held.step()", held=held)
    assert held.kept is kept
    assert kept.tolist() == [1, 1, 1]


@pytest.fixture
def users_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of this module are a notebook's."""
    for kind in (Slotted, SlottedData):
        monkeypatch.setattr(kind, "__module__", "__main__")


def test_a_slot_that_holds_another_object_is_said_by_name(users_classes: None) -> None:
    held = Slotted()
    assert unrestored(restored("held.count += 1", held=held)) == ["held.count"]


@pytest.mark.parametrize(
    "array", [np.zeros(5), np.array([np.nan, 1.0]), np.array(["a", "b"], dtype=object), np.zeros((4, 4)).T[::2]]
)
def test_an_array_has_its_values_again(array: Any) -> None:
    before, found = array.copy(), []
    result = restored("found.append(array.copy())\narray[1] = 7", array=array, found=found)
    assert all(str(one) == str(before) for one in (array, *found[-5:]))
    assert unrestored(result) == ["found"]


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: pd.DataFrame({"a": [3.0, np.nan, 1.0]}), "it.dropna(inplace=True)"),
        (lambda: pd.DataFrame({"a": [3, 2, 1]}), "it.sort_values('a', inplace=True)"),
        (lambda: pd.DataFrame({"a": [3, 2, 1]}), "it['b'] = 1"),
        (lambda: pd.Series([3, 2, 1]), "it[0] = 7"),
        (lambda: np.ma.array([3.0, 2.0, 1.0], mask=[0, 0, 0]), "it.mask[1] = True; it[0] = 7"),
        (lambda: np.matrix([[1.0, 2.0]]), "it += 1"),
    ],
)
def test_a_frame_or_a_kind_of_array_is_the_same_one_with_its_values_again(
    make: Callable[[], Any], change: str
) -> None:
    it, found = make(), []
    before = str(it)
    result = restored(f"found.append(str(it))\n{change}", it=it, found=found)
    assert [str(it), *found[-5:]] == [before] * 6
    assert unrestored(result) == ["found"]


def test_an_array_of_another_shape_is_said_by_name() -> None:
    array = np.zeros((2, 3))
    assert unrestored(restored("array.shape = (3, 2)", array=array)) == ["array"]


def test_modules_train_again_or_not_as_before() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    net[1].eval()
    restored("net.train(False)", net=net)
    assert [module.training for module in net.modules()] == [True, True, False]
    restored("net.train()", net=net)
    assert [module.training for module in net.modules()] == [True, True, False]


def test_hooks_that_the_body_registers_are_gone_and_others_stay() -> None:
    net, calls, found = torch.nn.Linear(2, 2), [], []
    net.register_forward_hook(lambda *_: None)
    kept = dict(net._forward_hooks)
    body = (
        "found.append(len(net._forward_hooks))\nnet.register_forward_hook(lambda *_: calls.append(1))\n"
        "net.register_forward_pre_hook(lambda *_: None)"
    )
    restored(body, net=net, calls=calls, found=found)
    assert dict(net._forward_hooks) == kept
    assert not net._forward_pre_hooks
    assert set(found) == {1}


def test_arrays_that_changed_late_are_put_back_at_the_end_and_said() -> None:
    array = np.zeros(3)
    copies = StateCopies(HeldState([("array", array), ("again", array)]))
    copies.restore_all()
    array[0] = 1
    copies.restore_all(is_last=True)
    assert array.tolist() == [0, 0, 0]
    assert copies.late == ["array"]


def test_random_generators_in_variables_are_where_they_were() -> None:
    first, second, drawn = torch.Generator().manual_seed(0), np.random.default_rng(0), []
    before = first.get_state()
    body = "drawn.append((torch.rand(1, generator=r).item(), s.random()))"
    restored(body, torch=torch, r=first, s=second, drawn=drawn)
    assert torch.equal(first.get_state(), before)
    assert second.random() == np.random.default_rng(0).random()
    assert len({*drawn}) > 3, "blocks draw new numbers"


# ==== single calls ====================================================================================================
# A block is one call: what starting it costs is taken off where it is known, and else said.


def test_each_call_of_a_block_and_the_one_before_it_find_what_the_setup_left() -> None:
    found: list[int] = []
    names = {"items": [1, 2, 3], "note": found.append}
    result = timed(FakeClock(), {"": "note(len(items)); items.pop(); clock.work(200)"}, names=names, restore=True)
    assert {*found} == {3}
    assert len(found) > 2 * len(result.samples), "each block follows an untimed call"


def test_what_an_empty_block_takes_now_is_taken_off_not_what_it_took_before_the_run() -> None:
    clock = FakeClock()
    own, readings = clock.clocks, itertools.count()

    def wall() -> int:  # a reading takes 10 ns at first, and 300 ns once the run has begun
        clock.wall_ns += 10 if next(readings) < 200 else 300
        return clock.wall_ns

    task = Task(
        {"": Body("items.pop(); clock.work(200)", "<cell>")},
        namespace={"clock": clock, "items": [1, 2, 3]},
        plan=Plan(min_run_time=0.02, threads=(1,), restore=True),
        clocks=dataclasses.replace(own, wall=wall),
    )
    assert compare_bodies(task).samples["wall"].median() == pytest.approx(200e-6, rel=1e-9)


def short(us: float, times: float = 1.2, **plan: Any) -> Comparison:
    bodies = {"a": f"clock.work({us})", "b": f"items.sort(); clock.work({times * us})"}
    return timed(FakeClock(), bodies, names={"items": [1, 2, 3]}, **plan)


def of_kind(made: Comparison, kind: str) -> list[str]:
    return [doubt.text for doubt in made.warnings if doubt.kind == kind]


def test_no_verdict_is_given_of_single_calls_that_are_no_longer_than_the_start_of_a_block() -> None:
    made = short(0.3, restore=True, repeat=40)
    assert made.rulings[1].word is None
    assert of_kind(made, "near-loop") == ["No verdict on a, b: below 500 ns per call starting a block costs as much."]
    assert not of_kind(made, "short-blocks")


def test_single_calls_of_microseconds_are_said_to_have_ratios_too_near_1() -> None:
    made = short(20, restore=True, repeat=40)
    (said,) = of_kind(made, "short-blocks")
    assert said.startswith("A block of a, b is one call")
    assert said.endswith("ratios too near 1.")
    assert made.rulings[1].word == "slower"
    assert still_valid(made) == ""


COLD = {"us": 20, "restore": True, "cold": True, "repeat": 3}


@pytest.mark.parametrize("plan", [{"us": 200, "restore": True}, {"us": 20}, COLD])
def test_nothing_is_said_of_long_blocks_nor_of_those_that_are_to_be_cold(plan: Any) -> None:
    made = short(**plan)
    assert not of_kind(made, "short-blocks")
    assert "cold" in plan or still_valid(made) == "The ratios are still valid."


def test_a_difference_that_starting_a_block_may_make_holds_in_this_session() -> None:
    assert short(0.6, restore=True, number=2, repeat=40).of_this_kernel == ()  # 0.12 us of each of 2 calls
    made = short(1, times=1.08, restore=True, repeat=40)
    assert made.rulings[1].word == "slower"
    assert made.of_this_kernel == (1,)


def test_with_several_calls_in_a_block_containers_are_put_back_before_each_block() -> None:
    found: list[int] = []
    names = {"items": [1, 2, 3], "note": found.append}
    body = "note(len(items)); items.pop(); clock.work(10)"
    timed(FakeClock(), {"": body}, names=names, restore=True, number=2, repeat=5)
    assert found[-17:-2] == [3, 3, 2] * 5, found  # an untimed call before each; two are made to be recorded
    assert names["items"] == [1, 2, 3]


def test_with_several_calls_in_a_block_the_later_ones_are_seen_to_do_less() -> None:
    names = {"items": [3, 1, 2] * 100, "is_sorted": lambda x: x == sorted(x)}
    body = "if not is_sorted(items):\n    items.sort()\n    clock.work(1000)\nclock.work(10)"
    assert timed(FakeClock(), {"": body}, names=names, restore=True, number=5, repeat=5).subjects[0].used_up
    assert not timed(FakeClock(), {"": body}, names=names, restore=True).subjects[0].used_up


# ==== large containers ================================================================================================
# To compare the items of a large one takes as long as a copy of it: not before each block.


def test_the_order_of_a_large_list_is_compared_after_the_first_calls_and_not_before_each_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[int] = []
    is_same = restore._KeptItems.is_same

    def counted(self: Any) -> bool:
        compared.append(len(self.value))
        return is_same(self)

    monkeypatch.setattr(restore._KeptItems, "is_same", counted)
    monkeypatch.setattr(restore, "_FEW", 5)
    few, many, other, found = [2, 1], [*range(10, 0, -1)], [*range(10)], list[tuple[bool, ...]]()
    names = {"few": few, "many": many, "other": other, "found": found}
    body = "found.append((few[0] == 2, many[0] == 10, len(other) == 10))\nfew.sort(); many.sort(); other.pop()"
    made = timed(FakeClock(), {"": f"{body}\nclock.work(10)"}, names=names, restore=True, number=1, repeat=30)
    assert {*found} == {(True, True, True)}, "found changed by the first call, so put back before each"
    assert few == [2, 1]
    assert many == [*range(10, 0, -1)]
    assert other == [*range(10)]
    assert compared.count(10) < 12, "only after the first calls, the warm-up and the end"
    (log,) = [d.facts["names"] for d in made.warnings if d.kind in ("restored-late", "not-restored")]
    assert log == ["found"], "it grew"


def test_a_large_list_that_a_later_call_alone_reorders_is_said_to_be_put_back_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "_FEW", 5)
    many, times = [*range(10, 0, -1)], itertools.count()
    names = {"many": many, "is_late": lambda: next(times) > 60}
    body = "if is_late():\n    many.sort()\nclock.work(10)"
    made = timed(FakeClock(), {"": body}, names=names, restore=True, number=1, repeat=30)
    assert [d.facts["names"] for d in made.warnings if d.kind == "restored-late"] == [["many"]]
    assert many == [*range(10, 0, -1)]


@pytest.mark.parametrize("make", [list, collections.deque, bytearray])
def test_items_that_were_taken_or_put_in_another_order_are_put_back_in_place(make: Any) -> None:
    held = make(range(5))
    copies = StateCopies(HeldState([]))
    copies.keep_items(["x"], {"x": held})
    held.pop()
    copies.restore()
    assert held == make(range(5))
    held.reverse()
    copies.restore()
    assert (held == make(range(5))) is (make is not bytearray)
    held.append(7)
    copies.restore()
    assert len(held) == 6, "it may be a log"


def test_what_restore_does_not_put_back_is_not_said_to_be_put_back_by_it() -> None:
    class Box:
        def __init__(self) -> None:
            self.items = [*range(40)]

        def drain(self) -> None:
            while self.items:
                self.items.pop()

    names = {"box": Box()}
    made = timed(FakeClock(), {"": "box.drain(); clock.work(1000)"}, names=names, restore=True, number=1, repeat=5)
    said = {doubt.kind: f"{doubt.text} {doubt.action}" for doubt in made.warnings}
    assert "`--restore` does not put it back" in said["not-restored"]
    assert "`--restore` did not put it back" in said["used-up"]
