"""What is asked of a measurement is declared once and handed on whole, read from the text of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

import pytest

from torchbench_magic.notebook.config import TorchBench
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.timing.plan import Plan

from .chapters import FUNCTION, chapters, chapters_at_hand

SHARED = 3
"""So many fields another list may share with the options by chance: a name, a number of threads, a device."""
DECLARED_IN = {"timing.plan.Plan", "profiling.options.ProfileOptions"}
MAY_REPEAT = {
    *("script.compare.compare", "profiling.run.profile"),  # entrances, whose keywords users write
    "benchmark.utils.timer.Timer.__init__",  # torch's own
    *("timing.comparison.Comparison", "timing.samples.Subject", "profiling.profile.Profile"),  # what came of it
}


@pytest.fixture(scope="module", autouse=True)
def _chapters() -> Iterator[None]:
    with chapters_at_hand():
        yield


def defined_in(node: ast.AST, name: str) -> Iterator[tuple[str, set[str]]]:
    """Each class and function at any depth -> the fields or the parameters that it declares."""
    for child in ast.iter_child_nodes(node):
        inner = f"{name}.{child.name}" if isinstance(child, ast.ClassDef | FUNCTION) else name
        if isinstance(child, ast.ClassDef):
            targets = (each.target for each in child.body if isinstance(each, ast.AnnAssign))
            yield inner, {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(child, FUNCTION):
            yield inner, {each.arg for each in ast.walk(child.args) if isinstance(each, ast.arg)}
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from defined_in(child, inner)


@cache
def definitions() -> dict[str, set[str]]:
    """``timing.plan.Plan`` -> its fields."""
    return {found: names for name, (_, tree) in chapters().items() for found, names in defined_in(tree, name)}


@pytest.mark.parametrize("options", [Plan, ProfileOptions])
def test_no_signature_and_no_class_repeats_what_is_asked(options: type) -> None:
    """A field that is added must not have to be added elsewhere too."""
    names = {item.name for item in fields(options)}
    shared = {name: sorted(names & declared) for name, declared in definitions().items()}
    assert not {n: s for n, s in shared.items() if len(s) > SHARED and n not in DECLARED_IN | MAY_REPEAT}
    assert not (DECLARED_IN | MAY_REPEAT) - definitions().keys()


def test_what_is_asked_is_built_by_keywords() -> None:
    """A field that is added then changes the meaning of no call."""
    kinds = {"Plan": 0, "ProfileOptions": 0, "Task": 1, "SnippetTask": 1, "Asked": 0}  # name -> positions it may have
    wrong = [
        f"{name}:{node.lineno}"
        for name, (_, tree) in chapters().items()
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
