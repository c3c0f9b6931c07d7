"""What every result looks like, top to bottom: the sentence, the tables, the warnings, the source, the footer."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal

from .table import Table

MOST_DOUBTS = 2
"""Doubts that are shown at once. A reader of five reads none."""

Style = Literal["", "code", "subject", "figure", "strong", "quiet"]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A piece of a sentence in one style: ``code`` for names of the cell, ``subject`` for the one it is about."""

    text: str
    style: Style = ""


StyledText = tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture that is a view of its own, behind the view switch, in HTML only.

    Attributes:
        name: what the switch says ("flame graph").
        element: markup of an element with ``slot="drawn-N"``, N its place in ``Document.drawn``; what it holds is
            read where no script runs.
        scripts: markup of the scripts that draw into it.
    """

    name: str
    element: str
    scripts: str


@dataclass(frozen=True, slots=True)
class Unfolding:
    """A line that unfolds to more of it.

    Attributes:
        line: what is seen.
        under: what it unfolds to, a line each.
    """

    line: StyledText
    under: tuple[StyledText, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A result, ready to be drawn by any carrier.

    Attributes:
        kind: what it is, for the title of a page and for assistive technology.
        sentence: the answer, one sentence.
        tables: views of the same result; more than one get a switch.
        doubts: one line each, the most important first.
        footer: lines: definitions, then threads, device, versions and how long it took.
        folded: the sentence is the result; tables and footer open on demand (a single statement).
        where: where all rows are, for what is cut off (``_timer.frame``).
        rest: the tables are alternatives of which one is shown at a time, the first without script; what is said of the
            others there.
        drawn: pictures that are views of their own.
        picture: static SVG under the tables, in HTML only. It is markup: whoever makes it escapes every text in it.
        picture_first: it stands above them.
        insights: lines under the sentence; each unfolds to its evidence and cures.
        doubts_where: where all doubts are (``_timer.warnings``), for those that are folded.
        doubts_shown: how many are shown at once.
    """

    kind: str
    sentence: StyledText
    tables: tuple[Table, ...] = ()
    doubts: tuple[StyledText, ...] = ()
    footer: tuple[StyledText, ...] = ()
    folded: bool = False
    where: str = ""
    rest: str = ""
    drawn: tuple[Drawn, ...] = ()
    picture: str = ""
    picture_first: bool = False
    insights: tuple[Unfolding, ...] = ()
    doubts_where: str = ""
    doubts_shown: int = MOST_DOUBTS

    @property
    def first_doubts(self) -> tuple[StyledText, ...]:
        return self.doubts[: self.doubts_shown]

    @property
    def folded_doubts(self) -> tuple[StyledText, ...]:
        return self.doubts[self.doubts_shown :]

    @property
    def doubts_left(self) -> str:
        """``3 more: _timer.warnings``, where nothing unfolds; empty where all doubts are shown."""
        left = len(self.folded_doubts)
        words = f": {self.doubts_where}" if self.doubts_where else f" warning{'s' if left > 1 else ''}"
        return f"{left} more{words}" if left else ""

    @property
    def still(self) -> Document:
        """What is shown where nothing can be chosen: the first of alternative tables, and how many more there are."""
        if not self.rest or len(self.tables) < 2:
            return self
        return replace(self, tables=self.tables[:1], footer=((Phrase(self.rest),), *self.footer))


def code(text: str) -> Phrase:
    return Phrase(text, "code")


def backticked(text: str) -> StyledText:
    """A line in which what stands between backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backtick is a backtick
        return (Phrase(text),)
    return tuple(Phrase(part, "code" if at % 2 else "") for at, part in enumerate(parts) if part)


def plain(line: Iterable[Phrase]) -> str:
    return "".join(run.text for run in line)


def clipped(text: str, longest: int) -> str:
    """``text`` shortened with ``…`` to at most ``longest`` characters."""
    return text if len(text) <= longest else text[: max(longest - 1, 0)] + "…"


def _common_length(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def clipped_apart(texts: Iterable[str], longest: int) -> dict[str, str]:
    """Each text `clipped`; in the middle, before what tells it from the others, where two would become one."""
    every = list(dict.fromkeys(texts))
    made = {text: clipped(text, longest) for text in every}
    for text in every:
        alike = [other for other in every if other != text and clipped(other, longest) == clipped(text, longest)]
        if alike and len(text) > longest:
            common = max(_common_length(text, other) for other in alike)
            head = longest // 2
            begin = max(min(common - 4, len(text) - (longest - head - 1)), head)
            made[text] = f"{text[:head]}…{clipped(text[begin:], longest - head - 1)}"
    return made


# ---- name_in_notebook ------------------------------------------------------------------------------------------------
# By what name the reader has the result that is shown: ``_tprofile.ops`` in a notebook, ``.ops`` where none is known.
#
# Whoever shows a result and knows the variable that holds it says so; a result of a script, of a file, or one that
# another run has replaced meanwhile has no such name.

_name: ContextVar[str] = ContextVar("name of the result that is shown", default="")


@contextmanager
def shown_as(name: str) -> Iterator[None]:
    """What is shown in here is held by the variable ``name``; empty: by none that is known."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


