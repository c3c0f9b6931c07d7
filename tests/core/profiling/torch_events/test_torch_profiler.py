"""Torch's profiler by its private names: in one module, with a known answer where a name is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchbench_magic

torch = pytest.importorskip("torch")

from torchbench_magic import profile  # noqa: E402
from torchbench_magic.profiling import kineto  # noqa: E402

PACKAGE = Path(torchbench_magic.__file__).parent
ADAPTER = "profiling/kineto.py"
# the public types of results that the user made himself, and the public profiler that `rank_profile` gives to him
OLDER = "profiling/older_torch.py"  # what the adapter hands on
GRAPHS = "profiling/memory/holders.py"  # the class of what a graph has saved lives in the same module of torch's
SHOWING = {OLDER, GRAPHS, "show/torch_results.py", "notebook/display.py", "cluster/rank_profile.py"}
MODULES = re.compile(r"torch\.(_C\._?(profiler|autograd)|autograd\.profiler|profiler|_kineto)\b")
NAMES = {
    "_autograd", "_profiler", "_KinetoEvent", "_ProfilerEvent", "_ExtraFields_Allocation", "_ExperimentalConfig",
    "_RecordFunctionFast", "_ProfilerResult", "_disable_profiler", "_profiler_enabled", "_is_profiler_enabled",
    "_set_is_profiler_enabled", "record_function",
}  # fmt: skip


WORDS = ("_C", "profiler", "_kineto", *NAMES)
"""A file without any of them has no such name."""


def named(tree: ast.AST) -> Iterator[str]:
    """What the code imports and the attributes of torch's that it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"{alias.name}." for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def is_profilers(name: str) -> bool:
    owned = not name.startswith("self.")
    return bool(MODULES.search(name)) or (owned and not NAMES.isdisjoint(name.split(".")[1:]))


def test_only_the_adapter_names_torchs_profiler() -> None:
    found = {
        str(path.relative_to(PACKAGE)): sorted(set(filter(is_profilers, named(ast.parse(text)))))
        for path in PACKAGE.rglob("*.py")
        if any(word in (text := path.read_text()) for word in WORDS)
    }
    others = {file: names for file, names in found.items() if names and file != ADAPTER and file not in SHOWING}
    assert others == {}
    assert len(found[ADAPTER]) > 5, "the test sees such names"


def test_every_name_is_there_in_the_torch_that_is_installed() -> None:
    from torch._C import _autograd, _profiler
    from torch.autograd import profiler

    for owner, names in (
        (_profiler, ("_ExperimentalConfig", "_ProfilerEvent", "_ExtraFields_Allocation", "_RecordFunctionFast")),
        (_autograd, ("_KinetoEvent", "_profiler_enabled", "_disable_profiler")),
        (profiler, ("_is_profiler_enabled", "_set_is_profiler_enabled")),
    ):
        assert [name for name in names if not hasattr(owner, name)] == [], torch.__version__
    assert kineto._config({"profile_all_threads": True, "capture_overload_names": True}) is not None


def test_an_option_that_torch_does_not_know_is_left_out() -> None:
    made = kineto._config({"profile_all_threads": True, "no_such_option": True})
    assert made is not None


@pytest.mark.parametrize("missing", ["_RecordFunctionFast", "_ProfilerEvent", "_ExperimentalConfig"])
def test_without_a_name_a_profile_has_its_ops_and_its_bytes(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C import _profiler

    monkeypatch.delattr(_profiler, missing)
    made = profile("y = x + 1", globals={"x": torch.ones(4)}, memory=True)
    (row,) = made.ops[made.ops["op"] == "aten::add"].itertuples()
    assert (row.calls, row.allocated) == (1, 16)
    assert "events-lost" not in [doubt.kind for doubt in made.warnings]


def test_whether_kernels_of_cuda_are_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    activities = torch.profiler.ProfilerActivity
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {activities.CPU, activities.CUDA})
    for cuda in ("13.0", None):  # None: built for AMD, whose tracing is another
        monkeypatch.setattr(torch.version, "cuda", cuda)
        assert kineto.records_cuda() == (cuda is not None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {activities.CPU})
    assert not kineto.records_cuda()


def test_a_call_that_only_hands_on_to_one_of_its_own_name_is_counted_as_torch_counts_it() -> None:
    def hands_on(x: Any) -> Any:
        with torch.profiler.record_function("again"), torch.profiler.record_function("again"):
            return x + 1

    x = torch.ones(4)
    with torch.profiler.profile() as theirs:
        hands_on(x)
    made = profile(lambda: hands_on(x))
    calls = {each.key: each.count for each in theirs.key_averages()}
    assert made.ops[made.ops["op"] == "again"]["calls"].sum() == calls["again"]
