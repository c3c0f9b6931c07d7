"""The probe of later calls, with clocks that count their readings: each line takes as long as any other.

What a real clock decides is measured by ``tests/benchmarks/work.py``.
"""

from __future__ import annotations

import itertools
import linecache
import queue
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter_ns, sleep
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from torchbench_magic.cell_body import Body  # noqa: E402
from torchbench_magic.process import dynamo_internals  # noqa: E402
from torchbench_magic.process.device import no_wait  # noqa: E402
from torchbench_magic.timing import repeat_compared, repeat_probe, repeat_recording, repeat_state, restore  # noqa: E402
from torchbench_magic.timing.blocks import FAILED, compile_block  # noqa: E402
from torchbench_magic.timing.python_bodies import with_value_kept  # noqa: E402
from torchbench_magic.timing.repeat_compared import RecordedCalls  # noqa: E402
from torchbench_magic.timing.repeat_probe import Probe  # noqa: E402
from torchbench_magic.timing.repeat_warnings import OWN_ERROR  # noqa: E402

from .fake_clock import FakeClock, timed  # noqa: E402

PLAIN = 300  # calls between the recorded ones
MEMO = """\
d = {}
def kept():
    if "k" not in d:
        for i in range(50):
            d["k"] = i
    return d["k"]
"""
FLAG = """\
first = True
def step():
    global first
    if first:
        first = False
        for i in range(50):
            i + 1
"""
TAKING = "for _, x in zip(range(20), g):\n    x + 1"
FREEZING = """\
calls = []
def forward(x):
    calls.append(1)
    if len(calls) > 20:
        return x
    for _ in range(30):
        x = x + 1
    return x
x = 0
"""
ONCE = """\
class Rows:
    def __init__(self):
        self.left = list(range(30))
    def fetch(self):
        taken, self.left = self.left, []
        return taken
rows = Rows()
"""
CACHE = "kv = [torch.ones(3, 4)]"
POSITION = """\
count = 0
def go():
    global count
    for i in range(count):
        i + 1
    count += 1
"""
NUMBER = """\
n = 0
def bump():
    global n
    n += 1
    clock.work(n)
"""
SORT = "clock.work(5000 if a[0] > a[-1] else 10)\na.sort()"
GRADS = """\
ps = [torch.nn.Parameter(torch.ones(3)) for _ in range(9)]
for p in ps:
    p.grad = torch.ones(3)
opt = torch.optim.SGD(ps)
"""
FRAME = "import pandas as pd\ndf = pd.DataFrame({'a': np.arange(9.)[::-1]}); many = {'df': df.copy()}"
FRAME_SORTED = """\
clock.work(5000 if df['a'].iloc[0] > df['a'].iloc[-1] else 100)
df['a'] = np.sort(df['a'])
"""
IMAGE = "from PIL import Image\nim = Image.new('L', (64, 64))"
HELD = "class S: pass\ns = S()\ns.x = np.zeros(4000)"
TRAINING = "net = torch.nn.Linear(4, 1); x = torch.ones(8, 4); opt = torch.optim.Adam(net.parameters())"
BYTES = "import io; f = io.BytesIO(bytes(900))"
TEXT = "import io; f = io.TextIOWrapper(io.BytesIO(b'a line of it\\n' * 50))"
IN_TURN = "f = fs[next(k) % 3]; f.seek(0); f.read(5)"
LINES = "def skip(): next(f, None)"
ROWS = """\
import sqlite3
db = sqlite3.connect(':memory:'); db.execute('create table t(a)')
db.executemany('insert into t values(?)', [(i,) for i in range(99)])
cur = db.execute('select a from t')
"""
CONVERGING = """\
class Solver:
    need = 11
    def step(self, closure):
        self.need = max(self.need - 2, 1)
        for _ in range(self.need):
            closure()
def closure():
    x + 1
solver = Solver()
def step(): solver.step(closure)
"""
CELL_OF_ITS_OWN = """\
def made():
    k = 1
    def f():
        nonlocal k
        k = min(k + 1, 9); clock.work(1000 * k)
    return f
f = made()
"""

WEAK = """\
import weakref
class Made: pass
kept = weakref.WeakValueDictionary()
def get():
    made = kept.get(1)
    if made is None:
        for i in range(50):
            made = kept[1] = Made()
    return made
"""

