"""Cells: the text behind a file name, visible lines, statements."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from IPython import version_info
from IPython.core.inputtransformer2 import TransformerManager

from torchbench_magic.cell_body import Body, CellText, source_id_of
from torchbench_magic.errors import BodyError

from .sections import Section, has_code

_COUNTS_FIRST = (9, 8)  # from this IPython on a cell is counted before `pre_run_cell` is called, not after it ran


def line_map(raw: Sequence[str], transformed: Sequence[str]) -> tuple[int, ...]:
    """For each transformed line the visible line it came from, from 1; rising.

    IPython drops leading blank lines and joins continued lines of its own syntax (``!cmd \\``); all other
    lines stay one for one.
    """
    if len(raw) == len(transformed):
        return tuple(range(1, len(raw) + 1))
    import difflib  # here, not above: most cells do without, and loading is to be quick

    lines: list[int] = []
    matcher = difflib.SequenceMatcher(None, raw, transformed, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag == "equal":
            lines.extend(range(start + 1, end + 1))
        elif last > first:
            heads = list(_heads(raw, start, end))[: last - first]
            beyond = [max(end, 1)] * (last - first - len(heads))
            lines.extend([*heads, *beyond])
    return tuple(lines)


def _heads(raw: Sequence[str], start: int, end: int) -> Iterator[int]:
    """First lines (from 1) of the logical lines in ``raw[start:end]``, blank ones left out."""
    continued = False
    for index in range(start, end):
        if not continued and raw[index].strip():
            yield index + 1
        continued = raw[index].rstrip("\r\n").endswith("\\")


def aligned_text(raw: str, transformed: str) -> str:
    """``transformed`` with blank lines put in, so that each line has its visible number."""
    raw_lines, lines = raw.splitlines(), transformed.splitlines()
    placed: list[str] = []
    for line, number in zip(lines, line_map(raw_lines, lines), strict=True):
        placed.extend([""] * (number - 1 - len(placed)))
        placed.append(line)
    return "".join(line + "\n" for line in placed)


# The book of cells: which text the user sees behind a file name, and where in it a magic stands.
#
# IPython gives every cell a file name and compiles the transformed text, whose lines can differ from the visible
# ones (leading blank lines are dropped, continued shell lines are joined). The book keeps the visible text of each
# cell and says for a magic which lines of which cell are its body. It makes a claim only where the running code
# stands on that very line; anything else (a body built at run time) gets a file name of its own.


@dataclass(frozen=True)
class Place:
    """Where a magic's code stands.

    Attributes:
        file: the name it is compiled under.
        magic_line: line of the magic itself, in the numbering of ``file``; 0 where no magic line is part of it.
        number: n of ``In[n]``, or None where no such claim can be made.
        text: the visible text of the magic line.
    """

    file: str
    magic_line: int
    number: int | None
    text: str = ""

    def column_of(self, code: str) -> int:
        """Where ``code`` begins on the magic line, from 0."""
        return max(0, self.text.rstrip().rfind(code.strip()))


class Book:
    """Every cell of the session by its file name; made when the extension is loaded."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._cells: dict[str, CellText] = {}
        self._sources: dict[str, tuple[Any, Any]] = {}  # linecache: file -> (ours, what was there)
        self._own: dict[str, str] = {}  # text -> the file name it was given

    # -- life

    def open(self) -> None:
        """Begin to keep cells; those that ran before are rebuilt from the history."""
        self._rebuild()
        self._shell.events.register("pre_run_cell", self._note)

    def close(self) -> None:
        """Undo everything that the book did to the session."""
        self._shell.events.unregister("pre_run_cell", self._note)
        for file, (ours, before) in self._sources.items():
            if linecache.cache.get(file) is ours:
                if before is None:
                    del linecache.cache[file]
                else:
                    linecache.cache[file] = before
        self._sources.clear()
        self._own.clear()
        self._cells.clear()

    # -- what the profiler asks

    def text_of(self, file: str) -> CellText | None:
        """The cell behind a code object's file name; None where it is no cell."""
        return self._cells.get(file)

    # -- where a magic stands

    def place_of_cell(self, magic: str, body: str) -> Place:
        return self._place(magic, None, body) or Place(self._own_file(magic, body), 0, None)

    def place_of_line(self, magic: str, line: str) -> Place:
        return self._place(magic, line, None) or Place(
            self._own_file(magic, f"%{magic} {line}"), 1, None, f"%{magic} {line}"
        )

    def _place(self, magic: str, line: str | None, body: str | None) -> Place | None:
        running = list(self._running())
        for depth, (cell, visible) in enumerate(running):
            if not _stands_at(cell.lines, visible, magic, line, body):
                continue
            for outer, _ in running[depth + 1 :]:  # that runs a part of itself, as %%capture does
                if outer.text == cell.text:
                    cell = outer
            return self._claim(cell, visible)
        return None

    def _claim(self, cell: CellText, visible: int) -> Place:
        """The claim that a magic stands on this visible line of ``cell``."""
        text = cell.lines[visible - 1]
        is_aligned = all(line == number for number, line in enumerate(cell.visible, 1))
        if is_aligned or cell.text.lstrip().startswith("%%"):
            self._show_source(cell.file, cell.text)
        else:
            # The cell's other code is compiled with IPython's numbering, and a file can have only one.
            visible = cell.visible.index(visible) + 1
        return Place(cell.file, visible, cell.number, text)

    def _own_file(self, magic: str, text: str) -> str:
        """A file name for text that stands in no cell: one per text, so that a loop does not fill the book."""
        file = self._own.setdefault(text, f"<{magic}-{len(self._own) + 1}>")
        self._keep(text, file, None)
        self._show_source(file, text)
        return file

    def _running(self) -> Iterator[tuple[CellText, int]]:
        """The cells that run in this thread and the visible line each stands on, innermost first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            cell = self._cells.get(frame.f_code.co_filename)
            if cell is not None:
                yield cell, cell.visible_line(frame.f_lineno)
            frame = frame.f_back

    # -- keeping cells

    def _note(self, info: Any) -> None:
        """``pre_run_cell``: the count is one ahead already when history is stored (not up to IPython 9.7)."""
        is_ahead = info.store_history and not info.silent and version_info >= _COUNTS_FIRST
        number = self._shell.execution_count - (1 if is_ahead else 0)
        self._enter(info.raw_cell, getattr(info, "transformed_cell", None), number)

    def _rebuild(self) -> None:
        """Cells that ran before the book was opened, the running one included (at a lazy first use)."""
        history = self._shell.history_manager.input_hist_raw if self._shell.history_manager else []
        files = getattr(self._shell.compile, "_filename_map", {})  # IPython's; without it these cells are not known
        for file, number in list(files.items()):
            raw = history[number] if number < len(history) else ""
            # The history drops a cell's last newlines, so its file name cannot be made from it again.
            compiled = "".join(linecache.getlines(file)).rstrip("\n")
            if compiled and compiled == (self._transformed(raw) or "").rstrip("\n"):
                self._keep(raw, file, number, line_map(raw.splitlines(), compiled.splitlines()))
                continue
            for at in (number - 1, number):  # of the cell that ran it as a part of itself; see `_enter`
                raw = history[at] if 0 < at < len(history) else ""
                if compiled and (above := _lines_above_body(raw.splitlines(), compiled.splitlines())) is not None:
                    lines = len(compiled.splitlines())
                    self._keep(raw, file, at, tuple(range(above + 1, above + 1 + lines)))
                    break
        frame: FrameType | None = sys._getframe(1)
        running = []  # cells that are not stored in the history, too
        while frame is not None:
            if frame.f_code.co_name == "run_cell_async" and "raw_cell" in frame.f_locals:
                running.append(frame.f_locals)
            frame = frame.f_back
        for seen in reversed(running):
            number = seen.get("execution_count", self._shell.execution_count)
            self._enter(seen["raw_cell"], seen.get("cell"), number)

    def _enter(self, raw: str, transformed: str | None, number: int) -> None:
        """A cell is run. What a running cell runs of itself (the body of ``%%capture``) is a part of it, and whatever
        else it runs has its number: IPython's count is that of the next one.

        Args:
            number: IPython's count, which may be in the file's name.
        """
        transformed = transformed if transformed is not None else self._transformed(raw)
        if transformed is None or "IPYKERNEL_CELL_NAME" in os.environ:
            return  # it does not run; or all cells share one file name, and nothing can be said about a line
        file = self._shell.compile.get_code_name(raw, transformed, number)
        visible = line_map(raw.splitlines(), transformed.splitlines())
        for outer in (running := [cell for cell, _ in self._running() if cell.file != file]):
            if (above := _lines_above_body(outer.lines, raw.splitlines())) is not None:
                self._keep(outer.text, file, outer.number, tuple(above + line for line in visible))
                return
        self._keep(raw, file, running[-1].number if running else number, visible)

    def _transformed(self, raw: str) -> str | None:
        try:
            text: str = self._shell.transform_cell(raw)
        except SyntaxError:
            return None
        return text

    def _keep(self, text: str, file: str, number: int | None, visible: tuple[int, ...] = ()) -> None:
        self._cells[file] = CellText(text, file, number, source_id_of(text), visible)

    def _show_source(self, file: str, text: str) -> None:
        """Let tracebacks show the visible text of ``file``."""
        lines = [line + "\n" for line in text.splitlines()]
        ours = (len(text), None, lines, file)
        before = linecache.cache.get(file)
        if file in self._sources and before is self._sources[file][0]:
            before = self._sources[file][1]
        linecache.cache[file] = ours
        self._sources[file] = (ours, before)


def _stands_at(lines: list[str], visible: int, magic: str, line: str | None, body: str | None) -> bool:
    """Whether the magic with this text is what the user sees at line ``visible``."""
    if not 0 < visible <= len(lines):
        return False
    if body is not None:
        head = re.match(rf"\s*(?:>>> |In \[\d+\]: )?%%{magic}(?:\s|$)", lines[visible - 1])
        return head is not None and _stripped(lines[visible:]) == _stripped(body.splitlines())
    text, following = lines[visible - 1], visible
    while text.endswith("\\") and following < len(lines):  # IPython joins continued lines with a blank
        text, following = text[:-1] + " " + lines[following], following + 1
    found = re.match(rf"\s*(?:.*=\s*%|%?){magic}(?:\s+(?P<rest>.*))?$", text)
    return found is not None and (found["rest"] or "").split() == (line or "").split()


def _stripped(lines: list[str]) -> list[str]:
    return "\n".join(line.strip() for line in lines).strip("\n").split("\n")


def _lines_above_body(outer: list[str], inner: list[str]) -> int | None:
    """How many lines of ``outer`` stand above ``inner``, if it is the body of a cell magic there."""
    wanted = "\n".join(line.rstrip() for line in inner).rstrip("\n")
    if not wanted:
        return None
    for above, line in enumerate(outer, 1):
        if line.lstrip().startswith("%%") and "\n".join(each.rstrip() for each in outer[above:]).rstrip("\n") == wanted:
            return above
    return None


# ---- timed_statements ------------------------------------------------------------------------------------------------
# The text of a timed statement: Python, with the visible line numbers, and nothing that only a cell can do.

_SHELL = re.compile(r"(?:[^\W\d][\w.]*\s*=\s*)?!{1,2}\s*(?P<command>.+)")
_MAGIC = re.compile(r"(?:[^\W\d][\w.]*\s*=\s*)?%{1,2}\w")


def python_of(text: str) -> str:
    """``text`` with IPython's syntax made Python, line for line; transformers of the user's are not asked."""
    return aligned_text(text, TransformerManager().transform_cell(text))


def timed_statement(shell: Any, section: Section, place: Place) -> Body:
    """The body of one alternative.

    Raises:
        BodyError: in one line: nothing to time, or IPython syntax.
    """
    if not has_code(section.text):
        raise BodyError("nothing to time: write the statement after the options, or below %%timer")
    lines = zip(section.text.splitlines(), python_of(section.text).splitlines(), strict=False)
    for number, (written, python) in enumerate(lines, section.first_line):
        if written.strip() != python.strip():
            raise BodyError(f"line {number}: {_not_python(written.strip())}")
    # Without the prefilter, which would run automagic for a statement such as ``ls``.
    text = aligned_text(section.text, shell.input_transformer_manager.transform_cell(section.text))
    return Body(text, place.file, section.first_line, place.number)


def _not_python(line: str) -> str:
    """What a line of IPython syntax is, and what to write in a timed body, which is Python alone."""
    shell = _SHELL.fullmatch(line)
    what, way = "IPython syntax", "leave it out"
    if shell is not None:
        what, way = "a shell command", f"write `subprocess.run({shell['command']!r}, shell=True)`"
    elif _MAGIC.match(line) is not None:
        what, way = "a magic", "write what it does in Python"
    setup = "move it to the setup (`# --- setup`, or `--setup CODE`)"
    return f"`{line}` is {what}; only Python can be timed: {way}, or {setup}"
