"""What timed code changes: watched around each block, checked, put back, and said where it grows."""

from __future__ import annotations

import collections
import heapq
import io
import queue
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchbench_magic import Comparison
from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, CheckFailed, Interrupted, OptionError
from torchbench_magic.process import device
from torchbench_magic.process.device import DeviceEvents, choose_device
from torchbench_magic.process.machine import cache_flusher, last_level_cache
from torchbench_magic.timing import watched_objects
from torchbench_magic.timing.changes import MemoryGuard
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.sweep import Point
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock, timed

# ==== watched inputs ==================================================================================================


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("x.mul(x).sum(-1)", "torch.einsum('ij,ij->i', x, x)"),
        ("torch.rand(3)", "torch.rand((3,))"),  # the same random numbers for each
        ("x.add_(1)", "x.add_(1)"),  # the same inputs for each
    ],
)
def test_check_passes_alternatives_that_return_close_values(a: str, b: str) -> None:
    bodies, names = {"a": f"clock.work(1)\n{a}", "b": f"clock.work(1)\n{b}"}, {"x": torch.rand(3, 4), "torch": torch}
    assert len(timed(FakeClock(), bodies, names=names, check=True).frame) == 2


def test_check_names_the_alternative_that_is_off_and_by_how_much() -> None:
    x = torch.ones(3)
    with pytest.raises(CheckFailed) as caught:
        timed(FakeClock(), {"a": "x", "b": "x + 1"}, names={"x": x}, check=True)
    text = str(caught.value)
    assert text.startswith("--check: `b` and `a` return different values")
    assert "\n" not in text


@pytest.mark.parametrize(("a", "b"), [("b'x'", "b'y'"), ("[1, 2]", "[1, 3]"), ("1.0", "2.0")])
def test_check_compares_other_values_too(a: str, b: str) -> None:
    with pytest.raises(CheckFailed):
        timed(FakeClock(), {"a": a, "b": b}, check=True)


def test_check_needs_an_expression_at_the_end() -> None:
    with pytest.raises(BodyError, match="returns nothing"):
        timed(FakeClock(), {"a": "y = 1", "b": "2"}, check=True)


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("for i in range(2):\n    i + 1", "for"),
        ("if True:\n    1\nelse:\n    2", "if"),
        ("while False:\n    1", "while"),
        ("try:\n    1\nfinally:\n    pass", "try"),
        ("match 1:\n    case 1:\n        1", "match"),
        ("with torch.no_grad():\n    y = 1", "with"),
        ("with torch.no_grad():\n    for i in range(2):\n        i", "with"),
    ],
)
def test_check_says_that_a_block_has_no_value(body: str, block: str) -> None:
    with pytest.raises(BodyError, match=f"`b` ends with a `{block}` block, which has no value"):
        timed(FakeClock(), {"a": "1", "b": body}, names={"torch": torch}, check=True)


def test_check_compares_the_last_expression_within_a_trailing_with() -> None:
    within = "with torch.no_grad():\n    with torch.inference_mode():\n        y = x * 2\n        y + {}"
    names = {"x": torch.ones(3), "torch": torch}
    with pytest.raises(CheckFailed, match="`b` and `a` return different values"):
        timed(FakeClock(), {"a": "x * 2 + 1", "b": within.format(2)}, names=names, check=True)
    bodies = {"a": "clock.work(1)\nx * 2 + 1", "b": "clock.work(1)\n" + within.format(1)}
    assert len(timed(FakeClock(), bodies, names=names, check=True).frame) == 2


def test_check_does_not_pass_where_there_is_nothing_to_compare() -> None:
    with pytest.raises(BodyError, match="`a` and `b` return None, so nothing is compared"):
        timed(FakeClock(), {"a": "seen.append(1)", "b": "seen.append(2)"}, names={"seen": []}, check=True)
    with pytest.raises(OptionError, match="--check compares alternatives, but there is only one"):
        timed(FakeClock(), {"": "1"}, check=True)


