"""A line that waits for a thread of Python's, which runs torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

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
    assert "its torch work stands at In[7]:3 (" in said.text
    assert ", waiting for thread mine, whose torch work is at In[7]:3" in plain(document(found).sentence)


def test_a_line_that_computes_beside_a_thread_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedRun, "own_cpu", property(lambda run: run.end - run.begin))
    said, found = waits(JOINED)
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


def test_a_line_that_sleeps_and_no_thread_that_works_waits_for_none() -> None:
    said, _ = waits("time.sleep(0.05)\ny = x.sin()\n")
    assert said == []


def test_several_threads_are_counted() -> None:
    text = JOINED.replace("t = ", "ts = [").replace('name="mine")', 'name="mine") for _ in range(2)]')
    text = text.replace("t.start()", "[t.start() for t in ts]").replace("t.join()", "for t in ts: t.join()")
    (said,), _ = waits(text)
    assert "waits for 2 threads (mine, …)" in said.text
