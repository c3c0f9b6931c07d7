"""Inputs that calls take from until nothing is left, and inputs that grow with every call."""

from __future__ import annotations

import collections
import heapq
import queue
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import Comparison  # noqa: E402

from ..fake_clock import FakeClock, timed  # noqa: E402


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
    assert "`numbers` was changed" in next(d.text for d in result.warnings if d.kind == "used-up")


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
    assert not quiet.warnings
    assert hows(run(FakeClock(), "log.append(1)\nclock.work(10 + len(log) / 50)", 0.3, log=[])) == ["more"]


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
    bodies = {"a": "clock.work(500)", "b": "clock.work(10)\ncache.layers[0].update(k)"}
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
    result = timed(FakeClock(), {"": body}, names={"log": log, "out": out}, restore=True, min_run_time=0.01)
    assert len(log) > 10
    assert out == {"y": [1]}
    assert len(log) > 5 * len(result.samples)  # blocks of several calls, as without


def test_a_list_that_grows_is_said_once() -> None:
    result = run(FakeClock(), "log.append(1)\nclock.work(10 + len(log) / 50)", 0.3, log=[])
    assert hows(result) == ["more"]
    assert [doubt.kind for doubt in result.warnings].count("grows") == 0


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
        return hows(timed(FakeClock(), bodies, names={"log": Log()}, number=1, repeat=40))

    assert said("clock.work(10 + len(log.text) / 10)\nlog.text = log.text + 'x' * 1000") == ["more"]
    assert said("clock.work(10)\nlog.text = str(len(log.text))") == []