def of_result(attribute: str) -> str:
    """How the reader reaches an attribute, given with its dot: ``.frame``, ``.where('aten::mm')``."""
    return f"{_name.get()}{attribute}"


# ---- annotated_source ------------------------------------------------------------------------------------------------
# The text of a source as it is annotated: which stretches of it are shown, and what in a line is a keyword.

Span = tuple[int, int, str]
_LONG = 60  # lines from which a region leaves out stretches that did not run
_CONTEXT = 2


@dataclass(frozen=True)
class Region:
    """A stretch of a source that is shown as one: a function, or a cell as a whole.

    Attributes:
        name: qualified name of the function; empty for a whole source.
        first, last: its lines, both included.
    """

    name: str
    first: int
    last: int


def regions(text: str, ran: Collection[int], *, whole: bool, first_line: int = 1) -> list[Region]:
    """Where the lines that ran stand. ``whole``: the source is shown from its first line to its last.

    Otherwise each function or method (with what is nested in it) that has a line that ran, and the stretches of
    lines between these. A source that is no plain Python (IPython syntax) is one stretch.
    """
    lines = text.splitlines()
    end = first_line + len(lines) - 1
    if whole:
        return [Region("", first_line, end)]
    rest = set(ran)
    found = []
    for region in _functions(lines, first_line):
        inside = {line for line in rest if region.first <= line <= region.last}
        if inside:
            found.append(region)
            rest -= inside
    between: dict[int, list[int]] = {}
    for line in sorted(min(max(line, first_line), end) for line in rest):
        between.setdefault(sum(region.first <= line for region in found), []).append(line)
    found += [Region("", stretch[0], stretch[-1]) for stretch in between.values()]
    return sorted(found, key=lambda region: region.first)


def shown_lines(region: Region, ran: Collection[int]) -> Iterator[int | tuple[int, int]]:
    """Line numbers of a region; in a long one a stretch that did not run is a pair: how many, and its first line."""
    every = range(region.first, region.last + 1)
    if len(every) <= _LONG:
        yield from every
        return
    near = {line for one in ran for line in range(one - _CONTEXT, one + _CONTEXT + 1)} | {region.first}
    skipped = 0
    for line in every:
        if line in near:
            if skipped:
                yield skipped, line - skipped
            skipped = 0
            yield line
        else:
            skipped += 1
    if skipped:
        yield skipped, region.last - skipped + 1


def coloured(lines: Sequence[str]) -> list[tuple[Span, ...]]:
    """Per line the spans of keywords (k), strings (s) and comments (c), as ``(start, end, meaning)``.

    Text that Python's tokenizer does not take (magics, an unfinished string) stays plain from there on.
    """
    spans: list[list[Span]] = [[] for _ in lines]
    readable = _without_magics(lines)
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(readable) + "\n").readline):
            meaning = _meaning(token)
            if meaning:
                _mark(spans, token, meaning, lines)
    except (tokenize.TokenError, SyntaxError):
        pass  # what was coloured so far is right; the rest reads as well in one ink
    return [tuple(one) for one in spans]


def _functions(lines: Sequence[str], first_line: int) -> list[Region]:
    """Outermost functions and the methods of classes, with their qualified names."""
    try:
        tree = ast.parse("\n".join(_without_magics(lines)))
    except (SyntaxError, ValueError):
        return []
    found: list[Region] = []

    def visit(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                last = child.end_lineno or child.lineno
                found.append(Region(outer + child.name, first + first_line - 1, last + first_line - 1))
            else:
                visit(child, f"{outer}{child.name}." if isinstance(child, ast.ClassDef) else outer)

    visit(tree, "")
    return found


def _without_magics(lines: Sequence[str]) -> list[str]:
    """Lines of IPython syntax blanked, so that the rest keeps its place."""
    return ["" if line.lstrip()[:1] in ("%", "!", "?") else line for line in lines]


def _meaning(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME and keyword.iskeyword(token.string):
        return "k"
    if token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith("FSTRING"):
        return "s"
    return "c" if token.type == tokenize.COMMENT else ""


def _mark(spans: list[list[Span]], token: tokenize.TokenInfo, meaning: str, lines: Sequence[str]) -> None:
    (first, start), (last, end) = token.start, token.end
    for row in range(first, last + 1):
        if row > len(lines):
            return
        left = start if row == first else 0
        right = min(end, len(lines[row - 1])) if row == last else len(lines[row - 1])
        if right > left:
            spans[row - 1].append((left, right, meaning))
