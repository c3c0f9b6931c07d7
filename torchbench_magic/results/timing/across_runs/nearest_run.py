"""The stored run that is nearest to one that no stored run is a repetition of: what tells the two apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..comparison import Comparison
from ..identity import fingerprint, given_label, identity_differences, source_id
from ..subject import Subject

__all__ = ["nearest_words"]

_PARTS = ("sub_label", "description", "env", "num_threads", "device")
_MOST = 4  # differences that are named


def nearest_words(current: Comparison, row: int, stored: Sequence[Comparison]) -> str:
    """``the nearest differs in num_threads: 1 -> 2``, of all stored rows; empty where there is no other.

    What makes the identity another one comes first, then what else is not as it was. The nearest has the most parts of
    the identity in common; of several the newest.
    """
    own = {fingerprint(current, at) for at in range(len(current.subjects))}  # stored, maybe
    found = [(one, at) for one in stored for at in range(len(one.subjects)) if fingerprint(one, at) not in own]
    if not found:
        return ""
    now = current.subjects[row]
    then, at = max(reversed(found), key=lambda home: _alike(home[0].subjects[home[1]], now))  # the first of equals
    told = list(_of_identity(then.subjects[at], now))
    others = [
        text for text in identity_differences(then, at, current, row) if not text.startswith(("option ", "commit:"))
    ]
    told += [text for text in others if text not in told]
    more = f" and {len(told) - _MOST} more" if len(told) > _MOST else ""
    when = f", of {then.saved[:16].replace('T', ' ')} UTC," if then.saved else ""
    return f"the nearest{when} differs in {'; '.join(told[:_MOST])}{more}" if told else ""


def _alike(then: Subject, now: Subject) -> int:
    """How many parts of the identity two subjects share; code and label count more, since they say what it is."""
    same: int = sum(getattr(then, name) == getattr(now, name) for name in _PARTS)
    same += 4 * (source_id("", then.stmt) == source_id("", now.stmt)) + 2 * (then.before == now.before)
    return same + 4 * (given_label(then.label) is not None and given_label(then.label) == given_label(now.label))


def _of_identity(then: Subject, now: Subject) -> Iterator[str]:
    labels = given_label(then.label), given_label(now.label)
    if labels[0] != labels[1]:
        yield f"label: {labels[0] or 'none'} -> {labels[1] or 'none'}"
    for name in _PARTS:
        before, here = getattr(then, name), getattr(now, name)
        if before != here:
            word = "threads" if name == "num_threads" else name.replace("_", "-")
            yield f"{word}: {before if before is not None else 'none'} -> {here if here is not None else 'none'}"
