"""How a stored run is recognised as the same measurement, which one is nearest, and what was edited in between."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields

import numpy as np
import pandas as pd

from torchbench_magic.cell_body import source_id_of
from torchbench_magic.process.environment import Environment
from torchbench_magic.process.values_between_runs import changes_of, same_values, variable_of

from .comparison import Comparison
from .samples import Subject

# How a stored run is recognised as the same measurement, and how two of them differ.
#
# A run's *identity* is (label if given, else the source's id; sub_label, description, env, num_threads, device): what a
# user would call the same measurement. Whether it is also the same *work in the same place* is a stricter question:
# `likeness` answers it, `identity_differences` says what is not alike.

Identity = tuple[str, str | None, str | None, str | None, int, str]

_CELL_LABEL = re.compile(r"In\[\d+\]")
_NAMES = ("label", "sub_label", "description", "env", "engines")  # of a plan: they are identity or place, not options
_NO_WORK = ("baseline", "margin", "seed")  # options that change what is shown, not what is measured
_OTHER_WORK = ("gc", "restore")  # options with which calls do other work; ``cold`` and ``clock`` too
_RECORDED_LATER = ("quota", "affinity", "governor", "libraries")  # of an environment: older records lack them
_LONGEST = 48


def given_label(label: str | None) -> str | None:
    """The label, unless it is the ``In[n]`` that a cell without one is called by: n changes with every run."""
    return None if label is None or _CELL_LABEL.fullmatch(label) else label


def source_id(setup: str, stmt: str) -> str:
    """Identify the code of a measurement: 12 hex digits, equal for texts that differ in blank ends only."""
    before = "" if setup.strip() in ("", "pass") else setup
    return source_id_of("\n\0\n".join((before.strip("\n"), stmt.strip("\n"))))


def identity_of(subject: Subject) -> Identity:
    """What the measurement is known by."""
    name = given_label(subject.label) or source_id(subject.before, subject.stmt)
    return name, subject.sub_label, subject.description, subject.env, subject.num_threads, subject.device


def task_of(
    setup: str, stmt: str, sub_label: str | None, description: str | None, env: str | None, num_threads: int
) -> str:
    """Key of what is known of a measurement before it is made (the device is not); see `key_of`."""
    return key_of((source_id(setup, stmt), sub_label, description, env, num_threads))


def key_of(parts: tuple[object, ...]) -> str:
    """A tuple of texts and numbers as one short key."""
    return hashlib.sha1(json.dumps(parts).encode(), usedforsecurity=False).hexdigest()[:20]


def fingerprint(result: Comparison, row: int) -> str:
    """Recognises this very measurement, wherever it is stored: of its identity and all its samples."""
    rows = result.samples[result.samples["measurement"] == row]
    return fingerprint_of(key_of(identity_of(result.subjects[row])), (rows["wall"], rows["cpu"]))


def fingerprint_of(said: str, times: Iterable[pd.Series]) -> str:
    """Of a text and of columns of numbers, to their last bit."""
    digest = hashlib.sha1(said.encode(), usedforsecurity=False)
    for column in times:
        digest.update(np.ascontiguousarray(column.to_numpy(np.float64)).tobytes())
    return digest.hexdigest()[:20]


def machine_of(environment: Environment) -> tuple[object, ...]:
    """What makes the machine another one: system, processor, its usable cores, accelerator."""
    return environment.system, environment.cpu, environment.usable_cores, environment.accelerator


def identifying_options(plan: object) -> dict[str, object]:
    """What was asked of the run, without the names that are part of its identity, and without which cluster did it.

    ``plan`` is a dataclass."""
    return {item.name: getattr(plan, item.name) for item in fields(plan) if item.name not in _NAMES}  # type: ignore[arg-type]


def likeness(result: Comparison, row: int) -> str:
    """Equal for repetitions: of one identity, source, inputs, torch, machine and clock, all warm or all cold.

    Their medians form a history, from which it is known how well such a time repeats.
    """
    subject, environment = result.subjects[row], result.subjects[row].environment_in(result.environment)
    return key_of((identity_of(subject), work_of(result, row), environment.torch, machine_of(environment)))


def work_of(result: Comparison, row: int) -> tuple[object, ...]:
    """What was run, on what: source, functions, clock, warm or cold, inputs and values where they were recorded."""
    subject = result.subjects[row]
    work = source_id(subject.before, subject.stmt), subject.functions, result.clock, result.options.get("cold", False)
    asked = tuple(name for name in _OTHER_WORK if result.options.get(name))  # nothing without, as in older stores
    values = ("values", subject.values) if subject.values else ()  # nothing without, for stores written before too
    return (*work, *(() if subject.inputs is None else (subject.inputs,)), *asked, *values)


def identity_differences(old: Comparison, old_row: int, new: Comparison, new_row: int) -> list[str]:
    """In words, ``what: before -> now``: source, inputs, options, versions, machine, variables; not the load.

    Inputs are compared where both runs recorded them.
    """
    before, now = old.subjects[old_row], new.subjects[new_row]
    found = [*_of_source("global setup", before.global_setup, now.global_setup)]
    found += [*_of_source("setup", before.setup, now.setup), *_of_source("source", before.stmt, now.stmt)]
    inputs = input_differences(before.inputs or (), now.inputs or ())
    found += [*_of_functions(old, before, new, now), *inputs.values()]
    found += changes_of(before.values, now.values, said=inputs)
    found += [] if found else _of_what_one_read(before, now)
    if old.options and new.options:  # options of a result that was made elsewhere are not known
        known = old.options.keys() & new.options.keys() - set(_NO_WORK)  # an older one lacks what came later
        asked = ({name: one.options[name] for name in known} for one in (old, new))
        found += _of_mappings("option ", *asked)
    return [*found, *environment_differences(old.environment, new.environment)]


def _of_what_one_read(before: Subject, now: Subject) -> list[str]:
    """Of values that differ where no single one does: what only one of the runs found, such as a function's
    replacement."""
    if now.values is None or same_values(before.values, now.values):
        return []
    then, here = ({label for label, _, _ in one or ()} for one in (before.values, now.values))
    names = ", ".join(f"`{name}`" for name in sorted({variable_of(label) for label in then ^ here})[:3])
    return [f"the code reads other values{f' ({names})' if names else ''}"]


def environment_differences(before: Environment, now: Environment) -> list[str]:
    """In words, ``what: before -> now``: versions, machine, limits, libraries, commit, variables.

    Load is not compared, and of what a record of an earlier release lacks nothing is said.
    """
    found = []
    for item in fields(Environment):
        values = getattr(before, item.name), getattr(now, item.name)
        if item.name not in ("load", "num_threads", "variables", *_RECORDED_LATER) and values[0] != values[1]:
            found.append(_change(item.name.replace("_", " "), *values))
    return [*found, *_of_limits(before, now), *_of_mappings("", before.variables, now.variables)]


def _of_limits(before: Environment, now: Environment) -> Iterator[str]:
    """Of quota, processors, governor and libraries, where both records have them."""
    if before.quota is not None and now.quota is not None and before.quota != now.quota:
        quotas = before.quota, now.quota
        yield _change("CPU quota", *(None if math.isinf(cores) else f"{cores:g} cores" for cores in quotas))
    for word, name in (("usable processors", "affinity"), ("governor", "governor")):
        values = getattr(before, name), getattr(now, name)
        if all(values) and values[0] != values[1]:
            yield _change(word, *values)
    if before.libraries is not None and now.libraries is not None:
        then, here = Counter(before.libraries), Counter(now.libraries)
        yield from (f"no longer loaded: {one}" for one in sorted((then - here).elements()))
        yield from (f"loaded now: {one}" for one in sorted((here - then).elements()))


def _of_source(what: str, before: str, now: str) -> Iterator[str]:
    """The first line that differs; the two texts are equal in the sense of `source_id` otherwise."""
    if source_id("", before) == source_id("", now):
        return
    old, new = before.strip("\n").splitlines(), now.strip("\n").splitlines()
    at = next((i for i, pair in enumerate(zip(old, new, strict=False)) if pair[0].rstrip() != pair[1].rstrip()), None)
    at = min(len(old), len(new)) if at is None else at
    yield _change(f"{what}, line {at + 1}", *("".join(text[at : at + 1]).strip() or None for text in (old, new)))


def _of_functions(old: Comparison, before: Subject, new: Comparison, now: Subject) -> Iterator[str]:
    """The first line that differs in each function that was edited; that one is new, or no longer called."""
    then, here = dict(before.functions), dict(now.functions)
    for name in sorted(then.keys() | here.keys()):
        if then.get(name) == here.get(name):
            continue
        if name not in then or name not in here:
            yield f"source: {name} is {'called now' if name in here else 'no longer called'}"
            continue
        texts = old.sources.get(then[name]), new.sources.get(here[name])
        if texts[0] is None or texts[1] is None:
            yield f"source of {name}: edited (its text was not recorded)"
        else:
            yield from _of_source(f"source of {name}", texts[0], texts[1])


def input_differences(before: Iterable[tuple[str, str]], now: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Variable -> in words what it was and is, of each that both runs read and that held something else."""
    then, here = dict(before), dict(now)
    names = [name for name in sorted(then.keys() & here.keys()) if then[name] != here[name]]
    return {name: f"`{name}` was {then[name]}, is {here[name]}" for name in names}


def _of_mappings(what: str, before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield _change(f"{what}{name}", before.get(name), now.get(name))


def _change(what: str, before: object, now: object) -> str:
    return f"{what}: {short_text(before)} -> {short_text(now)}"


def short_text(value: object) -> str:
    text = "none" if value is None or value == "" else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


# ---- source_changes --------------------------------------------------------------------------------------------------
# What was edited between two measurements, as a short unified diff: statement, setup, and functions that they call.

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
