"""What code reads: values, and what it is given, in words."""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchbench_magic.process.code import globals_read
from torchbench_magic.process.input_shapes import described, inputs_of
from torchbench_magic.process.input_values import values_of, without_changed
from torchbench_magic.process.values_between_runs import CHANGES, Value

# ==== values read =====================================================================================================
# What code reads besides shapes: known wherever it stands, without a step of the user's code.


def notebook(source: str) -> dict[str, Any]:
    made: dict[str, Any] = {"__name__": "__main__", "torch": torch}
    exec(compile(source, "<cell>", "exec"), made)
    return made


def read(body: str, names: dict[str, Any]) -> tuple[Value, ...]:
    code = compile(body, "<body>", "exec")
    return values_of(globals_read(code), [code], names, names)


def known(body: str, names: dict[str, Any]) -> dict[str, str]:
    return {label: text for label, text, _ in read(body, names)}


CLASSES = """
class Base:
    depth = 1
class Cfg(Base):
    n = N
    class inner:
        m = N
class Slots:
    __slots__ = ("size",)
    def __init__(self): self.size = N
class Again(Slots):
    __slots__ = ("size", "unset")
class Holder:
    def __init__(self): self.size = N; self.batch = torch.zeros(N); self._n = N
    @property
    def count(self): asked.append(1); return self._n
    def __getattr__(self, name): asked.append(1); raise AttributeError(name)
    def __repr__(self): asked.append(1); return "me"
    def run(self): return self.size
class Net(torch.nn.Module):
    def __init__(self): super().__init__(); self.width = N; self.layer = torch.nn.Conv2d(1, 1, 1, stride=N)
    def forward(self, x): return self.layer(x) * self.width
class Color(__import__("enum").Enum):
    RED = N
class Attr(dict):
    def __getattr__(self, name): asked.append(1); return self[name]
asked = []
cls, slots, again, obj, net, color, attr = Cfg, Slots(), Again(), Holder(), Net(), Color.RED, Attr(size=N)
def default(x, n=N): return n
def reader(): return k
def closing():
    n = N
    def inner(): return n
    return inner
closed = closing()
k = N
cfg = {"size": N, "deep": {"size": N}, "other": [N]}
many = {"objects": [Holder()]}
parts = [1, (N, {2.5: {N}})]
bound, table = obj.run, {"f": reader}
partial = __import__("functools").partial(default, n=N)
"""


@pytest.mark.parametrize(
    ("body", "label"),
    [
        ("cfg['size']", "cfg['size']"),
        ("cfg[key]", "cfg"),
        ("cfg['deep']['size']", "cfg['deep']['size']"),
        ("Cfg.n", "Cfg.n"),
        ("cls.n", "cls.n"),
        ("Cfg.inner.m", "Cfg.inner.m"),
        ("slots.size", "slots.size"),
        ("again.size, again.unset", "again.size"),
        ("obj.size", "obj.size"),
        ("obj.run()", "obj.size"),
        ("obj.count", "obj._n"),
        ("obj.batch", "obj.batch"),
        ("getattr(obj, name)", "obj.size"),
        ("bound()", "bound.size"),
        ("many['objects']", "many['objects']"),
        ("net(1)", "net"),
        ("net(1)", "net.width"),
        ("[net]", "net"),
        ("color", "color"),
        ("attr.size", "attr['size']"),
        ("default(1)", "default(n=)"),
        ("partial()", "partial(n=)"),
        ("reader()", "k"),
        ("table['f']()", "k"),
        ("closed()", "n"),
        ("parts", "parts"),
    ],
)
def test_a_value_is_known_wherever_code_finds_it(body: str, label: str) -> None:
    small, large = (notebook(f"N = {n}\n{CLASSES}") for n in (2, 3))
    before, again, now = known(body, small), known(body, notebook(f"N = 2\n{CLASSES}")), known(body, large)
    assert before == again
    assert label in before
    assert before[label] != now[label]
    assert not small["asked"], "nothing of the user's runs"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sum", "max"),
        ([1, 2], [1, 3]),
        ({1, 2}, {1, 3}),
        ({"a": 1}, {"b": 1}),
        (np.int64(1), np.int64(2)),
        (torch.tensor(1), torch.tensor(2)),
        (torch.float32, torch.float64),
        (types.SimpleNamespace(n=1), types.SimpleNamespace(n=2)),
        (argparse.Namespace(n=1), argparse.Namespace(n=2)),
        (torch.nn.Conv2d(1, 1, 1, stride=1), torch.nn.Conv2d(1, 1, 1, stride=2)),
        (torch.optim.SGD([torch.zeros(1)], lr=1.0), torch.optim.SGD([torch.zeros(1)], lr=2.0)),
        ([torch.zeros(1), 1], [torch.zeros(1), 2]),
        (range(3), range(4)),
        (slice(3), slice(4)),
        (Path("a"), Path("b")),
        (10**5000, 10**5000 + 1),
        (1.5, 2.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_every_kind_are_told_apart(one: object, other: object) -> None:
    texts = [known("v", {"v": value}) for value in (one, one, other)]
    assert texts[0] == texts[1] != texts[2]


def test_no_data_is_kept_but_numbers() -> None:
    assert "secret" not in str(read("v", {"v": "secret"}))
    assert "secret" not in str(read("v", {"v": {"key": ["secret"], "secret": 1}}))
    assert read("v", {"v": 3}) == (("v", "3", ""),)
    assert read("v", {"v": torch.ones(3)}) == ()
    assert read("v", {"v": torch.ones(())}) == ()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: (i for i in range(3)), "generator"),
        (lambda: iter([1]), "list_iterator"),
        (lambda: Path(__file__).open(), "TextIOWrapper"),  # noqa: SIM115
        (lambda: [object()], "object"),
        (lambda: list(range(100_000)), "too large to compare whole"),
        (lambda: "x" * 3_000_000, "too large to compare whole"),
        (lambda: {n: n for n in range(100_000)}, "too large to compare whole"),
        (lambda: [[[i] for i in range(100)] for _ in range(100)], "too large to compare whole"),
    ],
)
def test_what_cannot_be_known_is_said_with_the_value(make: Any, why: str) -> None:
    value = make()
    assert [unknown for _, _, unknown in read("v", {"v": value})] == [why]
    getattr(value, "close", lambda: None)()


