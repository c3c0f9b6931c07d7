"""What was edited between two measurements, as a short unified diff: statement, setup, and functions that they call."""

from __future__ import annotations

import difflib

from torchbench_magic.results.cell_text import source_id_of

from ..comparison import Comparison
from ..subject import Subject

__all__ = ["MOST_LINES", "SourceDiff", "source_diffs"]

MOST_LINES = 40
"""Lines of one diff that are kept; the rest is counted."""
_CONTEXT = 2
_ONE_LINE = 48  # a change of a single line that is shorter is said in a sentence

SourceDiff = tuple[str, ...]
"""Lines as `difflib.unified_diff` has them, without the two lines of its header."""


def source_diffs(old: Comparison, old_row: int, new: Comparison, new_row: int) -> dict[str, SourceDiff]:
    """What was edited -> its diff, for whatever a sentence cannot show whole.

    Functions whose text was not stored are left out.
    """
    before, now = _texts(old, old.subjects[old_row]), _texts(new, new.subjects[new_row])
    found = {}
    for name in before.keys() & now.keys():
        lines = before[name].splitlines(), now[name].splitlines()
        if source_id_of(before[name]) != source_id_of(now[name]) and not all(map(_is_short, lines)):
            found[name] = _diff(*lines)
    return {name: found[name] for name in now if name in found}


def _texts(result: Comparison, subject: Subject) -> dict[str, str]:
    own = {"global setup": subject.global_setup, "setup": subject.setup, "source": subject.stmt}
    own = {name: "" if text.strip() == "pass" and name == "setup" else text.strip("\n") for name, text in own.items()}
    known = {name: result.sources[key] for name, key in subject.functions if key in result.sources}
    return own | {f"source of {name}": text for name, text in known.items()}


def _is_short(lines: list[str]) -> bool:
    return len(lines) <= 1 and all(len(line) <= _ONE_LINE for line in lines)


def _diff(before: list[str], now: list[str]) -> SourceDiff:
    lines = list(difflib.unified_diff(before, now, lineterm="", n=_CONTEXT))[2:]  # without the header
    more = len(lines) - MOST_LINES
    return (*lines[:MOST_LINES], *([f"… {more} more line{'s' if more > 1 else ''}"] if more > 0 else []))