def test_restore_gives_every_block_the_same_inputs_and_the_user_theirs_back() -> None:
    x = torch.zeros(2)
    seen: list[float] = []
    body = "seen.append(float(x[0]))\nx += 1\nclock.work(10)"
    result = timed(FakeClock(), {"": body}, names={"x": x, "seen": seen}, restore=True, number=1, repeat=10)
    assert set(seen) == {0.0}
    assert x.tolist() == [0, 0]
    assert [d.kind for d in result.warnings if d.kind == "in-place"] == []


def test_without_restore_the_change_stays_and_is_said() -> None:
    x = torch.zeros(2)
    result = timed(FakeClock(), {"": "x += 1\nclock.work(10)"}, names={"x": x}, number=1, repeat=10)
    assert x[0] >= 10
    assert "in-place" in [d.kind for d in result.warnings]


def test_cold_samples_are_single_calls_after_the_caches_were_emptied() -> None:
    result = timed(FakeClock(), {"": "clock.work(5000)"}, cold=True, repeat=5)
    assert set(result.samples["number"]) == {1}
    assert len(result.samples) == 5


def test_before_every_cold_sample_the_caches_are_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, seen = [0], []

    def flush() -> None:
        flushed[0] += 1

    monkeypatch.setattr(watched_objects, "cache_flusher", lambda: flush)
    names = {"flushed": flushed, "seen": seen}
    timed(FakeClock(), {"": "seen.append(flushed[0])\nclock.work(5000)"}, names=names, cold=True, repeat=5)
    assert seen[-5:] == list(range(flushed[0] - 4, flushed[0] + 1))


