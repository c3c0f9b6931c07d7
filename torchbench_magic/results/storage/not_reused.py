"""Why a stored run does not answer what is asked: which part of it is not as it would be now."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from ..machine.environment import Environment
from ..timing.comparison import Comparison
from ..timing.identity import given_label, source_id
from ..timing.subject import Subject
from ..timing.values_read import changes_of, same_values
from .records import encoded

__all__ = ["named_few", "unlike_parts"]

_PLACE = {"torch": "torch", "system": "the system", "cpu": "the processor", "accelerator": "the accelerator"}
_MOST = 3
_LONGEST = 48
_DIGEST = re.compile(r" \([0-9a-f]{6}\)")
"""Of what a text of `input_shapes` does not say in words."""


def named_few(found: Sequence[str]) -> str:
    """The first few of the differences, in one line."""
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return f"{'; '.join(found[:_MOST])}{more}"


def unlike_parts(
    wanted: Sequence[Subject],
    found: Comparison,
    here: Environment,
    options: tuple[Mapping[str, object], Mapping[str, object]],
) -> Iterator[str]:
    """Each part of a stored run that is not as it is asked now; none where it can be taken over.

    Args:
        wanted: what would be measured, as far as that is known before.
        found: the stored run.
        here: this process.
        options: (those of the stored run, those of now), in their stored form.
    """
    if found.partial:
        yield "it is not complete"
    yield from _of_environment(found.environment, here)
    then, asked = options
    if not then:
        yield "its options were not recorded"
    for name in sorted(then.keys() | asked.keys()) if then else ():
        before, now = then.get(name), asked.get(name)
        if before != now and name != "threads":
            yield f"option {name} was {_short(before)}, is {_short(now)}"
    yield from _of_identity(wanted, found.subjects)
    if then.get("threads") != asked.get("threads") and _threads(wanted) == _threads(found.subjects):
        yield "`-t` was given in only one of the two runs"


def _of_environment(then: Environment, here: Environment) -> Iterator[str]:
    """Versions, machine, and the variables that steer threads and allocators."""
    versions = [".".join(one.python.split(".")[:2]) for one in (then, here)]
    if versions[0] != versions[1]:
        yield f"Python was {versions[0]}, is {versions[1]}"
    for name, word in _PLACE.items():
        before, now = getattr(then, name), getattr(here, name)
        if before != now:
            yield f"{word} was {_short(before)}, is {_short(now)}"
    if then.usable_cores != here.usable_cores:
        yield f"usable cores were {then.usable_cores}, are {here.usable_cores}"
    if then.quota is not None and here.quota is not None and then.quota != here.quota:  # of older runs it is not known
        quotas = ("none" if math.isinf(cores) else f"{cores:g} cores" for cores in (then.quota, here.quota))
        yield "the CPU quota was {}, is {}".format(*quotas)
    for name in sorted(then.variables.keys() | here.variables.keys()):
        values = then.variables.get(name, "not set"), here.variables.get(name, "not set")
        if values[0] != values[1]:
            yield f"environment variable {name} was {_short(values[0])}, is {_short(values[1])}"


def _of_identity(wanted: Sequence[Subject], found: Sequence[Subject]) -> Iterator[str]:
    """Names, threads, point and code, then what the code reads where these are alike."""
    if _names(wanted) != _names(found):
        yield f"the alternatives were {_listed(_names(found))}, are {_listed(_names(wanted))}"
        return
    if _threads(wanted) != _threads(found):
        yield f"threads were {_listed(_threads(found))}, are {_listed(_threads(wanted))}"
        return
    if len(wanted) != len(found):
        yield "its points were grouped differently"
        return
    told: dict[str, None] = {}
    for now, then in zip(wanted, found, strict=True):
        told |= dict.fromkeys(_of_subject(then, now))
    yield from told


def _of_subject(then: Subject, now: Subject) -> Iterator[str]:
    names = (
        ("label", given_label(then.label), given_label(now.label)),
        ("sub-label", then.sub_label, now.sub_label),
        ("env", then.env, now.env),
    )
    for word, before, here in names:
        if before != here:
            yield f"the {word} was {_short(before)}, is {_short(here)}"
    if (then.description, then.num_threads) != (now.description, now.num_threads):
        yield "its rows are in a different order"
    if encoded(then.axes) != encoded(now.axes):
        yield "it is a different point of the sweep"
    if source_id(then.before, then.stmt) != source_id(now.before, now.stmt):
        which = f" of `{now.description}`" if now.description else ""
        yield f"the {'code' if then.stmt != now.stmt else 'setup'}{which} was edited"
    elif then.functions != now.functions:
        functions = dict(then.functions), dict(now.functions)
        every = sorted(functions[0].keys() | functions[1].keys())
        changed = [name for name in every if functions[0].get(name) != functions[1].get(name)]
        yield f"{_listed([f'`{name}`' for name in changed])} {'was' if len(changed) == 1 else 'were'} edited"
    yield from _of_inputs(then, now)


def _of_inputs(then: Subject, now: Subject) -> Iterator[str]:
    """What the notebook gave; not known of a run that did not record it."""
    if then.inputs is None:
        yield "its inputs were not recorded"
        return
    given = dict(now.given)
    changed = [name for name, text in then.given if given.get(name) != text]
    for name in changed:
        before, here = dict(then.given)[name], given.get(name, "not set")
        what = _DIGEST.sub("", here)
        if _DIGEST.sub("", before) == what:
            yield f"`{name}` has other shapes, layers or hooks (it was {what}, and still is)"
        else:
            yield f"`{name}` was {before}, is {here}"
    if not same_values(then.given_values, now.given_values or ()):
        words = list(changes_of(then.given_values, now.given_values, said=changed))
        yield from words or (() if changed else ("the code reads other values",))


def _names(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(subject.description or "one statement" for subject in subjects))


def _threads(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(str(subject.num_threads) for subject in subjects))


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _short(value: object) -> str:
    text = "none" if value is None or value == "" else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
