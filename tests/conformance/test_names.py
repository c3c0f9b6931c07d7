"""Every name of ``torch.utils.benchmark`` and its submodules is here, with torch's signature."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pickle
import pkgutil
import pydoc
import sys
import typing
from types import ModuleType

import pytest
import torch.utils.benchmark as theirs

from torchbench_magic import benchmark as ours

HEAVY = ("torch.utils.benchmark.utils.compile", "torch.utils.benchmark.examples")  # dynamo; scripts that run by import
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(theirs.__path__, f"{theirs.__name__}.")
    if not found.name.startswith(HEAVY)
)
RECORDS = (
    "Measurement",
    "TaskSpec",
    "CallgrindStats",
    "FunctionCount",
    "FunctionCounts",
    "CopyIfCallgrind",
    "Language",
)


def here(module: str) -> ModuleType:
    return importlib.import_module(module.replace("torch.utils.benchmark", "torchbench_magic.benchmark", 1))


def public(module: ModuleType) -> list[str]:
    return sorted(name for name in vars(module) if not name.startswith("_"))


def test_torch_has_the_modules_that_this_test_is_about() -> None:
    for name in ("utils.timer", "utils.common", "utils.compare", "utils.cpp_jit", "op_fuzzers.spectral"):
        assert f"torch.utils.benchmark.{name}" in MODULES
    assert "torch.utils.benchmark.utils.valgrind_wrapper.timer_interface" in MODULES


def test_every_public_name_of_the_package_is_here() -> None:
    assert [name for name in public(theirs) if name != "examples" and not hasattr(ours, name)] == []


def test_import_star_brings_every_name_that_torchs_brings() -> None:
    expected: dict[str, object] = {}
    found: dict[str, object] = {}
    exec("from torch.utils.benchmark import *", expected)
    exec("from torchbench_magic.benchmark import *", found)
    of_typing = set(typing.__all__)  # before torch 2.10 some of its own imports come with the star
    assert set(expected) - set(found) - {"examples"} - of_typing == set()


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_submodule_is_here(module: str) -> None:
    source = importlib.import_module(module)
    other = here(module)
    assert other.__doc__
    assert [name for name in public(source) if not hasattr(other, name)] == []
    listed = getattr(source, "__all__", [])
    assert set(listed) <= set(getattr(other, "__all__", listed))


@pytest.mark.parametrize("module", MODULES)
def test_every_documented_class_and_function_has_torchs_signature_and_a_docstring(module: str) -> None:
    source, other = importlib.import_module(module), here(module)
    for name in public(source):
        theirs_one = getattr(source, name)
        if getattr(theirs_one, "__module__", None) != module or not callable(theirs_one):
            continue
        _compare(f"{module}.{name}", theirs_one, getattr(other, name))


def _compare(name: str, theirs_one: object, ours_one: object) -> None:
    if theirs_one is ours_one:
        return
    assert _parameters(theirs_one) == _parameters(ours_one), name
    assert not inspect.getdoc(theirs_one) or inspect.getdoc(ours_one), name
    if not isinstance(theirs_one, type):
        return
    assert isinstance(ours_one, type)
    assert issubclass(ours_one, theirs_one), name
    for member, value in vars(theirs_one).items():
        if member.startswith("_") or not callable(value):
            continue
        assert _parameters(value) == _parameters(getattr(ours_one, member)), f"{name}.{member}"
        assert not inspect.getdoc(value) or inspect.getdoc(getattr(ours_one, member)), f"{name}.{member}"


def _parameters(value: object) -> list[tuple[str, object, object]]:
    """Names, kinds and defaults; annotations are words of each module's own."""
    assert callable(value)
    try:
        signature = inspect.signature(value)
    except ValueError:  # a builtin
        return []
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_pickled_is_torchs_very_class(name: str) -> None:
    assert getattr(ours, name) is getattr(theirs, name)


def test_what_is_looked_up_in_torch_is_torchs_and_what_is_nowhere_is_said() -> None:
    from torchbench_magic.benchmark.utils import common, cpp_jit

    assert common._make_temp_dir is theirs.utils.common._make_temp_dir
    assert cpp_jit.compile_callgrind_template is theirs.utils.cpp_jit.compile_callgrind_template
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = cpp_jit.missing
    with pytest.raises(ImportError, match="missing"):
        exec("from torchbench_magic.benchmark import missing")


@pytest.mark.parametrize("module", MODULES)
def test_tools_find_a_submodule_as_they_find_a_file(module: str) -> None:
    other = here(module)
    spec = importlib.util.find_spec(other.__name__)
    assert spec is not None
    assert spec.name == other.__name__
    assert other.__name__ in pydoc.render_doc(other, renderer=pydoc.plaintext)
    assert getattr(sys.modules[other.__name__.rpartition(".")[0]], other.__name__.rpartition(".")[2]) is other


def test_our_classes_in_torchs_modules_can_be_pickled() -> None:
    from torchbench_magic.benchmark.op_fuzzers import spectral

    from torchbench_magic.benchmark.utils import compare, fuzzer

    for kind in (spectral.SpectralOpFuzzer, compare.Compare, fuzzer.FuzzedParameter):
        assert kind.__module__.startswith("torchbench_magic.")
        assert pickle.loads(pickle.dumps(kind)) is kind


def test_the_hook_of_timer_is_torchs() -> None:
    assert ours.Timer._timer_cls is theirs.Timer._timer_cls
