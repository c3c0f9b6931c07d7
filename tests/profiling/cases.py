"""Truth cases: cells in which a comment says which ops run on which line, and how often.

``# @ add 2, mm`` means: on this line ``aten::add`` is called twice and ``aten::mm`` once, counting all threads.
For each op named in a case, the comments name *every* line that calls it. ``calls=3`` is how often the line runs.
The last cell is profiled, those before it ran earlier; a ``module`` is a file beside the notebook.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

__all__ = ["CASES", "Case"]

_MARK = re.compile(r"#\s*@\s*(.*)$")
_CALLS = re.compile(r"calls=(\d+)")


@dataclass(frozen=True)
class Case:
    """One situation in which the line of an op has to be found.

    Attributes:
        name: what it is about.
        cells: their texts; the last one is profiled.
        module: text of ``model.py``.
        error: name of the exception the cell ends with.
        in_issue: it is one of the seven that the benchmark has to get right.
    """

    name: str
    cells: tuple[str, ...]
    module: str = ""
    error: str = ""
    in_issue: bool = False

    @property
    def texts(self) -> dict[str, str]:
        """Text by place: "1", "2", ... for cells, "model.py" for the module."""
        numbers = {text: str(number) for number, text in enumerate(self.cells, 1)}  # of equal ones the last
        texts = {number: text for text, number in numbers.items()}
        return texts | ({"model.py": self.module} if self.module else {})

    @property
    def ops(self) -> Counter[tuple[str, str, int]]:
        """(op, place, line) -> calls."""
        found: Counter[tuple[str, str, int]] = Counter()
        for place, line, mark in self._marks():
            for item in filter(None, (part.strip() for part in _CALLS.sub("", mark).split(","))):
                name, _, times = item.partition(" ")
                found[name if "::" in name or name[0].isupper() else f"aten::{name}", place, line] += int(
                    times or 1
                )
        return found

    @property
    def calls(self) -> dict[tuple[str, int], int]:
        """(place, line) -> how often the line runs, where the case says so."""
        said = ((place, line, _CALLS.search(mark)) for place, line, mark in self._marks())
        return {(place, line): int(match[1]) for place, line, match in said if match}

    def _marks(self) -> list[tuple[str, int, str]]:
        return [
            (place, number, match[1])
            for place, text in self.texts.items()
            for number, line in enumerate(text.splitlines(), 1)
            if (match := _MARK.search(line))
        ]


_TORCH = "import torch\nfrom torch import nn\na = torch.ones(8, 8)\n"

CASES = (
    Case(
        "operators",
        (
            _TORCH,
            """%%tprofile --shapes
b = a @ a  # @ mm, calls=1
c = a + b  # @ add

c -= 2  # @ sub_
d = (a > 0) & (b > 1)  # @ gt 2, bitwise_and
e = -c[1:3]  # @ neg, slice
e.mean()  # @ mean
""",
        ),
        in_issue=True,
    ),
    Case(
        "function of an earlier cell",
        (
            _TORCH
            + """def scaled(x, by):  # @ calls=3
    y = x * by  # @ mul 3, calls=3
    return y.relu()  # @ relu 3
""",
            """%%tprofile
b = scaled(a, 2)  # @ calls=1
c = scaled(scaled(b, 3), 4).tan()  # @ tan
""",
        ),
        in_issue=True,
    ),
    Case(
        "loop",
        (
            _TORCH,
            """%%tprofile
total = torch.zeros(())
for i in range(5):  # @ calls=6
    x = a * i  # @ mul 5, calls=5
    if i % 2:  # @ calls=5
        total = total + x.sum()  # @ add 2, sum 2, calls=2
while total > 100:  # @ gt 2
    total = total / 1e9  # @ div, calls=1
""",
        ),
        in_issue=True,
    ),
    Case(
        "multi-line call",
        (
            _TORCH,
            """%%tprofile
y = torch.addmm(  # @ addmm, calls=1
    a * 2,  # @ mul, calls=1
    a.t(),  # @ t
    torch.relu(  # @ relu
        a + 1,  # @ add
    ),
    beta=0.5,
)
z = (
    a.exp()  # @ exp
    .log()  # @ log
    .sqrt()  # @ sqrt
)
for i in range(3):  # @ calls=4
    w = torch.maximum(  # @ maximum 3, calls=3
        a,
        a - i,  # @ sub 3, calls=3
    )
