"""What calls take from iterators, queues and files: told, put back, or ended with one line."""

from __future__ import annotations

import asyncio
import bz2
import functools
import gzip
import lzma
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchbench_magic.cell_text import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.results import Doubt
from torchbench_magic.timing import iterators
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.iterators import at_end
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.run import compare_bodies, compare_bodies_async
from torchbench_magic.timing.task import Task

from .fake_clock import FakeClock
from .fake_clock import timed as timed_long

# ==== queue waits =====================================================================================================
# A queue that earlier calls emptied: the run ends with one line where it would wait for ever.


timed = functools.partial(timed_long, min_run_time=0.001)
FILL = "Fill it in the body"


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "PATIENCE_S", 0.02)


def filled(kind: Any, count: int = 7) -> Any:
    made = kind()
    for i in range(count):
        made.put_nowait(i) if isinstance(made, asyncio.Queue) else made.put(i)
    return made


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("kind", [queue.Queue, queue.LifoQueue, queue.PriorityQueue, queue.SimpleQueue])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_a_bare_get_ends_with_one_line_that_names_the_queue(kind: Any, count: int) -> None:
    with pytest.raises(BodyError) as caught:
        timed(FakeClock(), {"": "clock.work(1)\nq.get()"}, names={"q": filled(kind, count)})
    text = str(caught.value)
    assert text.startswith("`q` is empty, and the code waits for an item: earlier calls took them all. " + FILL)
    assert ("--restore" in text) is (kind is not queue.SimpleQueue)
    assert "\n" not in text


@pytest.mark.usefixtures("_impatient")
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


@pytest.mark.usefixtures("_impatient")
def test_an_error_that_the_code_catches_ends_the_run_all_the_same() -> None:
    body = "clock.work(1)\ntry: q.get()\nexcept Exception: pass"
    with pytest.raises(BodyError, match="`q` is empty"):
        timed(FakeClock(), {"": body}, names={"q": filled(queue.Queue)})


@pytest.mark.usefixtures("_impatient")
def test_a_queue_of_an_event_loop_is_known_too() -> None:
    clock = FakeClock()

    async def run() -> None:
        plan = Plan(threads=(1,), min_run_time=0.001)
        names = {"clock": clock, "q": filled(asyncio.Queue)}
        body = Body("clock.work(1)\nawait q.get()")
        await compare_bodies_async(Task({"": body}, namespace=names, plan=plan, clocks=clock.clocks))

    with pytest.raises(BodyError, match=r"`q` is empty, and the code waits for an item: .* Fill it in the body$"):
        asyncio.run(run())


@pytest.mark.usefixtures("_impatient")
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


@pytest.mark.usefixtures("_impatient")
def test_a_queue_that_another_thread_feeds_is_waited_for(fed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "PATIENCE_S", 30.0)
    assert len(timed(FakeClock(), {"": "clock.work(100)\nq.get()"}, names={"q": fed}).frame) == 1


@pytest.mark.usefixtures("_impatient")
def test_a_queue_that_others_feed_is_not_guarded_again_and_again(
    fed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iterators, "PATIENCE_S", 30.0)
    guarded: list[int] = []
    put_in = iterators._Guard.put_in
    monkeypatch.setattr(iterators._Guard, "put_in", lambda self, names: (guarded.append(1), put_in(self, names)))
    timed(FakeClock(), {"": "clock.work(10)\nq.get()"}, names={"q": fed})
    assert len(guarded) <= 8


@pytest.mark.usefixtures("_impatient")
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


@pytest.mark.usefixtures("_impatient")
def test_restore_fills_it_again() -> None:
    q = filled(queue.Queue)
    assert len(timed(FakeClock(), {"": "clock.work(10)\nq.get()"}, names={"q": q}, restore=True).frame) == 1


# ==== read files ======================================================================================================
# Files that timed code reads: put back with ``--restore``, told where they are read to the end.


def timed_reading(file: Any, body: str, *, restore: bool, **more: int) -> Comparison:
    clock = FakeClock()
    names = {"clock": clock, "file": file, "seen": set()}
    plan = Plan(threads=(1,), min_run_time=0.0001, restore=restore, **more)
    return compare_bodies(Task({"": Body(body)}, namespace=names, plan=plan, clocks=clock.clocks))


