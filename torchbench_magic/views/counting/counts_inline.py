"""The differences of instruction counts that stand under a comparison, one of them shown at a time."""

from __future__ import annotations

from dataclasses import replace

from torchbench_magic import units
from torchbench_magic.results.counting.counts import CountKey
from torchbench_magic.results.timing.comparison import Comparison

from ..document import Document, clipped
from ..name_in_notebook import of_result
from .counts import LONGEST_NAME, document

__all__ = ["inline"]

_MOST_INLINE = 40  # differences that can be chosen in the output


def inline(comparison: Comparison) -> list[Document]:
    """What stands under a comparison: each row's counts against its baseline's, one of them at a time."""
    pairs = comparison.count_pairs
    if not pairs:
        return []
    at_one_place = len({key[1:] for _, key in pairs}) == 1
    made = []
    for base, key in pairs[:_MOST_INLINE]:
        diff = comparison.diff(key, base).standardize()
        where = _reached(comparison, key)
        place = None if at_one_place else _place_of(key)
        name = diff.names[1] if place is None else f"{diff.names[1]}, {place}"
        made.append((name, document(diff, where=f"{where}.frame", place=place, alone=False)))
    if len(made) == 1:
        return [made[0][1]]
    first = made[0][1]
    tables = []
    for nth, (name, one) in enumerate(made):
        different = (
            f"{clipped(name, LONGEST_NAME)}{f' ({nth + 1})' if name in [other for other, _ in made[:nth]] else ''}"
        )
        tables.append(replace(one.tables[0], name=different, sentence=one.sentence))
    more = len(pairs) - 1
    called = _reached(comparison, pairs[1][1])
    said = f"{units.count(more)} more difference{'s' if more > 1 else ''}: {called}"
    return [replace(first, tables=tuple(tables), rest=f"{said} and so on." if more > 1 else f"{said}.")]


def _reached(comparison: Comparison, key: CountKey) -> str:
    """The expression that gives this difference."""
    if comparison.count_pairs[0][1] == key:
        return of_result(".diff()")
    alone = [known for known in comparison.counts if known[0] == key[0]] == [key] and key[0] is not None
    return of_result(f".diff({clipped(repr(key[0] if alone else key), 4 * LONGEST_NAME)})")


def _place_of(key: CountKey) -> str:
    sub_label, threads = key[1:3]
    parts = [clipped(sub_label, 2 * LONGEST_NAME)] if sub_label is not None else []
    if threads > 1:
        parts.append(f"{threads} threads")
    if len(key) > 3:
        parts.append(str(key[-1]))
    return ", ".join(parts) or "1 thread"
