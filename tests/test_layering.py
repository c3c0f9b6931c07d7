"""Which room imports which, and what stands apart, read from the text of every module.

What loading costs is tested in ``tests/packaging/test_imports.py``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from torchbench_magic.timing.verdict import CAUSES

from .chapters import FUNCTION, PACKAGE, chapters, chapters_at_hand

ROOMS = (
    *("", "process", "show", "counting", "timing", "profiling", "insights", "cpp", "storage", "levers", "cluster"),
    *("script", "tdoctor", "notebook", "benchmark"),
)
"""The lowest first; "" are the modules beside the rooms. A chapter imports nothing of a room that stands after its own,
wherever the import stands: at the top, in a function, or for types only."""

RUNS_UP = {
    "rankrun": {"cluster.rank_recording"},
    "result_base": {"timing.comparison"},
    "show.torch_results": {"timing.torch_compare"},
    "profiling.chrome_trace": {"storage.records"},
    "storage.records": {"cluster.job_profile"},
    "storage.store": {"cluster.job_profile"},
}
"""The imports that run up all the same. They are to become fewer: none is added here."""

ENTRANCES = {"", "__main__"}  # the package, which finds its public names in every room; ``python -m torchbench_magic``

ONLY_IN = {
    "IPython": {"notebook"},
    "ipykernel": set[str](),
    "ipyparallel": {"cluster"},
    "traitlets": {"notebook", "profiling.pictures.timeline_widget"},
    "anywidget": {"notebook", "profiling.pictures.timeline_widget"},
    "ipywidgets": {"notebook", "profiling.pictures.timeline_widget", "show.kept_output"},
}
"""Front ends and clusters -> the rooms and chapters that know them."""

DRAW = {
    *("profiling.memory.picture", "profiling.profile_json", "profiling.torch_table"),
    *("timing.scaling_view", "timing.reports", "timing.torch_compare", "timing.verdict_words"),
}
"""Chapters of how something looks whose names do not end in ``view``."""


LONGEST_CHAIN = 16
"""Chapters of which each imports the next as it is loaded."""


@pytest.fixture(scope="module", autouse=True)
def _chapters() -> Iterator[None]:
    with chapters_at_hand():
        yield


def room(chapter: str) -> str:
    """The outermost one: that of ``profiling.memory.view`` is ``profiling``."""
    return chapter.split(".")[0] if "." in chapter or chapter in ROOMS else ""


def imports_in(node: ast.AST, is_late: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Each import, and whether loading the module leaves it out: it stands in a function, or is for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_late
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # none stands in an expression
            is_for_types = isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"
            yield from imports_in(child, is_late or is_for_types or isinstance(child, FUNCTION))


@cache
def imported() -> Mapping[str, Mapping[str, bool]]:
    """Chapter -> what it imports, chapters of ours and names of others, and whether all these imports are late."""
    found: dict[str, dict[str, bool]] = {}
    for name, (_, tree) in chapters().items():
        is_room = any(other.startswith(f"{name}.") for other in chapters()) or not name
        inside = ["torchbench_magic", *(name.split(".") if name else [])][: None if is_room else -1]
        edges = found.setdefault(name, {})
        for node, is_late in imports_in(tree, False):
            if isinstance(node, ast.Import):
                asked = [alias.name for alias in node.names]
            else:
                base = [*inside[: len(inside) + 1 - node.level], *([node.module] if node.module else [])]
                start = ".".join(base) if node.level else node.module or ""
                asked = [f"{start}.{alias.name}" for alias in node.names]
            for dotted in asked:
                ours = re.sub(r"^torchbench_magic\b\.?", "", dotted)
                to = dotted if ours == dotted else ours if ours in chapters() else ours.rpartition(".")[0]
                edges[to] = edges.get(to, True) and is_late
        edges.pop(name, None)
    return found


def of_ours(chapter: str) -> set[str]:
    return {to for to in imported()[chapter] if to in chapters() and to}


def draws(chapter: str) -> bool:
    return room(chapter) == "show" or chapter.endswith("view") or chapter in DRAW or ".pictures." in chapter


def test_the_rooms_are_these_and_say_what_is_in_them() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in PACKAGE.glob("*/**/*.py")}
    assert folders == set(ROOMS) - {""}
    assert not [name for name, (_, tree) in chapters().items() if not ast.get_docstring(tree)]


def test_imports_between_rooms_run_one_way() -> None:
    found = {
        chapter: up
        for chapter in chapters().keys() - ENTRANCES
        if (up := {to for to in of_ours(chapter) if ROOMS.index(room(to)) > ROOMS.index(room(chapter))})
    }
    assert found == RUNS_UP, "an import runs up that did not, or one of RUNS_UP is gone: take it from the list"


def test_no_chapters_load_each_other_in_a_circle_nor_in_a_long_chain() -> None:
    layers = 0
    left = {name: {to for to in of_ours(name) if not imported()[name][to]} for name in chapters()}
    while ends := [name for name in left if not left[name] & left.keys()]:
        layers += 1
        for name in ends:
            del left[name]
    assert not left, "each of these imports another of them as it is loaded, or leads to such"
    assert layers <= LONGEST_CHAIN, "move what the new import is for to where it belongs"


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_front_end_is_known_only_where_it_belongs(package: str) -> None:
    knowing = {name for name, edges in imported().items() if any(to.split(".")[0] == package for to in edges)}
    assert not {name for name in knowing - ENTRANCES if not {name, room(name)} & ONLY_IN[package]}


def test_what_measures_does_not_know_how_it_looks() -> None:
    known = {name: {to for to in of_ours(name) if draws(to)} for name in chapters() if not draws(name)}
    assert not {name: to for name, to in known.items() if to and room(name) not in {"notebook", "benchmark"}}
    assert not [name for name in DRAW if name not in chapters() or not of_ours(name)]


def test_a_verdict_is_set_in_one_chapter() -> None:
    """Others hand in evidence, and ask `is_open`; only what shows a verdict in words has the word for one that is."""
    saying = {
        name
        for name, (_, tree) in chapters().items()
        if any(isinstance(node, ast.Constant) and node.value == "undecided" for node in ast.walk(tree))
    }
    assert "timing.verdict" in saying
    assert not {name for name in saying - {"timing.verdict"} if not draws(name)}


def test_each_cause_of_no_verdict_is_found_somewhere_and_has_its_line_in_the_method() -> None:
    nodes = [node for _, tree in chapters().values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = [node.args[0] for node in nodes if getattr(node.func, "id", "") == "Void"]
    causes = CAUSES.keys() - {""}
    assert {node.value for node in found if isinstance(node, ast.Constant)} == causes
    page = (PACKAGE.parent / "docs" / "method.md").read_text(encoding="utf-8")
    assert {*re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)} >= causes


def test_the_contributors_picture_has_every_room_and_no_arrow_that_runs_up() -> None:
    page = (PACKAGE.parent / "docs" / "contributing.md").read_text(encoding="utf-8")
    picture = page.split("```mermaid", 1)[1].split("```", 1)[0]
    arrows = re.findall(r"^ *(\w+)(?:\[.*?\])? --> (\w+)", picture, re.MULTILINE)
    assert {room for arrow in arrows for room in arrow} == set(ROOMS) - {""}
    assert [(above, below) for above, below in arrows if ROOMS.index(above) < ROOMS.index(below)] == []