def test_the_caches_are_emptied_by_writing_twice_the_largest_ones_size() -> None:
    written: list[int] = []

    class Written(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            written.append(args[0].nbytes)
            return func(*args, **(kwargs or {}))

    flush = cache_flusher()
    with Written():
        flush()
    assert len(written) == 1
    assert written[0] >= 2 * last_level_cache() - 8 >= 2 * (1 << 20) - 8


def test_a_body_that_eats_all_memory_is_stopped_with_what_was_measured_and_not_for_what_others_use() -> None:
    readings = iter([(1 << 30, 8 << 30, 16 << 30), (12 << 30, 1 << 30, 16 << 30)])
    guard = MemoryGuard(lambda: next(readings))
    doubt = guard.check()
    assert doubt is not None
    assert doubt.kind == "memory"
    assert "keeps 11.0 GiB more" in str(doubt)
    readings = iter([(1 << 30, 8 << 30, 16 << 30), (1 << 30, 1 << 30, 16 << 30)])
    assert MemoryGuard(lambda: next(readings)).check() is None


def test_a_body_that_sets_threads_is_said() -> None:
    before = torch.get_num_threads()
    result = timed(FakeClock(), {"": "torch.set_num_threads(1)\nclock.work(10)"}, names={"torch": torch}, threads=(2,))
    assert "changes-threads" in [d.kind for d in result.warnings]
    assert torch.get_num_threads() == before


def test_a_body_that_closes_its_output_leaves_ours_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    timed(FakeClock(), {"": "print('x')\nsys.stdout.close()\nclock.work(10)"}, names={"sys": sys})
    assert not stream.closed
    assert stream.getvalue() == "x\n"


# ---- points ----------------------------------------------------------------------------------------------------


def points(values: list[int], made: list[int] | None = None) -> list[Point]:
    def maker(value: int) -> Any:
        def make() -> dict[str, int]:
            if made is not None:
                made.append(value)
            return {"n": value}

        return make

    return [Point(maker(v), (("n", v),), f"n={v}") for v in values]


def sweep(clock: FakeClock, body: str = "clock.work(n)", **more: Any) -> Any:
    return compare_bodies(Task(
        {"a": Body(body), "b": Body("clock.work(2 * m)")},
        setup=[Body("m = n")],
        namespace={"clock": clock},
        plan=Plan(threads=(1,), min_run_time=0.01, seed=0),
        clocks=clock.clocks,
        **more,
    ))


def test_each_point_is_a_set_of_alternatives_with_its_own_names() -> None:
    result = sweep(FakeClock(), points=points([10, 100]))
    frame = result.frame
    assert result.axes == ("n",)
    assert frame["n"].tolist() == [10, 10, 100, 100]
    assert frame["sub_label"].tolist() == ["n=10", "n=10", "n=100", "n=100"]
    assert frame["median"].tolist() == pytest.approx([10e-6, 20e-6, 100e-6, 200e-6])
    assert frame["ratio"].tolist() == pytest.approx([1, 2, 1, 2])
    assert set(result.samples["measurement"]) == {0, 1, 2, 3}


def test_points_are_made_one_at_a_time() -> None:
    made: list[int] = []
    kept: list[int] = []
    sweep(FakeClock(), points=points([10, 20, 30], made), keep=lambda part: kept.append(len(made)))
    assert made == [10, 20, 30]
    assert kept == [1, 2, 3]


def test_a_point_that_is_kept_already_is_not_run_again() -> None:
    made: list[int] = []
    stored: dict[str | None, Any] = {}
    sweep(FakeClock(), points=points([10]), keep=lambda part: stored.update({part.subjects[0].sub_label: part}))

    def skip(task: Any, point: Point | None) -> Any:
        return stored.get(point.sub_label if point is not None else None)

    result = sweep(FakeClock(), points=points([10, 20], made), skip=skip)
    assert made == [20]
    assert result.frame["n"].tolist() == [10, 10, 20, 20]


def test_an_interrupt_keeps_the_points_that_are_finished() -> None:
    clock = FakeClock()

    def work(n: int) -> None:
        if n == 30:
            raise KeyboardInterrupt
        clock.work(n)

    with pytest.raises(Interrupted) as caught:
        compare_bodies(Task(
            {"": Body("work(n)")},
            namespace={"work": work},
            plan=Plan(threads=(1,), min_run_time=0.01),
            clocks=clock.clocks,
            points=points([10, 20, 30, 40]),
        ))
    partial: Any = caught.value.partial
    assert partial.partial
    assert partial.frame["n"].tolist() == [10, 20]


# ---- accelerators, simulated -----------------------------------------------------------------------------------


class FakeEvent:
    log: list[str] = []  # noqa: RUF012  (shared on purpose)
    times: Iterator[float] = iter(())

    def record(self) -> None:
        self.at = next(FakeEvent.times)
        FakeEvent.log.append("record")

    def elapsed_time(self, other: FakeEvent) -> float:
        return other.at - self.at  # milliseconds, as torch's events tell them


def test_device_events_stand_after_the_first_wait_and_before_the_second() -> None:
    FakeEvent.log, FakeEvent.times = [], iter([1.0, 3.5])
    events = DeviceEvents(lambda: FakeEvent.log.append("wait"), FakeEvent)
    events.synchronize()
    FakeEvent.log.append("work")
    events.synchronize()
    assert FakeEvent.log == ["wait", "record", "work", "record", "wait"]
    assert events.elapsed_ns == pytest.approx(2.5e6)


def test_the_device_clock_is_what_the_figures_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    FakeEvent.log = []
    FakeEvent.times = (clock.wall_ns / 2e6 for _ in iter(int, 1))  # a device twice as fast as the clock
    monkeypatch.setattr(device, "choose_device", lambda asked, read: "fake:0")
    monkeypatch.setattr(device, "device_events", lambda name, sync: DeviceEvents(sync, FakeEvent))
    result = timed_by_device(clock)
    assert result.frame["device"][0] == "fake:0"
    assert result.frame["median"][0] == pytest.approx(5e-6)
    assert result.samples["device"].tolist() == pytest.approx((result.samples["wall"] / 2).tolist())


def timed_by_device(clock: FakeClock) -> Any:
    return compare_bodies(Task(
        {"": Body("clock.work(10)")},
        namespace={"clock": clock},
        plan=Plan(threads=(1,), clock="device"),
        clocks=clock.clocks,
    ))


def test_the_accelerator_is_waited_for_at_the_edges_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    monkeypatch.setattr(device, "choose_device", lambda asked, read: "fake:0")
    monkeypatch.setattr(device, "synchronizer", lambda asked: lambda: clock.work(1000))
    result = timed(clock, {"": "clock.work(10)"})
    assert result.frame["number_per_run"][0] == 500  # blocks of 5 ms: waiting must not be most of a block
    assert result.frame["median"][0] == pytest.approx(10e-6)  # an idle wait is taken out with the clocks' cost


@pytest.mark.parametrize(("wait_us", "is_bound"), [(1.0, True), (50_000.0, False)])
def test_work_whose_launches_take_longer_than_the_device_is_said_to_be_so(
    monkeypatch: pytest.MonkeyPatch, wait_us: float, is_bound: bool
) -> None:
    """A simulated device: work is queued, and the wait at the end of a block takes what is left of it."""
    clock = FakeClock()
    queued: list[float] = []

    def wait() -> None:
        if queued:
            clock.work(wait_us)
            queued.clear()

    def launch() -> None:
        clock.work(10)
        queued.append(1.0)

    monkeypatch.setattr(device, "choose_device", lambda asked, read: "fake:0")
    monkeypatch.setattr(device, "synchronizer", lambda asked: wait)
    result = timed(clock, {"": "launch()"}, names={"launch": launch})
    assert ("launch-bound" in [d.kind for d in result.warnings]) == is_bound


@pytest.mark.parametrize("asked", ["cuda:7", "tpu", "nonsense!"])
def test_a_device_that_is_not_there_is_one_line(asked: str) -> None:
    if torch.accelerator.is_available() and torch.accelerator.device_count() > 7:
        asked = "nonsense!"
    with pytest.raises(OptionError) as caught:
        choose_device(asked, set())
    assert str(caught.value).startswith("--device")
    assert "\n" not in str(caught.value)


def test_the_device_clock_without_an_accelerator_is_one_line() -> None:
    with pytest.raises(OptionError, match="--clock device"):
        device.device_events("cpu", lambda: None)


def test_what_slows_the_timed_code_in_this_kernel_is_named() -> None:
    with torch.autograd.set_detect_anomaly(True):
        made = timed(FakeClock(), {"": "clock.work(10)"})
    (doubt,) = [doubt for doubt in made.warnings if doubt.kind == "hooks"]
    assert "torch.autograd.set_detect_anomaly(True)" in doubt.text
    assert "hooks" not in {doubt.kind for doubt in timed(FakeClock(), {"": "clock.work(10)"}).warnings}


def test_a_hook_is_named_with_what_it_calls() -> None:
    tracemalloc.start()
    try:
        made = timed(FakeClock(), {"": "clock.work(10)"})
    finally:
        tracemalloc.stop()
    assert "changing the timed code: tracemalloc" in str(made.warnings)


def test_all_devices_that_are_in_use_are_waited_for_and_none_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    waited: list[int] = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    monkeypatch.setattr(device, "devices_in_use", lambda: used)
    synchronize = device.synchronizer("auto")
    synchronize()
    assert waited == []
    used += [1, 0]
    synchronize()
    assert waited == [1, 0]


# ==== growth ==========================================================================================================
# Inputs that calls take from until nothing is left, and inputs that grow with every call.


def hows(result: Comparison) -> list[tuple[object, object]]:
    return [d.facts["how"] for d in result.warnings if d.kind == "used-up"]


def run(clock: FakeClock, body: str, min_run_time: float = 0.01, **names: Any) -> Comparison:
    """A body beside one that works for 500 us a call."""
    return timed(clock, {"a": "clock.work(500)", "b": body}, names={"torch": torch, **names}, min_run_time=min_run_time)


def filled(**names: Any) -> Any:
    made = queue.Queue(**names)
    for number in range(50):
        made.put(number)
    return made


TAKING = [
    ("while q: q.pop(); clock.work(10)", lambda: list(range(50))),
    ("while q: q.popleft(); clock.work(10)", lambda: collections.deque(range(50))),
    ("while q: q.popitem(); clock.work(10)", lambda: dict.fromkeys(range(50))),
    ("while q: q.pop(); clock.work(10)", lambda: set(range(50))),
    ("while q: heappop(q); clock.work(10)", lambda: list(range(50))),
    ("while not q.empty(): q.get(); clock.work(10)", filled),
    ("while not q.empty(): q.get_nowait(); clock.work(10)", filled),
]


@pytest.mark.parametrize(("body", "make"), TAKING)
def test_what_the_first_call_emptied_is_said_as_that_and_voids_the_verdict(body: str, make: Any) -> None:
    result = run(FakeClock(), "clock.work(1)\n" + body, q=make(), heappop=heapq.heappop)
    assert hows(result) == ["less"]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]
    (doubt,) = (d for d in result.warnings if d.kind == "used-up")
    assert "50, then 0 items" in doubt.text
    assert "--restore" in doubt.action
    assert "cache" not in str(doubt)


