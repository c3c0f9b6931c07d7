"""A line that waits for a thread of Python's, which runs torch, or for something else."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic.process.contention import CoreWait, Counters
from torchbench_magic.profiling import warnings
from torchbench_magic.profiling.recording import RecordedRun
from torchbench_magic.profiling.sources import may_wait_for_threads, place_in
from torchbench_magic.profiling.trace import Source
from torchbench_magic.profiling.view import document
from torchbench_magic.show.document import plain

from .joining.test_attribution import BODY, CODES, LEAVE, MAIN, WORKER, entered, events, joined, stream
from .profiling_text import profiled

JOINED = """began = time.perf_counter()
def work():
    go.wait(); until = 3 * time.perf_counter() - 2 * began
    while len(x.sin()) and time.perf_counter() < until: pass
t = threading.Thread(target=work, name="mine")
t.start()
go.set(); t.join()
"""
"""The last line lasts twice as long as all before it together, however slow the machine is."""


@pytest.fixture
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """No share of a time decides, and the thread of the cell has computed for nothing."""
    monkeypatch.setattr(warnings, "_LEAST_OUTSIDE", 0.0)
    monkeypatch.setattr(warnings, "_BESIDE", 0.0)
    set_own_cpu(monkeypatch, lambda run: 0)


def set_own_cpu(monkeypatch: pytest.MonkeyPatch, of: Callable[[RecordedRun], int]) -> None:
    monkeypatch.setattr(RecordedRun, "own_cpu", property(of))


def all_of_it(run: RecordedRun) -> int:
    return run.end - run.begin


def waits(text: str, **names: Any) -> tuple[list[Any], Any]:
    given = {"torch": torch, "threading": threading, "time": time, "x": torch.ones(3000), "go": threading.Event()}
    found = profiled(text, given | names).profile
    return [doubt for doubt in found.warnings if doubt.kind == "waits-for-threads"], found


@pytest.mark.usefixtures("any_share")
def test_a_line_that_joins_a_thread_waits_for_it_and_its_torch_work_is_named() -> None:
    (said,), found = waits(JOINED)
    assert said.text.startswith("In[7]:7 waits for thread mine, ")
    assert "its torch work is at In[7]:4 (" in said.text
    assert 0 < said.facts["waited"] <= found.wall_time
    assert ", waiting for thread mine, whose torch work is at In[7]:4" in plain(document(found).sentence)


BESIDE = JOINED.replace("go.set(); t.join()", "go.set(); time.sleep(3 * (time.perf_counter() - began))")
"""It sleeps for half as long again as the thread works, and looks for no end of it."""


@pytest.mark.usefixtures("any_share")
def test_a_line_that_sleeps_beside_a_thread_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    said, found = waits(BESIDE)
    assert said == []
    (said,) = (doubt for doubt in found.warnings if doubt.kind == "waits")
    assert said.text.startswith("In[7]:7 waits, at least ")
    assert "Meanwhile thread mine computed: its torch work is at In[7]:4 (" in said.text
    sentence = plain(document(found).sentence)
    assert "waiting for" not in sentence
    assert " of it waiting, beside thread mine, whose torch work is at In[7]:4" in sentence


@pytest.mark.parametrize(
    ("line", "may"),
    [
        ("t.join()", True),
        ("[t.join(timeout=3) for t in ts]", True),
        ("y = pool.submit(f, x).result()", True),
        ("item = q.get(True, 3)", True),
        ("lock.acquire(); f(x)", True),
        ("for each in as_completed(futures): pass", True),
        ("out = list(pool.map(f, xs))", True),
        ("with lock: f(x)", True),
        ("with ThreadPoolExecutor(2) as pool: pool.submit(f)", True),
        ("time.sleep(3)", False),
        ("subprocess.run(['sleep', '3'])", False),
        ("y = requests.get(url)", False),
        ("n = settings.get(key)", False),
        ("s = ', '.join(names)", False),
        ("p = os.path.join(a, b)", False),
        ("with torch.no_grad(): f(x)", False),
        ("with open(path) as file: s = file.read()", False),
        ("out = list(map(f, xs))", False),
        ("f(x)", False),
    ],
)
def test_what_the_text_of_a_line_shows_of_waiting_for_threads(line: str, may: bool) -> None:
    place = place_in(Source("s", "<cell>", f"x = 1\n{line}\n", cell=7), 2)
    assert place is not None
    assert may_wait_for_threads(place) is may


def test_a_line_that_computes_beside_a_thread_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    set_own_cpu(monkeypatch, all_of_it)
    said, found = waits(JOINED)
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


def test_a_line_that_sleeps_and_no_thread_that_works_waits_for_none() -> None:
    said, _ = waits("time.sleep(0.01)\ny = x.sin()\n")
    assert said == []


def set_load(monkeypatch: pytest.MonkeyPatch, waited: float | None) -> None:
    load = None if waited is None else CoreWait(0.3, replace(Counters.read({}), ran=0.0, waited=waited), 1, 2)
    monkeypatch.setattr(RecordedRun, "load", property(lambda run: load, lambda run, value: None))
    own = math.nan if waited is None else waited
    monkeypatch.setattr(RecordedRun, "own_waited", property(lambda run: own))


def waits_for_something(text: str) -> tuple[list[Any], Any]:
    _, found = waits(text)
    return [doubt for doubt in found.warnings if doubt.kind == "waits"], found


@pytest.mark.usefixtures("any_share")
def test_a_line_that_sleeps_is_not_called_python(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    (said,), found = waits_for_something("time.sleep(0.05)\n")
    assert said.text.startswith("In[7]:1 waits, at least ")
    assert 0.05 <= float(str(said.facts["waited"])) <= found.wall_time
    sentence = plain(document(found).sentence)
    assert "of it waiting" in sentence or ", at least " in sentence
    assert "Python" not in sentence


def test_a_line_that_computes_outside_torch_is_not_said_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    set_load(monkeypatch, 0.0)
    set_own_cpu(monkeypatch, all_of_it)
    said, found = waits_for_something("total = sum(range(30_000))\n")
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


@pytest.mark.usefixtures("any_share")
@pytest.mark.parametrize("waited", [None, 1000.0])
def test_where_it_may_have_waited_for_a_core_it_is_not_said_to_sleep(
    monkeypatch: pytest.MonkeyPatch, waited: float | None
) -> None:
    set_load(monkeypatch, waited)
    said, found = waits_for_something("time.sleep(0.01)\n")
    assert said == []
    assert "waiting" not in plain(document(found).sentence)


@pytest.mark.usefixtures("any_share")
def test_that_other_threads_waited_for_a_core_does_not_hide_that_this_one_sleeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_load(monkeypatch, 5.0)
    monkeypatch.setattr(RecordedRun, "own_waited", property(lambda run: 0.0))
    (said,), _ = waits_for_something("time.sleep(0.01)\n")
    assert said.text.startswith("In[7]:1 waits, at least ")


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_with_samples_the_waiting_of_the_line_is_known_though_the_thread_computed(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """By its processor time alone it has computed all the time. Less than half of the line is no waiting line."""
    pytest.importorskip("pyinstrument")
    monkeypatch.setattr(warnings, "_LEAST_OUTSIDE", 0.0)
    set_own_cpu(monkeypatch, all_of_it)

    def sampled(samples: Any, joined: Any) -> Any:
        stretch = [np.array([moment], dtype=np.int64) for moment in (joined.end - joined.wall, joined.end)]
        return *stretch, np.array([int(share * joined.wall)], dtype=np.int64)

    monkeypatch.setattr(warnings, "sampled_waits", sampled)
    found = profiled("time.sleep(0.05)\n", {"time": time}, python=True).profile
    said = [doubt for doubt in found.warnings if doubt.kind == "waits"]
    assert [doubt.text.partition("waits, ")[0] for doubt in said] == (["In[7]:1 "] if share > 0.5 else [])
    for doubt in said:
        assert "at least" not in doubt.text
        assert 0.03 < float(str(doubt.facts["waited"])) <= share * found.wall_time + 1e-6


@pytest.mark.usefixtures("any_share")
def test_several_threads_are_counted() -> None:
    text = JOINED.replace("t = ", "ts = [").replace('name="mine")', 'name="mine") for _ in range(2)]')
    text = text.replace("t.start()", "[t.start() for t in ts]").replace("t.join()", "[t.join() for t in ts]")
    (said,), _ = waits(text)
    assert "waits for 2 threads (mine, …)" in said.text


# ---- which shares decide: on times that are made ----------------------------------------------------------------

MS = 1_000_000


def decided(
    own_cpu: int,
    *,
    waits_from: int = 50,
    in_op: int = 0,
    own_waited: float = 0.0,
    from_ms: int = 52,
    says: str = "t.join()",
) -> str:
    """The kind of what is said of 100 ms: a line in torch until ``waits_from``, then one that is not, to 95 ms.

    Args:
        in_op: ms for which a thread of Python's is in an op meanwhile, from ``from_ms`` on.
        says: the text of the line.
    """
    ops = [{"name": "mm", "start": 0, "end": waits_from * MS}]
    within = {"start": from_ms * MS, "end": (from_ms + in_op) * MS}
    ops += [{"name": "sin", **within, "native": WORKER, "tid": 2}] if in_op else []
    record = stream((0, entered(BODY)), (0, 1), (waits_from * MS, 2), (95 * MS, LEAVE))
    other = stream((0, entered(BODY)), (0, 1), (99 * MS, LEAVE), native=WORKER)
    given = joined(events(*ops), record, other, natives=(MAIN, WORKER), end=100 * MS)
    source = Source("s", "<cell>", f"y = x @ x\n{says}\n", cell=7)
    run: Any = SimpleNamespace(
        samples=None,
        own_cpu=own_cpu * MS,
        own_waited=own_waited,
        python_threads={WORKER: "mine"},
        record=SimpleNamespace(streams=()),
    )
    said = warnings.waits_of_a_line(run, given, {CODES[BODY].co_filename: source})
    return said.kind if said else ""


def test_the_shares_from_which_on_a_line_is_said_to_wait() -> None:
    found = {
        "half of it not computed": decided(22),
        "less than half of it": decided(23),
        "with a wait for a core": decided(15, own_waited=0.01),
        "a fifth of the run": decided(0, waits_from=75),
        "less than a fifth of it": decided(0, waits_from=76),
        "a thread in torch for a quarter": decided(0, in_op=12),
        "for less than a quarter": decided(0, in_op=11),
        "until before its end": decided(0, in_op=40, from_ms=54),
        "beyond its end": decided(0, in_op=40, from_ms=56),
        "of a line that looks for no end": decided(0, in_op=12, says="time.sleep(1)"),
    }
    assert found == {
        "half of it not computed": "waits",
        "less than half of it": "",
        "with a wait for a core": "",
        "a fifth of the run": "waits",
        "less than a fifth of it": "",
        "a thread in torch for a quarter": "waits-for-threads",
        "for less than a quarter": "waits",
        "until before its end": "waits-for-threads",
        "beyond its end": "waits",
        "of a line that looks for no end": "waits",
    }
