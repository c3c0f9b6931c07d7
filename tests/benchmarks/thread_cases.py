"""Planted cells for `threads`, each in a process of its own: how the cores are used is known by their making.

All is scaled to C, the usable cores. ``python thread_cases.py CASE REPEATS SECONDS`` runs one and prints JSON: of each
profile the verdict and the figures behind it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

from torchbench_magic import profile  # noqa: E402
from torchbench_magic.process.machine import usable_cores  # noqa: E402

C = usable_cores()
SIDE = 512
Cell = Callable[[float], None]
"""Works for so many seconds."""


def until(seconds: float, work: Callable[[], object]) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        work()


class Work:
    """A bit of everything at torch's threads: products, a stream through memory, a training step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.a, self.b, self.c = (torch.randn(SIDE, SIDE) for _ in range(3))
        self.big = torch.randn(4_000_000)
        self.out = torch.empty_like(self.big)
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))

    def unit(self) -> None:
        for _ in range(4):
            torch.mm(self.a, self.b, out=self.c)
        torch.mul(self.big, 1.01, out=self.out)
        self.net(torch.randn(256, 256)).sum().backward()
        self.net.zero_grad()


def at_threads(count: int) -> Cell:
    torch.set_num_threads(count)
    work = Work()
    work.unit()
    return lambda seconds: until(seconds, work.unit)


def memory() -> Cell:
    torch.set_num_threads(C)
    big = torch.randn(4_000_000)
    out = torch.empty_like(big)
    return lambda seconds: until(seconds, lambda: torch.add(big, big, out=out))


def small_operations() -> Cell:
    torch.set_num_threads(4 * C)
    x = torch.randn(100_000)
    y = torch.empty_like(x)
    return lambda seconds: until(seconds, lambda: torch.mul(x, 2.0, out=y))


def products_in_a_pool(workers: int, threads: int) -> Cell:
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    outs = [torch.empty(SIDE, SIDE) for _ in range(workers)]
    pool = ThreadPoolExecutor(workers)

    def work(number: int, seconds: float) -> None:
        torch.set_num_threads(threads)
        until(seconds, lambda: torch.mm(a, b, out=outs[number]))

    return lambda seconds: sum(0 for _ in pool.map(work, range(workers), [seconds] * workers)) and None


class Items(Dataset[torch.Tensor]):
    def __init__(self, side: int, products: int) -> None:
        self.side, self.products = side, products

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> torch.Tensor:
        made = torch.randn(self.side, self.side)
        for _ in range(self.products):
            made = made @ made
            made = made / made.norm()
        return made[:16, :16]


class SetThreads:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, worker: int) -> None:
        torch.set_num_threads(self.count)


def fed_by_workers(workers: int, threads: int, items: Items) -> Cell:
    """The workers are forked before torch's first parallel operation here: else one with threads of its own hangs."""
    loader = DataLoader(items, 8, num_workers=workers, worker_init_fn=SetThreads(threads), prefetch_factor=4)
    batches: Iterator[torch.Tensor] = iter(loader)
    next(batches)
    torch.set_num_threads(C)
    work = Work()

    def step() -> None:
        next(batches)
        work.unit()

    step()
    return lambda seconds: until(seconds, step)


def python_work() -> None:
    total = 0
    for i in range(20_000):
        total += i * i % 7


def python_loop() -> Cell:
    def work() -> None:
        python_work()
        x = torch.zeros(4)
        for _ in range(50):
            x = x + 1

    return lambda seconds: until(seconds, work)


def serial_operation() -> Cell:
    torch.set_num_threads(C)
    index, source, total = torch.randint(0, 1000, (400_000,)), torch.randn(400_000), torch.zeros(1000)
    return lambda seconds: until(seconds, lambda: total.index_add_(0, index, source))


def one_torch_thread() -> Cell:
    """Own: a training step on one thread of several cores."""
    return at_threads(1)


def a_lock() -> Cell:
    a, b, lock = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), threading.Lock()
    pool = ThreadPoolExecutor(2 * C)
    outs = [torch.empty(SIDE, SIDE) for _ in range(2 * C)]

    def work(number: int, seconds: float) -> None:
        torch.set_num_threads(1)

        def locked() -> None:
            with lock:
                torch.mm(a, b, out=outs[number])

        until(seconds, locked)

    return lambda seconds: sum(0 for _ in pool.map(work, range(2 * C), [seconds] * 2 * C)) and None


