"""A run is handed what it times: the Python and the C++ one fit in the same place, and the run has no subclass."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchbench_magic
from torchbench_magic.cpp.run import SnippetBodies
from torchbench_magic.timing import point_run
from torchbench_magic.timing.point_run import TimedCode
from torchbench_magic.timing.python_bodies import PythonBodies

PACKAGE = Path(torchbench_magic.__file__).parent
HEIR = re.compile(r"^\s*class \w+\([^)]*\b(PointRun|Run|Task)\b", re.MULTILINE)
"""As a text, of which far fewer files have one than can be parsed in a second."""
MEMBERS = sorted(name for name in vars(TimedCode) if not name.startswith("_"))


@pytest.mark.parametrize("kind", [PythonBodies, SnippetBodies])
def test_each_language_has_all_that_a_run_asks_with_the_same_arguments(kind: type) -> None:
    assert len(MEMBERS) >= 8
    for name in MEMBERS:
        asked = getattr(TimedCode, name)
        if inspect.isfunction(asked):
            assert list(inspect.signature(getattr(kind, name)).parameters) == list(inspect.signature(asked).parameters)
            assert inspect.iscoroutinefunction(getattr(kind, name)) == inspect.iscoroutinefunction(asked)
        else:
            assert hasattr(kind, name)


BY_LANGUAGE = {"python", "of_its_kind", "measured"}


def test_a_run_has_no_heir_and_a_task_of_another_language_says_only_what_that_changes() -> None:
    overridden = {
        (ast.unparse(base), inside.name)
        for path in PACKAGE.rglob("*.py")
        if HEIR.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base) in ("PointRun", "Run", "Task")
        for inside in node.body
        if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert overridden == {("Task", name) for name in BY_LANGUAGE}


def assigned(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Names of the attributes of ``self`` that a method binds."""
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def test_the_state_of_a_run_is_declared_where_it_begins() -> None:
    body = ast.parse(Path(point_run.__file__).read_text()).body
    (run,) = (n for n in body if isinstance(n, ast.ClassDef) and n.name == "PointRun")
    methods = [n for n in run.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    declared = {name for method in methods if method.name == "__init__" for name in assigned(method)}
    later = {name for method in methods if method.name != "__init__" for name in assigned(method)}
    assert declared
    assert later <= declared
