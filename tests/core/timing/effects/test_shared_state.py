"""Switches of a shared object that one alternative sets and another one runs with."""

from __future__ import annotations

import argparse
import dataclasses
import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torchbench_magic import Comparison  # noqa: E402

from ..fake_clock import FakeClock, timed  # noqa: E402

SWITCHES = ("shared", "global")


class Config:
    def __init__(self) -> None:
        self.fast, self.calls = False, 0


def run(bodies: dict[str, str], **names: Any) -> Comparison:
    clock = FakeClock()
    ticking = {name: f"{body}\nclock.work({10 * (at + 1)})" for at, (name, body) in enumerate(bodies.items())}
    return timed(clock, ticking, names={"torch": torch, **names}, min_run_time=0.01)


def shared(result: Comparison) -> list[str]:
    return [str(d.facts["name"]) for d in result.warnings if d.kind == "used-up" and d.facts["how"] in SWITCHES]


def drop() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ({"train": "m(x)", "infer": "m.eval(); m(x)"}, "m.training"),
        ({"infer": "m.eval(); m(x)", "train": "m(x)"}, "m.training"),
        ({"fp32": "m(x)", "bf16": "m.to(torch.bfloat16)(x.to(m[0].weight.dtype))"}, None),
        ({"grad": "m(x)", "frozen": "m.requires_grad_(False); m(x)"}, None),
        ({"slow": "config.fast", "fast": "config.fast = True"}, "config.fast"),
        ({"slow": "flags['fast']", "fast": "flags['fast'] = True"}, "flags['fast']"),
    ],
)
def test_what_one_alternative_sets_and_another_runs_with_voids_the_verdict(
    bodies: dict[str, str], said: str | None
) -> None:
    names = {"m": drop(), "x": torch.ones(2, 2), "config": Config(), "flags": {"fast": False}}
    if "bf16" in bodies:
        bodies = bodies | {"fp32": "m(x.to(m[0].weight.dtype))"}
    result = run(bodies, **names)
    found = shared(result)
    assert found
    assert said is None or found == [said]
    assert result.frame["verdict"].tolist() == ["baseline", "undecided"]
    assert "deepcopy" in next(d.action for d in result.warnings if d.kind == "used-up")


def test_alternatives_that_each_set_the_switch_are_compared() -> None:
    bodies = {"infer": "m.eval(); m(x)", "train": "m.train(); m(x)"}
    result = run(bodies, m=drop(), x=torch.ones(2, 2))
    assert not shared(result)
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]


def test_objects_of_ones_own_and_counters_are_no_matter() -> None:
    bodies = {"a": "one.eval(); one(x); config.calls += 1", "b": "two(x); config.calls += 1"}
    result = run(bodies, one=drop(), two=drop(), x=torch.ones(2, 2), config=Config())
    assert not shared(result)
    assert result.frame["verdict"].tolist() == ["baseline", "slower"]


class Plain:
    """One that holds what it is given."""

    def __init__(self, **given: Any) -> None:
        self.__dict__ |= given


@dataclasses.dataclass(slots=True)
class Slotted:
    fast: bool = False


def module(text: str = "FAST = False") -> types.ModuleType:
    """A module of the user's own."""
    made = types.ModuleType("mymod")
    exec(text, vars(made))
    return made


def functions(text: str, **given: Any) -> dict[str, Any]:
    """What a cell that defines functions and classes leaves in the notebook."""
    home: dict[str, Any] = {"__name__": "__main__", "torch": torch, **given}
    exec(compile(text, "<cell>", "exec"), home)
    return {name: value for name, value in home.items() if not name.startswith("__")}


CLASS = "class Cfg:\n    fast = False\n    n = 1\n"
GLOBAL = "MODE = 'a'\ndef put():\n    global MODE\n    MODE = 'x'\ndef work():\n    return MODE\n"
NESTED = (
    "class A: pass\nt = A(); t.cfg = A(); t.cfg.o = A(); t.cfg.o.fast = False\ndef work():\n    return t.cfg.o.fast\n"
)
CELLS = (
    "def make():\n    fast = False\n    def put():\n        nonlocal fast\n        fast = True\n    def work():\n"
    "        return fast\n    return put, work\nput, work = make()\n"
)
MODEL = "class Model:\n    fast = False\n    def __call__(self):\n        return self.fast\nmodel = Model()\n"