""",
        ),
        in_issue=True,
    ),
    Case(
        "method of an nn.Module",
        (
            _TORCH
            + """class Block(nn.Module):
    def __init__(self):  # @ calls=1
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):  # @ calls=2
        h = self.linear(x)  # @ linear 2, addmm 2, calls=2
        with torch.profiler.record_function("tail"):  # @ calls=2
            h = self.norm(h)  # @ native_layer_norm 2
        return x + h.sigmoid()  # @ sigmoid 2, add 2
""",
            """%%tprofile
block = Block()
y = block(a)
y = block(y).tanh()  # @ tanh
""",
        ),
        in_issue=True,
    ),
    Case(
        "module file beside the notebook",
        (
            "import torch\nfrom model import Net\nnet = Net()\nx = torch.ones(4, 8)\n",
            """%%tprofile
y = net(x)
z = y.square()  # @ square
""",
        ),
        module="""import torch
from torch import nn

BIAS = torch.ones(8)


def squash(x):  # @ calls=1
    return x.tanh() + BIAS  # @ tanh, add, calls=1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):  # @ calls=1
        return squash(self.linear(x))  # @ linear
""",
        in_issue=True,
    ),
    Case(
        "backward",
        (
            _TORCH,
            """%%tprofile
w = torch.ones(8, 8, requires_grad=True)
y = a @ w  # @ mm
loss = y.pow(2).sum()  # @ sum, pow
loss.backward()  # @ MmBackward0, SumBackward0, PowBackward0, mm, pow, torch::autograd::AccumulateGrad
""",
        ),
        in_issue=True,
    ),
    Case(
        "optimizer and several steps",
        (
            _TORCH + "net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))\n"
            "optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)\n",
            """%%tprofile
for _ in range(3):
    optimizer.zero_grad()
    loss = net(a).mean()  # @ linear 6, mean 3
    loss.backward()  # @ AddmmBackward0 6, ReluBackward0 3
    optimizer.step()  # @ add_ 12, calls=3
""",
        ),
    ),
    Case(
        "generators",
        (
            _TORCH
            + """def batches(n):  # @ calls=2
    for i in range(n):
        yield a * i  # @ mul 4
        a.exp()  # @ exp 4

def chained():
    yield from batches(2)
    a.log()  # @ log
""",
            """%%tprofile
for batch in batches(2):
    batch.sqrt()  # @ sqrt 2
for batch in chained():
    batch.sin()  # @ sin 2
both = sum(x.cos() for x in (a, a))  # @ cos 2, add 2
""",
        ),
    ),
    Case(
        "recursion",
        (
            _TORCH
            + """def power(x, n):  # @ calls=4
    if n == 0:
        return x.exp()  # @ exp
    deeper = power(x, n - 1)  # @ calls=3
    return deeper * x  # @ mul 3
""",
            """%%tprofile
power(a, 3).sum()  # @ sum
""",
        ),
    ),
    Case(
        "threads started in the cell",
        (
            _TORCH
            + """import threading
def work():  # @ calls=3
    for _ in range(4):
        a.exp()  # @ exp 12
""",
            """%%tprofile
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads:
    t.start()
a.log()  # @ log
for t in threads:
    t.join()
""",
        ),
    ),
    Case(
        "thread pool",
        (
            _TORCH + "from concurrent.futures import ThreadPoolExecutor\n",
            """%%tprofile
with ThreadPoolExecutor(2) as pool:
    futures = [pool.submit(lambda: a.exp()) for _ in range(5)]  # @ exp 5
    results = list(pool.map(torch.log, [a]))
b = a.sin()  # @ sin
""",
        ),
    ),
    Case(
        "await at the top level",
        (
            _TORCH
            + """import asyncio
async def step(n):
    x = a * n  # @ mul 3
    await asyncio.sleep(0.002)
    return x.exp()  # @ exp 3
""",
            """%%tprofile
first = await step(1)
both = await asyncio.gather(step(2), step(3))
first.sin()  # @ sin
await asyncio.sleep(0)
(await asyncio.sleep(0.001, a)).cos()  # @ cos
""",
        ),
    ),
    Case(
        "asynchronous generators and context managers",
        (
            _TORCH
            + """import asyncio, contextlib
