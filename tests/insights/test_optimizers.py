"""Loops with several optimizers: the one whose gradients nothing clears is named, and no other is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchbench_magic import profile
from torchbench_magic.results import Insight

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


@pytest.mark.parametrize("way", ["a helper's own name", "a loop's own name"])
def test_no_cure_uses_a_name_that_the_backward_pass_does_not_know(way: str) -> None:
    pair = Pair()

    def by_helper() -> None:
        for _ in range(6):
            (pair.judged() + pair.made()).backward()
            for each in (pair.of_judge, pair.of_maker):
                stepped(each)

    def by_turns() -> None:
        for _ in range(6):
            (pair.judged() + pair.made()).backward()
            for each in (pair.of_judge, pair.of_maker):
                each.step()

    (found,) = said_of(by_helper if way == "a helper's own name" else by_turns, phases=True)
    said = "optimizer" if way == "a helper's own name" else "each"
    assert f"steps `{said}` on gradients that nothing clears" in found.text
    assert found.cures[0].code is None


def test_with_a_scaler_the_optimizer_is_named_and_not_the_scaler() -> None:
    pair, scaler = Pair(), torch.amp.GradScaler("cpu")
    of_maker, of_judge = pair.of_maker, pair.of_judge

    def train() -> None:
        for _ in range(6):
            of_judge.zero_grad()
            scaler.scale(pair.judged()).backward()
            scaler.step(of_judge)
            scaler.scale(pair.made()).backward()
            scaler.step(of_maker)
            scaler.update()

    (found,) = said_of(train, phases=True)
    assert "`of_maker`" in found.text


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


def both_cleared(pair: Pair, *, to_none: bool) -> None:
    for _ in range(6):
        pair.of_judge.zero_grad(set_to_none=to_none)
        pair.judged().backward()
        pair.of_judge.step()
        pair.of_maker.zero_grad(set_to_none=to_none)
        pair.made().backward()
        pair.of_maker.step()


def cleared_by_modules(pair: Pair, *, to_none: bool) -> None:
    for _ in range(6):
        pair.judge.zero_grad(set_to_none=to_none)
        pair.judged().backward()
        pair.of_judge.step()
        pair.maker.zero_grad(set_to_none=to_none)
        pair.made().backward()
        pair.of_maker.step()


def accumulated(pair: Pair, *, to_none: bool) -> None:
    for at in range(12):
        pair.of_judge.zero_grad(set_to_none=to_none)
        pair.judged().backward()
        pair.of_judge.step()
        pair.made().backward()
        if at % 3 == 2:
            pair.of_maker.step()
            pair.of_maker.zero_grad(set_to_none=to_none)


def shared(pair: Pair, *, to_none: bool) -> None:
    again = torch.optim.SGD(pair.maker.parameters(), 1e-3, momentum=0.9)
    for _ in range(6):
        again.zero_grad(set_to_none=to_none)
        pair.made().backward()
        again.step()
        pair.of_maker.step()


def cleared_by_hand(pair: Pair, *, to_none: bool) -> None:
    def clear(module: nn.Module) -> None:
        for each in module.parameters():
            if to_none:
                setattr(each, "grad", None)  # noqa: B010  # not as the text of what changes gradients
            elif each.grad is not None:
                torch.zero_(each.grad)

    for _ in range(6):
        clear(pair.judge)
        pair.judged().backward()
        pair.of_judge.step()
        clear(pair.maker)
        pair.made().backward()
        pair.of_maker.step()


def cleared_by_data(pair: Pair, *, to_none: bool) -> None:
    def clear(module: nn.Module) -> None:
        for each in module.parameters():
            if each.grad is not None:
                torch.zero_(each.grad.data)  # `.data` counts its writes for itself

    for _ in range(6):
        clear(pair.judge)
        pair.judged().backward()
        pair.of_judge.step()
        clear(pair.maker)
        pair.made().backward()
        pair.of_maker.step()


@pytest.mark.parametrize(
    "loop", [both_cleared, cleared_by_modules, accumulated, shared, cleared_by_hand, cleared_by_data]
)
def test_gradients_that_are_cleared_in_any_way_are_not_said(loop: Callable[..., None]) -> None:
    for to_none in (True, False):
        pair = Pair()
        assert said_of(lambda pair=pair, to_none=to_none: loop(pair, to_none=to_none), phases=True) == [], to_none


def test_gradients_that_are_cleared_are_freed_while_the_loop_is_watched() -> None:
    import weakref

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