STARTED = (
    "import threading\nend = threading.Event()\ndef start(): threading.Thread(target=end.wait, daemon=True).start()"
)
# how other work is found -> a part of the evidence, setup, body
FOUND: dict[str, list[tuple[str, str, str]]] = {
    "less": [
        ("line 1 .* ran 51 times in the first call and once in", "g = (i * i for i in range(50))", "for x in g: x + 1"),
        ("line 4 of `kept` .* ran 51 times in the first call and not .*; `d` held 0, then 1 item", MEMO, "kept()"),
        ("`first` was True, then False", FLAG, "step()"),
        (
            "ran 41 times .* and once in later ones; `xs` held 40, then 0 items",
            "xs = list(range(40))",
            "while xs:\n    xs.pop()",
        ),
        ("ran 21 times in the first call and once in the last one", "g = (i for i in range(800))", TAKING),
        ("in the first call and not in the last one", FREEZING, "forward(x)"),
        *(  # by the time alone, of calls of one line: the first twelve take long, as that of a heavy operator
            (
                "takes 5.00 ms from the state that setup left, and 100 µs from the present one; `n` changed",
                f"n = {array}",
                f"clock.work(5000 if {condition} else 100)\n{change}",
            )
            for array, change, condition in (
                ("np.zeros(3)", "n[1] += 1", "n[1] < 12"),
                ("torch.zeros(3)", "n[1] += 1", "n[1] < 12"),
                ("torch.ones(2)", "n.mul_(1e3)", "torch.isfinite(n).all()"),
            )
        ),
        ("the value was a list of 30 in the first call and a list of 0", ONCE, "rows.fetch()"),
        ("a call takes 5.00 ms from the state that setup left, and 10.0 µs", "a = np.arange(9.)[::-1].copy()", SORT),
        ("a call takes 5.00 ms from the state that setup left, and 100 µs", FRAME, FRAME_SORTED),
        ("5.00 ms from the state that setup left", FRAME, FRAME_SORTED.replace("df", "many['df']")),
        ("a call takes 4.10 ms from", IMAGE, "clock.work(im.size[0] ** 2)\nim.thumbnail((8, 8))"),
        (
            "a call takes 2.01 ms from .*; `s.x` was 4000 float64, then 1 float64",
            HELD,
            "s.x = s.x[::2].copy()\nclock.work(10 + s.x.size)",
        ),
        (
            "a call takes 100 µs from the state that setup left",
            GRADS,
            "clock.work(10 * sum(p.grad is not None for p in ps) + 10)\nopt.zero_grad()",
        ),
        (
            "a call takes 12.0 µs from .*, and 4.00 µs from the present one",
            "xs = [2, 1]",
            "clock.work(12 if xs[0] > xs[1] else 4)\nxs.sort()",
        ),
        ("^the value was a bytes of 9 in the first call and a bytes of 0 in the last one$", BYTES, "f.read(9)"),
        ("^the first calls moved on in `f`, and the last one did not$", BYTES, "y = [f.read(9)]"),
        ("^the first calls moved on in `f`, and the last one did not$", TEXT + "\ndef skip(): f.readline()", "skip()"),
        ("^the first calls moved on in `f`, and the last one did not$", f"{TEXT}\n{LINES}", "skip()"),
        ("^the value was a tuple of 1 in the first call and None in the last one$", ROWS, "cur.fetchone()"),
        ("^`cur` had items left before the first call and none in the end$", ROWS, "y = [cur.fetchone()]"),
        (
            "^`ar` had items left before",
            "import array; ar = array.array('i', range(99))",
            "y = [ar.pop() if ar else None]",
        ),
        ("closure\\(\\).*ran 7 times in the second call and once in the last one", CONVERGING, "step()"),
        (
            "a call takes 8.00 ms from .*, and 1.00 ms from the present one; `n.0.` was 9, then 1",
            "n = [9]",
            "n[0] = max(n[0] - 1, 1)\nclock.work(1000 * n[0])",
        ),
        (
            "a call takes 1.90 ms from .*, and 10.0 µs from the present one",
            "n = [0]",
            "n[0] += 1\nclock.work(max(2000 - 100 * n[0], 10))",
        ),
        ("`aten.resize_` on .* not in the last one", "x = torch.ones(1 << 20)", "x.resize_(max(1, x.numel() // 2))"),
    ],
    "alive": [("line . of `get` .* ran 51 times in a call and not in one right after another", WEAK, "it = get()")],
    "more": [
        (
            "`aten.cat` worked on 6 × 4 float32 and .* and on 912 × 4 float32",
            CACHE,
            "kv[0] = torch.cat([kv[0], torch.ones(3, 4)])",
        ),
        (
            "`aten.cat` worked on 3 tensors of 2 float32 in the second .* and on 305 tensors of 2 float32 in the last",
            "parts = [torch.ones(2)]",
            "parts.append(torch.ones(2))\ntorch.cat(parts)",
        ),
        ("^`xs` held 1 item in the second .* and 303 in the last$", "xs = []", "xs.append(1)\nfor x in xs:\n    x + 1"),
        ("a call takes .* from the state that setup left, and .*; `n` was 0, then 30", NUMBER, "bump()"),
        ("line . of `go` .* ran 30. times in the last call and .* in the second one", POSITION, "go()"),
        ("`s.x` was 4000 float64, then", HELD, "s.x = np.append(s.x, np.zeros(99))\nclock.work(s.x.size)"),
        (
            "a call takes 1.00 ms from .*, and 4.00 ms from the present one; `s.0.` was 1, then 4",
            "def f(s=[1]): s[0] = min(s[0] + 1, 4); clock.work(1000 * (s[0] - (s[0] == 2)))",
            "f()",
        ),
        ("a call takes 2.00 ms from .*, and 9.00 ms from the present one; `k` was 1, then 9", CELL_OF_ITS_OWN, "f()"),
        (
            "the last ones took [0-9]+ times as long as an early one",  # by the processor's time alone
            "import io; log = io.StringIO()",
            "log.write('x' * 9)\nclock.work(len(log.getvalue()))",
        ),
    ],
    "time": [
        (
            "the first call took 5.0. ms, later ones less than 20.0 µs; `ready._flag` was False, then True",
            "import threading; ready = threading.Event()",
            "clock.wait(0 if ready.is_set() else 5000)\nready.set()",
        ),
    ],
    "waits": [
        (
            "an early one took less than 20.0 µs, later ones 5.0. ms; `slots._value` was 3, then 0",
            "import threading; slots = threading.Semaphore(3)",
            "clock.wait(0 if slots.acquire(blocking=False) else 5000)",
        ),
        (
            "an early one took less than 20.0 µs, later ones 5.0. ms",
            "import threading; lock = threading.Lock()",
            "clock.wait(0 if lock.acquire(blocking=False) else 5000)",
        ),
        (
            "an early one took 4.. µs, later ones 5.0. ms",  # the processor's, of a cold start
            "import threading; slots = threading.Semaphore(3)",
            "got = slots.acquire(blocking=False); clock.work(400 if got else 1); clock.wait(0 if got else 5000)",
        ),
    ],
    "lazy": [
        ("^returns a generator that has not begun$", "xs = [1, 2]", "(x + 1 for x in xs)"),
        ("^returns a generator that has not begun$", "def f():\n    yield from range(9)", "f()"),
        ("^returns an async generator that has not begun$", "async def f():\n    yield 1", "f()"),
        ("^returns a generator that has not begun$", "xs = [1]", "zip((x + 1 for x in xs), xs)"),
        ("^returns a generator that has not begun$", "xs = [1]", "[(x + 1 for x in xs)]"),
        ("^returns a map whose function has not been called$", "xs = [1, 2]", "map(str, xs)"),
        (
            "^returns a coroutine that has not begun$",
            "async def f(): pass\nmade = []\ndef g(): made.append(f()); return made[-1]",
            "g()",
        ),
        ("^returns a Future that is not done$", "import concurrent.futures as c", "c.Future()"),
    ],
    "part": [
        (
            "`net.training` was True, then False",
            "net = torch.nn.Dropout(); x = torch.ones(8)",
            "y = net(x)\nfor i in range(5):\n    y = y + 1\nnet.eval()",
        ),
    ],
}
CELLS = [(how, *row) for how, rows in FOUND.items() for row in rows]
NEXT_EPOCH = "try: y = next(s.it)\nexcept StopIteration:\n    s.it = iter(range(5)); y = next(s.it)\nx + y"
QUIET = [
    ("", "x + 1"),
    ("s = SimpleNamespace(it=iter(range(5))); y = 0", NEXT_EPOCH),  # `y` is put back, and decides nothing
    ("xs = []", "xs.append(1)"),
    ("seen = {}", "seen[len(seen)] = 1"),
    ("count = [0]", "count[0] += 1"),
    (TRAINING, "opt.zero_grad()\nnet(x).sum().backward()\nopt.step()"),
    (TRAINING, "net(x).sum().backward()"),
    ("import random", "if random.random() < 0.5:\n    for i in range(20):\n        i + 1"),
    ("import logging; log = logging.getLogger('quiet')", "log.info('step')"),
    ("lazy = torch.nn.LazyLinear(3); x = torch.ones(2, 4)", "lazy(x)"),
    ("cache = {i: i for i in range(100)}", "sum(cache.values())"),
    ("a = np.ones(5)", "a *= 2"),
    ("g = iter(int, 1)", "next(g)"),
    ("import gc; gc.collect()", "gc.collect(0)"),
    ("", "clock.wait(5000)"),
    ("import threading; lock = threading.Lock()", "with lock:\n    clock.wait(5000)"),
    ("xs = [2, 1]", "clock.work(5 if xs[0] > xs[1] else 4)\nxs.sort()"),  # 1 µs is not told apart
    ("d = {'n': 0}", "clock.wait(5000 if d['n'] % 303 == 302 else 100); d['n'] += 1"),  # the last, by chance
    ("d = {'n': 0}", "clock.work(5000 if d['n'] % 100 == 0 else 100); d['n'] += 1"),  # now and then
    ("d = {'n': 0}", "clock.work(100); d['n'] += 1"),
    ("n = torch.zeros(3)", "clock.work(100); n[1] += 1"),
    *((f"n = torch.zeros(3) + {n}", "clock.work(5000 if n[1] % 3 == 0 else 100); n[1] += 1") for n in range(3)),
    *((f"d = {{'n': {n}}}", "clock.work(5000 if d['n'] % 3 == 0 else 100); d['n'] += 1") for n in range(3)),  # in turn
    *((f"d = {{'n': {n}}}", "clock.work(5000 if d['n'] % 2 == 0 else 100); d['n'] += 1") for n in range(2)),
    ("w = torch.ones(9, 9); n = [0]", "with torch.set_grad_enabled(n[0] == 0):\n    w @ w\nn[0] += 1"),  # no graph
    (FRAME, "clock.work(100)\ndf['b'] = df['a'] * 2"),
    (FRAME, "clock.work(5000 if '_engine' not in df.index._cache else 100)\ndf.index.get_loc(3)"),  # the same values
    (BYTES, "f.seek(0); f.read(9)"),
    (BYTES, "f.seek(0); f.read()"),
    (BYTES, "f.read(9) or f.seek(0)"),
    (BYTES, "f.write(b'x')"),
    (TEXT, "f.readline() or f.seek(0)"),
    ("import io, itertools; k = itertools.count(); fs = [io.BytesIO(b'x' * 9) for _ in range(3)]", IN_TURN),
    (ROWS, "cur.execute('select a from t').fetchone()"),
    (ROWS, "cur.execute('select a from t').fetchall()"),
    ("import array; ar = array.array('i')", "ar.pop() if ar else ar.extend(range(2))"),
    ("n = [9]", "n[0] = max(n[0] - 1, 1)\nclock.work(1000)"),
    ("ring = [1, 9, 5]", "ring[:] = [*ring[1:], ring[0]]\nclock.work(1000 * ring[0])"),  # in turn
    ("calls = iter(range(999))", "for _ in range(11 if next(calls) % 9 < 2 else 1): x + 1"),  # comes again
    ("", "clock.wait(900)"),
    ("xs = [1, 2]", "zip(xs, enumerate(xs))"),
    ("xs = [1, 2]", "iter(xs)"),  # nothing is to be computed
    ("def f():\n    yield from range(9)", "g = f(); next(g); g"),
    ("import concurrent.futures as c; f = c.Future(); f.set_result(1)", "f"),
    (STARTED, "t = threading.Thread(target=int); t.start(); t.join()"),
    ("xs = [1, 2]", "it = map(str, xs)"),  # the making is what is timed
    (WEAK, "get()"),  # nothing keeps it
    (WEAK, "it = get()\ndel it"),
    ("import itertools; k = itertools.cycle([90, 91, 92])", "torch.ones(next(k), 9) @ torch.ones(9, 9)"),  # as much
]


