"""What is asked of a measurement is written once and handed on whole, checked on the syntax tree of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import torchbench_magic
from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.magics.settings import TorchBench
from torchbench_magic.results.profiling.profile_options import ProfileOptions

PACKAGE = Path(torchbench_magic.__file__).parent
MOST_PARAMETERS = 6
MAY_TAKE_MORE = {
    "core/script_entrance.compare": "public: its keywords are DESIGN's, and become a Plan and a Task at once",
    "core/profiling/profiler.profile": "public, in the same way",
    "core/profiling/op_benchmark.benchmark_op": "public, in the same way",
    "core/counting/variables/sent_tensors._rebuilt": "a pickle calls it: the attributes of one tensor",
}
"""Function of the core -> why it takes more than that many, ``self`` not counted."""
SHARED = 3
"""So many fields another list may share with the options by chance: a name, a number of threads, a device."""
PUBLIC = {
    "core/script_entrance.compare",
    "core/profiling/profiler.profile",
    "benchmark/utils/timer.Timer.__init__",
    "benchmark/utils/timer.Timer.compare",
}
"""Entrances whose keywords users write, torch's own among them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions_in(node: ast.AST, name: str, *, in_class: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Dotted name -> parameters, ``self`` and ``cls`` left out; of functions at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            given = child.args
            every = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
            names = [each.arg for each in every if each is not None]
            is_static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in child.decorator_list)
            yield f"{name}.{child.name}", names[1:] if in_class and not is_static else names
            yield from functions_in(child, f"{name}.{child.name}")
        elif isinstance(child, ast.ClassDef):
            yield from functions_in(child, f"{name}.{child.name}", in_class=True)
        else:
            yield from functions_in(child, name, in_class=in_class)


@cache
def modules(*layers: str) -> tuple[tuple[str, ast.Module], ...]:
    """(``core/timing/plan``, its tree) of each module in the layers."""
    paths = (path for layer in layers for path in sorted((PACKAGE / layer).rglob("*.py")))
    return tuple((str(path.relative_to(PACKAGE).with_suffix("")), ast.parse(path.read_text())) for path in paths)


def test_nothing_in_the_core_takes_more_than_six_parameters() -> None:
    counted = {name: len(given) for module, tree in modules("core") for name, given in functions_in(tree, module)}
    assert {name for name, count in counted.items() if count > MOST_PARAMETERS} == set(MAY_TAKE_MORE)


@pytest.mark.parametrize("options", [Plan, ProfileOptions])
def test_no_signature_repeats_what_is_asked(options: type) -> None:
    names = {item.name for item in fields(options)}
    repeating = {
        name: shared
        for module, tree in modules("core", "magics", "benchmark")
        for name, given in functions_in(tree, module)
        if name not in PUBLIC and len(shared := sorted(names & set(given))) > SHARED
    }
    assert not repeating


@pytest.mark.parametrize("options", [Plan, ProfileOptions])
def test_no_class_declares_what_is_asked_again(options: type) -> None:
    names = {item.name for item in fields(options)}
    again = {
        f"{module}.{node.name}": shared
        for module, tree in modules("core", "magics", "benchmark")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name != options.__name__
        if len(shared := sorted(names & {declared_in(each) for each in node.body})) > SHARED
    }
    assert not again


def declared_in(node: ast.stmt) -> str | None:
    """The field that an annotation in a class's body declares."""
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None


def test_what_is_asked_is_built_by_keywords() -> None:
    """A field that is added then changes the meaning of no call."""
    kinds = {"Plan": 0, "ProfileOptions": 0, "Task": 1, "SnippetTask": 1, "Asked": 0}  # name -> positions it may have
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in modules("core", "magics", "benchmark", "results", "views")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds
        if len(node.args) > kinds[node.func.id]
    ]
    assert not wrong


def test_a_setting_has_the_default_of_its_option() -> None:
    """`TorchBench` is registered before anything of the package is imported, so its defaults stand there again."""
    asked = {item.name: item.default for item in fields(Plan)}
    traits = {name: trait.default_value for name, trait in TorchBench.class_own_traits().items() if name in asked}
    assert traits
    assert traits == {name: asked[name] for name in traits}
