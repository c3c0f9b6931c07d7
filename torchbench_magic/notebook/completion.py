"""What can be written at the cursor of a magic's line: its options, the values of an option, names of sections.

Pure: the text of the cell goes in, and what the shell knows through `Known`. The shell's side is in `notebook.startup`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .option_parser import Option, declared_options
from .options import CompareOptions, DoctorOptions, ProfilerOptions, TimerOptions
from .sections import section_names

_MAGIC = re.compile(r"(?:^|[\s=(])(?P<sign>%%?)(?P<name>\w+)[ \t]+(?P<line>.*)$")
_OPTIONS: Mapping[str, type] = {
    "timer": TimerOptions,
    "tprofile": ProfilerOptions,
    "tcompare": CompareOptions,
    "tdoctor": DoctorOptions,
}
_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*(?:"|$)|'[^']*(?:'|$)|[^\s"'])+""")
"""A token of the shell's, the last one perhaps with a quote that is still open."""


class Known(Protocol):
    """What the shell knows."""

    def is_ours(self, magic: str, *, cell: bool) -> bool:
        """Whether the magic of that name is this package's."""

    def results(self) -> Sequence[str]:
        """Names of the variables that hold results."""

    def alternatives(self, results: Iterable[str]) -> Sequence[str]:
        """Names of the alternatives in the results of these names; in all of them where none is given."""


@dataclass(frozen=True)
class Completions:
    """``texts`` may stand where ``fragment`` stands, which ends at the cursor; ``is_all``: nothing else may."""

    fragment: str
    texts: tuple[str, ...]
    is_all: bool = True


def completions_at(text: str, line: int, column: int, known: Known) -> Completions | None:
    """What may stand at a place of a cell; None where this package has no say. Lines and columns count from 0."""
    lines = text.split("\n")
    found = _MAGIC.search(lines[line][:column])
    if found is None or (found["sign"] == "%%" and line > 0):
        return None
    kind = _OPTIONS.get(found["name"])
    if kind is None or not known.is_ours(found["name"], cell=found["sign"] == "%%"):
        return None
    return _on_line(found["name"], found["line"], declared_options(kind), text, known)


def _on_line(magic: str, line: str, declared: Mapping[str, Option], cell: str, known: Known) -> Completions | None:
    by_flag = {flag: (name, item) for name, item in declared.items() for flag in item.flags}
    given, words, pending = set[str](), list[str](), ""  # pending: name of the option whose value comes next
    for token in _WORD.finditer(line):
        word, at_cursor = token[0], token.end() == len(line)
        if pending and not (declared[pending].bare is not None and word.startswith("-")):
            if at_cursor:
                return _matching(word, _values(pending, declared[pending], cell, words, known))
            pending = ""
        elif word == "--" and not at_cursor:
            return None
        elif word.startswith("-"):
            flag, equals, value = word.partition("=")
            if at_cursor and equals and flag in by_flag:
                return _matching(value, _values(by_flag[flag][0], by_flag[flag][1], cell, words, known))
            if at_cursor:
                return _matching(word, _flags(by_flag, given))
            name, pending = _taken(word, by_flag)
            given.add(name)
        elif magic != "tcompare":
            return None  # the statement, or the setup, has begun
        elif at_cursor:
            return _matching(word, known.results(), is_all=False)
        else:
            words.append(word)
    if pending:
        return _matching("", _values(pending, declared[pending], cell, words, known))
    return _matching("", known.results(), is_all=False) if magic == "tcompare" else None


def _taken(word: str, by_flag: Mapping[str, tuple[str, Option]]) -> tuple[str, str]:
    """The name of the option, and again where its value is the next word."""
    flag, equals, _ = word.partition("=")
    if flag not in by_flag:  # letters together, or with the value attached
        flag, equals = word[:2], "="
    name, item = by_flag.get(flag, ("", None))
    return name, name if item is not None and item.metavar and not equals else ""


def _flags(by_flag: Mapping[str, tuple[str, Option]], given: set[str]) -> list[str]:
    return [flag for flag, (name, item) in by_flag.items() if name not in given or item.repeatable]


def _values(name: str, item: Option, cell: str, words: Sequence[str], known: Known) -> Sequence[str]:
    if name == "output":
        return known.results()
    if name == "baseline":
        return section_names(cell) or [*known.alternatives(words), *words]
    return tuple(item.values())


def _matching(fragment: str, texts: Iterable[str], *, is_all: bool = True) -> Completions | None:
    """Those that begin so, quoted as the line needs it."""
    begun = fragment.lstrip("\"'")
    found = tuple(dict.fromkeys(shlex.quote(text) for text in texts if text.startswith(begun)))
    return Completions(fragment, found, is_all) if found else None
