"""``docs/robustness.md``, made from ``results/faults_*.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).parents[3] / "docs" / "robustness.md"
_RESULTS = Path(__file__).parents[1] / "results"
_OPENING = """\
# What was tried to break it

The tables are made by `python tests/benchmarks/faults.py --page` from what `tests/benchmarks/faults.py` measured.
"""
_INTERRUPTS = """\
## Ctrl-C at a random moment

A session runs a cell and receives SIGINT at a random moment of the whole run; every second time it receives another one
up to 0.3 s later. Afterwards another cell checks torch's profiler (its switch, and the memory that 20,000 plain calls
take), trace and profile functions, `sys.monitoring`, tracemalloc, module hooks, the garbage collector, the settings
of torch, random generators, threads, file descriptors and the targets of 0, 1 and 2, signal handlers, temporary files
and child processes. A fault is anything that differs from before, a measured result that is not shown and kept, a
traceback with a frame of this package, or a lost interrupt.
"""
_KILLS = """\
## SIGKILL at a random moment

A fresh session is killed while it runs a cell. A fault is a process or a temporary folder that still exists a minute
later.
"""
_FUZZ = """\
## Damaged input

Some bytes or some values of good input are changed, with a fixed seed. The input must be read, or refused in one line
by an error of this package; anything else is a fault. Memory is the amount above what good input takes.
"""
_WARM = """\
## The first count

Seconds that a `%%timer --callgrind` cell takes in a new session.
"""
_COLUMNS: Mapping[str, Sequence[tuple[str, str]]] = {
    "interrupts": (
        ("cell", "cell"),
        ("attempts", "interrupted"),
        ("double", "of them twice"),
        ("whole", "whole result shown"),
        ("partial", "partial result shown"),
        ("nothing", "nothing measured yet"),
        ("faults", "faults"),
    ),
    "kills": (
        ("cell", "cell"),
        ("kernels", "sessions killed"),
        ("running", "while it ran"),
        ("longest", "gone after, s at most"),
        ("faults", "faults"),
    ),
    "fuzz": (
        ("input", "input"),
        ("damaged", "damaged"),
        ("mib", "memory, MiB"),
        ("longest", "longest, s"),
        ("faults", "faults"),
    ),
}
_SECTIONS = {"interrupts": _INTERRUPTS, "kills": _KILLS, "fuzz": _FUZZ, "warm": _WARM}
_SUMMED = ("attempts", "double", "whole", "partial", "nothing", "faults", "kernels", "running", "damaged")


def page() -> str:
    """The text of the page; a section that was not measured is not on it."""
    return "\n".join([_OPENING, *_parts()]).rstrip() + "\n"


def _parts() -> Iterator[str]:
    for name, text in _SECTIONS.items():
        path = _RESULTS / f"faults_{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        yield text
        if name in _COLUMNS:
            yield _table(_COLUMNS[name], result["conditions"]["table"])
        else:
            yield _figures(result["figures"])
        about = result["machine"]
        python = ".".join(about["python"].split(".")[:2])
        yield f"{result['date']}, {about['cores']} cores, torch {about['torch']}, Python {python}.\n"


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, Any]]) -> str:
    heads = [shown for _, shown in columns]
    lines = [heads, ["---"] * len(heads)]
    lines += [[_cell(row[name]) for name, _ in columns] for row in rows]
    sums = [_cell(sum(row[name] for row in rows)) if name in _SUMMED else "" for name, _ in columns]
    lines.append(["all", *sums[1:]])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _figures(figures: Sequence[Mapping[str, Any]]) -> str:
    lines = [["", "s"], ["---", "---"], *([each["name"], f"{each['value']:.2g}"] for each in figures)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return f"`{value}`" if value.startswith("%") and "," not in value else _half_code(value)
    return f"{value:,}"


def _half_code(name: str) -> str:
    """``%%timer --cpp, compiled before``: the magic as code, what is said of it as text."""
    magic, comma, said = name.partition(",")
    return f"`{magic}`,{said}" if comma and magic.startswith("%") else name