@pytest.mark.parametrize("mode", ["r", "r+", "rb", "rb+", "r+b", "a+"])
def test_a_file_that_is_only_read_is_put_back(mode: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc\n" * 10)
    with open(tmp_path / "a.txt", mode) as file:
        file.seek(8)
        timed_reading(file, "assert file.readline()\nclock.work(10)", restore=True)
        assert file.tell() == 8
        assert len(file.read()) == 32
        assert at_end(file)


@pytest.mark.parametrize("opened", [gzip.open, bz2.open, lzma.open])
@pytest.mark.parametrize("mode", ["rb", "rt"])
def test_a_packed_file_is_put_back(opened: Callable[..., Any], mode: str, tmp_path: Path) -> None:
    with opened(tmp_path / "a", "wb") as file:
        file.write(b"abc\n" * 10)
    with opened(tmp_path / "a", mode) as file:
        file.readline()
        timed_reading(file, "assert file.readline()\nclock.work(10)", restore=True)
        assert len(file.read()) == 36
        assert at_end(file)


@pytest.mark.parametrize("mode", ["w+", "r+", "rb+"])
def test_a_file_that_is_written_is_left_alone(mode: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with open(tmp_path / "a.txt", mode) as file:
        body = f"file.write({'b' * ('b' in mode)}'x')\nclock.work(10)"
        result = timed_reading(file, body, restore=True)
        file.flush()
        assert file.tell() == len((tmp_path / "a.txt").read_bytes()) > 10
    assert [doubt for doubt in result.warnings if doubt.kind == "used-up"] == []


# ==== taken items =====================================================================================================
# Items that timed code takes from the user's iterators are gone: it is said, but where it did not happen or is told
# otherwise.


def numbers() -> Iterator[int]:
    for i in range(10**6):
        yield 1000 + i


def taken(body: str, **options: Any) -> tuple[list[Doubt], dict[str, Any]]:
    names: dict[str, Any] = {"g": numbers(), "it": iter(list(range(10**6))), "held": [numbers()]}
    result = timed_long(FakeClock(), {"a": f"clock.work(100)\n{body}"}, names=names, **options)
    return [doubt for doubt in result.warnings if doubt.kind == "taken-items"], names


@pytest.mark.parametrize(("body", "name"), [("next(g)", "g"), ("next(it)", "it"), ("next(held[0])", "held[0]")])
def test_what_calls_take_from_an_iterator_is_said(body: str, name: str) -> None:
    (said,), _ = taken(body)
    assert said.text == f"Timed calls took items from `{name}`, which are not restored."
    assert said.action == "Make it in the body, or in setup."


def test_with_restore_a_generator_is_said_and_what_can_be_copied_is_not_taken_from() -> None:
    (said,), _ = taken("next(g)", restore=True)
    assert said.text.endswith("`--restore` cannot restore a generator.")
    said_of_copied, names = taken("next(it)", restore=True)
    assert said_of_copied == []
    assert next(names["it"]) == 0


def test_an_iterator_that_is_only_looked_at_or_made_in_the_body_is_not_said() -> None:
    assert taken("g.gi_frame, it.__length_hint__(), len(held)")[0] == []
    assert taken("mine = iter([1, 2])\nnext(mine)")[0] == []


def test_a_generator_that_had_begun_is_seen_by_its_variables() -> None:
    begun = numbers()
    next(begun)
    result = timed_long(FakeClock(), {"a": "clock.work(100)\nnext(begun)"}, names={"begun": begun})
    assert [doubt.kind for doubt in result.warnings].count("taken-items") == 1


def test_one_that_is_used_up_is_told_once() -> None:
    short = (n for n in range(3))
    result = timed_long(FakeClock(), {"a": "clock.work(100)\nfor n in short: pass"}, names={"short": short})
    kinds = [doubt.kind for doubt in result.warnings]
    assert "taken-items" not in kinds
    assert "short" in " ".join(doubt.text for doubt in result.warnings)
