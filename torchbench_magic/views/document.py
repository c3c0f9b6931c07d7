"""What every result looks like, top to bottom: the sentence, the tables, the doubts, the footer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from torchbench_magic.printable import printable

from .table import Table

__all__ = [
    "Document",
    "Drawn",
    "MOST_DOUBTS",
    "Phrase",
    "Style",
    "StyledText",
    "Unfolding",
    "backticked",
    "clipped",
    "clipped_apart",
    "code",
    "plain",
    "printable",
]

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
