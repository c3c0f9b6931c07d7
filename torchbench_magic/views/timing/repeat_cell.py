"""The ``%%timer`` cell that times the same once more, from what a comparison knows of itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from math import prod

from torchbench_magic.results.timing.across_runs.side_by_side import AXIS
from torchbench_magic.results.timing.comparison import Comparison
from torchbench_magic.results.timing.proof.trial import AS_IT_IS
from torchbench_magic.results.timing.rows import are_tried
from torchbench_magic.results.timing.subject import Subject

__all__ = ["repeat_cell"]

_NAME = re.compile(r"[^\s\x00-\x1f-][^\x00-\x1f]*(?<![\s-])|\w")
_PERCENT = frozenset({"margin", "until"})  # options that are asked in per cent
_FLAGS = ("cold", "check", "restore", "gc")
_VALUES = ("min_run_time", "max_run_time", "number", "repeat", "margin", "until", "adaptive", "clock", "device")
_USUAL: dict[str, object] = {
    "margin": Comparison.__dataclass_fields__["margin"].default,
    "clock": Comparison.__dataclass_fields__["clock"].default,
    "device": "auto",
}


def repeat_cell(comparison: Comparison) -> str | None:
    """The text of the cell; None where no cell makes this result: results side by side, fuzzed inputs, several
    environments, names that no section can have. Of levers it is the one body, with ``--try`` and their names."""
    if comparison.code:
        return comparison.code
    subjects = comparison.subjects
    if not subjects or comparison.unpaired or any(AXIS in dict(each.axes) or each.drawn for each in subjects):
        return None
    first = [subject for subject in subjects if subject.group == subjects[0].group]
    if len({_code(subject) for subject in subjects}) != len({_code(subject) for subject in first}):
        return None
    if len({(subject.env, subject.setup, subject.global_setup) for subject in subjects}) != 1:
        return None
    sweep = _sweep(subjects)
    names = [subject.description for subject in first]
    tried = are_tried(subjects)
    several = len(first) > 1 and not tried
    if sweep is None or (several and not all(name is not None and _is_section(name) for name in names)):
        return None
    lines = [" ".join(["%%timer", *_options(comparison, first[0]), *sweep])]
    setup = "" if first[0].setup.strip() in ("", "pass") else first[0].setup.strip("\n")
    mark = "//" if first[0].language != "python" else "#"
    if setup:
        lines += [f"{mark} --- setup", setup]
    for subject in first[:1] if tried else first:
        if several or setup:
            name = None if tried else subject.description
            lines.append(f"{mark} --- {name or 'statement'}")
        lines.append(subject.stmt.strip("\n"))
    return "\n".join(lines)


def _code(subject: Subject) -> tuple[object, ...]:
    return subject.description, subject.stmt


def _is_section(name: str) -> bool:
    return name != "setup" and _NAME.fullmatch(name) is not None


def _options(comparison: Comparison, subject: Subject) -> Iterator[str]:
    asked = comparison.options
    if subject.language != "python":
        yield "--cpp"
    if subject.global_setup:
        yield f"--global-setup {shlex.quote(subject.global_setup)}"
    threads = list(dict.fromkeys(each.num_threads for each in comparison.subjects))
    yield f"-t {','.join(map(str, threads))}"
    tried = are_tried(comparison.subjects)
    if tried:  # which puts back by itself what the body changes
        yield f"--try {','.join(_levers(comparison))}".rstrip()
    for name in _VALUES:
        value = asked.get(name)
        if value is not None and value != _USUAL.get(name):
            value = 100 * value if name in _PERCENT and isinstance(value, float) else value
            yield f"--{name.replace('_', '-')} {f'{value:g}' if isinstance(value, float) else value}"
    yield from (f"--{name}" for name in _FLAGS if asked.get(name) and not (name == "restore" and tried))
    counted = [each.stats.number_per_run for each in comparison.counts.counted.values()]
    if counted:
        yield f"--callgrind {max(counted)}"
        if comparison.counts.form != "function":
            yield f"--callgrind-form {comparison.counts.form}"
    processes = asked.get("processes")
    if processes is not None:
        yield "--processes" if processes == "auto" else f"--processes {processes}"
    if comparison.baseline is not None and not tried:  # that is the body as it is
        yield f"--baseline {shlex.quote(comparison.baseline)}"


def _levers(comparison: Comparison) -> list[str]:
    """The levers that were asked for by name; where none was, those that were timed."""
    asked = comparison.options.get("levers")
    if isinstance(asked, tuple | list) and asked:
        return [str(name) for name in asked]
    return [name for subject in comparison.subjects if (name := subject.description or "") not in ("", AS_IT_IS)]


def _sweep(subjects: tuple[Subject, ...]) -> list[str] | None:
    """``--sweep`` of each axis; None where the points are no product of plain values."""
    points = list(dict.fromkeys(subject.axes for subject in subjects))
    if points == [()]:
        return []
    values: dict[str, list[object]] = {}
    for name, value in (item for point in points for item in point):
        if not isinstance(value, int | float | str | bool):
            return None
        if value not in values.setdefault(name, []):
            values[name].append(value)
    if prod(map(len, values.values())) != len(points):
        return None
    return [f"--sweep {shlex.quote(f'{name}={each!r}')}" for name, each in values.items()]
