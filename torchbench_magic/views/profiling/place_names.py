"""How places, names and shapes are written, the same in every table of a profile."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

__all__ = ["first_and_more", "op_text", "place", "place_of", "runs_text", "shapes_text"]


def op_text(op: str) -> str:
    """The name as it is shown; the engine's own frames lose their long prefix."""
    return op.replace("autograd::engine::evaluate_function: ", "engine: ")


def first_and_more(texts: Sequence[str]) -> str:
    """The first text, and how many others there are: ``In[3]:4 +9``."""
    return f"{texts[0]} +{len(texts) - 1}" if len(texts) > 1 else "".join(texts)


def place(cell: Any, file: Any, line: Any) -> str:
    """``In[3]:4``, or ``model.py:4``."""
    source = f"In[{cell}]" if cell is not None and not pd.isna(cell) else str(file).rsplit("/", 1)[-1]
    return f"{source}:{line}"


def place_of(record: Any) -> str:
    """The place of a row that stands on a line; empty for one that stands on none."""
    return "" if pd.isna(record["line"]) else place(record["cell"], record["file"], record["line"])


def shapes_text(shapes: str) -> str:
    """``[[3, 4], []]`` as ``[3, 4] []``: the outer brackets say nothing."""
    inner = shapes[1:-1] if shapes.startswith("[") and shapes.endswith("]") else shapes
    return re.sub(r"\],\s*", "] ", inner)


def runs_text(numbers: Sequence[int]) -> str:
    """``2 … 4 and 7`` for 2, 3, 4, 7; two in a row are ``2 and 3``; of many runs the first two and the last."""
    breaks = [i for i, (a, b) in enumerate(itertools.pairwise(numbers), 1) if b != a + 1]
    parts = [numbers[i:j] for i, j in itertools.pairwise([0, *breaks, len(numbers)])]
    words = [
        word
        for part in parts
        for word in ([f"{part[0]} … {part[-1]}"] if len(part) > 2 else [str(number) for number in part])
    ]
    if len(words) > 4:
        words = [*words[:2], "…", words[-1]]
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]
