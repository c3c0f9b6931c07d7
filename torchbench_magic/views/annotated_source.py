"""The text of a source as it is annotated: which stretches of it are shown, and what in a line is a keyword."""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Region", "Span", "coloured", "regions", "shown_lines"]

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

    Otherwise each function or method (with what is nested in it) that has a line that ran, and the stretch of
    lines outside any function. A source that is no plain Python (IPython syntax) is one stretch.
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
    if rest:
        found.append(Region("", max(min(rest), first_line), min(max(rest), end)))
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