async def stream():
    for i in range(2):
        yield a * i  # @ mul 4
        await asyncio.sleep(0)
        a.exp()  # @ exp 4

@contextlib.asynccontextmanager
async def opened():
    a.log()  # @ log
    yield a
    a.sqrt()  # @ sqrt
""",
            """%%tprofile
async with opened() as x:
    x.sin()  # @ sin
    async for item in stream():
        item.cos()  # @ cos 2
result = [x.tan() async for x in stream()]  # @ tan 2
""",
        ),
    ),
    Case(
        "asyncio.run inside the cell",
        (
            _TORCH + "import asyncio\n",
            """%%tprofile
async def main():
    a.exp()  # @ exp
    await asyncio.sleep(0.001)
    a.log()  # @ log
asyncio.run(main())
a.sin()  # @ sin
""",
        ),
    ),
    Case(
        "exception",
        (
            _TORCH
            + """def fails(x):
    y = x.exp()  # @ exp 2
    raise ValueError("no")
""",
            """%%tprofile
try:
    fails(a)
except ValueError:
    a.log()  # @ log
finally:
    a.sin()  # @ sin
b = a * 3  # @ mul
fails(b)
c = a.cos()
""",
        ),
        error="ValueError",
    ),
    Case(
        "hooks",
        (
            _TORCH
            + """def after(module, args, output):  # @ calls=1
    return output.exp()  # @ exp

def on_grad(grad):
    return grad.clone()  # @ clone

linear = nn.Linear(8, 8)
handle = linear.register_forward_hook(after)
""",
            """%%tprofile
y = linear(a)  # @ linear, addmm
y.register_hook(on_grad)
y.sum().backward()  # @ sum 2, ExpBackward0
""",
        ),
    ),
    Case(
        "custom autograd function",
        (
            _TORCH
            + """class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.pow(3)  # @ pow

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.square().mul(3)  # @ mul 2, square, pow
""",
            """%%tprofile
w = torch.ones(8, requires_grad=True)
y = Cube.apply(w)  # @ Cube
y.sum().backward()  # @ CubeBackward
""",
        ),
    ),
    Case(
        "comprehensions and lambdas",
        (
            _TORCH,
            """%%tprofile
xs = [a * i for i in range(3)]  # @ mul 3, calls=1
table = {i: a.exp()  # @ exp 2
         for i in range(4)
         if (a.log()[0, 0] == 0) == (i % 2)}  # @ log 4
f = lambda x: x.sin()  # @ sin 3
f(a), *map(f, xs[:2])
ordered = sorted([3, 1], key=lambda i: float(a.cos()[0, 0]))  # @ cos 2
if (n := a.tan()).numel():  # @ tan
    [y.neg() for y in [a, n]]  # @ neg 2
several = [
    a.sinh()  # @ sinh 2, calls=1
    for _ in range(2)
]
""",
        ),
    ),
    Case(
        "decorators, context managers, properties, class bodies",
        (
            _TORCH
            + """import contextlib, functools
def logged(f):
    @functools.wraps(f)
    def wrapper(x):  # @ calls=2
        x.exp()  # @ exp
        return f(x)
    return wrapper

@contextlib.contextmanager
def around():
    a.log()  # @ log
    yield
    a.ceil()  # @ ceil
""",
            """%%tprofile
@logged
def plain(x):  # @ calls=2
    return x.sin()  # @ sin
plain(a)
with around():  # @ calls=1
    a.cos()  # @ cos
class Holder:
    table = a.tan()  # @ tan
    @property
    def value(self):
        return a.neg()  # @ neg
Holder().value.sqrt()  # @ sqrt
""",
        ),
    ),
    Case(
        "control flow",
        (
            _TORCH,
            """%%tprofile
n = 0
while True:
    n += 1
    a.exp()  # @ exp 3, calls=3
    if n == 3: break
match a.sum().item():  # @ sum
    case 64.0:
        a.log()  # @ log
    case _:
        a.sin()
x = a.cos() if n == 3 else a.tan()  # @ cos
assert a.numel(), a.neg()
for i in range(2): a.sqrt(); a.ceil()  # @ sqrt 2, ceil 2
try:
    with torch.no_grad(): y = a * 2  # @ mul
finally: del y
""",
        ),
    ),
    Case(
        "code in a string",
        (
            _TORCH,
            """%%tprofile
