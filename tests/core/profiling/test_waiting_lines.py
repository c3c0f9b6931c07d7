"""A line that waits for a thread of Python's, which runs torch, or for something else."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from torchbench_magic.core.machine.contention import Counters
from torchbench_magic.core.machine.waiting_for_cores import CoreWait
from torchbench_magic.core.profiling.recording.recorded_run import RecordedRun
from torchbench_magic.views.document import plain
from torchbench_magic.views.profiling.profile import document

from .profiling_text import profiled

JOINED = """def work():
    for _ in range(n):
        x.sin()
t = threading.Thread(target=work, name="mine")
t.start()
t.join()
"""


def waits(text: str, **names: Any) -> tuple[list[Any], Any]:
    import threading
    import time

    given = {"torch": torch, "threading": threading, "time": time, "x": torch.ones(300_000), "n": 100}
    found = profiled(text, given | names).profile
    return [doubt for doubt in found.warnings if doubt.kind == "waits-for-threads"], found


def test_a_line_that_joins_a_thread_waits_for_it_and_its_torch_work_is_named() -> None:
    (said,), found = waits(JOINED)
    assert said.text.startswith("In[7]:6 waits for thread mine, ")
    assert "its torch work is at In[7]:3 (" in said.text
    assert ", waiting for thread mine, whose torch work is at In[7]:3" in plain(document(found).sentence)


def test_a_line_that_computes_beside_a_thread_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedRun, "own_cpu", property(lambda run: run.end - run.begin))
    said, found = waits(JOINED)
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


def test_a_line_that_sleeps_and_no_thread_that_works_waits_for_none() -> None:
    said, _ = waits("time.sleep(0.05)\ny = x.sin()\n")
    assert said == []


def set_load(monkeypatch: pytest.MonkeyPatch, waited: float | None) -> None:
    load = None if waited is None else CoreWait(0.3, replace(Counters.read({}), ran=0.0, waited=waited), 1, 2)
    monkeypatch.setattr(RecordedRun, "load", property(lambda run: load, lambda run, value: None))
    own = math.nan if waited is None else waited
    monkeypatch.setattr(RecordedRun, "own_waited", property(lambda run: own))


def waits_for_something(text: str) -> tuple[list[Any], str]:
    _, found = waits(text)
    return [doubt for doubt in found.warnings if doubt.kind == "waits"], plain(document(found).sentence)


def test_a_line_that_sleeps_is_not_called_python(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    (said,), sentence = waits_for_something("time.sleep(0.3)\ny = x.sin()\n")
    assert said.text.startswith("In[7]:1 waits, at least ")
    assert 0.2 < float(str(said.facts["waited"])) <= 1.0
    assert "of it waiting" in sentence
    assert "nearly all of it waiting" in sentence or ", at least " in sentence
    assert "Python" not in sentence


def test_a_line_that_computes_outside_torch_is_not_said_to_wait() -> None:
    """With the load as it is: beside others that compute it waits for a core, and for nothing else."""
    assert waits_for_something("total = sum(range(3_000_000))\n")[0] == []


@pytest.mark.parametrize("waited", [None, 0.3])
def test_where_it_may_have_waited_for_a_core_it_is_not_said_to_sleep(
    monkeypatch: pytest.MonkeyPatch, waited: float | None
) -> None:
    set_load(monkeypatch, waited)
    said, sentence = waits_for_something("time.sleep(0.3)\n")
    assert said == []
    assert "waiting" not in sentence


def test_that_other_threads_waited_for_a_core_does_not_hide_that_this_one_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_load(monkeypatch, 5.0)
    monkeypatch.setattr(RecordedRun, "own_waited", property(lambda run: 0.0))
    (said,), sentence = waits_for_something("time.sleep(0.3)\n")
    assert said.text.startswith("In[7]:1 waits, at least ")
    assert "nearly all of it waiting" in sentence


def test_with_samples_the_waiting_of_the_line_is_known_though_other_lines_compute_longer() -> None:
    """By the thread's processor time alone a line can wait for 0.2 s of 0.3 only where others compute for less.

    The others are several lines: on a busy machine, which makes them longer, none is longer than the sleep."""
    import time

    pytest.importorskip("pyinstrument")
    text = "end = time.thread_time() + 0.15\nwhile time.thread_time() < end: pass\n" * 4 + "time.sleep(1.2)\n"
    found = profiled(text, {"torch": torch, "time": time}, python=True).profile
    (said,) = [doubt for doubt in found.warnings if doubt.kind == "waits"]
    assert said.text.startswith("In[7]:9 waits, ")
    waited = float(str(said.facts["waited"]))
    assert 0.9 < waited < 1.9, "a busy machine wakes it late; by processor time alone it would be 0.6 at most"


def test_several_threads_are_counted() -> None:
    text = JOINED.replace("t = ", "ts = [").replace('name="mine")', 'name="mine") for _ in range(2)]')
    text = text.replace("t.start()", "[t.start() for t in ts]").replace("t.join()", "for t in ts: t.join()")
    (said,), _ = waits(text)
    assert "waits for 2 threads (mine, …)" in said.text
