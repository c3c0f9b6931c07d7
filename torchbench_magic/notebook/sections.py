"""``# --- NAME``: the comment lines that divide a ``%%timer`` cell into setup and alternatives; ``// --- NAME`` in C++.

Headers are found with the tokenizer, so text inside a string is none; a comment that ends in ``-`` is a
divider, and a comment inside brackets belongs to the expression round it. A comment that is nearly a header (`# -- b`,
below a header also `# --- b ---`, `# === b`, `# — b` and one that a space has moved) is an error: taken for a comment,
it would put its section into the one above. Longer rules (`# ----- b -----`) and rules without a name are comments.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchbench_magic.errors import SectionError

if TYPE_CHECKING:
    from torchbench_magic.timing.samples import Language

SETUP = "setup"
GLOBAL_SETUP = "global setup"
_HEADER = re.compile(r"(?:#|//) --- +(?P<name>\S.*?)\s*$")
_NEAR = re.compile(  # two dashes, %% or a space short or too many; --x and %%time are code that was commented out
    r"(?:#+|/{2,})\s*(?:-{2,}\s+|-{3,}|%%\s+)(?P<name>\w.*?)\s*$"
)
_RULED = re.compile(  # two to four of another sign, or the name between dashes: headers of other tools, or dividers
    r"(?:#+|/{2,})\s*(?:={2,4}\s+|[\u2012-\u2015\u2500\u2501]{1,4}\s*|-{2,4}(?=[^-].*-\s*$)\s*)"
    r"(?P<name>\w.*?)[\s=\u2012-\u2015\u2500\u2501-]*$"
)
_MARKS: dict[Language, str] = {"python": "#", "c++": "//"}
_CPP = re.compile(  # what can hold a comment's signs, and comments
    r'R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'  # a raw string
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n]){1,12}'"
    r"|/\*.*?(?:\*/|\Z)"
    r"|(?P<comment>//[^\n]*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Section:
    """One section of a cell.

    Attributes:
        name: as the header gives it; None for a cell without headers.
        text: the lines below the header.
        first_line: visible line number of the first line of ``text``.
    """

    name: str | None
    text: str
    first_line: int


@dataclass(frozen=True)
class Sections:
    """A cell divided: its setup section, or None, the alternatives in order, and C++ at the level of the file."""

    setup: Section | None
    alternatives: tuple[Section, ...]
    global_setup: Section | None = None


def split_sections(
    text: str, written: str | None = None, *, first_line: int = 1, language: Language = "python"
) -> Sections:
    """Divide a cell.

    Args:
        text: Python, in which the headers are looked for (IPython syntax already transformed, line for line).
        written: the same lines as the user wrote them, which the sections are cut from; default: ``text``.
        first_line: visible line number of the first line.
        language: of the cell; the section ``global setup`` is one in C++ only.

    Raises:
        SectionError: in one line, with the visible line number.
    """
    lines = (text if written is None else written).splitlines(keepends=True)
    every = list(_comments(text) if language == "python" else _cpp_comments(text))
    comments, moved = ([(line, comment) for line, comment, is_moved in every if is_moved is of] for of in (False, True))
    headers = [(line, match["name"]) for line, comment in comments if (match := _named(_HEADER, comment))]
    mark = _MARKS[language]
    _refuse_near(comments, moved, headers, lines, first_line, mark)
    if not headers:
        return Sections(None, (Section(None, "".join(lines), first_line),))
    for number, line in enumerate(lines[: headers[0][0] - 1], first_line):
        if line.strip() and not line.lstrip().startswith(mark):
            raise SectionError(
                f"line {number}: code before the first section, {headers[0][1]!r}; put it under `{mark} --- {SETUP}`"
            )
    ends = [start - 1 for start, _ in headers[1:]] + [len(lines)]
    sections = [
        Section(name, "".join(lines[start:end]), first_line + start)
        for (start, name), end in zip(headers, ends, strict=True)
    ]
    special = {SETUP} if language == "python" else {SETUP, GLOBAL_SETUP}
    _check(sections, special, language)
    setup, global_setup = (
        next((s for s in sections if s.name == n and n in special), None) for n in (SETUP, GLOBAL_SETUP)
    )
    return Sections(setup, tuple(s for s in sections if s.name not in special), global_setup)


def section_names(text: str) -> list[str]:
    """The alternatives of a cell that is still being written, which need not tokenize: by its lines alone."""
    found = [match["name"] for line in text.splitlines() if (match := _named(_HEADER, line))]
    return [name for name in found if name not in (SETUP, GLOBAL_SETUP)]


def has_code(text: str, language: Language = "python") -> bool:
    """Whether there is more than blank lines and comments."""
    if language == "c++":
        text = _CPP.sub(lambda found: "" if found[0].startswith(("//", "/*")) else found[0], text)
    return any(
        line.strip() and not (language == "python" and line.lstrip().startswith("#")) for line in text.splitlines()
    )


def _check(sections: list[Section], special: set[str], language: Language) -> None:
    lines: dict[str, int] = {}
    for section in sections:
        name, line = str(section.name), section.first_line - 1
        if name in lines:
            both = f"lines {lines[name]} and {line}"
            what = f"two {name} sections" if name in special else f"two sections have the name {name!r}"
            raise SectionError(f"{both}: {what}; {'join them' if name in special else 'give each its own name'}")
        lines[name] = line
        for meant in special - {name}:
            if re.sub(r"[\s_-]", "", name).lower() == meant.replace(" ", ""):
                mark = _MARKS[language]
                raise SectionError(
                    f"line {line}: {name!r} looks like `{mark} --- {meant}`: write that, or use another name"
                )
        if not has_code(section.text, language):
            raise SectionError(f"line {line}: section {name!r} is empty: add code below it, or delete the header")
    if len(sections) == 1 or not lines.keys() - special:
        (name, line), *_ = lines.items()
        if language == "python" and (unclosed := _never_closed(sections[-1])):
            raise SectionError(unclosed)
        what = "there is nothing to time" if name in special else "there is nothing to compare it with"
        raise SectionError(f"line {line}: {name!r} is the only section, {what}; add a section or delete the header")


def _never_closed(section: Section) -> str:
    """What is said of a bracket that hides the headers below it; empty where there is none."""
    try:
        ast.parse(section.text)
    except SyntaxError as error:
        if "was never closed" in error.msg:
            line = section.first_line + (error.lineno or 1) - 1
            return f"line {line}: {error.msg}, so the sections below it are read as part of {section.name!r}"
    except ValueError:  # a null character
        pass
    return ""


def _named(pattern: re.Pattern[str], comment: str) -> re.Match[str] | None:
    """The match of a comment that names something: one that ends in ``-`` is a divider."""
    match = pattern.match(comment)
    return match if match and not match["name"].endswith("-") else None


def _refuse_near(
    comments: list[tuple[int, str]],
    moved: list[tuple[int, str]],
    headers: list[tuple[int, str]],
    lines: list[str],
    first_line: int,
    mark: str,
) -> None:
    """Refuse a comment that is nearly a header where it would begin a section.

    That is below a header; and above the first one, or where there is none, when the cell's first line of code stands
    below such a comment and there is a header, or a second such comment, to compare it with. Otherwise it is a comment.
    A comment that many write as a divider is refused below a header only, where it is not known what was meant.

    Args:
        moved: comments that would be at the level of the cell but for the space before them.
    """
    proper = {line for line, _ in headers}
    near = {line: match["name"] for line, comment in comments if (match := _named(_NEAR, comment))}
    near |= {line: match["name"] for line, comment in moved if (match := _named(_HEADER, comment))}
    near = {line: name for line, name in near.items() if line not in proper}
    first_header = min(proper, default=len(lines) + 1)
    code = next((n for n, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith(mark)), 0)
    begins = {line for line in near if line < code < first_header and len(near) + len(proper) > 1}
    ruled = {line: match["name"] for line, comment in comments if (match := _RULED.match(comment))}
    for line, name in sorted({**ruled, **near}.items()):
        if line not in proper and (line > first_header or line in begins):
            raise SectionError(
                f"line {first_line + line - 1}: `{lines[line - 1].rstrip()}` looks like a header: write"
                f" `{mark} --- {name}` to begin a section, or change the comment"
            )


def _comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether it was moved) of each comment at column 0 and outside of brackets, and of each that a space
    has moved: it stands alone on its line and belongs to no block, at the column of none that is open, or below code at
    column 0 that opens none. Text that does not tokenize has those before the error."""
    depth, columns, last = 0, [0], ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
            if token.type == tokenize.INDENT:
                columns.append(len(token.string.expandtabs()))
            elif token.type == tokenize.DEDENT:
                columns.pop()
            if token.type == tokenize.COMMENT:
                before = token.line[: token.start[1]]
                column = len(before.expandtabs())
                is_out = (column < columns[-1] and column not in columns) or (len(columns) == 1 and last != ":")
                if not depth and (not column or (is_out and not before.strip())):
                    yield token.start[0], token.string, column > 0
            elif token.type not in _LAYOUT:
                last = token.string
    except (tokenize.TokenError, SyntaxError):
        return  # compiling the section says what is wrong, on its line


_LAYOUT = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def _cpp_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """As `_comments`, of each ``//`` comment outside of strings and other comments; a block is what stands between
    braces."""
    for token in _CPP.finditer(text):
        before = text[: token.start()].rpartition("\n")[2]
        if token["comment"] and not before.strip():
            above = _CPP.sub("", text[: token.start()]) if before else ""
            if all(above.count(opens) == above.count(closes) for opens, closes in ("{}", "()")):
                yield text.count("\n", 0, token.start()) + 1, token["comment"], before != ""