@pytest.mark.parametrize(("body", "make"), TAKING)
def test_restore_fills_it_again_before_each_call(body: str, make: Any) -> None:
    names = {"q": make(), "heappop": heapq.heappop}
    result = timed(FakeClock(), {"": body}, names=names, restore=True, min_run_time=0.01)
    assert result.frame["median"][0] == pytest.approx(500e-6)
    assert not result.warnings
    assert (names["q"].qsize() if hasattr(names["q"], "qsize") else len(names["q"])) == 50


@pytest.mark.parametrize(
    ("body", "make"),
    [
        ("clock.work(10 if q and q.pop() else 1)", lambda: list(range(1, 50))),
        ("clock.work(10 if q and q.popleft() else 1)", lambda: collections.deque(range(1, 50))),
        ("clock.work(10 if q and q.popitem() else 1)", lambda: dict.fromkeys(range(50))),
        ("clock.work(1 if q.empty() else 10 + q.get())", filled),
    ],
)
def test_what_was_emptied_bit_by_bit_is_said(body: str, make: Any) -> None:
    result = run(FakeClock(), body, q=make())
    assert hows(result) == ["less"]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]


def test_a_key_that_the_first_call_took_away_is_said() -> None:
    result = run(FakeClock(), "clock.work(500 if d.pop('a', None) else 1)", d={"a": 1, "b": 2})
    assert hows(result) == ["less"]


