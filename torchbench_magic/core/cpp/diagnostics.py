"""What a compiler says about a snippet, as far as it is the user's: on the cell's lines, the rest counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .source import END, Snip, place_of_line

__all__ = ["Fault", "faults_of", "told", "unknown_names"]

_SHOWN = 3
_AT = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?P<rest>.*)$")
_ERROR = re.compile(r"^(?:fatal )?error: (?P<text>.*)$")
# what another header might declare
_MISSING = re.compile(
    r"not a member of|was not declared|has not been declared|does not name a|is not a (?:class|namespace)"
    r"|incomplete type|no member named|undeclared identifier|unknown type name|no template named|is not a template"
    r"|no type named"
)


@dataclass(frozen=True)
class Fault:
    """One error of the compiler.

    Attributes:
        part: the piece of the snippet it stands in (see `Snip.parts`); None where it is in nobody's code.
        line: in that piece, from 1.
        column: from 1; 0 where it is not known.
        text: the compiler's words.
    """

    part: str | None
    line: int
    column: int
    text: str


def faults_of(said: str, snip: Snip) -> list[Fault]:
    """The errors in a compiler's output. One in a header is laid to the line of the snippet that led there."""
    found: list[Fault] = []
    led: tuple[str, int, int] | None = None
    for line in said.splitlines():
        match = _AT.match(line.removeprefix("In file included from ").rstrip(",:"))
        if match is None:
            continue
        behind = match["file"].endswith(END)
        place = (match["file"].removesuffix(END), int(match["line"]), 0 if behind else int(match["column"] or 0))
        error = _ERROR.match(match["rest"])
        if error is None:
            if place[0] in snip.parts and ("required" in match["rest"] or line.startswith("In file included")):
                led = place
            elif place[0] in snip.parts and found and found[-1].part is None and "requested here" in match["rest"]:
                found[-1] = Fault(*place, found[-1].text)  # clang tells the way after the error
            continue
        part, at, column = place if place[0] in snip.parts else led or (None, 0, 0)
        found.append(Fault(part, at, column, error["text"]))
        led = None
    return found


def unknown_names(faults: list[Fault]) -> set[str]:
    """The names that were not known, which another header might declare."""
    found = set()
    for fault in faults:
        quoted = re.search(r"named '([^']+)'", fault.text) or re.search(r"'([^']+)'", fault.text)
        if quoted and _MISSING.search(fault.text):
            found |= set(re.findall(r"\w+", quoted[1])[-1:])
    return found


def told(name: str, snip: Snip, said: str) -> str:
    """The message to show: the user's own errors with their lines, at most three, and how many more there are."""
    faults = faults_of(said, snip)
    own = list(dict.fromkeys(fault for fault in faults if fault.part is not None))
    head = f"{name} does not compile"
    if not own:
        first = faults[0].text if faults else (said.strip().splitlines() or ["the compiler said nothing"])[-1]
        hint = "; is a brace, bracket or quote unclosed?" if faults else ""
        return f"{head}: {first}{hint}"
    lines = [f"{head}:", *(line for fault in own[:_SHOWN] for line in _shown(fault, snip))]
    if len(faults) > len(own[:_SHOWN]):
        more = len(faults) - len(own[:_SHOWN])
        lines.append(f"  and {more} more error{'' if more == 1 else 's'}")
    return "\n".join(lines)


def _shown(fault: Fault, snip: Snip) -> Iterator[str]:
    assert fault.part is not None
    body = snip.parts[fault.part]
    yield f"  {place_of_line(body, fault.line)}: {fault.text}"
    written = body.source.splitlines()
    if 0 < fault.line <= len(written):
        text = written[fault.line - 1]
        yield f"    {text.strip()}"
        indent = len(text) - len(text.lstrip())
        if fault.column > indent:
            yield f"    {' ' * (fault.column - 1 - indent)}^"
