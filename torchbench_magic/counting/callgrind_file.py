"""Reading what callgrind writes: self and inclusive instructions of each function.

The format is described in valgrind's manual ("Callgrind format specification"). The keys are those of
``callgrind_annotate``, which torch reads too: ``file:function [library]``. Traps, each met in files of torch:
``calls=0`` marks a call that was still running at the dump, and the cost on its next line is inclusive
(``callgrind_annotate`` counts it as self); positions may be relative or negative; one name of a function stands in
several libraries; a recursive call reads ``function'2``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torchbench_magic.errors import CountError

from .counts import CallEdge

_Key = tuple[str, str, str]  # library, file, function
_Arcs = dict[tuple[_Key, _Key], tuple[int, int]]  # (caller, callee) -> (calls, inclusive instructions)


@dataclass(frozen=True)
class Costs:
    """Instructions of each function of one dump.

    Attributes:
        exclusive: ``file:function [library]`` -> instructions of its own.
        inclusive: the same with those of the functions it called.
        total: of the dump, as its summary says.
        calls: who called whom, at what cost, and how often since the arc was last written (see `since`).
        text: the file itself, as callgrind wrote it.
    """

    exclusive: dict[str, int]
    inclusive: dict[str, int]
    total: int
    calls: tuple[CallEdge, ...] = ()
    text: str = field(default="", repr=False, compare=False)


class _Names:
    """Names are written once, as ``(12) name``, and then as ``(12)``."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def read(self, text: str) -> str:
        if not text.startswith("("):
            return text
        number, _, name = text[1:].partition(")")
        if name := name.strip():
            self._known[number] = name
        return self._known[number]


def parse(text: str) -> Costs:
    """Read one part of callgrind's output.

    Raises:
        CountError: it is not complete, or not what callgrind writes.
    """
    try:
        exclusive, calls, graph, summary = _read(iter(text.splitlines()))
    except (KeyError, ValueError, IndexError) as error:
        raise CountError(f"callgrind's file cannot be read ({error}): run the cell again") from error
    total = sum(exclusive.values())
    if summary is None or summary != total:
        told = "has no summary" if summary is None else f"says {summary} in all, and its functions add up to {total}"
        raise CountError(f"callgrind's file is not complete: it {told}; run the cell again")
    return Costs(_by_name(exclusive), _by_name(_inclusive(exclusive, calls)), total, _named(graph), text)


def since(costs: Costs, before: Sequence[Costs]) -> Costs:
    """The same with how often functions were called since the parts ``before``, where that is known; else 0.

    callgrind counts calls whether it collects costs or not, and starts anew when it has written an arc, which it does
    only where it has a cost. So the calls of an arc that no part before has may be of any time.
    """
    known = {call[:2] for part in before for call in part.calls}
    return replace(costs, calls=tuple(call if call[:2] in known else call._replace(calls=0) for call in costs.calls))


def _read(lines: Iterator[str]) -> tuple[dict[_Key, int], _Arcs, _Arcs, int | None]:
    """(own instructions, arcs as ``callgrind_annotate`` has them, arcs between functions, the summary).

    A caller of the second kind has the file of the line that calls, which may have been inlined; one of the third has
    the file of the function itself, so that what it calls and who calls it have one name. For that a function without
    a file of its own has the last ``fl``, not, as ``callgrind_annotate`` reads it, a file that was inlined into the
    function before; and one that is called without a file has that of the last cost, which is what callgrind compares
    it with, not that of a ``fi`` or ``fe`` since.
    """
    positions, summary, has_events = 1, None, False
    for line in lines:
        if line.startswith("positions:"):
            positions = len(line[10:].split())
        elif line.startswith("summary:"):
            summary = int((line[8:].split() or ["0"])[0])
        elif line.startswith("events:"):
            if line[7:].split() != ["Ir"]:
                raise ValueError(f"events {line[7:].strip()!r} instead of Ir")
            has_events = True
            break
    if not has_events:
        raise ValueError("no events")
    libraries, files, functions = _Names(), _Names(), _Names()
    exclusive: dict[_Key, int] = defaultdict(int)
    calls: _Arcs = {}
    graph: _Arcs = {}
    library = file = function = ""
    callee_library: str | None = None
    callee_file: str | None = None
    callee, is_call, often = "", False, 0
    key: _Key = ("", "", "")
    home, own_file, inlined_file, costs_file = key, "", "", ""
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if line[0] in "0123456789+-*":
            cost = int((line.split()[positions:] or ["0"])[0])
            if is_call:
                to = (callee_library or library, callee_file or file, callee)
                callee_home = (to[0], callee_file or costs_file, callee)
                for arcs, arc in ((calls, (key, to)), (graph, (home, callee_home))):
                    before = arcs.get(arc, (0, 0))
                    arcs[arc] = before[0] + often, before[1] + cost
                callee_library = callee_file = None
                is_call = False
            else:
                exclusive[key] += cost
            costs_file = inlined_file
            continue
        name, separator, value = line.partition("=")
        match name:
            case "fn":
                function = functions.read(value)
                key, home, inlined_file = (library, file, function), (library, own_file, function), own_file
                costs_file = own_file
            case "fl" | "fi" | "fe":  # the file of the function, then those of lines that were inlined into it
                file = inlined_file = files.read(value)
                own_file = file if name == "fl" else own_file
                key = (library, file, function)
            case "ob":
                library = libraries.read(value)
            case "cob":
                callee_library = libraries.read(value)
            case "cfi" | "cfl":
                callee_file = files.read(value)
            case "cfn":
                callee = functions.read(value)
            case "calls":
                is_call, often = True, int(value.split()[0])
            case "jfi":
                files.read(value)
            case "jfn":
                functions.read(value)
            case "jump" | "jcnd":
                pass
            case _:
                if separator or not line.startswith(("totals:", "summary:")):
                    raise ValueError(f"unknown line {line[:40]!r}")
                if line.startswith("summary:") or summary is None:
                    summary = int((line.partition(":")[2].split() or ["0"])[0])
    return exclusive, calls, graph, summary


def _inclusive(exclusive: dict[_Key, int], calls: _Arcs) -> dict[_Key, int]:
    """As ``callgrind_annotate`` has it: what its callers paid; of a function nobody called, its own and its calls'."""
    inclusive = dict(exclusive)
    called: dict[_Key, int] = defaultdict(int)
    for (caller, callee), (_, cost) in calls.items():
        called[callee] += cost
        inclusive[caller] = inclusive.get(caller, 0) + cost
    return inclusive | called


def _by_name(costs: dict[_Key, int]) -> dict[str, int]:
    named: dict[str, int] = defaultdict(int)
    for key, cost in costs.items():
        if cost:
            named[_text(key)] += cost
    return dict(named)


def _named(calls: _Arcs) -> tuple[CallEdge, ...]:
    return tuple(
        CallEdge(_text(caller), _text(callee), *known) for (caller, callee), known in calls.items() if any(known)
    )


def _text(key: _Key) -> str:
    library, file, function = key
    return f"{file}:{function} [{library}]" if library else f"{file}:{function}"