def the_gil() -> Cell:
    pool = ThreadPoolExecutor(2 * C)
    return lambda seconds: sum(0 for _ in pool.map(lambda _: until(seconds, python_work), range(2 * C))) and None


def input_and_output() -> Cell:
    a, b = torch.randn(64, 64), torch.randn(64, 64)

    def work() -> None:
        time.sleep(0.01)
        torch.mm(a, b)

    return lambda seconds: until(seconds, work)


def one_core() -> Cell:
    only = {min(os.sched_getaffinity(0))}
    cell = at_threads(C)
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), only)
    return cell


def _spin(seconds: float) -> None:
    until(seconds, python_work)


def processes_in_the_cell() -> Cell:
    """Own: the cell itself forks twice as many processes as there are cores."""

    def cell(seconds: float) -> None:
        with ProcessPoolExecutor(2 * C) as pool:
            list(pool.map(_spin, [seconds] * 2 * C))

    return cell


def threads_that_end() -> Cell:
    """Own: as many threads as cores, each of which lives for some 30 ms."""
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    torch.set_num_threads(1)

    def work() -> None:
        torch.set_num_threads(1)
        out = torch.empty(SIDE, SIDE)
        for _ in range(10):
            torch.mm(a, b, out=out)

    def batch() -> None:
        threads = [threading.Thread(target=work) for _ in range(C)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return lambda seconds: until(seconds, batch)


def a_thread_that_polls() -> Cell:
    """Own: a Python loop beside a thread that polls a queue: neither is in the other's way."""
    empty: queue.Queue[int] = queue.Queue()

    def cell(seconds: float) -> None:
        over = threading.Event()

        def poll() -> None:
            while not over.is_set():
                try:
                    empty.get(timeout=0.01)
                except queue.Empty:
                    continue

        thread = threading.Thread(target=poll)
        thread.start()
        until(seconds, python_work)
        over.set()
        thread.join()

    return cell


CASES: dict[str, tuple[str, Callable[[], Cell]]] = {
    "healthy": ("healthy", lambda: at_threads(C)),
    "healthy memory": ("healthy", memory),
    "pool C x 1": ("healthy", lambda: products_in_a_pool(C, 1)),
    "threads that end": ("healthy", threads_that_end),
    "threads C + 1": ("oversubscribed", lambda: at_threads(C + 1)),
    "threads 2 C": ("oversubscribed", lambda: at_threads(2 * C)),
    "threads 4 C": ("oversubscribed", lambda: at_threads(4 * C)),
    "small operations at 4 C": ("oversubscribed", small_operations),
    "pool 2 C x C": ("oversubscribed", lambda: products_in_a_pool(2 * C, C)),
    "loader 2 C x C": ("oversubscribed", lambda: fed_by_workers(2 * C, C, Items(256, 6))),
    "loader 2 C x 1": ("oversubscribed", lambda: fed_by_workers(2 * C, 1, Items(256, 6))),
    "loader 1 light": ("healthy", lambda: fed_by_workers(1, 1, Items(16, 1))),
    "affinity of 1": ("oversubscribed", one_core),
    "processes 2 C": ("oversubscribed", processes_in_the_cell),
    "Python loop": ("serial", python_loop),
    "serial operation": ("serial", serial_operation),
    "one torch thread": ("serial", one_torch_thread),
    "a thread that polls": ("serial", a_thread_that_polls),
    "lock": ("lock-bound", a_lock),
    "GIL": ("gil-bound", the_gil),
    "input and output": ("waiting", input_and_output),
    "quota of C / 2": ("throttled", lambda: at_threads(len(os.sched_getaffinity(0)))),
}
"""Name -> the verdict that is right, and what makes the cell."""
SEVERAL = frozenset({"affinity of 1", "Python loop", "serial operation", "one torch thread", "a thread that polls"})
"""Those that need more than one core."""


def main(name: str, repeats: int, seconds: float) -> None:
    cell = CASES[name][1]()
    cell(0.3)
    found: list[dict[str, Any]] = []
    for _ in range(repeats):
        seen = profile(lambda: cell(seconds), concurrency=True).concurrency
        assert seen is not None
        found.append({"verdict": seen.verdict, **asdict(seen.use), "missing": seen.missing})
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # loaders' workers and pools go with it


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