def test_a_list_that_the_first_call_sorted_is_said_as_that() -> None:
    body = "clock.work(1 if numbers == sorted(numbers) else 50)\nnumbers.sort()"
    result = run(FakeClock(), body, numbers=[3, 1, 2])
    assert hows(result) == ["less"]
    assert "`numbers[0]` was 3, then 1" in next(d.text for d in result.warnings if d.kind == "used-up")


def test_a_list_that_gets_shorter_and_no_cheaper_is_no_obstacle() -> None:
    body = {"": "clock.work(10)\nll.pop()"}
    assert not timed(FakeClock(), body, names={"ll": list(range(10**5))}, min_run_time=0.01).warnings


class Layer:
    def __init__(self) -> None:
        self.keys = torch.ones(1, 4)

    def update(self, key: Any) -> Any:
        self.keys = torch.cat([self.keys, key])
        return self.keys


class Cache:
    """Not of the user's: what a library calls so."""

    def __init__(self) -> None:
        self.layers = [Layer(), Layer()]


Layer.__module__ = Cache.__module__ = "torch.nn"  # a library's


@pytest.mark.parametrize("body", ["clock.work(10)\ncache.layers[0].update(k)", "clock.work(10)\nf()"])
def test_tensors_that_grow_with_every_call_void_the_verdict_whoever_holds_them(body: str) -> None:
    cache, k = Cache(), torch.ones(1, 4)
    names = {"cache": cache, "k": k, "f": lambda: [layer.update(k) for layer in cache.layers]}
    result = run(FakeClock(), body, **names)
    assert "more" in hows(result)
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]
    assert "`aten.cat` worked on " in next(d.text for d in result.warnings if d.kind == "used-up")


