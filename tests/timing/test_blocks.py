"""A call that waits for what earlier calls used up is ended with one line that says where; others are left alone."""

from __future__ import annotations

import asyncio
import functools
import queue
import signal
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.timing import blocks
from torchbench_magic.timing.blocks import BlockRequest
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies_async
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock
from .fake_clock import timed as timed_long

timed = functools.partial(timed_long, min_run_time=0.001)
MOST_OF_A_CORE = 2.0


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other fast, and what other threads of the process compute does not count."""
    monkeypatch.setattr(blocks, "STEP", 0.02)
    monkeypatch.setattr(blocks, "PATIENCE", 0.1)
    monkeypatch.setattr(blocks, "TIMES", 0.0)
    monkeypatch.setattr(blocks, "_IDLE", MOST_OF_A_CORE)


def filled(kind: Any, count: int = 7) -> Any:
    made = kind()
    for i in range(count):
        made.put_nowait(i) if isinstance(made, asyncio.Queue) else made.put(i)
    return made


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("kind", ["Queue", "LifoQueue", "SimpleQueue", "semaphore", "socket"])
def test_a_call_that_waits_for_what_earlier_ones_took_ends_with_one_line(kind: str) -> None:
    before, (ours, theirs) = signal.getsignal(signal.SIGINT), socket.socketpair()
    with ours, theirs:
        theirs.send(b"123")
        take = {"semaphore": threading.Semaphore(3).acquire, "socket": functools.partial(ours.recv, 1)}.get(kind)
        names = {"take": take or filled(getattr(queue, kind), 3).get}
        with pytest.raises(BodyError, match=r"^a later call waits at line 2, and nothing") as caught:
            timed(FakeClock(), {"": "clock.work(1)\ntake()"}, names=names)
    assert "\n" not in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("_impatient")
def test_it_is_so_within_functions_and_beside_other_alternatives() -> None:
    q = filled(queue.Queue, 9)

    def drain() -> None:
        while q.get() != 2:
            pass

    with pytest.raises(BodyError, match=r"waits at line \d+ of `.*drain` \(`while q.get\(\) != 2:`\)"):
        timed(FakeClock(), {"a": "clock.work(1)\ndrain()", "b": "clock.work(2)"}, names={"drain": drain})


@pytest.mark.usefixtures("_impatient")
def test_an_interrupt_that_the_code_catches_ends_the_run_all_the_same() -> None:
    body = "clock.work(1)\ntry: q.get()\nexcept BaseException: pass"
    with pytest.raises(BodyError, match=r"^a later call waits at a line that caught that, and"):
        timed(FakeClock(), {"": body}, names={"q": filled(queue.Queue)}, number=1, repeat=20)


@pytest.mark.usefixtures("_impatient")
def test_a_call_that_awaits_is_ended_too() -> None:
    clock = FakeClock()

    async def run() -> None:
        plan = Plan(threads=(1,), min_run_time=0.001)
        names = {"clock": clock, "q": filled(asyncio.Queue)}
        body = Body("clock.work(1)\nawait q.get()")
        await compare_bodies_async(Task({"": body}, namespace=names, plan=plan, clocks=clock.clocks))

    with pytest.raises(BodyError, match="waits at line 2, and"):
        asyncio.run(run())


def test_how_long_a_block_may_wait_does_not_grow_with_its_calls_times_a_slow_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([0.0, 0.5, 1.0, 1.001, 2.0])  # a first call of half a second, then one of a millisecond
    monkeypatch.setattr(blocks.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(blocks._thread, "start_new_thread", lambda *_: None)
    stalls, bounds = blocks.Stalls(), []
    block = SimpleNamespace(source="await q.get()", is_async=False)
    for calls in (1, 1, 10_000):
        asked = BlockRequest(block, 0, calls)  # type: ignore[arg-type]
        stalls.begin(asked)
        assert stalls._under_way is not None
        bounds.append(stalls._under_way[1])
        if calls == 1:
            stalls.end(asked)
    assert bounds == [float("inf"), pytest.approx(50.0), pytest.approx(1000.0)]  # 10,000 short ones take 10 s


@pytest.fixture
def fed() -> Iterator[queue.Queue[int]]:
    """A queue that another thread feeds, always late."""
    made: queue.Queue[int] = queue.Queue(2)
    over = threading.Event()

    def feed() -> None:
        while not over.wait(0.0005):
            with_room = made.qsize() < 2
            if with_room:
                made.put(1)

    made.put(0)
    thread = threading.Thread(target=feed)
    thread.start()
    yield made
    over.set()
    thread.join()


def test_a_call_that_others_let_go_on_is_waited_for(fed: Any) -> None:
    assert len(timed(FakeClock(), {"": "clock.work(100)\nq.get()"}, names={"q": fed}).frame) == 1


def test_a_first_call_may_wait_as_long_as_it_likes_and_one_that_computes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []

    class Over(threading.Event):
        """Looks come at once, until there were a hundred."""

        def wait(self, timeout: float | None = None) -> bool:
            looks.append(self.is_set())
            return self.is_set() or len(looks) > 100

    monkeypatch.setattr(blocks.threading, "Event", Over)
    stalls = blocks.Stalls.__new__(blocks.Stalls)
    stalls.over, stalls._waited, stalls._cancel = Over(), 0.0, None
    stalls._under_way = 0.0, float("inf")  # as a first call is
    stalls._watch()
    assert len(looks) > 100
    ticks = iter(range(10_000))
    monkeypatch.setattr(blocks.time, "process_time", lambda: float(next(ticks)))
    looks.clear()
    stalls._under_way = 0.0, 1.0
    stalls._watch()
    assert len(looks) > 100
    assert not stalls._waited


@pytest.mark.parametrize(
    "body",
    [
        "y = Freed()",
        "y = Freed(); y = 1",
        "for y in [Freed()]: pass",
        "y = y and Freed()",
        "y = [Freed()]; any(0 for z in y)",
        "y = Freed(); f = lambda: y",
        "y = Freed(); f = lambda: y; del y, f",
        "global y; y = Freed()",
        "def f():\n    global y\n    y = Freed()\nf()",
    ],
)
def test_what_a_call_binds_is_freed_while_the_clock_runs_however_few_calls_a_block_has(body: str) -> None:
    clock = FakeClock()

    class Freed:
        def __del__(self) -> None:
            clock.work(1000)

    result = timed(clock, {"bound": body, "unbound": "Freed()"}, names={"Freed": Freed, "y": 1}, number=1, repeat=5)
    assert result.frame["median"].tolist() == pytest.approx([1e-3, 1e-3])


def test_what_a_function_of_the_body_may_look_for_later_stays() -> None:
    later: list[Any] = []
    timed(FakeClock(), {"": "y = 3\nlater.append(lambda: y)\nclock.work(1000)"}, names={"later": later})
    assert {each() for each in later} == {3}
