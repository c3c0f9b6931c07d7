"""Which names code may look for among the globals: not those of attributes, unless it can look by text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torchbench_magic.cell_text import Body
from torchbench_magic.counting.count import Job, _compiled
from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import names_looked_up
from torchbench_magic.process.send import pack_variables
from torchbench_magic.timing.plan import Plan
from torchbench_magic.timing.processes import packed
from torchbench_magic.timing.task import Task


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x.mean()", {"x"}),
        ("import sys\nif x: sys.exit()", {"x", "sys"}),
        ("x.y.z = w.v", {"x", "w"}),
        ("def f(a):\n    return a.mean() + b.c\nf(1)", {"f", "b"}),
        ("class A:\n    n = N\n    def m(self): return self.q + M", {"__name__", "N", "M"}),
        ("[k.a for k in ks]", {"ks"}),
        ("del x", {"x"}),
        ("def f():\n    global g\n    del g\nf()", {"f", "g"}),
        ("from os import path as p", set()),
        ("getattr(x, 'mean')()", {"getattr", "x"}),
        ("eval('a + b.c')", {"eval", "a", "b", "c"}),
        ("builtins.eval('a')", {"builtins", "eval", "a"}),
        ("globals()['a'].mean()", {"globals", "a", "mean"}),
        ("import __main__\n__main__.a.b", {"__main__", "a", "b"}),
    ],
)
def test_attributes_are_no_variables(text: str, found: set[str]) -> None:
    assert names_looked_up(compile(text, "<cell>", "exec")) == found


NAMES: dict[str, Any] = {
    "x": torch.ones(3),
    "mean": (n for n in range(3)),
    "exit": open(os.devnull),  # noqa: SIM115  (what cannot be sent)
}


@pytest.fixture(autouse=True, scope="module")
def closed() -> Iterator[None]:
    yield
    NAMES["exit"].close()


CODE = "import sys\nif x.mean() < 0: sys.exit()"


def test_a_variable_called_as_an_attribute_does_not_keep_code_from_other_processes() -> None:
    task = Task({"one": Body(CODE, "<one>")}, setup=[Body("x.mean()", "<setup>")], plan=Plan(), namespace=NAMES)
    _, parcel = packed(task, [], awaits=False)
    parcel.__exit__(None, None, None)


@pytest.mark.parametrize("form", ["function", "module"])
def test_nor_from_being_counted(form: Any) -> None:
    job = Job(Body(CODE, "<one>"), NAMES, form=form, setup="x.mean()")
    _, used, words = _compiled(job)
    assert not {"mean", "exit"} & used
    with pack_variables(used, NAMES, words=words):
        pass


def test_a_variable_that_a_text_names_travels_and_is_refused_by_its_name() -> None:
    task = Task({"one": Body("eval('next(mean)')", "<one>")}, plan=Plan(), namespace=NAMES)
    with pytest.raises(BodyError, match=r"`mean` .*generator.* cannot be sent"):
        packed(task, [], awaits=False)
