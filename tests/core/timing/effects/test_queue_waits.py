"""A queue that earlier calls emptied: the run ends with one line where it would wait for ever."""

from __future__ import annotations

import asyncio
import functools
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.timing import iterators
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies_async
from torchbench_magic.timing.task import Task

from ..fake_clock import FakeClock
from ..fake_clock import timed as timed_long

timed = functools.partial(timed_long, min_run_time=0.001)
FILL = "Fill it in the body"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "PATIENCE_S", 0.02)


def filled(kind: Any, count: int = 7) -> Any:
    made = kind()
    for i in range(count):
        made.put_nowait(i) if isinstance(made, asyncio.Queue) else made.put(i)
    return made


@pytest.mark.parametrize("kind", [queue.Queue, queue.LifoQueue, queue.PriorityQueue, queue.SimpleQueue])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_a_bare_get_ends_with_one_line_that_names_the_queue(kind: Any, count: int) -> None:
    with pytest.raises(BodyError) as caught:
        timed(FakeClock(), {"": "clock.work(1)\nq.get()"}, names={"q": filled(kind, count)})
    text = str(caught.value)
    assert text.startswith("`q` is empty, and the code waits for an item: earlier calls took them all. " + FILL)
    assert ("--restore" in text) is (kind is not queue.SimpleQueue)
    assert "\n" not in text


def test_it_is_so_within_functions_objects_and_other_alternatives_and_at_several_items_a_call() -> None:
    class Worker:
        def __init__(self) -> None:
            self.inbox = filled(queue.Queue, 100)

        def step(self) -> None:
            while self.inbox.get() % 10 != 9:
                pass

    q = filled(queue.Queue, 3)

    def drain() -> None:
        while q.get() != 2:
            pass

    with pytest.raises(BodyError, match=r"`worker\.inbox` is empty"):
        timed(FakeClock(), {"": "clock.work(1)\nworker.step()"}, names={"worker": Worker()})
    with pytest.raises(BodyError, match="`q` is empty"):
        timed(FakeClock(), {"a": "clock.work(1)\ndrain()", "b": "clock.work(2)\ndrain()"}, names={"drain": drain})


def test_an_error_that_the_code_catches_ends_the_run_all_the_same() -> None:
    body = "clock.work(1)\ntry: q.get()\nexcept Exception: pass"
    with pytest.raises(BodyError, match="`q` is empty"):
        timed(FakeClock(), {"": body}, names={"q": filled(queue.Queue)})


def test_a_queue_of_an_event_loop_is_known_too() -> None:
    clock = FakeClock()

    async def run() -> None:
        plan = Plan(threads=(1,), min_run_time=0.001)
        names = {"clock": clock, "q": filled(asyncio.Queue)}
        body = Body("clock.work(1)\nawait q.get()")
        await compare_bodies_async(Task({"": body}, namespace=names, plan=plan, clocks=clock.clocks))

    with pytest.raises(BodyError, match=r"`q` is empty, and the code waits for an item: .* Fill it in the body$"):
        asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        "if not q.empty(): q.get()",
        "q.put(1); q.get()",
        "if first(): q.get(); q.get()",
        "while q.qsize(): q.get()",
        "try: q.get_nowait()\nexcept queue.Empty: pass",
        "try: q.get(timeout=0.0001)\nexcept queue.Empty: pass",
        "try: q.get(False)\nexcept queue.Empty: pass",
    ],
)
@pytest.mark.parametrize("kind", [queue.Queue, queue.SimpleQueue])
def test_code_that_does_not_wait_is_not_stopped(kind: Any, body: str) -> None:
    calls = iter([True])
    names = {"q": filled(kind), "queue": queue, "first": lambda: next(calls, False)}
    timed(FakeClock(), {"": f"clock.work(100)\n{body}"}, names=names)
    assert type(names["q"]) is kind
    assert "get" not in getattr(names["q"], "__dict__", {})


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


def test_a_queue_that_another_thread_feeds_is_waited_for(fed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "PATIENCE_S", 30.0)
    assert len(timed(FakeClock(), {"": "clock.work(100)\nq.get()"}, names={"q": fed}).frame) == 1


def test_a_queue_that_others_feed_is_not_guarded_again_and_again(
    fed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterators, "PATIENCE_S", 30.0)
    guarded: list[int] = []
    put_in = iterators._Guard.put_in
    monkeypatch.setattr(iterators._Guard, "put_in", lambda self, names: (guarded.append(1), put_in(self, names)))
    timed(FakeClock(), {"": "clock.work(10)\nq.get()"}, names={"q": fed})
    assert len(guarded) <= 8


def test_a_worker_of_the_users_that_waits_for_work_goes_on_waiting() -> None:
    jobs, done, begun = filled(queue.Queue, 3), queue.Queue[int](), threading.Event()

    def work() -> None:
        begun.wait()
        while (job := jobs.get()) is not None:
            done.put(job)

    def first() -> None:
        if not begun.is_set():
            begun.set()
            for _ in range(3):
                done.get()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    names = {"jobs": jobs, "done": done, "first": first}
    body = "clock.work(10)\nfirst()\njobs.put(1)\ndone.get()"
    assert len(timed(FakeClock(), {"": body}, names=names).frame) == 1
    jobs.put(None)
    thread.join(5)
    assert not thread.is_alive()
    assert done.empty()


def test_restore_fills_it_again() -> None:
    q = filled(queue.Queue)
    assert len(timed(FakeClock(), {"": "clock.work(10)\nq.get()"}, names={"q": q}, restore=True).frame) == 1
