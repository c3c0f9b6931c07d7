"""The house of the design: who may import whom, checked on the syntax tree of every module.

Every import counts, wherever it stands: at the top, in a function, or for types only.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import torchbench_magic
from torchbench_magic.results import _gateway

PACKAGE = Path(torchbench_magic.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# layer -> layers it may import
MAY_IMPORT = {
    "printable": set(),
    "errors": {"printable"},
    "units": set(),
    "results": {"errors", "units", "printable"},
    "core": {"results", "errors", "units", "printable"},
    "views": {"results", "errors", "units", "printable"},
    "magics": {"core", "views", "results", "errors", "units", "printable"},
    "benchmark": {"core", "views", "results", "errors", "units", "printable"},
}
ENTRANCES = {"__init__", "__main__"}  # the package itself resolves names of every layer, lazily

# third parties that only these layers know
ONLY_IN = {
    "IPython": {"magics"},
    "traitlets": {"magics", "views"},
    "ipywidgets": {"views"},
    "anywidget": {"views"},
    "ipykernel": {"magics"},
}


# folder -> the rooms in it, the lowest first: a room imports none that stands after it
ROOMS = {
    "results": ("machine", "counting", "timing", "profiling", "ranks", "storage"),
    "core": (
        *("machine", "process", "compiler", "code", "counting", "engines", "timing", "levers", "cpp", "interpreters"),
        *("cluster_timing", "profiling", "ranks", "doctor"),
    ),
    "core/counting": ("machine_code", "valgrind", "variables"),
    "core/timing": ("points", "effects"),
    "core/timing/effects": ("first_calls", "rebinding", "restoring"),
    "results/profiling": ("frames", "loops", "insights"),
    "results/profiling/insights": ("of_memory", "training"),
    "results/timing": ("proof", "across_processes", "across_runs", "across_engines"),
    "core/machine": ("facts", "peaks"),
    "core/profiling": (
        *("concurrency", "python_tree", "sources", "torch_events", "holding", "loop_marks", "recording", "joining"),
        *("tables", "traces", "phases", "efficiency"),
    ),
    "views/profiling": ("loops", "pictures", "python_tree"),
    "views": (
        *("carriers", "drawing", "counting", "timing", "profiling", "ranks", "json_forms", "torch_forms", "widgets"),
    ),
    "benchmark": ("op_fuzzers", "utils"),
    "magics": ("reading", "engines"),
}
MOST_MODULES = 15
"""In one folder, ``__init__`` not counted: as many names as are read at a glance, in three columns of five."""


def imports_of(path: Path, package: str) -> Iterator[tuple[str, int]]:
    """Absolute dotted names that a module imports, at any depth, with their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            prefix = f"{base}.{node.module}" if node.level and node.module else base if node.level else node.module
            yield from ((f"{prefix}.{alias.name}", node.lineno) for alias in node.names)


def package_of(path: Path) -> str:
    return ".".join(["torchbench_magic", *path.relative_to(PACKAGE).parts[:-1]])


def layer_of(dotted: str) -> str | None:
    parts = dotted.split(".")
    return parts[1] if parts[0] == "torchbench_magic" and len(parts) > 1 and parts[1] in MAY_IMPORT else None


def of_layer(layer: str) -> Iterator[tuple[Path, str, int]]:
    """(file, name, line) of each import in a layer."""
    for path in MODULES:
        where = path.relative_to(PACKAGE)
        if where.parts[0].removesuffix(".py") == layer:
            yield from ((where, name, line) for name, line in imports_of(path, package_of(path)))


@cache
def graph() -> Mapping[str, frozenset[str]]:
    """Module -> the modules that it imports, both as ``magics/timer`` is written; the package itself is left out."""
    names = {str(path.relative_to(PACKAGE).with_suffix("")).removesuffix("/__init__"): path for path in MODULES}
    del names["__init__"]
    found = {}
    for name, path in names.items():
        asked = (dotted.split(".")[1:] for dotted, _ in imports_of(path, package_of(path)) if layer_of(dotted))
        full = ("/".join(parts) if "/".join(parts) in names else "/".join(parts[:-1]) for parts in asked)
        found[name] = frozenset(full) & names.keys() - {name}
    return found


def circles(edges: Mapping[str, frozenset[str]]) -> list[str]:
    """What is left when all that imports nothing that is left, or that nothing left imports, is taken away."""
    left = dict(edges)
    while ends := [m for m in left if not left[m] & left.keys()] + [
        m for m in left if not any(m in left[other] for other in left)
    ]:
        for name in ends:
            left.pop(name, None)
    return sorted(left)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_imports_run_one_way(layer: str) -> None:
    wrong = [
        f"{where}:{line} imports {name}"
        for where, name, line in of_layer(layer)
        if (other := layer_of(name)) is not None and other != layer and other not in MAY_IMPORT[layer]
    ]
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_shell_and_widgets_are_known_only_where_they_belong(layer: str) -> None:
    wrong = [
        f"{where}:{line} imports {name}"
        for where, name, line in of_layer(layer)
        if layer not in ONLY_IN.get(name.split(".")[0], {layer})
    ]
    assert not wrong, "; ".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circles(graph())


def test_a_circle_is_found_with_what_only_leads_to_it_left_out() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set[str](), "e": {"b", "d"}}
    assert circles({name: frozenset(to) for name, to in edges.items()}) == ["b", "c"]


