"""What is to be said of results side by side: why a verdict, what differs between them, what stands alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torchbench_magic.results.cell_text import code_title
from torchbench_magic.results.doubts import Doubt

from ..comparison import Comparison
from ..identity import given_label, identity_differences
from ..ranges import RUNS, SPAN
from ..subject import Subject
from ..values_read import uncompared, words_for
from .source_changes import SourceDiff, source_diffs
from .unchanged_alternative import Home

__all__ = ["alone", "apart", "listed", "name_in_doubt", "reasons", "thing_of"]

_MOST_NAMED = 3


def thing_of(subject: Subject) -> str:
    """What the row is called, whatever the result: description, else label if given, else its code."""
    return subject.description or given_label(subject.label) or subject.stmt.strip()


def reasons(made: Comparison) -> Iterator[Doubt]:
    """Why rows of different occasions have the verdict they have; what would decide those that are undecided."""
    reasons: dict[tuple[bool, str], list[int]] = {}
    for row, one in made.unpaired.items():
        if one.verdict in ("undecided", "faster", "slower") and one.reason:
            reasons.setdefault((one.verdict == "undecided", one.reason), []).append(row)
    for (is_open, reason), rows in reasons.items():
        if not is_open:
            names = [f"{name_in_doubt(made.subjects[row])} is {made.unpaired[row].verdict}" for row in rows]
            yield Doubt("unpaired-verdict", f"{listed(names)}: {reason}.", "", {"reason": reason, "name": str(rows)})
            continue
        which = "The unpaired row is" if len(rows) == 1 else f"{len(rows)} unpaired rows are"
        action = "Compare them in one %%timer cell."
        if reason.startswith("one run on"):
            windows = f"{SPAN:g} s of samples (`--min-run-time {SPAN:g}`)"
            action += f" Otherwise give each side {windows} or {RUNS} stored runs."
        facts = {"reason": reason, "name": reason}
        yield Doubt("unpaired", f"{which} undecided: {reason}.", action, facts)


def apart(made: Comparison, names: Sequence[str], homes: Sequence[Home]) -> Iterator[Doubt]:
    """What else differs between results whose rows are compared."""
    diffs: dict[str, SourceDiff] = {}
    told: dict[tuple[str, str], dict[str, None]] = {}
    unknown: dict[str, str] = {}
    for row, one in made.unpaired.items():
        if one.baseline is None or one.baseline == row:
            continue
        before, now = names[one.baseline], names[row]
        same = thing_of(made.subjects[row]) == thing_of(made.subjects[one.baseline])
        for change in identity_differences(*homes[one.baseline], *homes[row]):
            if same or not change.startswith(("source", "setup")):
                told.setdefault((before, now), {})[change] = None
        if same:
            diffs |= source_diffs(*homes[one.baseline], *homes[row])
            unknown |= uncompared(*(result.subjects[at].values for result, at in (homes[one.baseline], homes[row])))
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}  # results that differ by the same are said together
    for (before, now), changes in told.items():
        start = f"From {before} to " if before != now else "Within "
        alike.setdefault((start, tuple(changes)), []).append(now)
    for (start, found), ends in alike.items():
        text = f"{start}{listed(ends)}: {'; '.join(found)}."
        yield Doubt("differs", text, "", {"changes": found, "name": f"{start}{' '.join(ends)}", "diffs": diffs})
    if unknown:
        yield Doubt("not-compared", f"{words_for(unknown)}.", "", {"uncompared": unknown})


def alone(made: Comparison) -> Iterator[Doubt]:
    """Rows that have nothing to be compared with."""
    frame = made.frame
    # A body near the loop's own cost has a ratio and no verdict.
    lonely = [name_in_doubt(s) for s, ratio in zip(made.subjects, frame["ratio"], strict=True) if math.isnan(ratio)]
    if lonely and len(frame) > 1:
        several = frame["env"].nunique(dropna=False) > 1
        action = "`--by env` compares environments." if several else ""
        yield Doubt("no-counterpart", f"Nothing to compare with at the same point and env: {listed(lonely)}.", action)


def name_in_doubt(subject: Subject) -> str:
    name = subject.description or given_label(subject.label) or code_title(subject.stmt) or "statement"
    threads = f", {subject.num_threads} threads" if subject.num_threads > 1 else ""
    return f"`{name}`" + (f" ({subject.sub_label}{threads})" if subject.sub_label else threads)


def listed(names: Sequence[str]) -> str:
    different = list(dict.fromkeys(names))
    more = len(different) - _MOST_NAMED
    return ", ".join(different[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