@pytest.mark.parametrize(
    ("cell", "bodies", "said"),
    [
        (CLASS + "def work(): return Cfg.fast", ("work()", "Cfg.fast = True; work()"), ("global", "Cfg.fast")),
        (CLASS, ("Cfg.fast", "Cfg.fast = True"), ("global", "Cfg.fast")),
        (CLASS + "def work(): return Cfg.n", ("work()", "Cfg.n = 64; work()"), ("global", "Cfg.n")),
        (MODEL, ("model()", "Model.fast = True; model()"), ("global", "Model.fast")),
        (MODEL, ("model()", "model.fast = True; model()"), ("shared", "model.fast")),
        (GLOBAL, ("work()", "put(); work()"), ("global", "MODE")),
        (GLOBAL, ("put(); work()", "work()"), ("global", "MODE")),
        (CELLS, ("work()", "put(); work()"), ("global", "fast")),
        (NESTED, ("work()", "t.cfg.o.fast = True; work()"), ("shared", "t.cfg.o.fast")),
        (NESTED, ("t.cfg.o.fast", "t.cfg.o.fast = True"), ("shared", "t.cfg.o.fast")),
        ("opts = {}\ndef work(): return opts.get('k')", ("work()", "opts['k'] = 'x'; work()"), ("shared", "opts['k']")),
        ("def work(): return work.fast\nwork.fast = False", ("work()", "work.fast = True"), ("global", "work.fast")),
    ],
)
def test_what_is_set_on_classes_variables_and_nested_objects_is_said_too(
    cell: str, bodies: tuple[str, str], said: tuple[str, str]
) -> None:
    result = run(dict(zip("ab", bodies, strict=True)), **functions(cell))
    assert [(d.facts["how"], d.facts["name"]) for d in result.warnings if d.kind == "used-up"] == [said]
    assert "undecided" in result.frame["verdict"].tolist()
    action = next(d.action for d in result.warnings if d.kind == "used-up")
    assert ("deepcopy" in action) is (said[0] == "shared")  # of a class there is one


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        (("mymod.FAST", "mymod.FAST = True"), "mymod.FAST"),
        (("mymod.FAST", "mymod.FAST = 1"), "mymod.FAST"),
        (("mymod.work()", "mymod.put()"), "mymod.FAST"),
        (("mymod.sub.work()", "mymod.sub.FAST = True"), "mymod.sub.FAST"),
        (("use()", "mymod.sub.work = print"), "mymod.sub.work"),
    ],
)
def test_what_is_set_in_a_module_of_ones_own_is_said_too(bodies: tuple[str, str], said: str) -> None:
    text = "FAST = False\ndef work():\n    return FAST\ndef put():\n    global FAST\n    FAST = True\n"
    mymod = module(text)
    vars(mymod)["sub"] = module(text)
    names = functions("def use(): mymod.sub.work()", mymod=mymod)
    assert shared(run(dict(zip("ab", bodies, strict=True)), **names)) == [said]


def test_of_a_library_only_what_a_text_assigns_by_its_whole_name_is_looked_at(monkeypatch: Any) -> None:
    functional = torch.nn.functional
    monkeypatch.setattr(functional, "relu", functional.relu)
    monkeypatch.setattr(torch.nn.ReLU, "mode", "a", raising=False)
    names = {"F": functional, "x": torch.ones(2), "mine": lambda x, inplace=False: x}
    bodies = {"a": "torch.nn.ReLU()(x)", "b": "F.relu = mine; torch.nn.ReLU()(x)"}
    assert shared(run(bodies, **names)) == ["F.relu"]
    assert shared(run({"a": "x", "b": "torch.nn.ReLU.mode = 'b'"}, x=1)) == ["ReLU.mode"]
    config = argparse.ArgumentParser("a")
    assert shared(run({"a": "config", "b": "config.prog = 'b'"}, config=config)) == ["config.prog"]
    assert not shared(run({"a": "1", "b": "config.prog = 'c'"}, config=config))


def test_slots_and_plain_holders_are_looked_at() -> None:
    for holder in (Slotted(), types.SimpleNamespace(fast=False), argparse.Namespace(fast=False), Plain(fast=False)):
        assert shared(run({"a": "o.fast", "b": "o.fast = True"}, o=holder)) == ["o.fast"]


def test_the_slot_of_a_derived_class_is_the_one_that_is_looked_at() -> None:
    cell = (
        "class Base: __slots__ = ('fast',)\n"
        "class Mine(Base):\n    __slots__ = ('fast', 'other')\n"  # another slot, and one that is never set
        "o = Mine(); o.fast = False"
    )
    names = functions(cell)
    assert shared(run({"a": "o.fast", "b": "o.fast = True"}, **names)) == ["o.fast"]


def test_a_tensor_that_is_made_to_require_gradients_is_said() -> None:
    result = run({"a": "x * 2", "b": "x.requires_grad_() * 2"}, x=torch.ones(3))
    assert shared(result) == ["x.requires_grad"]