def test_a_list_that_grows_is_only_an_obstacle_where_the_times_grow_with_it() -> None:
    quiet = run(FakeClock(), "log.append(1)\nclock.work(10)", log=[])
    assert not hows(quiet)
    assert [doubt.kind for doubt in quiet.warnings] == ["grown"]  # a clause
    slower = run(FakeClock(), "log.append(1)\nclock.work(10 + len(log) / 50)", 0.3, log=[])
    assert hows(slower) == ["more"]
    assert "grows" not in [doubt.kind for doubt in slower.warnings]


class Stream:
    """As one that a logger writes to: it looks up a level once, and its queue moves now and then."""

    def __init__(self) -> None:
        self.levels: dict[int, bool] = {}
        self.waiting: list[object] = []
        self.lines = 0

    def write(self) -> None:
        self.levels.setdefault(20, True)
        self.lines += 1
        if self.lines % 10 == 0:
            self.waiting.append(self.lines)


Stream.__module__ = "logging"  # a library's


def test_what_is_filled_once_or_now_and_then_does_not_grow_with_every_call() -> None:
    slower = "\nclock.work(10 + stream.lines / 50)"
    assert not hows(run(FakeClock(), "stream.write()" + slower, 0.3, stream=Stream()))


def test_what_grows_is_said_at_several_thread_counts_too() -> None:
    names = {"torch": torch, "cache": Cache(), "k": torch.ones(1, 4)}
    bodies = {"a": "clock.work(500)", "b": "clock.work(200)\ncache.layers[0].update(k)"}
    assert "more" in hows(timed(FakeClock(), bodies, names=names, threads=(1, 2)))


@pytest.mark.parametrize(
    "body",
    [
        "outs.append(torch.ones(3))",  # more tensors, none of them larger
        "x.add_(1)",
        "x.mul_(0.999)",
        "out['y'] = torch.ones(3)",
        "buffer.append(1); buffer.clear()",
        "q.put(1); q.get()",
        "d.appendleft(1); d.pop()",
        "fixed.append(1)",
        "bn(x)",
        "opt.zero_grad(); lin(x).sum().backward(); opt.step()",
    ],
)
def test_ordinary_bodies_say_nothing(body: str) -> None:
    lin = torch.nn.Linear(3, 3)
    names = {
        "outs": [],
        "x": torch.ones(2, 3),
        "out": {},
        "buffer": [0],
        "q": filled(),
        "lin": lin,
        "d": collections.deque(range(9)),
        "fixed": collections.deque(maxlen=3),
        "bn": torch.nn.BatchNorm1d(3),
        "opt": torch.optim.Adam(lin.parameters()),
    }
    assert not hows(run(FakeClock(), body + "\nclock.work(10)", **names))


def test_restore_leaves_logs_and_results_alone() -> None:
    log, out = [0], {"y": 1}
    body = "log.append(1)\nout['y'] = [1]\nclock.work(10)"
    timed(FakeClock(), {"": body}, names={"log": log, "out": out}, restore=True, min_run_time=0.01)
    assert len(log) > 10
    assert out == {"y": [1]}


def test_a_lone_statement_that_changes_its_input_shares_it_with_no_alternatives() -> None:
    lone = timed(FakeClock(), {"": "x.add_(1); clock.work(5)"}, names={"x": torch.ones(2)}, min_run_time=0.01)
    (doubt,) = (d for d in lone.warnings if d.kind == "in-place")
    assert doubt.text.endswith("names are restored after each call, objects are not.")
    two = {"a": "x.sum(); clock.work(5)", "b": "x.add_(1); clock.work(5)"}
    result = timed(FakeClock(), two, names={"x": torch.ones(2)}, min_run_time=0.01)
    (doubt,) = (d for d in result.warnings if d.kind == "in-place")
    assert doubt.text.endswith("objects are not, and the alternatives share them.")