exec("b = a.exp()\\nc = a.log()")  # @ exp, log
d = eval("a.sin()")  # @ sin
""",
        ),
    ),
    Case(
        "torch.jit._fork and a DataLoader",
        (
            _TORCH + "from torch.utils.data import DataLoader, TensorDataset\n"
            "def task(x):\n    return x.exp()  # @ exp 2\n",
            """%%tprofile
futures = [torch.jit._fork(task, a) for _ in range(2)]
for future in futures:
    torch.jit._wait(future)
for (batch,) in DataLoader(TensorDataset(a), batch_size=4):  # @ stack 2
    batch.log()  # @ log 2
""",
        ),
    ),
    Case(
        "checkpointed forward",
        (
            _TORCH
            + """from torch.utils.checkpoint import checkpoint
def block(x):
    return x.exp().sin()  # @ exp 2, sin 2
""",
            """%%tprofile
w = torch.ones(8, requires_grad=True)
y = checkpoint(block, w, use_reentrant=False)
y.sum().backward()  # @ ExpBackward0, SinBackward0
""",
        ),
    ),
    Case(
        "statements over lines and blank lines first",
        (
            _TORCH,
            """

%%tprofile
y = 0; x = torch.maximum(a.exp(),  # @ exp, maximum
    a.log())  # @ log
z = a.cos() \\
    + a.tan()  # @ tan
s = '''
text'''; y = a.sin()  # @ sin
if (a.sum() > 0 and  # @ gt
        a.mean() > 0):  # @ mean, gt
    pass
""",
        ),
    ),
    Case(
        "identical cells",
        (
            _TORCH,
            "def twin(x):\n    return x.exp()  # @ exp 3\n",
            "first = twin\n",
            "def twin(x):\n    return x.exp()  # @ exp 3\n",
            """%%tprofile
first(a)
twin(twin(a)).log()  # @ log
""",
        ),
    ),
    Case(
        "a cell that was edited and run again",
        (
            _TORCH + "def work(x):\n    return x.exp()  # @ exp, calls=1\nolder = work\n",
            "\n\ndef work(x):\n    y = x.log()  # @ log 2\n    return y.exp()  # @ exp 2, calls=2\n",
            """%%tprofile
older(a)
work(work(a))
""",
        ),
    ),
    Case(
        "double backward",
        (
            _TORCH,
            """%%tprofile
w = torch.ones(8, requires_grad=True)
y = w.pow(3).sum()
(g,) = torch.autograd.grad(y, w, create_graph=True)  # @ PowBackward0, SumBackward0
g.sin().sum().backward()  # @ SinBackward0, SumBackward0, PowBackward0
""",
        ),
    ),
    Case(
        "hooks of the backward pass",
        (
            _TORCH
            + """def leaving(module, grad_in, grad_out):
    grad_out[0].exp()  # @ exp
def accumulated(parameter):
    parameter.grad.log()  # @ log 2
def before(module, args):
    args[0].floor()  # @ floor
linear = nn.Linear(8, 8)
linear.register_full_backward_hook(leaving)
linear.register_forward_pre_hook(before)
for parameter in linear.parameters():
    parameter.register_post_accumulate_grad_hook(accumulated)
""",
            """%%tprofile
loss = linear(a).cos().sum()  # @ cos
loss.backward()  # @ CosBackward0, AddmmBackward0
""",
        ),
    ),
    Case(
        "operators and protocols of the user's own classes",
        (
            _TORCH
            + """class Wrapped:
    def __init__(self, x):
        self.x = x.clone()  # @ clone 3
    def __add__(self, other):
        return Wrapped(self.x + other.x)  # @ add
    def __getitem__(self, i):
        return self.x[i].exp()  # @ select, exp
    def __call__(self, f):
        return f(self.x)  # @ sin
    def __len__(self):
        return int(self.x.floor().sum())  # @ floor, sum
    def __enter__(self):
        self.x.log()  # @ log
    def __exit__(self, *error):
        self.x.ceil()  # @ ceil
    def __iter__(self):
        yield from (self.x.tan(), self.x.tan())  # @ tan 2
    def __del__(self):
        self.x.neg()  # @ neg 3
""",
            """%%tprofile
v = Wrapped(a) + Wrapped(a)
v[0]
v(torch.sin)
n = len(v)
with v:
    pass
