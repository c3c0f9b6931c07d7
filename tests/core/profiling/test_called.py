"""`profile` of what runs nothing when it is called."""

from __future__ import annotations

import asyncio
import functools
import traceback
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import torch

from torchbench_magic import profile
from torchbench_magic.errors import BodyError


def makes() -> Iterator[torch.Tensor]:
    yield torch.ones(3) + 1


async def waits() -> None:
    torch.ones(3) + 1


async def makes_and_waits() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (makes, "'makes' is a generator function, and calling it runs none of its code: give `lambda: list(f())`"),
        (functools.partial(makes), "'partial' is a generator function,"),
        (waits, "'waits' is a coroutine function, and calling it runs none of its code: give `lambda: asyncio"),
        (makes_and_waits, "'makes_and_waits' is an async generator function,"),
        (lambda x: x, "'<lambda>' needs an argument (x)"),
    ],
    ids=["generator", "partial", "coroutine", "async generator", "argument"],
)
def test_what_runs_nothing_is_refused_in_one_line(function: Any, said: str) -> None:
    with pytest.raises(BodyError) as caught:
        profile(function)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_the_way_that_is_named_profiles_the_work() -> None:
    for way in (lambda: list(makes()), lambda: asyncio.run(waits())):
        made = profile(way)
        assert "aten::add" in set(made.ops["op"])
        assert "not-run" not in [doubt.kind for doubt in made.warnings]


@pytest.mark.parametrize(("target", "kind"), [(lambda: makes(), "generator"), ("waits()", "coroutine")])
def test_a_call_that_returns_what_has_not_begun_is_said_first(target: Any, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "coroutine was never awaited"
        made = profile(target, globals=globals())
    assert made.warnings[0].kind == "not-run"
    assert made.warnings[0].text == (
        f"The code returned a {kind} that has not started: this profile contains nothing of it."
    )


def test_a_generator_that_has_begun_is_not_said() -> None:
    held: list[Iterator[torch.Tensor]] = []

    def begins() -> Iterator[torch.Tensor]:
        held.append(makes())
        next(held[0])
        return held[0]

    assert "not-run" not in [doubt.kind for doubt in profile(begins).warnings]


def test_an_exception_shows_the_frames_of_the_user_alone() -> None:
    def fails() -> None:
        raise ZeroDivisionError("mine")

    for target in (fails, "fails()"):
        with pytest.raises(ZeroDivisionError) as caught:
            profile(target, globals={"fails": fails})
        shown = traceback.extract_tb(caught.value.__traceback__)
        assert not [frame for frame in shown if "torchbench_magic/core" in frame.filename]
        assert [frame.name for frame in shown][-1] == "fails"
