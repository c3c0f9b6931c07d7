"""Which visible line each line of a transformed cell came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["aligned_text", "line_map"]


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