def siblings(folder: str) -> Mapping[str, frozenset[str]]:
    """What stands in a folder, rooms and modules -> what of the same folder it imports."""
    found: dict[str, set[str]] = {}
    for name, imported in graph().items():
        if name.startswith(f"{folder}/"):
            mine = name.removeprefix(f"{folder}/").split("/")[0]
            near = {i.removeprefix(f"{folder}/").split("/")[0] for i in imported if i.startswith(f"{folder}/")}
            found.setdefault(mine, set()).update(near - {mine})
    return {name: frozenset(to) for name, to in found.items()}


FOLDERS = sorted(str(path.parent.relative_to(PACKAGE)) for path in MODULES if path.name == "__init__.py")[1:]


@pytest.mark.parametrize("layer", ["results", "core", "views", "magics", "benchmark"])
def test_no_room_imports_one_that_stands_above_it(layer: str) -> None:
    for folder in (f for f in FOLDERS if f.split("/")[0] == layer):
        inside = {f.removeprefix(f"{folder}/") for f in FOLDERS if f.startswith(f"{folder}/")}
        rooms = {name for name in inside if "/" not in name}
        order = ROOMS.get(folder, tuple(rooms) if len(rooms) < 2 else ())
        assert rooms == set(order), f"the order of the rooms in {folder} is to be said in ROOMS"
        near = siblings(folder)
        wrong = [f"{a} imports {b}" for n, a in enumerate(order) for b in order[n + 1 :] if b in near[a]]
        assert not wrong, f"in {folder}: {'; '.join(wrong)}"
        assert not circles(near), f"a circle in {folder}"


def test_no_folder_holds_more_than_is_read_at_a_glance() -> None:
    counts = {folder: len([*(PACKAGE / folder).glob("*.py")]) - 1 for folder in FOLDERS}
    assert not {folder: n for folder, n in counts.items() if n > MOST_MODULES}


def test_every_folder_says_what_lives_in_it() -> None:
    folders = {str(path.relative_to(PACKAGE)): path for path in MODULES if path.name == "__init__.py"}
    assert not [name for name, path in folders.items() if not ast.get_docstring(ast.parse(path.read_text()))]


def test_only_the_gateway_names_a_view_in_results() -> None:
    naming = {
        path.name
        for path in (PACKAGE / "results").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "torchbench_magic.views" in node.value
    }
    assert naming == {"_gateway.py"}


def test_every_verb_of_the_gateway_is_there_and_the_table_is_pinned() -> None:
    every = {("Comparison", verb): target for verb, target in _gateway.OF_EVERY.items()}
    for (kind, _), target in (_gateway.TABLE | _gateway.HANDED_ON | every).items():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), target
        assert hasattr(torchbench_magic, kind)
    assert sorted(_gateway.TABLE) == sorted(
        [
            ("Comparison", "compare"),
            ("Comparison", "explore"),
            ("Comparison", "plot"),
            ("Comparison", "document"),
            ("Comparison", "facts"),
            ("Comparison", "to_markdown"),
            ("Comparison", "under"),
            ("Counts", "flamegraph"),
            ("CountsDiff", "explore"),
            ("CountsDiff", "flamegraph"),
            ("CountsDiff", "document"),
            ("CountsDiff", "facts"),
            ("Profile", "explore"),
            ("Profile", "facts"),
            ("Profile", "flamegraph"),
            ("Diagnosis", "document"),
            ("Diagnosis", "explore"),
            ("Diagnosis", "facts"),
            ("Diagnosis", "under"),
            ("ProfileDiff", "explore"),
            ("ProfileDiff", "facts"),
            ("ProfileDiff", "document"),
            ("Profile", "plot"),
            ("Profile", "document"),
            ("Profile", "under"),
            ("Profile", "table"),
            ("Profile", "timeline"),
            ("RankProfile", "document"),
            ("RankProfile", "explore"),
            ("RankProfile", "facts"),
        ]
    )
    assert sorted(_gateway.OF_EVERY) == ["framed", "mimebundle", "repr", "to_html", "to_json", "to_markdown"]
    assert sorted(_gateway.HANDED_ON) == [
        ("Comparison", "rebase"),
        ("Comparison", "save"),
        ("Insight", "try_"),
        ("Profile", "export_trace"),
        ("Profile", "insights"),
        ("Profile", "peak_parts"),
        ("Profile", "save"),
        ("RankProfile", "insights"),
        ("RankProfile", "merged_trace"),
        ("RankProfile", "save"),
    ]


def test_the_exported_names_are_these_and_all_resolve() -> None:
    assert sorted(torchbench_magic.__all__) == [
        "Comparison",
        "Counts",
        "CountsDiff",
        "Diagnosis",
        "Insight",
        "Profile",
        "ProfileDiff",
        "RankProfile",
        "__version__",
        "benchmark_op",
        "compare",
        "doctor",
        "load",
        "load_ipython_extension",
        "load_ranks",
        "load_torch_pickle",
        "load_trace",
        "profile",
        "rank_profile",
        "step",
        "step_num",
        "unload_ipython_extension",
    ]
    for name in torchbench_magic.__all__:
        assert getattr(torchbench_magic, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = torchbench_magic.missing


def test_no_module_is_long() -> None:
    lengths = {str(p.relative_to(PACKAGE)): len(p.read_text().splitlines()) for p in MODULES}
    assert not {name: n for name, n in lengths.items() if n > 400}