first, second = v
x = v.x
del v
x.cos()  # @ cos
""",
        ),
    ),
    Case(
        "functions of functions",
        (
            _TORCH + "import functools, operator\n"
            "def twice(f):\n    def inner(x):\n        return f(f(x))  # @ exp 2\n    return inner\n",
            """%%tprofile
total = functools.reduce(torch.add, [a, a, a, a])  # @ add 3
half = functools.partial(torch.mul, 0.5)
half(a); list(map(half, [a, a]))  # @ mul 3
twice(torch.exp)(a)
torch.func.vmap(lambda row: row.sin())(a)  # @ sin
(
    (lambda f: f(a))(
        lambda x: x.tan()  # @ tan
    )
)
any(bool(x.gt(2).any()) for x in  # @ gt 2, any 2
    (a, a))
""",
        ),
    ),
    Case(
        "names, strings and unpacking",
        (
            _TORCH,
            """%%tprofile
text = f"{a.exp()[0, 0]:.1f} {(b := a.log()).shape}"  # @ exp, log
first, *rest = a.sin(), a.cos(), *[a.tan()]  # @ sin, cos, tan
data = {"x": a.neg(), **{"y": a.ceil()}}  # @ neg, ceil
c = d = a.floor()  # @ floor
c[0], d[1] = a.erf()[0], 2  # @ erf
del b, c
e = a.sqrt() if (n := 1) > 2 else a.square()  # @ square
ok = 0 < a.sum() < 100  # @ sum
while (n := n + 1) < 4: a.round()  # @ round 2
""",
        ),
    ),
    Case(
        "exceptions on the way",
        (
            _TORCH
            + """import contextlib
def items():
    try:
        while True:
            yield a.exp()  # @ exp 2
    except ValueError:
        yield a.log()  # @ log
    finally:
        a.sin()  # @ sin
""",
            """%%tprofile
g = items()
next(g), next(g)
g.throw(ValueError())
g.close()
with contextlib.suppress(RuntimeError):
    a @ torch.ones(3)
    a.tan()
for i in range(3):
    try:
        if i == 1: continue
        if i == 2: break
        a.cos()  # @ cos
    except* ValueError:
        a.neg()
    else:
        a.ceil()  # @ ceil
    finally:
        a.floor()  # @ floor 3
def nested():
    try:
        return a.erf()  # @ erf
    finally:
        a.sqrt()  # @ sqrt
nested()
""",
        ),
    ),
    Case(
        "threads of asyncio and of a queue",
        (
            _TORCH
            + """import asyncio, queue, threading
def in_thread(x):
    return x.exp()  # @ exp 2
def serve(jobs):
    while (x := jobs.get()) is not None:
        x.log()  # @ log 3
""",
            """%%tprofile
one, two = await asyncio.gather(asyncio.to_thread(in_thread, a), asyncio.to_thread(in_thread, a))
jobs = queue.Queue()
worker = threading.Thread(target=serve, args=(jobs,))
worker.start()
for _ in range(3):
    jobs.put(a * 2)  # @ mul 3
jobs.put(None)
worker.join()
one.sin()  # @ sin
""",
        ),
    ),
    Case(
        "modules in modules",
        (
            _TORCH
            + """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.tail = nn.Sequential(nn.ReLU(), nn.LayerNorm(8))
    def forward(self, x):
        for layer in self.layers:  # @ calls=8
            x = layer(x)  # @ linear 6, calls=6
        return self.tail(x)  # @ relu 2, native_layer_norm 2
net = nn.Sequential(Block(), Block())
""",
            """%%tprofile
@torch.no_grad()
def evaluate(x):
    return net(x)
evaluate(a).softmax(-1)  # @ softmax
with torch.inference_mode():
    a.exp()  # @ exp
""",
        ),
    ),
    Case(
        "recursion through a generator and a tree",
        (
            _TORCH
            + """def walk(depth):
    if depth:
        yield from walk(depth - 1)
        yield a.exp()  # @ exp 7
        yield from walk(depth - 1)
def fold(tree):
    if isinstance(tree, tuple):
        return fold(tree[0]) + fold(tree[1])  # @ add 3
    return tree.log()  # @ log 4
""",
            """%%tprofile
for x in walk(3):
    x.sin()  # @ sin 7
fold(((a, a), (a, a)))
""",
        ),
    ),
)
