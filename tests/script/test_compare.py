"""`compare` with callables beside text."""

from __future__ import annotations

import functools
import math
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torchbench_magic import compare
from torchbench_magic.errors import BodyError, Busy, Interrupted, OptionError

QUICK: dict[str, Any] = {"threads": 1, "min_run_time": 0.02}


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
    assert [s.stmt for s in made.subjects] == ["half()", "lambda_()", "partial()", "x.sum()"]
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
        (3, "'f': give text or a callable, not int"),
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
    assert frames[1:] == ["fails", "deeper"]


def test_an_exception_of_a_statement_shows_its_text_and_keeps_its_context() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        compare({"ok": "1", "bad": "try:\n    [][0]\nexcept IndexError:\n    1 / 0"}, **QUICK)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [(frame.name, frame.line) for frame in frames[1:]] == [("<module>", "1 / 0")]
    assert isinstance(caught.value.__context__, IndexError)
    assert not caught.value.__suppress_context__


def test_a_failure_of_this_package_keeps_its_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise AttributeError("a bug")

    monkeypatch.setattr("torchbench_magic.timing.point_run.warm_up", broken)
    with pytest.raises(AttributeError) as caught:
        compare({"a": half}, **QUICK)
    assert "_prepare" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_a_lambda_is_shown_by_the_name_that_it_was_given() -> None:
    lone = compare({"my way": lambda: 1}, **QUICK)
    assert (lone.subjects[0].description, lone.subjects[0].stmt) == ("my way", "my_way()")
    assert repr(lone).startswith("my way")
    both = compare({"one": lambda: 1, "1st": lambda: 2}, **QUICK)
    assert [s.stmt for s in both.subjects] == ["one()", "call_1st()"]


# ---- what runs nothing when it is called ------------------------------------------------------------------------


def test_a_generator_function_is_refused_in_one_line() -> None:
    def makes() -> Iterator[int]:
        yield 1

    class Makes:
        def __call__(self) -> Iterator[int]:
            yield 1

    for function in (makes, functools.partial(makes), Makes(), Makes().__call__):
        with pytest.raises(BodyError) as caught:
            compare({"f": function}, **QUICK)
        assert str(caught.value) == (
            "'f' is a generator function, and calling it runs none of its code: give `lambda: list(f())`"
        )


def test_a_wrapper_that_runs_what_it_wraps_is_measured() -> None:
    def makes() -> Iterator[int]:
        yield 1

    @functools.wraps(makes)
    def runs() -> list[int]:
        return list(makes())

    assert compare({"f": runs}, **QUICK).frame["median"].notna().all()


def test_a_statement_that_only_makes_a_generator_is_said() -> None:
    class Things:
        def each(self) -> Iterator[int]:
            yield 1

    things = Things()
    texts = {"a": "things.each()", "b": "list(things.each())", "c": "n = things.each()", "d": "math.cos(1)"}
    made = compare(texts, globals={"things": things, "math": math}, **QUICK)
    (doubt,) = [d for d in made.warnings if d.facts.get("how") == "lazy"]
    assert doubt.text.startswith("Each call of `a` returns a generator that has not begun, and what that does later")


class Known:
    """A progress that notes when something is known of every alternative."""

    is_all = False

    def update(self, done: float, total: float | None, what: str) -> None: ...

    def watch(self, partial: Callable[[], Any]) -> None:
        made = partial()
        self.is_all = self.is_all or (made is not None and len(made.frame) == 2)


def test_an_interrupt_in_a_callable_hands_over_what_was_measured() -> None:
    known = Known()

    def stops() -> None:
        if known.is_all:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        compare({"a": half, "b": stops}, threads=1, min_run_time=600, progress=known)
    assert caught.value.partial is not None
    assert caught.value.partial.partial  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", ["x + x", [("a", "x")], {1: "x", 2: "x + x"}, None])
def test_statements_without_names_are_refused_in_one_line(given: Any) -> None:
    with pytest.raises(OptionError, match="give a dict such as") as caught:
        compare(given)
    assert "\n" not in str(caught.value)


def test_a_second_measurement_in_another_thread_is_refused_and_output_is_put_back() -> None:
    before = sys.stdout, sys.stderr
    refused: list[str] = []

    def second() -> None:
        if refused:
            return
        try:
            compare({"b": "1 + 1"}, **QUICK)
        except Busy as error:
            refused.append(str(error))

    def first() -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()

    assert math.isfinite(compare({"a": first}, **QUICK).frame["median"][0])
    assert "another thread is measuring" in refused[0]
    assert (sys.stdout, sys.stderr) == before
    within = compare({"a": "compare({'b': '1 + 1'}, threads=1, min_run_time=0.001)"}, globals=globals(), **QUICK)
    assert math.isfinite(within.frame["median"][0])
