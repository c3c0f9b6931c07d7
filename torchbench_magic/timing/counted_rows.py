"""Which count belongs to which row of a comparison, and which counts stand against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from torchbench_magic.counting.counts import Counted, CountKey, Counts
from torchbench_magic.counting.diff import CountsDiff, Pair, difference
from torchbench_magic.errors import InputError

from .samples import Subject

_RESULT = "result"  # the axis that names a row's result where results stand side by side (see `side_by_side`)


def key_of_row(counts: Counts, subject: Subject) -> CountKey | None:
    """Under what key a row was counted; None where it was not."""
    place = subject.description, subject.sub_label, subject.num_threads
    result = dict(subject.axes).get(_RESULT)
    found = counts.at(*place, result) if isinstance(result, str) else None
    found = found or counts.at(*place)
    return found if found is not None and counts.counted[found].stats.task_spec.env == subject.env else None


def instructions(counts: Counts, subjects: Sequence[Subject], row: int, base: int | None) -> dict[str, float]:
    """The columns ``instructions``, of one call with the empty loop taken out, and ``instructions_ratio``.

    The ratio is over the ``base`` row's; NaN where that was not counted, or not in the same way: the count of a call
    depends on how many are counted, and on the threads.
    """
    key = key_of_row(counts, subjects[row])
    if key is None:
        return {}
    own, ratio = counts.counted[key], math.nan
    base_key = None if base is None else key_of_row(counts, subjects[base])
    if base_key is not None:
        other = counts.counted[base_key]
        if _alike(own, other) and other.instructions > 0:
            ratio = own.instructions / other.instructions
    return {"instructions": own.instructions, "instructions_ratio": ratio}


def pairs(counts: Counts, subjects: Sequence[Subject], base_of: Callable[[int], int | None]) -> tuple[Pair, ...]:
    """(baseline, other) of every row that was counted as its baseline was, in the order of the rows."""
    found: dict[Pair, None] = {}
    for row, subject in enumerate(subjects):
        base, key = base_of(row), key_of_row(counts, subject)
        base_key = None if base is None else key_of_row(counts, subjects[base])
        if key is None or base_key is None or key == base_key:
            continue
        if _alike(counts.counted[key], counts.counted[base_key]):
            found[base_key, key] = None
    return tuple(found)


def _alike(one: Counted, other: Counted) -> bool:
    a, b = one.stats, other.stats
    return a.number_per_run == b.number_per_run and a.task_spec.num_threads == b.task_spec.num_threads


# ---- which two are compared ------------------------------------------------------------------------------------


def diff_of(
    counts: Counts, pairs: Sequence[Pair], name: str | CountKey | None, against: str | CountKey | None, inclusive: bool
) -> CountsDiff:
    """See `Comparison.diff`; ``pairs``: what stands against what without being told."""
    if not counts:
        raise InputError("nothing was counted: time the cell with --callgrind")
    try:
        base, key = _chosen(counts, pairs, name, against)
        one, two = counts.counted[base], counts.counted[key]
    except KeyError as error:
        what = error.args[0]
        raise InputError(what if isinstance(what, str) else f"{what!r} was not counted") from None
    made = difference(one, two, names_of_pair((base, key)), inclusive=inclusive, form=counts.form)
    return replace(made, keys=(base, key), source=counts, pairs=tuple(pairs))


def _chosen(counts: Counts, pairs: Sequence[Pair], name: str | CountKey | None, against: str | CountKey | None) -> Pair:
    """(baseline, other).

    Raises:
        KeyError: what is named was not counted, or more than once.
    """
    if name is None and against is None:
        if not pairs:
            raise InputError("there is nothing to compare: one alternative was counted")
        return pairs[0]
    if against is None:
        assert name is not None
        key = counts.key_of(name)
        base = next((base for base, other in pairs if other == key), None)
        if base is None:
            raise InputError(f"{name!r} has no counted baseline: give diff({name!r}, against=...)")
        return base, key
    if name is None:
        base = counts.key_of(against)
        near = next((key for key in counts if key != base and key[1:] == base[1:]), None)
        if near is None:
            raise InputError("there is nothing to compare: one alternative was counted")
        return base, near
    key = counts.key_of(name)
    same_place = (known for known in counts if known[0] == against and known[1:] == key[1:])
    return next(same_place, None) or counts.key_of(against), key


def names_of_pair(pair: Pair) -> tuple[str, str]:
    """What two counts are called: their descriptions; where these are the same, with what tells them apart."""
    base, other = pair
    one, two = base[0] or "statement", other[0] or "statement"
    if one != two:
        return one, two
    apart = [(a, b) for a, b in zip(base[1:], other[1:], strict=False) if a != b]
    return one + _marks(a for a, _ in apart), two + _marks(b for _, b in apart)


def _marks(parts: Iterable[object]) -> str:
    said = [f"{part} threads" if isinstance(part, int) else str(part) for part in parts if part is not None]
    return f" ({', '.join(said)})" if said else ""