@pytest.fixture(autouse=True)
def counted_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of a clock is a microsecond after the one before."""
    ticks = itertools.count()
    seconds = lambda: next(ticks) * 1e-6
    fake = SimpleNamespace(thread_time=seconds, perf_counter=seconds)
    monkeypatch.setattr(repeat_recording, "time", fake)
    monkeypatch.setattr(repeat_recording, "_preempted", lambda: 0)


def probed(
    setup: str, body: str, plain: int = PLAIN, usual: float = 0.0, sync: Callable[[], object] = no_wait, **more: Any
) -> tuple[Probe, dict[str, Any]]:
    """The probe of a body after ``plain`` calls of so many seconds in the median, and the names that it ran with."""
    clock = more.pop("clock", None) or FakeClock()
    ticks = repeat_recording.time.thread_time
    waited = lambda: (clock.wall_ns - clock.cpu_ns) / 1e9
    repeat_recording.time.perf_counter = lambda: ticks() + waited()
    names: dict[str, Any] = {"torch": torch, "np": np, "clock": clock, "x": 1.0, "SimpleNamespace": SimpleNamespace}
    names |= {"__name__": "__main__"} | more
    for name, text in (("<setup>", setup), ("<cell>", body)):
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(setup, "<setup>", "exec"), names)
    code = compile_block(Body(body, "<cell>"), names, transform_ast=with_value_kept)

    def driven(steps: Any) -> None:
        reading: Any = None
        while True:
            try:
                request = steps.send(reading)
            except StopIteration:
                return
            try:
                reading = request.block.start(request.replica, request.calls, clock.clocks, sync)
            except Exception:
                if not request.is_tried:
                    raise
                reading = FAILED

    probe = Probe(code, code, clock.clocks.wall)
    driven(probe.recorded())
    driven(probe.recorded_again())
    for _ in range(plain):
        code.start(0, 1, clock.clocks, sync)
    driven(probe.recorded_last(plain, 1, usual, copied=lambda: lambda: None))
    return probe, names


@pytest.mark.parametrize(("how", "evidence", "setup", "body"), CELLS, ids=[cell[3][:30] for cell in CELLS])
def test_other_work_is_told_by_what_shows_it(how: str, evidence: str, setup: str, body: str) -> None:
    found = probed(setup, body)[0].finding
    assert found is not None
    assert found.how == how
    assert re.search(evidence, found.evidence), found.evidence


@pytest.mark.parametrize(("setup", "body"), QUIET)
def test_the_same_work_is_not_accused(setup: str, body: str) -> None:
    assert probed(setup, body)[0].finding is None


class SimulatedDevice:
    """What was launched is waited for at the end of a block, or by the operator ``fetch``."""

    def __init__(self) -> None:
        self.clock, self._queue = FakeClock(), 0.0
        self.library = torch.library.Library("simulated", "FRAGMENT")
        self.library.define("fetch(Tensor x) -> Tensor")
        self.library.impl("fetch", lambda x: (self.wait(), x + 0)[1], "CPU")
        self.fetch = torch.ops.simulated.fetch

    def launch(self, us: float) -> None:
        self._queue += us

    def wait(self) -> None:
        tracer = sys.gettrace()
        sys.settrace(None)  # as in C
        self.clock.wait(self._queue)
        self._queue = 0.0
        sys.settrace(tracer)


@pytest.fixture
def device() -> Iterator[SimulatedDevice]:
    made = SimulatedDevice()
    yield made
    made.library._destroy()


@pytest.mark.parametrize("kernel", [9000, 0])
@pytest.mark.parametrize("end", ["", "device.fetch(y)\n"])
def test_time_of_a_device_is_that_of_its_operators(kernel: float, end: str, device: SimulatedDevice) -> None:
    """Not of the line that ran last, as which it would hide that they are gone."""
    x = "from functools import lru_cache\nx, y = torch.ones(999), torch.ones(9)"
    setup = f"{x}\n@lru_cache\ndef f(): device.launch(us); return x * x"
    body = f"f()\n{end}for _ in range(30): x.numel()"
    probe, _ = probed(setup, body, sync=device.wait, clock=device.clock, device=device, us=kernel)
    assert (probe.finding is not None) is (kernel > 0)


@pytest.mark.parametrize(("usual", "is_told"), [(0.0, True), (1e-5, True), (1e-3, False)])
def test_a_first_call_is_held_against_the_timed_ones_where_these_are_known(usual: float, is_told: bool) -> None:
    setup = "import threading; ready = threading.Event()"
    found = probed(setup, "clock.wait(0 if ready.is_set() else 5000)\nready.set()", usual=usual)[0].finding
    assert (found is not None and found.how == "time") is is_told


@pytest.mark.parametrize(
    ("usual", "more", "is_told"),
    [(0.0025, "", True), (0.0001, "", False), (0.0025, "x + torch.ones(2)", False)],
    ids=["grew meanwhile", "only the last ones, as beside a busy process", "operators, whose threads may spin"],
)
def test_late_calls_alone_are_no_growth(usual: float, more: str, is_told: bool) -> None:
    grows = f"log.write('x')\nclock.work(5000 if log.tell() > {PLAIN} else 100)\n{more}"
    found = probed("import io; log = io.StringIO()", grows, usual=usual)[0].finding
    assert (found is not None and found.evidence.startswith("the last ones took")) is is_told


RINGS = {
    "operators": ("ring.append(torch.ones(9))\ntorch.stack(tuple(ring))", "more"),
    "lines": ("ring.append(torch.ones(9))\nfor one in ring: pass", "more"),
    "time": ("clock.work(100 * (1 + len(ring)))\nring.append(torch.ones(9))", "more"),
}


@pytest.mark.parametrize("by", RINGS)
@pytest.mark.parametrize(("length", "is_told"), [(8, False), (20, False), (1000, True)])
def test_what_stopped_growing_within_a_tenth_of_the_calls_is_not_accused(by: str, length: int, is_told: bool) -> None:
    body, how = RINGS[by]
    found = probed(f"import collections; ring = collections.deque(maxlen={length})", body, 400)[0].finding
    assert (found.how if found is not None else None) == (how if is_told else None)


def test_a_thread_that_a_recorded_call_starts_is_not_traced_after_it() -> None:
    """Else each later call of a pool that was made then would take many times as long."""
    jobs: queue.Queue[bool] = queue.Queue()
    tracers: list[Any] = []

    def look() -> None:
        while jobs.get():
            tracers.append(sys.gettrace())

    thread = threading.Thread(target=look)
    code = compile("0", "<cell>", "exec")
    with repeat_recording.recorded_call(repeat_recording.Work(), code, perf_counter_ns, [], {}, is_last=False):
        thread.start()
        jobs.put(True)
        while not tracers:
            sleep(0.001)
    for goes_on in (True, True, False):
        jobs.put(goes_on)
    thread.join()
    assert tracers[0] is not None
    assert tracers[-1] is None


def test_a_thread_that_each_call_leaves_running_is_told_and_one_that_ran_before_is_not() -> None:
    for setup, body, is_said in ((STARTED, "start()", True), (f"{STARTED}\nstart()", "x + 1", False)):
        probe, names = probed(setup, body, 1)
        names["end"].set()
        found = None if probe.finding is None else (probe.finding.how, probe.finding.evidence)
        assert found == (("lazy", "leaves a thread running") if is_said else None), body


def test_state_that_was_put_to_the_test_is_as_the_calls_left_it() -> None:
    _, names = probed("a = np.arange(9.)[::-1].copy(); n = [0]", SORT + "\nn[0] += 1")
    assert names["a"].tolist() == list(range(9))
    assert names["n"][0] == 3 + 2 * repeat_probe.TURNS + PLAIN  # it moves, and is not put back


def test_a_frame_that_was_put_to_the_test_is_the_one_of_the_calls() -> None:
    frame = pd.DataFrame({"a": np.arange(9.0)[::-1]})
    _, names = probed("", FRAME_SORTED + "df.loc[0, 'n'] = df.get('n', [0])[0] + 1", df=frame)
    assert names["df"] is frame
    assert frame["a"].tolist() == list(range(9))
    assert frame["n"][0] == 3 + repeat_probe.TURNS + PLAIN  # the tests from the state of setup had copies of their own


@pytest.mark.parametrize("is_first_slow", [False, True])
def test_calls_that_are_slow_by_chance_are_no_sign(is_first_slow: bool) -> None:
    """As those of two threads that wait for each other beside busy processes; which of the two states is put back
    first is of no matter."""

    def pace() -> Any:
        yield from (100, 100, 100)
        yield from (5000 if turn % 2 == is_first_slow else 100 for turn in range(6))
        yield from itertools.repeat(100)

    probe, _ = probed("d = {}", "d['k'] = 1; clock.work(next(t))", plain=0, t=pace())
    assert probe.finding is None


def test_a_state_that_another_left_slow_is_told_as_other_work() -> None:
    probe, _ = probed("d = {}", "clock.work(5000 if d else 100); d['k'] = 1")
    assert probe.finding is not None
    assert (probe.finding.how, probe.finding.voids) == ("other", True)
    said = "a call takes 100 µs from the state that setup left, and 5.00 ms from the present one"
    assert said in probe.finding.evidence


@pytest.mark.parametrize("kept", ["0", "torch.tensor(0)", "np.zeros((), int)", "torch.tensor(0.0)"])
def test_a_count_is_told_whatever_keeps_it(kept: str) -> None:
    probe, _ = probed(f"n = [{kept}]", "n[0] += 1; clock.work(100)")
    assert probe.finding is None
    name = "`n[0]`" if kept == "0" else "something in `n`"
    assert [one.evidence for one in probe.clauses] == [f"{name} went from 0 to 303"]


def test_nothing_of_a_recording_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    def tracer(*_: Any) -> None:
        return None

    sys.settrace(tracer)
    try:
        probed("", "torch.ones(2) + 1")
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    assert threading.gettrace() is None
    assert torch._C._len_torch_dispatch_stack() == 0


def test_recorded_calls_draw_the_same_numbers_and_the_timed_ones_go_on() -> None:
    drawn = "import random; seen = []"
    _, names = probed(drawn, "seen.append((random.random(), np.random.rand(), torch.rand(()).item()))", plain=4)
    first, second, third, *timed, last = names["seen"]
    assert first == second == third == last
    assert len({first, *timed}) == 1 + len(timed) - (timed[0] == first)


def test_a_compiled_function_is_not_compiled_for_a_recording() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    probed("f = torch.compile(lambda x: x + 1, backend='eager'); x = torch.ones(3)", "f(x)", plain=0)
    assert torch._dynamo.utils.counters["frames"]["total"] == 0


def test_an_exception_of_the_code_is_its_own() -> None:
    with pytest.raises(ZeroDivisionError):
        probed("", "1 / 0")
    assert sys.gettrace() is None


def test_a_process_that_a_recorded_call_forks_records_nothing() -> None:
    import os

    def forked() -> int:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            os.write(write, b"0" if sys.gettrace() is None else b"1")
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        with os.fdopen(read) as pipe:
            return int(pipe.read())

    _, names = probed("seen = []", "seen.append(forked())", plain=1, forked=forked)
    assert names["seen"] == [0, 0, 0, 0, 0]


def test_a_tensor_of_a_class_of_its_own_is_asked_nothing() -> None:
    asked = []

    class Asking(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    made = torch.ones(3).as_subclass(Asking)
    asked.clear()
    probed("", "made is None", made=made)
    assert not asked


def test_a_doubt_does_not_hide_what_the_last_call_shows() -> None:
    setup = "xs = []; net = torch.nn.Dropout(); x = torch.ones(8)"
    body = "net(x)\nnet.eval()\nxs.append(1)\nfor i in xs:\n    i + 1"
    found = probed(setup, body)[0].finding
    assert found is not None
    assert found.how == "more", found.evidence


NAMES = [
    # (setup, body, how, the evidence)
    (
        "cache = None",
        "if cache is None:\n    clock.work(5000)\n    cache = 1\nclock.work(10)",
        "less",
        "a call takes 5.01 ms from the state that setup left, and 10.0 µs from the present one",
    ),
    (
        "i, j = [900], [100]",
        "clock.work(i[0])\ni, j = j, i",
        "kept",
        "`i` and `j` put back before each call, 900 µs a call, and 100 µs",
    ),
    ("n = 3", "clock.work(100 * n)\nn = n * n", "kept", "300 µs a call, and 900 µs one that goes on"),
    (
        "t = ''",
        "t += 'a'\nif len(t) % 4 == 0:\n    for _ in range(30): x + 1",
        "kept",
        "ran 31 times in a call that goes on from others and not in timed ones",
    ),
    ("t = ''", "t += 'a'\nif len(t) % 40 == 0:\n    for _ in range(30): x + 1", "anew", "`t`"),  # not in so many
    ("at = (0, x)", "n, y = at\nn += 1\nif n % 16 == 0: clock.work(900)\nat = n, y", None, ""),
    ("at = (0, x)", "at = at[0] + 1, x\nif at[0] % 16 == 0: clock.work(900)", "anew", "`at`"),
    ("t = 'a'", "if t == 'a':\n    clock.work(900)\n    t = 'b'\nelse: t = 'a'", None, ""),
    ("s = SimpleNamespace(n=1)", "s = SimpleNamespace(n=s.n + 1)", "anew", "`s`"),
    ("ids = torch.zeros(999, 9)", "ids = torch.cat([ids, ids[-1:]])", "anew", "`ids`"),
    ("xs = (1, 2)", "clock.work(100 * xs[0])\nxs = xs[2:]", "anew", "`xs`"),  # raises from what it leaves
    ("i = 0", "i += 1\nif i % 4 == 0:\n    for _ in range(30): x + 1", None, ""),  # counts, and goes on
    ("i = 0", "i = 5\nclock.work(100 * i)", None, ""),  # not read
    ("t = 'a'", "for t in 'bcd': t + 'e'", None, ""),
    ("t = 'A'", "t = t.lower()", None, ""),  # another value once
    ("import pandas as pd; df = pd.DataFrame({'a': [1.0, None]})", "df = df.dropna()", None, ""),
    ("xs = ('b', 'a')", "xs = tuple(sorted(xs))", None, ""),
    ("h = torch.ones(9)", "h = h * 0.9", None, ""),  # the same work on other values
]


@pytest.mark.parametrize(
    ("setup", "body"),
    [
        ("i = 0", "if i % 16 == 0:\n    for _ in range(30): x + 1\ni += 1"),
        ("i = 0", "if i % 50 == 0: clock.work(3000)\ni += 1\nclock.work(100)"),
        ("s = SimpleNamespace(n=0)", "clock.work(10 if s.n % 1000 else 3000)\ns.n += 1"),
        ("at = {'i': 0}", "if at['i'] % 16 == 0:\n    for _ in range(30): x + 1\nat['i'] += 1"),
        ("b = []", "b.append(x)\nif len(b) == 1:\n    for _ in range(30): x + 1\nif len(b) == 20: b.clear()"),
    ],
)
def test_what_a_counter_lets_every_so_many_calls_do_is_not_lost_after_the_first(setup: str, body: str) -> None:
    probe, _ = probed(setup, body)
    assert probe.finding is None


@pytest.mark.parametrize(("setup", "body", "how", "evidence"), NAMES)
def test_names_that_are_put_back_are_told_where_a_call_that_goes_on_may_be_another(
    setup: str, body: str, how: str | None, evidence: str
) -> None:
    probe, names = probed(setup, body)
    assert probe.clauses == []
    assert (probe.finding.how if probe.finding is not None else None) == how
    if probe.finding is not None:
        assert evidence in probe.finding.evidence
        assert probe.finding.voids is (how != "anew")
    found: dict[str, Any] = {"torch": torch, "SimpleNamespace": SimpleNamespace, "x": 1.0}
    exec(setup, found)
    for name in found.keys() - {"__builtins__", "torch", "SimpleNamespace", "x"}:
        assert type(names[name]) is type(found[name])
        assert repr(names[name]) == repr(found[name])


AGAIN_MADE = "try:\n    y = next(it)\nexcept StopIteration:\n    it = iter(xs)\n    y = next(it)\ny + 1"


@pytest.mark.parametrize(
    ("setup", "body", "found"),
    [
        ("n = 0; xs = []", "xs = xs + [n]\nn += 1\nclock.work(2000)", "`xs` grew to 303 items"),
        (
            "n = 0; xs = []",
            "clock.work(100 + 20 * len(xs))\nxs = xs + [n]\nn += 1",
            "a call takes 100 µs from the state that setup left, and 6.18 ms from the present one; `xs` held 0",
        ),
        ("b = ['x']", "b.append(len(b))\nif len(b) > 3: b = ['x']", ""),
        ("b = bytearray()", "b += b'xy'\nif len(b) > 4: b = bytearray()", ""),
        ("xs = [x] * 9; it = iter(xs)", AGAIN_MADE, ""),
        ("xs = [x] * 303; it = iter(xs)", AGAIN_MADE, ""),  # has ended before the last recorded call
        ("it = iter([x] * 999)", "it = map(abs, it)", "`it`"),  # put back
    ],
)
def test_names_that_go_on_are_seen_as_calls_find_them(setup: str, body: str, found: str) -> None:
    probe, _ = probed(setup, body)
    told = next((one.evidence for one in (probe.finding, *probe.clauses) if one is not None), "")
    assert told.startswith(found)
    assert bool(told) is bool(found)


@pytest.mark.parametrize("restore", [False, True])
def test_there_is_no_verdict_unless_each_call_is_asked_to_start_anew(restore: bool) -> None:
    bodies = {"a": "clock.work(i[0])\ni, j = j, i", "b": "clock.work(400)"}
    names: dict[str, Any] = {"i": [900], "j": [100]}
    found = timed(FakeClock(), bodies, names=names, restore=restore)
    assert found.frame["verdict"][1] == ("faster" if restore else "undecided")
    (doubt,) = [each for each in found.warnings if each.kind == ("put-back" if restore else "used-up")]
    assert ("Calls of `a` would do other work if they went on from each other" in doubt.text) is not restore


def test_a_name_that_begins_anew_is_said_and_keeps_the_verdict() -> None:
    body = "t += 'a'\nclock.work(900 if len(t) % 40 == 0 else 100)"
    found = timed(FakeClock(), {"a": body, "b": "clock.work(400)"}, names={"t": ""})
    (doubt,) = [each for each in found.warnings if each.kind == "anew"]
    assert doubt.text == "Each call of `a` finds `t` as before the first, where a loop would go on."
    assert found.frame["verdict"][1] == "slower"


@pytest.mark.parametrize("make", [lambda: torch.tensor(0), lambda: torch.zeros(1), lambda: np.zeros(1)])
def test_a_count_that_is_put_back_with_objects_is_said(make: Any) -> None:
    n, body = make(), "n += 1\nclock.work(900 if n % 4 == 0 else 100)"
    found = timed(FakeClock(), {"": body}, names={"n": n}, restore=True)
    assert [doubt.text for doubt in found.warnings if doubt.kind == "put-back"] == ["`n` put back before each call."]
    assert n == 0


def test_calls_that_go_on_leave_objects_as_the_timed_ones_did() -> None:
    w = torch.zeros(3)
    body = "i += 1\nif i % 4 == 0:\n    w.add_(1)\n    for _ in range(30): i + 1\nclock.work(100)"
    found = timed(FakeClock(), {"": body}, names={"i": 0, "w": w}, restore=True)
    assert w.tolist() == [0, 0, 0]
    assert "put-back" in [doubt.kind for doubt in found.warnings]
    assert not [doubt for doubt in found.warnings if doubt.kind in ("not-restored", "restored-late")]


def test_an_input_that_has_a_graph_is_no_other_work() -> None:
    probe, _ = probed("net = torch.nn.Linear(9, 9); h = torch.ones(99, 9)", "h = torch.tanh(net(h))")
    assert probe.clauses == []


@pytest.mark.parametrize(
    ("setup", "body", "named"), [("xs = []; d = {}", "xs.append(1); d['a'] = 1", "`xs`"),
                                 ("xs = ([],); d = {}", "xs[0].append(1); d['a'] = 1", "something in `xs`")],
)  # fmt: skip
def test_a_list_that_keeps_a_result_of_each_call_is_told_with_what_it_holds(setup: str, body: str, named: str) -> None:
    probe, _ = probed(setup, f"{body}; clock.work(10)")
    assert probe.finding is None
    put_to_the_test = 6
    assert [one.evidence for one in probe.clauses] == [f"{named} grew to {PLAIN + 3 + put_to_the_test:,} items"]


def test_a_tensor_that_grows_beside_far_more_work_is_told_with_its_shapes() -> None:
    body = "kv[0] = torch.cat([kv[0], torch.ones(3, 4)])\nclock.work(10); big + 1"
    probe, _ = probed("kv = [torch.ones(3, 4)]; big = torch.ones(900, 900)", body)
    assert probe.finding is None
    assert [one.evidence for one in probe.clauses] == ["something in `kv` grew from 6 × 4 float32 to 912 × 4 float32"]


def test_a_list_that_was_put_back_has_room_as_one_that_grew_has() -> None:
    kept, value = [1] * 1000, [0]
    repeat_state._put(value, kept)
    room = sys.getsizeof(value)
    value.append(0)
    assert (sys.getsizeof(value), value[:-1]) == (room, kept)


def test_a_number_of_the_user_s_that_each_call_moves_on_is_told() -> None:
    setup = "class C: pass\nc = C(); c.k = 3\ndef f():\n    c.k += 1; clock.work(10)"
    probe, names = probed(setup, "f()")
    assert probe.finding is None
    assert names["c"].k > PLAIN
    assert [one.evidence for one in probe.clauses] == [f"`c.k` went from 3 to {names['c'].k - 1}"]


def test_recording_a_line_takes_what_it_takes_and_not_what_fifty_do_and_no_run_that_was_held_up_counts() -> None:
    times = itertools.accumulate(itertools.cycle([0, 9_000_000, 0, 200_000]))
    repeat_recording._ns_of_an_event.cache_clear()
    try:
        assert 1_000 < repeat_recording._ns_of_an_event(lambda: next(times)) < 4_000
    finally:
        repeat_recording._ns_of_an_event.cache_clear()


def test_a_number_may_be_as_large_as_it_likes() -> None:
    body = "d['n'] *= 7 ** 2000; clock.work(d['n'].bit_length() // 100)"
    finding = probed("d = {'n': 7 ** 9000}", body, plain=5)[0].finding  # str() of it is refused
    assert finding is not None
    assert finding.how == "more"
    assert len(finding.evidence) < 200


def test_a_text_that_grows_is_not_quoted() -> None:
    finding = probed("d = {'s': ''}", "d['s'] += 'hello' * 99")[0].finding
    assert finding is None or len(finding.evidence) < 200


def test_a_file_that_a_first_call_is_to_read_is_not_read_for_a_copy(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("L", (8, 8)).save(tmp_path / "image.png")
    with image.open(tmp_path / "image.png") as opened:
        probed("", "im.size", im=opened)
        assert opened.fp is not None  # it goes as the pixels are read
        opened.load()


def test_of_many_containers_a_bounded_number_of_items_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    many = {at: list(range(at, at + 10_000)) for at in range(150)}
    reached = repeat_state.reach({"many": {"many": many}}, [])
    assert sum(isinstance(one.value, list) for one in reached.values()) == len(many)
    asked, item = itertools.count(), repeat_state._item
    monkeypatch.setattr(repeat_state, "_item", lambda value: (next(asked), item(value))[1])
    share = repeat_state.share_of(reached)
    before = repeat_state.state_of(reached, share)
    assert next(asked) <= 100_000
    many[7].reverse()
    after = repeat_state.state_of(reached, share)
    assert [label for label in before if before[label] != after[label] and after[label].kind == "list"] != []


def test_an_ordered_dict_is_put_back_with_its_order_of_its_own() -> None:
    """``dict.clear`` would leave its order as it was, and reading it would raise from then on."""
    kept_in_order = OrderedDict.fromkeys("abc")
    reached = repeat_state.reach({"oc": {"oc": kept_in_order}}, [])
    kept = repeat_state.Kept(reached)
    kept_in_order.popitem(last=False)
    kept_in_order["d"] = None
    put_backs = kept.put_backs(["oc"], reached)
    assert put_backs is not None
    for put_back, order in zip(put_backs, ("abc", "bcd"), strict=True):
        put_back()
        assert "".join(kept_in_order) == order
    kept_in_order.move_to_end("b")
    assert "".join(kept_in_order) == "cdb"


@pytest.mark.parametrize("value", [torch.ones(64), np.ones(64)])
def test_what_has_another_shape_now_is_not_put_back(value: Any) -> None:
    reached = repeat_state.reach({"z": {"z": value}}, [])
    kept = repeat_state.Kept(reached)
    value.resize_(32) if isinstance(value, torch.Tensor) else value.resize(32, refcheck=False)
    assert kept.put_backs(["z"], reached) is None


# ==== errors of the probe =============================================================================================
# They are told as what they are, and the code is timed all the same.

PARTS = [
    (repeat_recording, "seen_of"),  # asked by the trace function, as the code returns
    (repeat_probe, "state_of"),
    (repeat_probe, "reach"),
    (repeat_compared, "lacks"),
    (repeat_recording, "_operators_mode"),
    (repeat_recording, "_preempted"),
    (repeat_recording.Lines, "_called"),
    (repeat_recording.Lines, "spend"),
    (dynamo_internals, "uncompiled"),
    (Probe, "_judged"),
    (RecordedCalls, "grown"),
    (RecordedCalls, "by_time"),
]


@pytest.mark.parametrize(("home", "name"), PARTS, ids=[name for _, name in PARTS])
def test_an_error_of_the_probe_does_not_reach_the_code(home: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise TypeError("planted")

    monkeypatch.setattr(home, name, fail)
    clock, x = FakeClock(), torch.ones(3)
    made = timed(clock, {"": "y = x + 1\nclock.work(10)\ny"}, names={"x": x}, number=10, repeat=5)
    assert len(made.samples) == 5
    (said,) = [doubt for doubt in made.warnings if doubt.kind == "not-checked"]
    assert "(TypeError: planted)" in said.text
    assert said.action.startswith("This is an error of torchbench_magic")
    assert sys.gettrace() is None


def test_an_error_of_the_probe_leaves_an_error_of_the_code_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise TypeError("planted")

    monkeypatch.setattr(repeat_recording.Lines, "_called", fail)
    with pytest.raises(ZeroDivisionError):
        timed(FakeClock(), {"": "1 / 0"}, number=1, repeat=1)


def test_an_error_between_the_calls_is_not_told_as_one_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"times": itertools.count()}
    text = "def fail(self):\n    if next(times) > 5:\n        raise TypeError('planted')"
    exec(compile(text, restore.__file__, "exec"), names)  # as if it stood there
    monkeypatch.setattr(restore.StateCopies, "_restore_streams", names["fail"])
    body = {"": "items.pop(); clock.work(10)"}
    with pytest.raises(TypeError, match="planted") as caught:
        timed(FakeClock(), body, names={"items": [*range(20)]}, restore=True, number=1, repeat=5)
    assert caught.value.__notes__ == [OWN_ERROR]
    with pytest.raises(IndexError) as of_the_code:
        timed(FakeClock(), body, names={"items": [1, 2]}, number=1, repeat=5)
    assert OWN_ERROR not in of_the_code.value.__notes__
