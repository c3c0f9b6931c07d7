"""The text of a timed statement: Python, with the visible line numbers, and nothing that only a cell can do."""

from __future__ import annotations

import re
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from torchbench_magic.errors import BodyError
from torchbench_magic.results.cell_text import Body

from .alignment import aligned_text
from .cells import Place
from .sections import Section, has_code

__all__ = ["python_of", "timed_statement"]

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
    # Without the prefilter, which would run automagic for a statement such as `ls`.
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