def test_containers_that_hold_themselves_end() -> None:
    value: list[Any] = [1]
    value.append(value)
    table: dict[str, Any] = {"a": 1}
    table["self"] = table
    assert read("v['self']", {"v": value})
    assert read("v['self']", {"v": table})


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "values_module.py"
    sys.modules.pop("values_module", None)


def loaded(file: Path, text: str) -> types.ModuleType:
    made = types.ModuleType("values_module")
    made.__file__ = str(file)
    file.write_text(text)
    sys.modules["values_module"] = made
    exec(compile(text, str(file), "exec"), vars(made))
    return made


def test_globals_and_code_of_a_module_of_the_users_are_known(module: Path) -> None:
    text = "N, UNUSED = 2, 1\ndef f(): return g()\ndef g(): return N\n"
    before = known("mod.f()", {"mod": loaded(module, text)})
    assert set(before) == {"mod.N", "values_module", "values_module.N"}
    assert known("mod.f()", {"mod": loaded(module, "\n" + text.replace("UNUSED = 2, 1", "UNUSED = 2, 5"))}) == before
    assert known("mod.N", {"mod": loaded(module, text)}) == {"mod.N": "2"}
    now = known("mod.f()", {"mod": loaded(module, text.replace("2, 1", "3, 1"))})
    assert {label for label in now if now[label] != before[label]} == {"mod.N", "values_module.N"}
    edited = known("mod.f()", {"mod": loaded(module, text.replace("return N", "return N + 1"))})
    assert {label for label in edited if edited[label] != before[label]} == {"values_module"}


def test_a_counter_of_a_function_is_no_value() -> None:
    names = notebook("calls = 0\ndef f():\n    global calls\n    calls += 1")
    assert set(known("f()", names)) == {"f"}


def test_what_changed_during_the_run_is_marked_by_its_variable() -> None:
    values = (("cfg", "contents 1", ""), ("cfg['n']", "1", ""), ("k", "2", ""))
    assert without_changed(values, {"cfg"}) == (("cfg", "", CHANGES), ("k", "2", ""))


# ==== input shapes ====================================================================================================
# What code is given, in words: the same words are the same input.


class Holder:
    def __init__(self, rows: int) -> None:
        self.batch = torch.zeros(rows, 2)


class Refuses:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(4, 8), "4 × 8 float32"),
        (torch.zeros(()), "0-d float32"),
        (torch.zeros(4, 8, dtype=torch.int8), "4 × 8 int8"),
        (torch.zeros(4, 8).T, "8 × 4 float32, strides 1 × 8"),
        (torch.zeros(4, 8, device="meta"), "4 × 8 float32, meta"),
        (torch.eye(3).to_sparse(), "3 × 3 float32, sparse_coo"),
        (torch.zeros(2, requires_grad=True), "2 float32, requires grad"),
        (np.zeros((4, 8)), "ndarray 4 × 8 float64"),
        (3, "3"),
        (True, "True"),
        (0.5, "0.5"),
        (None, "None"),
        ("text", "str of 4 characters"),
        (b"x", "bytes of 1 byte"),
        ([1, 2], "list of 2"),
        ([torch.zeros(2), torch.ones(2)], "list of 2: 2 float32"),
        ({"a": np.zeros(3)}, "dict of 1: ndarray 3 float64"),
        (Holder(5), "Holder: 5 × 2 float32"),
        (torch, ""),
        (len, ""),
        (Holder, ""),
        (Refuses(), "Refuses"),
    ],
)
def test_inputs_are_said_in_a_few_words(value: object, text: str) -> None:
    assert described(value) == text


@pytest.mark.parametrize(
    "make",
    [
        lambda n: torch.nn.Linear(n, 10),
        lambda n: torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.Dropout() if n == 1 else torch.nn.ReLU()),
        lambda n: torch.nn.Linear(3, 3).train(n == 1),
        lambda n: [torch.zeros(3), torch.zeros(4)][:: 1 if n == 1 else -1],
        lambda n: [torch.zeros(k + n) for k in range(50)],
        lambda n: tuple(range(n)),
    ],
    ids=["width", "layers", "mode", "order", "many", "length"],
)
def test_unlike_inputs_have_unlike_words_and_like_ones_the_same(make: Callable[[int], object]) -> None:
    assert described(make(1)) == described(make(1))
    assert described(make(1)) != described(make(2))
    assert len(described(make(1))) <= 100


def test_a_module_whose_parameters_have_no_shape_yet_is_described_with_what_is_known() -> None:
    text = described(torch.nn.LazyLinear(3))
    assert text.startswith("LazyLinear with 0 values in 2 tensors, training mode, 1 hook")
    assert text != described(torch.nn.LazyLinear(3, bias=False))


def test_what_functions_read_counts_and_a_counter_does_not() -> None:
    home: dict[str, Any] = {"x": torch.zeros(3), "calls": 0, "k": 2}
    exec("def f():\n    global calls\n    calls += 1\n    return x * k", home)
    assert inputs_of(["f"], home, [home["f"]]) == (("k", "2"), ("x", "3 float32"))
