"""Texts of others (names, labels, paths, messages) in a form that can be shown wherever text is.

A terminal obeys control characters: a name could move the cursor, recolour or clear the screen. Direction characters
turn the order in which a line is read ("Trojan Source", Boucher and Anderson 2021): what stands there is not what is
meant. Both are written as escapes. Every carrier asks here, and so do messages of errors.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_BLANKS = {"\n": " ", "\t": " ", "\r": " "}
_TURNS = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))
_MARKS = frozenset("\u061c\u200e\u200f")
"""The other characters of Unicode's property Bidi_Control: they show nothing and move what stands beside them."""


def printable(text: str) -> str:
    """``text`` on one line, with control and direction characters written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_BLANKS.get(char) or (_escape(char) if _is_hidden(char) else char) for char in text)


def printable_lines(text: str) -> str:
    """The same of a text of several lines, which stay."""
    return "\n".join(map(printable, text.split("\n")))


def escaped(text: str) -> str:
    """The same with line breaks and tabulators as escapes too: two texts that differ are shown differing."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if _is_hidden(char) else char for char in text)


@lru_cache(maxsize=1 << 12)
def _is_hidden(char: str) -> bool:
    kind = unicodedata.category(char)
    return kind in ("Cc", "Zl", "Zp", "Cs", "Co") or unicodedata.bidirectional(char) in _TURNS or char in _MARKS


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
