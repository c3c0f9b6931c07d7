"""Names lead somewhere: the public ones, those that are one in a room, and each name of a module in a text."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import torchbench_magic

from .chapters import FUNCTION, PACKAGE, chapters, chapters_at_hand

HOMES = (PACKAGE, PACKAGE.parent)  # paths on a page begin at one of them
PAGES = [*sorted((PACKAGE.parent / "docs").glob("*.md")), PACKAGE.parent / "README.md"]

NAMESAKES = {"document", "drawn", "main", "module", "render"}
"""What the chapters of a room do for their own kind of thing, called alike and by the chapter: ``text.render``."""

PUBLIC = (
    *("Comparison", "Counts", "CountsDiff", "Diagnosis", "Insight", "Profile", "ProfileDiff", "RankProfile"),
    *("__version__", "benchmark_op", "compare", "doctor", "load", "load_ipython_extension", "load_ranks"),
    *("load_torch_pickle", "load_trace", "profile", "rank_profile", "step", "step_num", "unload_ipython_extension"),
)

IN_FULL = re.compile(r"\btorchbench_magic((?:\.\w+)+)(?::(\w+))?")
IN_CODE = re.compile(r"(?<!`)`((?:\w+\.)+\w+)")  # `timing.plan`, `identity.task_of`; ``x.y`` is no name of ours
OURS = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)`(?!`)")
AS_PATH = re.compile(r"`(?:torchbench_magic/)?((?:\w+/)+(?:\w+(?:\.\w+)?)?)`")
WRITTEN = re.compile(r"^# torchbench_magic/(\S+)\.py: new$", re.MULTILINE)  # by the examples of a page


@pytest.fixture(scope="module", autouse=True)
def _chapters() -> Iterator[None]:
    with chapters_at_hand():
        yield


@cache
def names_in(chapter: str) -> frozenset[str]:
    """What stands at the top of a module, imports and what is bound under a condition included."""
    found = {"__file__", "__name__"}
    todo: list[ast.AST] = list(chapters()[chapter][1].body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.ClassDef | FUNCTION):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        else:
            todo.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def is_there(parts: list[str]) -> bool:
    """Whether parts of a dotted name lead to a module, or to a name of one; what follows that name is not looked at."""
    if parts[0] == "benchmark" and f'"{".".join(parts[1:])}"' in chapters()["benchmark"][0]:
        return True  # made of torch's module of that name
    longest = next(n for n in range(len(parts), -1, -1) if ".".join(parts[:n]) in chapters())
    return longest == len(parts) or parts[longest] in names_in(".".join(parts[:longest]))


def wrong_names(text: str, is_module: bool) -> Iterator[str]:
    for found in IN_FULL.finditer(text):
        if not is_there([*found[1][1:].split("."), *([found[2]] if found[2] else [])]):
            yield found[0]
    for found in IN_CODE.finditer(text):
        first, *rest = found[1].split(".")
        meant = [name for name in chapters() if name == first or (is_module and name.endswith(f".{first}"))]
        if meant and rest not in (["py"], ["md"]) and not any(is_there([*name.split("."), *rest]) for name in meant):
            yield found[1]


def test_every_module_named_in_a_text_of_the_package_is_there() -> None:
    wrong = {name: said for name, (text, _) in chapters().items() if (said := [*wrong_names(text, True)])}
    assert not wrong


def test_every_name_in_single_backticks_is_one_that_the_code_uses() -> None:
    """In comments and docstrings: a name of others stands in two backticks, and one that is gone in none."""
    known, named = set[str](), dict[str, str]()
    for chapter, (text, _) in chapters().items():
        known |= set(chapter.split("."))
        is_first = True  # of a statement: a text there is a docstring
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and is_first):
                named |= dict.fromkeys(OURS.findall(token.string), chapter)
            else:
                known.update(re.findall(r"\w+", token.string))
            begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
            is_first = begins or (is_first and token.type in (tokenize.COMMENT, tokenize.NL))
    assert not {name: chapter for name, chapter in named.items() if not known.issuperset(name.split("."))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_named_on_a_page_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = {"tests", "docs", "examples", *(name for name in chapters() if (PACKAGE / name).is_dir() and name)}
    paths = [p for p in AS_PATH.findall(text) if p.split("/")[0] in places or (p.endswith(".py") and p[:4] != "etc/")]
    gone = [p for p in paths if not any((at / f"{p}{end}").exists() for at in HOMES for end in ("", ".py"))]
    written = [f"torchbench_magic.{p.replace('/', '.')}" for p in WRITTEN.findall(text)]
    wrong = [name for name in wrong_names(text, False) if not name.startswith(tuple(written))]
    assert [*wrong, *gone] == []


def test_the_exported_names_are_those_of_the_design() -> None:
    assert tuple(sorted(torchbench_magic.__all__)) == PUBLIC


def test_no_two_public_things_of_a_room_have_one_name() -> None:
    counts = Counter(
        (name.rpartition(".")[0], node.name)
        for name, (_, tree) in chapters().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef | FUNCTION) and node.name[0] != "_"
    )
    assert {name for (_, name), count in counts.items() if count > 1} == NAMESAKES
