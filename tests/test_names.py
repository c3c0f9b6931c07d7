"""One word, one thing: no two public classes, functions or modules of one name, but of those that are one subject."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import torchbench_magic

PACKAGE = Path(torchbench_magic.__file__).parent
AS_IN_TORCH = ("benchmark/utils", "benchmark/op_fuzzers")  # modules with the names that torch gives them

SAME_SUBJECT = {
    "callers", "comparison", "contention", "counts", "cpp", "diagnosis", "environment", "modules", "profile",
    "profile_diff", "profiler", "timer", "compare", "values_read", "workers",
}  # fmt: skip
"""Modules that are one subject on several floors: what is recorded or asked, what was seen, how it looks."""

SAME_ROLE = {
    "document", "drawn", "under",  # a result as a document; a picture as one of its views; what stands below it
    "facts",  # what a result adds to its JSON
    "flamegraph", "plot", "render",  # what every view or carrier has
    "markup", "module", "spec_of",  # the parts of a picture: its element, its script, what the script reads
    "main",  # of a process: the command line, the server that counts
    "load_ipython_extension",  # IPython's name for it
}  # fmt: skip
"""Functions that do for one kind of result what their namesakes do for others: they are called the same way."""


@cache
def homes() -> dict[str, list[str]]:
    """Name -> where it is defined: ``views/timing/plot.py`` for modules, ``views/timing/plot.py:plot`` for the rest."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        where = str(path.relative_to(PACKAGE))
        if where.startswith(AS_IN_TORCH):
            continue
        if path.name not in ("__init__.py", "__main__.py"):
            found[path.stem].append(where)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                found[node.name].append(f"{where}:{node.name}")
    return found


def ambiguous() -> dict[str, list[str]]:
    """A module may have the name of the one function or class that it is made for."""
    found = {}
    for name, where in homes().items():
        modules = [w for w in where if ":" not in w]
        defined = [w for w in where if ":" in w]
        foreign = [w for w in defined if modules and w.split(":")[0] not in modules]
        twice = (len(modules) > 1 and name not in SAME_SUBJECT) or (len(defined) > 1 and name not in SAME_ROLE)
        if twice or (foreign and name not in SAME_ROLE | SAME_SUBJECT | VERBS):
            found[name] = where
    return found


VERBS = {"compare", "doctor", "profile", "table", "count"}
"""Public names, and the plainest word for a thing that a module of another room is about."""


def test_no_two_things_have_one_name() -> None:
    assert ambiguous() == {}


def test_what_is_allowed_is_there_more_than_once() -> None:
    assert [name for name in SAME_SUBJECT | SAME_ROLE | VERBS if len(homes()[name]) < 2] == []
