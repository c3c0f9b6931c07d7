"""A profiler that runs already: the user's is refused and left alone, one that nobody can stop is stopped."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import profile  # noqa: E402
from torchbench_magic.errors import Busy  # noqa: E402
from torchbench_magic.profiling.kineto import torch_profiler_runs  # noqa: E402


def ones() -> None:
    torch.ones(3).exp()


def kinds(result: Any) -> list[str]:
    return [doubt.kind for doubt in result.warnings if doubt.kind != "profiler-cost"]


def refused() -> None:
    with pytest.raises(Busy, match=r"already running; stop it .*`prof\.stop\(\)`"):
        profile(ones)
    assert torch_profiler_runs()


def test_one_that_a_variable_holds_is_refused_and_goes_on() -> None:
    running = torch.profiler.profile()
    running.start()
    refused()
    torch.ones(3).log()
    running.stop()
    assert "aten::log" in {event.key for event in running.key_averages()}
    assert kinds(profile(ones)) == []


def test_one_of_a_with_without_a_name_is_refused() -> None:
    with torch.profiler.profile():
        refused()


def test_one_inside_an_object_of_the_users_is_refused() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.tools = {"profiler": torch.profiler.profile()}

    trainer = Trainer()
    trainer.tools["profiler"].start()
    refused()
    trainer.tools["profiler"].stop()


def test_the_old_profiler_is_refused_too() -> None:
    with torch.autograd.profiler.profile() as running:
        refused()
        torch.ones(3).log()
    assert "aten::log" in {event.key for event in running.key_averages()}


def test_one_that_runs_on_another_thread_is_refused() -> None:
    started, end = threading.Event(), threading.Event()

    def work() -> None:
        with torch.profiler.profile():
            started.set()
            end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    try:
        refused()
    finally:
        end.set()
        thread.join()
    assert not torch_profiler_runs()


def test_one_of_a_suspended_generator_is_refused() -> None:
    def recorded() -> Any:
        with torch.profiler.profile() as running:
            yield running

    generator = recorded()
    next(generator)
    refused()
    generator.close()


def test_one_that_only_a_traceback_keeps_is_stopped_and_said() -> None:
    def fails() -> None:
        left = torch.profiler.profile()
        left.start()
        raise KeyError

    try:
        fails()
    except KeyError as error:
        sys.last_value = error  # as an interactive Python keeps it
    assert torch_profiler_runs()
    try:
        result = profile(ones)
    finally:
        del sys.last_value
    assert kinds(result) == ["leaked-profiler"]
    assert "aten::exp" in set(result.ops["op"])
    assert not torch_profiler_runs()
    assert kinds(profile(ones)) == []


def test_one_that_nothing_refers_to_is_stopped_and_said() -> None:
    torch.profiler.profile().start()
    result = profile(ones)
    assert kinds(result) == ["leaked-profiler"]
    assert "aten::exp" in set(result.ops["op"])


def test_with_a_schedule_it_is_stopped_and_said_once() -> None:
    torch.profiler.profile().start()
    result = profile(ones, schedule="active=1")
    assert kinds(result).count("leaked-profiler") == 1
