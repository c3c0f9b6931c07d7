"""A comparison for others: in markdown for a pull request, as JSON, and as the cell that repeats it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

from torchbench_magic.errors import OptionError
from torchbench_magic.printable import printable_lines
from torchbench_magic.process.values_between_runs import changing_variables
from torchbench_magic.show import markdown
from torchbench_magic.show.document import MOST_DOUBTS, Document, Phrase, StyledText, clipped, plain
from torchbench_magic.show.json_output import finite_number, plain_value
from torchbench_magic.show.table import Table

from .columns_view import alternative_name, doubt_lines, doubts_in_order, measured
from .comparison import Comparison
from .identity import source_id
from .levers_view import levers_recommended
from .samples import AS_IT_IS, AXIS, Subject, are_tried
from .view import document

# ---- repeat_cell -----------------------------------------------------------------------------------------------------
# The ``%%timer`` cell that times the same once more, from what a comparison knows of itself.

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
    given = {name: value for name in _FLAGS if (value := asked.get(name)) and not (name == "restore" and tried)}
    for name, value in given.items():
        yield f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}"
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


# ---- pull_request ----------------------------------------------------------------------------------------------------
# A comparison in markdown for a pull request: the sentence, one compact table, doubts, where it ran, how to repeat it.
#
# It takes at most `MOST_BYTES`, whatever the comparison is of: doubts are shortened first, to the two gravest, then
# rows are left out from the end; the cell stays, but for one that takes more than half of the room. What is left out is
# said. Nothing of what users named is markup in it.

MOST_BYTES = 4096
"""Of the whole. A comment may hold 65,536 characters; one that is read is shorter."""
_ROWS = (200, 50, 24, 16, 12, 8, 6, 4, 2, 1)
_DOUBTS = ((MOST_DOUBTS, 10**6), (2, 400), (2, 200), (1, 200))
"""How many doubts are kept, and characters of each, the less the shorter the room is; the others are counted."""
_LONGEST = 400  # characters of a sentence where room is short


def pull_request(comparison: Comparison, *, metric: str = "median", max_bytes: int = MOST_BYTES) -> str:
    """See the module. ``metric`` is the time that the table shows, as of the view.

    Raises:
        OptionError: an unknown ``metric``; ``max_bytes`` below 1024.
    """
    most: Any = max_bytes
    if isinstance(most, bool) or not isinstance(most, int) or most < 1024:
        raise OptionError("max_bytes: give a whole number of at least 1024")
    whole, doubts = document(comparison, metric=metric), doubt_lines(comparison)
    repeat = _repeat_markdown(repeat_cell(comparison))
    repeat = repeat if len(repeat.encode()) <= most // 2 else _LEFT_OUT
    table, text = whole.tables[0], ""
    forms = [(_first(table, rows, whole), *few) for rows in _ROWS if rows <= 2 * len(table) for few in _DOUBTS]
    for shown, many, longest in [*forms, (None, 1, _LONGEST)]:
        few = tuple(_short(line, longest) for line in doubts[:many])
        text = _rendered(comparison, whole, shown, few, repeat, len(doubts) - len(few))
        if len(text.encode()) <= most:
            return text
    return text.encode()[: most - 4].decode("utf-8", "ignore") + "…\n"


def _first(table: Table, rows: int, whole: Document) -> Table:
    return table if len(table) <= rows else table.head(rows, whole.where)


def _rendered(
    comparison: Comparison,
    whole: Document,
    table: Table | None,
    doubts: tuple[StyledText, ...],
    repeat: str,
    more: int = 0,
) -> str:
    said = doubts if more <= 0 else (*doubts, (Phrase(f"{more} more: .warnings"),))
    sentence = whole.sentence if table is not None else _short(whole.sentence)
    environment = (Phrase(" · ".join(measured(comparison))),)
    tables = (table,) if table is not None else ()
    shown = Document(whole.kind, sentence, tables, said, (environment,), doubts_shown=len(said))
    return "\n".join(filter(None, [markdown.render(shown), repeat]))


def _short(line: StyledText, longest: int = _LONGEST) -> StyledText:
    text = plain(line)
    return line if len(text) <= longest else (Phrase(clipped(text, longest)),)


_LEFT_OUT = "How to repeat it: the cell is too long to show here; see `.to_json()`.\n"


def _repeat_markdown(cell: str | None) -> str:
    """The cell, folded, in a fence that is longer than any run of backticks in it."""
    if cell is None:
        return ""
    text = printable_lines(cell)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"<details><summary>How to repeat it</summary>\n\n{fence}python\n{text}\n{fence}\n\n</details>\n"


# ---- timings ---------------------------------------------------------------------------------------------------------
# What a comparison adds to the envelope: verdicts, the interval of each ratio, and the cell that repeats it.

_LONGEST_NAME = 100
_FIGURES = (
    *("median", "iqr", "cpu_clock_median", "ratio", "ratio_low", "ratio_high"),
    *("instructions", "instructions_ratio"),
    *("max_difference", "compile_time", "break_even"),
)


def facts(comparison: Comparison) -> dict[str, Any]:
    frame = comparison.frame
    recommended = levers_recommended(comparison)
    words = Counter(word for word in frame["verdict"].dropna() if word != "baseline")
    return {
        "clock": comparison.clock,
        "margin": comparison.margin,
        "elapsed": finite_number(comparison.elapsed),
        "verdicts": dict(sorted(words.items())),
        "alternatives": [
            _row(comparison, at, row) | ({"recommended": recommended[at]} if at in recommended else {})
            for at, row in enumerate(frame.to_dict("records"))
        ],
        "doubts": doubts_in_order(comparison),
        "repeat": _repeat_json(comparison),
    }


def _row(comparison: Comparison, at: int, row: dict[Any, Any]) -> dict[str, Any]:
    subject = comparison.subjects[at]
    base = comparison.base_row(at)
    row_ = {
        "name": plain_value(alternative_name(comparison, at), _LONGEST_NAME),
        "sub_label": plain_value(subject.sub_label, _LONGEST_NAME),
        "env": plain_value(subject.env, _LONGEST_NAME),
        "axes": {plain_value(str(name), _LONGEST_NAME): plain_value(value, 60) for name, value in subject.axes},
        "threads": subject.num_threads,
        "device": subject.device,
        "verdict": row["verdict"] if isinstance(row["verdict"], str) else None,
        "baseline": None if base is None else plain_value(alternative_name(comparison, base), _LONGEST_NAME),
        "method": row["method"] if isinstance(row["method"], str) else None,
        "decided_by": "ranges" if at in comparison.by_ranges else None,
        "samples": int(row["samples"]),
        "source_id": source_id(subject.before, subject.stmt),
        **{name: finite_number(row.get(name)) for name in _FIGURES},
        "result": subject.trial.result or None if subject.trial is not None else None,
    }
    return {name: value for name, value in row_.items() if value not in (None, {})} | {"verdict": row_["verdict"]}


def _repeat_json(comparison: Comparison) -> dict[str, Any]:
    needs = changing_variables(value for each in comparison.subjects for value in each.given_values or ())
    needs |= dict(item for subject in comparison.subjects for item in subject.given)
    return {
        "cell": repeat_cell(comparison),
        "needs": {str(name): plain_value(what, 80) for name, what in needs.items()},
        "seed": comparison.seed,
    }
