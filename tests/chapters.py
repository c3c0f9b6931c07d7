"""The package as text: every module with its name, for the tests that read it instead of running it."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torchbench_magic

PACKAGE = Path(torchbench_magic.__file__).parent
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def chapters() -> Mapping[str, tuple[str, ast.Module]]:
    """``timing.plan`` -> its text and its tree; a room, as ``timing``, stands for its ``__init__``."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix("__init__").removesuffix(".")] = text, ast.parse(text)
    return found


@contextmanager
def chapters_at_hand() -> Iterator[None]:
    """For the tests of one file. The trees are half a million objects: the collector, which would take most of the
    time, is off while they are there, and none of them is left for later collections."""
    gc.disable()
    try:
        yield
    finally:
        chapters.cache_clear()
        gc.enable()
