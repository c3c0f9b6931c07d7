"""What ``--restore`` puts back besides plain tensors: sparse ones, slots, arrays, modes and hooks; what it says."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic import Comparison
from torchbench_magic.timing.restore import HeldState, StateCopies

from ..fake_clock import FakeClock, timed


def restored(body: str, **names: Any) -> Comparison:
    return timed(FakeClock(), {"": f"{body}\nclock.work(10)"}, names=names, restore=True, number=1, repeat=5)


def unrestored(result: Comparison) -> list[str]:
    return [name for d in result.warnings if d.kind == "not-restored" for name in d.facts["names"]]


def coo(*, coalesced: bool = True) -> Any:
    where, values = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0])
    made = torch.sparse_coo_tensor(where, values, (2, 2), check_invariants=True)
    return made.coalesce() if coalesced else made


@pytest.mark.parametrize("body", ["s.mul_(2)", "s.add_(s)", "s.zero_()", "s._values().mul_(2)"])
@pytest.mark.parametrize("coalesced", [True, False])
def test_a_sparse_tensor_has_its_entries_again(body: str, coalesced: bool) -> None:
    s, found = coo(coalesced=coalesced), []
    before = s.to_dense()
    result = restored("found.append(s.to_dense())\n" + body, s=s, found=found)
    assert torch.equal(s.to_dense(), before)
    assert s.is_coalesced() is coalesced
    assert all(torch.equal(one, before) for one in found[-5:])
    assert unrestored(result) == ["found"]


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
