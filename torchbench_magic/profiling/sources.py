"""Which text each code object of a run came from: a cell, a file, or none that is known."""

from __future__ import annotations

import functools
import importlib.machinery
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType

from torchbench_magic import units
from torchbench_magic.cell_body import CellText
from torchbench_magic.process.dynamo_internals import RESUMED, is_compiled
from torchbench_magic.process.machine import proc_text, stat_fields
from torchbench_magic.process.reach import dict_of
from torchbench_magic.result_base import Doubt

from .file_texts import Recompiled, Statements, read_statements, text_of
from .trace import Source

Cells = Callable[[str], CellText | None]
_SLACK = 2.0  # s: /proc/stat gives the start of the machine in whole seconds
_UNKNOWN = "\0"  # ends the file name that stands for a text that is not known


@dataclass(frozen=True)
class ProfiledBody:
    """The code that is profiled.

    Attributes:
        own: its code objects, the first of which names the source profiled; none for a callable that is not Python's.
        cells: file name -> the cell's text.
        suspends: it awaits at its top level.
    """

    own: tuple[CodeType, ...]
    cells: Cells
    suspends: bool = False


@dataclass(frozen=True)
class CodeSources:
    """The codes of a run with their texts.

    Attributes:
        codes, own: as they were given, but each under a file name that stands for its text: one file can have several.
        of: that file name -> the source.
        statements: that file name -> what its text says of its lines.
        moved: number of a code -> line that it counts -> line of its text, where the two differ.
        doubts: what is to be said of files that have changed.
    """

    codes: tuple[CodeType, ...]
    own: tuple[CodeType, ...]
    of: Mapping[str, Source]
    statements: Mapping[str, Statements]
    moved: Mapping[int, Mapping[int, int]]
    doubts: tuple[Doubt, ...]


def sources_of(codes: Sequence[CodeType], own: Sequence[CodeType], cells: Cells) -> CodeSources:
    """Find the text of each code: by its file name for a cell, by its instructions for a file."""
    every = (*codes, *own)
    named = list(every)
    found: list[Source] = []
    statements: dict[str, Statements] = {}
    moved: dict[int, Mapping[int, int]] = {}
    doubts: list[Doubt] = []
    for file in dict.fromkeys(code.co_filename for code in every):
        cell = cells(file)
        if cell is not None:
            found.append(Source(cell.source_id, file, cell.text, cell.number))
            statements[file] = read_statements("".join(linecache.getlines(file)), cell.text)
            continue
        of_file = _FileCodes.placed(file, [code for code in every if code.co_filename == file])
        for number, code in enumerate(every):
            if code.co_filename == file:
                named[number], lines = of_file.named(code)
                if lines and number < len(codes):
                    moved[number] = lines
        for name, source in of_file.sources().items():
            found.append(replace(source, file=name))
            statements[name] = read_statements(source.text)
        doubts += of_file.doubts()
    of = {name: replace(each, file=name.removesuffix(_UNKNOWN)) for name, each in _merged(found).items()}
    return CodeSources(tuple(named[: len(codes)]), tuple(named[len(codes) :]), of, statements, moved, tuple(doubts))


@dataclass(frozen=True)
class _FileCodes:
    """The codes of one file, each with its lines in the text of the file.

    Attributes:
        text: empty where there is none.
        place: id of a code -> line that it counts -> line of the text; no entry for a code that the text does not
            compile to.
        unknown: these codes.
    """

    file: str
    text: str
    place: Mapping[int, Mapping[int, int]]
    unknown: tuple[CodeType, ...]

    @classmethod
    def placed(cls, file: str, codes: Sequence[CodeType]) -> _FileCodes:
        text = text_of(file)
        sure = _is_compiled_plainly(file) and _may_have_changed(file)
        found = {id(code): _lines_in(text, code, file, sure=sure) for code in codes}
        place = {code: lines for code, lines in found.items() if lines is not None}
        return cls(file, text, place, tuple(dict.fromkeys(code for code in codes if id(code) not in place)))

    def named(self, code: CodeType) -> tuple[CodeType, Mapping[int, int]]:
        """The code under the name of its text, and its lines where they are others in that text."""
        lines = self.place.get(id(code))
        if lines is None:
            return code.replace(co_filename=f"{self.file}{_UNKNOWN}"), {}
        moved = {old: new for old, new in lines.items() if old != new}
        first = lines.get(code.co_firstlineno, code.co_firstlineno)
        return (code.replace(co_firstlineno=first) if moved else code), moved

    def sources(self) -> dict[str, Source]:
        """File name that stands for a text -> the source."""
        found = {}
        if self.place:
            found[self.file] = Source(CellText.of(self.text, self.file).source_id, self.file, self.text)
        if self.unknown:
            text = _without_text(self.unknown)
            source_id = CellText.of(text, self.file).source_id
            found[f"{self.file}{_UNKNOWN}"] = Source(source_id, self.file, text, version="text not known")
        return found

    def doubts(self) -> list[Doubt]:
        if not self.unknown:
            return []
        label, names = Path(self.file).name, _names(self.unknown)
        text = (
            f"{label} has changed since it was imported: lines of {names} are shown without source, by their old "
            "numbers. Their times are valid."
            if self.text
            else f"{label} cannot be read: lines of {names} are shown without source. Their times are valid."
        )
        action = "Reload the module, or restart the kernel, and run this again."
        return [Doubt("text-unknown", text, action, {"file": self.file, "unknown": len(self.unknown)})]


