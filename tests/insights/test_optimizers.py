"""Loops with several optimizers: the one whose gradients nothing clears is named, and no other is."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchbench_magic import profile
from torchbench_magic.result_base import Insight

Loop = Callable[[], object]


def said_of(loop: Loop, **options: Any) -> list[Insight]:
    made = profile(loop, **options)
    return [each for each in made.insights if each.kind == "no-zero-grad"]


class Pair:
    """A maker and its judge, as in a GAN, each with an optimizer."""

    def __init__(self) -> None:
        self.maker, self.judge = nn.Linear(64, 64), nn.Linear(64, 1)
        self.of_maker = torch.optim.SGD(self.maker.parameters(), 1e-3)
        self.of_judge = torch.optim.SGD(self.judge.parameters(), 1e-3)

    def judged(self) -> torch.Tensor:
        fake = self.maker(torch.rand(8, 64))
        return self.judge(fake.detach()).mean() - self.judge(torch.rand(8, 64)).mean()

    def made(self) -> torch.Tensor:
        return self.judge(self.maker(torch.rand(8, 64))).mean()


@pytest.mark.parametrize("phases", [True, False])
def test_the_optimizer_that_is_forgotten_is_named_with_its_line(phases: bool) -> None:
    pair = Pair()
    of_maker, of_judge = pair.of_maker, pair.of_judge

    def train() -> None:
        for _ in range(6):
            of_judge.zero_grad()
            pair.judged().backward()
            of_judge.step()
            pair.made().backward()
            of_maker.step()

    (found,) = said_of(train, phases=phases)
    assert found.places[0].line == train.__code__.co_firstlineno + 6
    assert "steps `of_maker` on gradients that nothing clears in 6 steps" in found.text
    assert found.cures[0].code == "of_maker.zero_grad()"


def stepped(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def test_no_cure_uses_a_name_that_the_backward_pass_does_not_know() -> None:
    def by_helper(pair: Pair) -> None:
        for _ in range(6):
            (pair.judged() + pair.made()).backward()
            for each in (pair.of_judge, pair.of_maker):
                stepped(each)

    def by_turns(pair: Pair) -> None:
        for _ in range(6):
            (pair.judged() + pair.made()).backward()
            for each in (pair.of_judge, pair.of_maker):
                each.step()

    for loop, name in ((by_helper, "optimizer"), (by_turns, "each")):
        (found,) = said_of(functools.partial(loop, Pair()), phases=True)
        assert f"steps `{name}` on gradients that nothing clears" in found.text
        assert found.cures[0].code is None


def test_a_loop_that_clears_does_not_hide_the_next_one_that_does_not() -> None:
    pair = Pair()
    of_maker, of_judge = pair.of_maker, pair.of_judge

    def train() -> None:
        for _ in range(6):
            for each in (of_judge, of_maker):
                each.zero_grad()
            pair.judged().backward()
            of_judge.step()
            pair.made().backward()
            of_maker.step()
        for _ in range(6):
            of_judge.zero_grad()
            pair.judged().backward()
            of_judge.step()
            pair.made().backward()
            of_maker.step()

    (found,) = said_of(train, phases=True)
    assert found.places[0].line == train.__code__.co_firstlineno + 13
    assert found.evidence["steps_on_uncleared_gradients"] == 5


Clear = Callable[[nn.Module, torch.optim.Optimizer], object]
CLEARED_BOTH: dict[str, Clear] = {
    "by optimizers, to None": lambda _, optimizer: optimizer.zero_grad(),
    "by optimizers, to zero": lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
    "by modules, to None": lambda net, _: net.zero_grad(),
    "by modules, to zero": lambda net, _: net.zero_grad(set_to_none=False),
    "by hand, to None": lambda net, _: [setattr(each, "grad", None) for each in net.parameters()],
    "by hand, to zero": lambda net, _: [torch.zero_(each.grad) for each in net.parameters() if each.grad is not None],
    "by .data, which counts its writes for itself": lambda net, _: [
        torch.zero_(each.grad.data) for each in net.parameters() if each.grad is not None
    ],
}


@pytest.mark.parametrize("way", CLEARED_BOTH)
def test_gradients_of_two_optimizers_that_are_cleared_in_any_way_are_not_said(way: str) -> None:
    pair, clear = Pair(), CLEARED_BOTH[way]

    def train() -> None:
        for _ in range(6):
            clear(pair.judge, pair.of_judge)
            pair.judged().backward()
            pair.of_judge.step()
            clear(pair.maker, pair.of_maker)
            pair.made().backward()
            pair.of_maker.step()

    assert said_of(train, phases=True) == []


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_cleared_after_several_passes_or_by_another_optimizer_are_not_said(to_none: bool) -> None:
    pair = Pair()
    again = torch.optim.SGD(pair.maker.parameters(), 1e-3, momentum=0.9)

    def accumulated() -> None:
        for at in range(12):
            pair.of_judge.zero_grad(set_to_none=to_none)
            pair.judged().backward()
            pair.of_judge.step()
            pair.made().backward()
            if at % 3 == 2:
                pair.of_maker.step()
                pair.of_maker.zero_grad(set_to_none=to_none)

    def shared() -> None:
        for _ in range(6):
            again.zero_grad(set_to_none=to_none)
            pair.made().backward()
            again.step()
            pair.of_maker.step()

    for loop in (accumulated, shared):
        assert said_of(loop, phases=True) == [], loop


def test_gradients_that_are_cleared_are_freed_while_the_loop_is_watched() -> None:
    pair = Pair()
    alive = []

    def train() -> None:
        for _ in range(3):
            pair.judged().backward()
            pair.of_judge.step()
            seen = weakref.ref(pair.judge.weight.grad.untyped_storage())
            pair.of_judge.zero_grad()
            alive.append(seen())

    said_of(train, phases=True)
    assert alive == [None, None, None]


CLEARED: dict[str, Callable[[list[torch.Tensor]], object]] = {
    "foreach mul": lambda grads: torch._foreach_mul_(grads, 0.0),
    "foreach copy": lambda grads: torch._foreach_copy_(grads, [torch.zeros_like(grad) for grad in grads]),
    "numpy": lambda grads: [np.copyto(grad.numpy(), 0.0) for grad in grads],
    "masked fill": lambda grads: [grad.masked_fill_(grad == grad, 0) for grad in grads],
    "out": lambda grads: [torch.zeros(grad.shape, out=grad) for grad in grads],
    "momentum": lambda grads: torch._foreach_mul_(grads, 0.9),
}


def said_where(after_step: Callable[[list[torch.Tensor]], object]) -> list[Insight]:
    """Of a loop of six steps that clears no gradients but by what runs after each step."""
    net, x = nn.Linear(16, 16), torch.rand(8, 16)
    opt = torch.optim.SGD(net.parameters(), 1e-3)

    def train() -> None:
        for _ in range(6):
            net(x).sum().backward()
            opt.step()
            after_step([p.grad for p in net.parameters() if p.grad is not None])

    return said_of(train)


@pytest.mark.parametrize("how", CLEARED)
def test_gradients_that_are_cleared_or_changed_by_any_means_are_not_said(how: str) -> None:
    assert said_where(CLEARED[how]) == []


def test_gradients_of_the_only_optimizer_that_nothing_clears_are_said() -> None:
    (found,) = said_where(len)
    assert "nothing clears in 6 steps" in found.text


def test_of_a_step_that_is_given_an_optimizer_that_one_is_named_and_of_one_with_a_closure_its_own() -> None:
    net, x = nn.Linear(16, 16), torch.rand(8, 16)
    opt, sc = torch.optim.SGD(net.parameters(), 1e-3), torch.amp.GradScaler("cpu")

    def scaled() -> None:
        for _ in range(6):
            sc.scale(net(x).sum()).backward()
            sc.step(opt)
            sc.update()

    def closure() -> torch.Tensor:
        loss = net(x).sum()
        loss.backward()
        return loss

    def closed() -> None:
        for _ in range(6):
            opt.step(closure)

    for loop in (scaled, closed):
        (found,) = said_of(loop)
        assert found.cures[0].code == "opt.zero_grad()", loop