def test_a_tensor_that_one_alternative_reads_is_not_said_to_be_shared_and_its_calls_alone_are_counted() -> None:
    two = {"a": "y.add_(1); clock.work(5)", "b": "x.add_(1); clock.work(5)"}
    result = timed(FakeClock(), two, names={"x": torch.ones(2), "y": torch.ones(2)}, min_run_time=0.01)
    doubts = [d for d in result.warnings if d.kind == "in-place"]
    assert len(doubts) == 2
    for doubt in doubts:
        assert doubt.text.endswith("objects are not.")
        (times,) = doubt.facts["changes"].values()
        assert times == doubt.facts["calls"]


def fresh(make: Any) -> dict[str, Any]:
    """A training that has made no step: what an optimizer and the like keep is made by the first one."""
    net = torch.nn.Linear(64, 64)
    opt = make(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=10**6)
    trainer = type("Trainer", (), {})()
    trainer.net, trainer.opt = net, opt
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    return {"net": net, "opt": opt, "schedule": schedule, "scaler": scaler, "trainer": trainer, "x": torch.ones(2, 64)}


@pytest.mark.parametrize("make", [torch.optim.Adam, pytest.param(torch.optim.RMSprop, marks=pytest.mark.slow)])
def test_state_that_restore_takes_away_and_the_next_block_makes_again_does_not_grow(make: Any) -> None:
    body = (
        "for _ in range({0}):\n    scaler.scale(trainer.net(x).sum()).backward(); scaler.step(trainer.opt)\n"
        "    scaler.update(); schedule.step(); clock.work(300)"
    )
    direct = "net(x).sum().backward(); opt.step(); clock.work(300)"
    bodies = {"one": body.format(1), "two": body.format(2), "direct": direct}
    result = timed(FakeClock(), bodies, names=fresh(make), restore=True, min_run_time=0.01)
    assert result.subjects[0].warmup_calls > 10
    assert not hows(result)


BOUND = {
    "t0": (
        "t0 = torch.zeros(1)\n"
        "def grow():\n    global t0\n    clock.work(5)\n    t0 = torch.cat([t0, torch.zeros(100)])"
    ),
    "Held.t0": (
        "class Held:\n    t0 = torch.zeros(1)\n"
        "def grow():\n    clock.work(5)\n    Held.t0 = torch.cat([Held.t0, torch.zeros(100)])"
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_what_functions_bind_in_globals_and_classes_grows_too(name: str) -> None:
    clock = FakeClock()
    home: dict[str, Any] = {"torch": torch, "clock": clock, "__name__": "__main__"}
    exec(BOUND[name], home)
    result = run(clock, "grow()", **{key: value for key, value in home.items() if key not in ("torch", "clock")})
    assert hows(result) == ["more"]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]


def test_a_global_of_one_size_does_not_grow() -> None:
    clock = FakeClock()
    home: dict[str, Any] = {"torch": torch, "clock": clock, "__name__": "__main__"}
    exec("def step():\n    global last\n    clock.work(5)\n    last = torch.zeros(100)", home)
    assert not hows(run(clock, "step()", step=home["step"]))


def test_a_text_that_grows_takes_the_verdict_and_one_that_changes_does_not() -> None:
    class Log:
        text = ""

    def said(body: str) -> list[tuple[object, object]]:
        bodies = {"a": "clock.work(500)", "b": body}
        return hows(timed(FakeClock(), bodies, names={"log": Log()}, number=1, repeat=40, min_run_time=0.02))

    assert said("clock.work(10 + len(log.text) / 10)\nlog.text = log.text + 'x' * 1000") == ["more"]
    assert said("clock.work(10)\nlog.text = str(len(log.text))") == []