def _lines_in(text: str, code: CodeType, file: str, *, sure: bool) -> Mapping[int, int] | None:
    """Line that a code counts -> line of the text, where they differ; None where the text is not the code's.

    Args:
        sure: a text that does not compile to the code is not its text. Else (an import hook changed the code, and
            pytest's does; the file is older than the process) the lines are those of the text all the same.
    """
    if not text:
        return None
    if is_compiled(code) or code.co_name.startswith(RESUMED):
        return {}
    lines = _recompiled(text, file).lines_of(code)
    return {} if lines is None and not sure else lines


_recompiled = functools.lru_cache(maxsize=256)(Recompiled.of)


def _is_compiled_plainly(file: str) -> bool:
    """Whether Python's own loader compiled the file: what it makes is what the text compiles to."""
    for module in list(sys.modules.values()):
        names = dict_of(module)
        if type(names) is dict and names.get("__file__") == file:
            return type(names.get("__loader__")) is importlib.machinery.SourceFileLoader
    return True


def _may_have_changed(file: str) -> bool:
    """Whether the file may have been written since this process started: by its change time, which no tool sets."""
    try:
        changed = os.stat(file).st_ctime
    except OSError:
        return True
    return changed > _process_start() - _SLACK


@functools.cache
def _process_start() -> float:
    """Unix seconds at which this process started; 0 where the system does not tell."""
    stat = proc_text("/proc/stat").partition("\nbtime ")[2].split()
    started = stat_fields("self")[19:20]
    return int(stat[0]) + int(started[0]) / os.sysconf("SC_CLK_TCK") if stat and started else 0.0


def _names(codes: Sequence[CodeType]) -> str:
    """``f`` or ``f and g`` or ``f, g and 3 more``."""
    names = list(dict.fromkeys(code.co_qualname.removeprefix("__autoreload_class__.") for code in codes))
    shown = [f"`{name}`" for name in names[:3]]
    shown += [f"{len(names) - 3} more"] if len(names) > 3 else []
    return units.listed(shown)


def _without_text(codes: Sequence[CodeType]) -> str:
    """A text of as many lines as the codes have: it names them, and says no more."""
    last = max(line or 0 for code in codes for _, _, line in code.co_lines())
    lines = [""] * max(last, *(code.co_firstlineno for code in codes))
    for code in codes:
        lines[code.co_firstlineno - 1] = f"# {code.co_qualname}: its text is not known"
    return "\n".join(lines) + "\n"


def _merged(found: Iterable[Source]) -> dict[str, Source]:
    """By file name; files with the same text are one source, the cell that ran last gives the label.

    A cell and the same cell under a magic line have one source_id but other line numbers: then the older one gets
    an id of its own.
    """
    by_file: dict[str, Source] = {}
    merged: dict[str, Source] = {}
    for source in sorted(found, key=lambda each: (-(each.cell or 0), each.file)):
        same = merged.setdefault(source.source_id, source)
        if _lines_above(same.text) != _lines_above(source.text):
            own_id = f"{source.source_id}+{_lines_above(source.text)}"
            same = merged.setdefault(own_id, replace(source, source_id=own_id))
        by_file[source.file] = same
    return by_file


def _lines_above(text: str) -> int:
    """Lines before the first that counts for the source_id: blank ones and a magic line."""
    lines = text.splitlines()
    return next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("%%")), 0)