def test_a_flag_that_changes_after_the_warm_up_is_said() -> None:
    names = {"o": Plain(fast=False), "calls": []}
    result = run({"a": "o.fast", "b": "calls.append(1)\no.fast = len(calls) > 900"}, **names)
    assert len(names["calls"]) > 901
    assert shared(result) == ["o.fast"]


LAZY = (
    "class Model:\n    ready = False\n    scale = None\n    def __call__(self):\n        if not self.ready:\n"
    "            self.ready, self.scale = True, 0.5\n        return self.scale\nmodel = Model()\n"
)
WORK = (
    "class Work:\n    total = 0\n    flip = False\n    last = 0\n    def __call__(self, n=1):\n"
    "        self.total += n\n        Work.total += n\n        self.flip = not self.flip\n        self.last = n\n"
    "        self.text = f'step {self.total}'\n        return self.total\nwork = Work()\n"
)


@pytest.mark.parametrize(
    ("cell", "bodies"),
    [
        (LAZY, ("model()", "model(); model()")),  # each would make it
        (WORK, ("work()", "work(2)")),  # counters, states
        ("n = 0\ndef count():\n    global n\n    n += 1\ndef read(): return n", ("read()", "count()")),
        ("seen = []\nhooks = {}\ndef f(): return seen, hooks", ("f()", "f(); seen.append('x'); hooks['a'] = f")),
        ("class A: pass\na = A(); b = A()", ("a.fast = True", "b.fast = False")),
        (CLASS, ("Cfg.fast = True", "Cfg.fast = False")),
        (CLASS, ("Cfg.fast = True", "Cfg.fast = True; Cfg.fast")),
        (CLASS, ("Cfg.fast", "Cfg.fast = True; Cfg.fast; Cfg.fast = False")),
        (GLOBAL, ("MODE = 'b'; work()", "MODE = 'c'; work()")),  # names are put back
        ("m = torch.nn.BatchNorm1d(3); x = torch.ones(4, 3)", ("m(x)", "m(x); m(x)")),
        ("m = torch.nn.Linear(3, 3); m.eval(); x = torch.ones(4, 3)", ("m.eval()(x)", "m.eval()(x); m(x)")),
        ("m = torch.nn.Linear(3, 3)", ("m.eval()", "m.eval(); m.eval()")),
    ],
)
def test_what_is_work_or_each_ones_own_is_no_switch(cell: str, bodies: tuple[str, str]) -> None:
    assert not shared(run(dict(zip("ab", bodies, strict=True)), **functions(cell)))


def test_a_switch_that_both_set_is_none_even_where_the_first_one_left_it_set() -> None:
    """The second finds it set: only a call from the setup's value tells that it sets it too."""
    names = functions(LAZY)
    result = run({"a": "model()", "b": "model()", "c": "model(); model()"}, **names)
    assert not shared(result)
    assert names["model"].ready is True


def test_a_call_that_is_only_tried_may_fail() -> None:
    cell = (
        "class Model:\n    ready = False\n    made = 0\n    def __call__(self):\n        if not self.ready:\n"
        "            if Model.made: raise RuntimeError('registered twice')\n            Model.made = 1\n"
        "            self.ready = True\nmodel = Model()\n"
    )
    names = functions(cell)
    assert len(run({"a": "model()", "b": "model(); model()"}, **names).frame) == 2
    assert names["model"].ready is True


def test_checking_the_results_first_hides_nothing() -> None:
    names = functions(CLASS + "def work(): return Cfg.fast and None")
    clock = FakeClock()
    bodies = {"a": "clock.work(10)\nwork()\n1", "b": "clock.work(20)\nCfg.fast = True\n1"}
    assert shared(timed(clock, bodies, names=names, min_run_time=0.01, check=True)) == ["Cfg.fast"]


def test_looking_runs_no_code_of_the_users() -> None:
    ran: list[str] = []

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if not name.startswith("__"):
                ran.append(name)
            return super().__getattribute__(name)

    class Asks(metaclass=Meta):
        fast = False

        @property
        def slow(self) -> bool:
            ran.append("slow")
            return False

        def __getattr__(self, name: str) -> Any:
            ran.append(name)
            raise AttributeError(name)

        def __eq__(self, other: object) -> bool:
            ran.append("==")
            return False

        __hash__ = None  # type: ignore[assignment]

    names = {"o": Asks(), "Asks": Asks, "held": {"a": Asks()}}
    run({"a": "o; Asks; held", "b": "o; Asks; held; 'slow fast'"}, **names)
    assert ran == []
