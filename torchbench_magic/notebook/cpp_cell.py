"""What a ``%%timer --cpp`` cell says: its pieces of C++ with their visible lines, and what it may not ask."""

from __future__ import annotations

from dataclasses import dataclass

from torchbench_magic.cell_text import Body
from torchbench_magic.errors import BodyError, OptionError

from .cells import Place
from .options import TimerOptions
from .sections import Section, Sections, has_code, split_sections

_FOR_PYTHON = ("sweep", "fuzz", "check", "restore", "resume")


@dataclass(frozen=True)
class CppCell:
    """The C++ of a cell: name -> statement, and what comes before, in order."""

    bodies: dict[str, Body]
    setup: list[Body]
    global_setup: list[Body]


def check_language(options: TimerOptions) -> None:
    """Refuse options that are not for the language of the cell.

    Raises:
        OptionError: in one line.
    """
    if not options.cpp:
        if options.global_setup is not None:
            raise OptionError("--global-setup is C++ at the level of a file: give --cpp too, or use --setup")
        return
    asked = [f"--{name}" for name in _FOR_PYTHON if getattr(options, name)]
    asked += ["--clock device"] if options.clock == "device" else []
    asked += ["--callgrind-form"] if options.callgrind_form != "function" else []
    if asked:
        raise OptionError(f"--cpp: {asked[0]} is for Python, C++ sees none of the notebook's names; leave it out")


def read_cpp(options: TimerOptions, rest: str, cell: str | None, place: Place) -> CppCell:
    """Divide a C++ cell (None: the line ``%timer --cpp STMT``).

    Raises:
        SectionError, BodyError: in one line.
    """
    line = max(place.magic_line, 1)
    setup = [] if options.setup is None else [Section(None, options.setup, line)]
    global_setup = [] if options.global_setup is None else [Section(None, options.global_setup, line)]
    if cell is None:
        sections = Sections(None, (Section(None, rest, line),))
    else:
        sections = split_sections(cell, first_line=place.magic_line + 1, language="c++")
        setup += [Section(None, rest, line)] if rest.strip() else []
    setup += [sections.setup] if sections.setup is not None else []
    global_setup += [sections.global_setup] if sections.global_setup is not None else []
    if not all(has_code(section.text, "c++") for section in sections.alternatives):
        raise BodyError("nothing to time: write the C++ statement after the options, or below %%timer")

    def body(section: Section) -> Body:
        return Body(section.text, place.file, section.first_line, place.number)

    bodies = {section.name or "statement": body(section) for section in sections.alternatives}
    return CppCell(bodies, [body(section) for section in setup], [body(section) for section in global_setup])
