"""Fifteen cells that ``torch.compile`` has trouble with, and what is to be said of each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CELLS", "CompileCell"]


@dataclass(frozen=True)
class CompileCell:
    """A cell with a planted cause. In its text `call(f)` calls ``f`` twice: what the first call takes more than the
    second is compiling.

    Attributes:
        marked: the text that is to be on the line that is named.
        words: all of them are to be in the reason.
        table: where it is to stand: ``recompile`` (a row of that kind), ``break`` or ``fell_back``.
        function: the name that is to stand with it.
    """

    name: str
    text: str
    table: str
    marked: str
    words: tuple[str, ...]
    function: str = "f"


def _cell(name: str, table: str, marked: str, words: tuple[str, ...], text: str, function: str = "f") -> CompileCell:
    return CompileCell(name, text.lstrip("\n"), table, marked, words, function)


CELLS = (
    _cell("print", "break", "print(", ("`print`", "cannot be compiled"), '''
def f(x):
    y = x + 1
    print(end="")
    return y * 2
g = torch.compile(f, backend="aot_eager")
call(lambda: g(x))
'''),
    _cell("data-dependent branch", "break", "if y.sum()", ("branch", "values of a tensor"), '''
def f(x):
    y = x + 1
    if y.sum() > 0:
        y = y * 2
    return y
g = torch.compile(f, backend="aot_eager")
call(lambda: g(x))
'''),
    _cell("item", "break", ".item()", (".item()", "number"), '''
def f(x):
    y = x + 1
    n = y.max().item()
    return y * n
g = torch.compile(f, backend="aot_eager")
call(lambda: g(x))
'''),
    _cell("nested functions", "break", "time.sleep(", ("time.sleep", "cannot be compiled"), '''
import time
def inner(y):
    y = y + 1
    time.sleep(0)
    return y * 2
def f(x):
    return inner(x.sin()).cos()
g = torch.compile(f, backend="aot_eager")
call(lambda: g(x))
'''),
    _cell("int", "recompile", "def f(", ("`n` was 1, now 2",), '''
def f(x, n):
    return x * n + n
g = torch.compile(f, backend="aot_eager")
call(lambda: g(x, 1))
call(lambda: g(x, 2))
'''),
    _cell("float", "recompile", "def f(", ("`rate` was 0.1, now 0.2",), '''
def f(x, rate):
    return x * rate
g = torch.compile(f, backend="aot_eager", dynamic=False)
call(lambda: g(x, 0.1))
call(lambda: g(x, 0.2))
'''),
    _cell("shape", "recompile", "def f(", ("`x` had size 16 in dimension 0, now 17",), '''
def f(x):
    return x.sin() + 1
g = torch.compile(f, backend="aot_eager")
call(lambda: g(torch.ones(16)))
call(lambda: g(torch.ones(17)))
'''),
    _cell("rank", "recompile", "def f(", ("`x` had 1 dimension, now 2",), '''
def f(x):
    return x.sin() + 1
g = torch.compile(f, backend="aot_eager")
call(lambda: g(torch.ones(16)))
call(lambda: g(torch.ones(4, 4)))
'''),
    _cell("dtype", "recompile", "def f(", ("`x` was float32, now float64",), '''
def f(x):
    return x.sin() + 1
g = torch.compile(f, backend="aot_eager")
call(lambda: g(torch.ones(16)))
call(lambda: g(torch.ones(16, dtype=torch.double)))
'''),
    _cell("device", "recompile", "def f(", ("`x` was on cpu, now on meta",), '''
def f(x):
    return x.sin() + 1
g = torch.compile(f, backend="eager")
call(lambda: g(torch.ones(16)))
call(lambda: g(torch.ones(16, device="meta")))
'''),
    _cell("attribute of a module", "recompile", "def forward(", ("`self.scale` was 2.0, now 3.0",), '''
class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = torch.nn.Linear(16, 16), 2.0
    def forward(self, x):
        return self.linear(x) * self.scale
m = Scaled()
g = torch.compile(m, backend="aot_eager")
call(lambda: g(x))
m.scale = 3.0
call(lambda: g(x))
''', "Scaled.forward"),
    _cell("training of a module", "recompile", "def forward(", ("`self.drop.training` was True, now False",), '''
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop = torch.nn.Linear(16, 16), torch.nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(self.linear(x))
m = Net()
g = torch.compile(m, backend="aot_eager")
call(lambda: g(x))
m.eval()
call(lambda: g(x))
''', "Net.forward"),
    _cell("limit reached", "fell_back", "def f(", ("recompile_limit of 8 reached",), '''
def f(x, name):
    return x + len(name)
g = torch.compile(f, backend="eager")
for i in range(12):
    call(lambda: g(x, "n" * i))
'''),
    _cell("print in a loop", "fell_back", "def f(", ("graph break", "`print` cannot be compiled"), '''
def f(x):
    for i in range(3):
        x = torch.relu(x.sin() * x.cos() + x.exp()) - x.tanh() * x.sigmoid() + x.square()
        x = torch.softmax(x + x.roll(1) - x.flip(0), 0) * torch.where(x > 0, x.log1p(), x.neg()).clamp(-1, 1)
        print(end="")
    return x
g = torch.compile(f, backend="aot_eager")
call(lambda: g(x))
'''),
    _cell("module of a library", "recompile", "container.py", ("had 1 dimension, now 2",), '''
g = torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()), backend="aot_eager")
call(lambda: g(torch.ones(16)))
call(lambda: g(torch.ones(4, 16)))
''', "Sequential.forward"),
)
