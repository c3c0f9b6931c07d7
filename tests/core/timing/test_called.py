"""`compare` with callables beside text."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import pytest
import torch

from torchbench_magic import compare
from torchbench_magic.errors import BodyError, Interrupted, OptionError

QUICK: dict[str, Any] = {"threads": 1, "min_run_time": 0.005}
LOG: list[int] = []


def half(values: object = (1, 2, 3)) -> int:
    return len(values)  # type: ignore[arg-type]


class Model(torch.nn.Module):
    def forward(self, batch: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return batch * mask

    def step(self) -> int:
        return 1


def test_callables_and_text_are_alternatives_of_one_comparison() -> None:
    x = torch.ones(4)
    made = compare(
        {"fn": half, "lambda": lambda: x.sum(), "partial": functools.partial(half, [1]), "text": "x.sum()"},
        globals={"x": x},
        **QUICK,
    )
    assert list(made.frame["description"]) == ["fn", "lambda", "partial", "text"]
    assert [s.stmt for s in made.subjects] == ["half()", "lambda_()", "call()", "x.sum()"]
    assert made.frame["median"].notna().all()


def test_each_callable_is_called_and_none_hides_another() -> None:
    calls: dict[str, int] = {"a": 0, "b": 0}

    def counts(name: str) -> Any:
        def fn() -> None:
            calls[name] += 1

        return fn

    made = compare({name: counts(name) for name in calls}, setup="fn = 5", globals={"fn_2": 1}, **QUICK)
    assert all(calls.values())
    assert [s.stmt for s in made.subjects] == ["fn_3()", "fn_4()"]


def test_what_a_callable_reads_is_known() -> None:
    x = torch.ones(4, 8)

    def reads() -> object:
        return x.sum()

    def adds() -> object:
        return x.add_(1)

    made = compare({"a": reads, "b": adds}, **QUICK)
    assert dict(made.subjects[0].inputs or ())["x"] == "4 × 8 float32"
    assert [d.facts["changes"].keys() for d in made.warnings if d.kind == "in-place"] == [{"x"}]  # type: ignore[attr-defined]
    assert [s.functions[0][0].rpartition(".")[2] for s in made.subjects] == ["reads", "adds"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda a, b: a, "'f' needs arguments (a, b): callables are called without any"),
        (functools.partial(lambda a, b: a, 1), "'f' needs an argument (b)"),
        (Model(), "'f' needs arguments (batch, mask)"),
        (functools.partial(Model().forward), "'f' needs arguments (batch, mask)"),
        (["abc"].count, "'f' needs an argument (value)"),
        (3, "'f': text or a callable is needed, not int"),
    ],
    ids=["lambda", "partial", "module", "method", "builtin", "number"],
)
def test_what_cannot_be_called_as_it_is_is_said_in_one_line(function: Any, said: str) -> None:
    with pytest.raises(BodyError) as caught:
        compare({"f": function}, **QUICK)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_a_coroutine_function_is_refused() -> None:
    async def waits() -> None: ...

    with pytest.raises(BodyError, match="'f' is a coroutine function"):
        compare({"f": waits}, **QUICK)


def test_a_bound_method_without_arguments_is_fine() -> None:
    assert list(compare({"f": Model().step}, **QUICK).frame["median"].notna()) == [True]


@pytest.mark.parametrize("setup", ["", "y = x"])
def test_a_name_that_is_missing_is_said_in_one_line(setup: str) -> None:
    with pytest.raises(OptionError) as caught:
        compare({"a": "x.sum()"}, setup=setup, **QUICK)
    assert str(caught.value) == (
        "the statements use 'x', which compare was not given: pass globals=globals(), or globals={'x': ...}"
    )
    assert caught.value.__suppress_context__


def test_a_name_that_is_missing_in_a_function_is_the_users_own_error() -> None:
    def wrong() -> object:
        return nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(NameError, match="nowhere"):
        compare({"a": wrong}, **QUICK)
    with pytest.raises(NameError, match="nowhere"):
        compare({"a": "wrong()"}, globals={"wrong": wrong}, **QUICK)


def test_an_exception_of_a_callable_propagates_with_its_own_frames() -> None:
    def deeper() -> None:
        raise ZeroDivisionError("mine")

    def fails() -> None:
        deeper()

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        compare({"ok": half, "bad": fails}, **QUICK)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["fails", "deeper"]


def test_an_interrupt_in_a_callable_hands_over_what_was_measured() -> None:
    LOG.clear()

    def stops() -> None:
        LOG.append(1)
        if len(LOG) > 400_000:  # past the warm-up
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        compare({"a": half, "b": stops}, threads=1, min_run_time=5.0)
    assert caught.value.partial is not None
    assert caught.value.partial.partial  # type: ignore[attr-defined]
