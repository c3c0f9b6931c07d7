"""Whether the cores were used well: the verdict in words, its evidence as a table, threads over time as a picture."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from itertools import pairwise

from torchbench_magic import units
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.show.document import Phrase, StyledText, code, of_result
from torchbench_magic.show.drawing import figure, svg_text
from torchbench_magic.show.palette import HUES, letters, mixed, theme
from torchbench_magic.show.table import Table, built_table, texts

from .verdict import Concurrency

_WIDTH, _HEIGHT = 640, 64
_TALLEST = 4.0  # times the cores: what goes beyond is cut, and said to be
_HATCH = 'width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"'
_STYLE = (
    "<style>"
    + theme(".tb-cores", ("ink0", "ink1", "ink2", "rule1"), "margin:8px 0")
    + ".tb-cores svg{max-width:100%;height:auto}"
    + letters(".tb-cores", ".i1")
    + ".tb-cores .ax{stroke:var(--rule1)}"
    f".tb-cores .r{{fill:{HUES['torch']};fill:{mixed(HUES['torch'])}}}"
    f".tb-cores .w{{stroke:{HUES['other']};stroke-width:2}}"
    f".tb-cores .c{{stroke:{HUES['slower']};stroke-dasharray:5 3;stroke-width:1.5}}"
    "</style>"
)

_MEANING = {
    "healthy": "every thread that wanted a core had one",
    "oversubscribed": "more threads than cores",
    "contended": "other processes used the cores; the code itself was not judged",
    "gil-bound": "threads wait for Python's interpreter lock",
    "lock-bound": "threads wait for a lock",
    "serial": "one thread at a time",
    "waiting": "part of the time no thread wants a core",
    "throttled": "the CPU quota stops the code",
    "device": "a device works, or is waited for, nearly all the time; the cores were not judged",
}


def cores_clause(profile: Profile) -> Iterator[Phrase]:
    """``; cores: oversubscribed, 3.9 threads wanted one of 2 cores (1.4 ran, 2.5 waited), others used 0.02``."""
    seen = profile.concurrency
    if seen is None:
        return
    yield Phrase("; cores: ")
    yield Phrase(seen.verdict, "strong")
    use = seen.use
    if seen.verdict == "not available":
        return
    if math.isnan(use.wanted):
        yield Phrase(f", {_MEANING[seen.verdict]}")
        return
    cores = "1 core" if use.cores == 1 else f"{units.count(use.cores)} cores"
    yield Phrase(f", {_number(use.wanted)} threads wanted one of {cores}")
    yield Phrase(f" ({_number(use.run)} ran, {_number(use.wait)} waited)")
    if use.outside >= 0.05:
        yield Phrase(f", others used {_number(use.outside)}")


def cores_footer(profile: Profile) -> Iterator[StyledText]:
    """What the verdict means, and what was not available."""
    seen = profile.concurrency
    if seen is None:
        return
    said = [f"Cores: {seen.verdict} = {_MEANING[seen.verdict]}."] if seen.verdict in _MEANING else []
    said.append("Threads: those of this process (without Jupyter's own) and of the processes it started.")
    yield (Phrase(" ".join(said)),)
    for missing in seen.missing:
        yield (Phrase(f"Not available: {missing}"),)


def proof_footer(profile: Profile) -> Iterator[StyledText]:
    """The last of all: the line that runs the same cell at several thread counts side by side."""
    seen = profile.concurrency
    if seen is None or not seen.proof:
        return
    whole = of_result(".concurrency.proof")
    yield Phrase("To compare thread counts, run ("), code(whole), Phrase(" is the cell): "), code(seen.proof_line)


def cores_table(profile: Profile) -> Table | None:
    """A row per figure; None without the option."""
    seen = profile.concurrency
    if seen is None:
        return None
    rows = [*_rows(seen)]
    built = (
        texts("figure", "how the cores were used", 60, lambda row: row[0]),
        texts("value", "value", 24, lambda row: row[1]),
        texts("meaning", "what it is", 90, lambda row: row[2], quiet=True),
    )
    return built_table("cores", built, rows, lambda row: str(row[0]))


def _rows(seen: Concurrency) -> Iterator[tuple[str, str, str]]:
    use = seen.use
    yield "verdict", seen.verdict, _MEANING.get(seen.verdict, "; ".join(seen.missing))
    figures = (
        ("threads that wanted a core", use.wanted, f"mean, of {units.count(use.cores)} usable cores"),
        ("running", use.run, "mean number of running threads"),
        ("waiting for a core", use.wait, "mean number of threads waiting for a core"),
        ("of these, in child processes", use.below or math.nan, "DataLoader workers and pools"),
        ("cores used by others", use.ext, "processes not started by this one"),
        ("cores taken by the hypervisor", use.steal or math.nan, "steal"),
        ("waiting for the GIL", use.gil, "mean number of threads"),
        ("waiting for locks", use.lock, "mean number of threads"),
    )
    for name, value, meaning in figures:
        if not math.isnan(value):
            yield name, _number(value), meaning
    for name, share, meaning in (
        ("time with one thread or none", use.alone, "share of samples in which at most one wanted a core"),
        ("time with no thread", use.idle, "share of samples in which none did"),
        ("throttled", use.throttled, "share of the quota's periods"),
        ("time of a device", use.device or math.nan, "a device worked, or the code waited for it"),
    ):
        if not math.isnan(share):
            yield name, f"{units.percent(share)} %", meaning
    if use.samples:
        yield "active threads", units.count(use.threads), f"active at least 5 % of the time; at most {use.most} at once"
        yield "samples", units.count(use.samples), "of the threads, taken by a separate process"
    yield "torch threads", units.count(seen.torch_threads), "torch.get_num_threads()"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


# ---- the picture ----------------------------------------------------------------------------------------------------


def cores_picture(profile: Profile) -> str:
    """Threads over time as static SVG: those that ran, on them those that waited, against the cores; empty without."""
    seen = profile.concurrency
    if seen is None or len(seen.timeline) < 2:
        return ""
    times = [0.0, *seen.timeline["time"]]
    running = [float(each) for each in seen.timeline["running"]]
    wanted = [ran + float(waited) for ran, waited in zip(running, seen.timeline["waiting"], strict=True)]
    cores = seen.use.cores
    top = min(max(*wanted, cores * 1.2, 1.2), _TALLEST * cores)
    hatch = f"hatch{secrets.token_hex(6)}"
    across = _WIDTH / times[-1] if times[-1] > 0 else 0.0
    edges = [at * across for at in times]
    line = _HEIGHT * (1 - min(cores / top, 1.0))
    cut = " (cut off above)" if max(wanted) > top else ""
    label = units.counted(cores, "core")
    parts = [
        f'<defs><pattern id="{hatch}" {_HATCH}><line class="w" x1="0" y1="0" x2="0" y2="5"/></pattern></defs>',
        f'<path d="{_steps(edges, wanted, top)}" fill="url(#{hatch})"/>',
        f'<path class="r" d="{_steps(edges, running, top)}"/>',
        f'<line class="ax" x1="0" x2="{_WIDTH}" y1="{_HEIGHT}" y2="{_HEIGHT}"/>',
        f'<line class="c" x1="0" x2="{_WIDTH}" y1="{line:.1f}" y2="{line:.1f}"/>',
        svg_text(_WIDTH + 6, line + 4, label, "start", "i1"),
        svg_text(0, -6, f"threads: running (filled), waiting for a core (hatched){cut}", "start"),
        svg_text(0, _HEIGHT + 14, "0", "start"),
        svg_text(_WIDTH, _HEIGHT + 14, units.seconds_text(times[-1]), "end"),
    ]
    said = f"Threads over time against {label}: {seen}."
    drawn = figure((_WIDTH, _HEIGHT), (8, 20, 70, 20), said, parts)
    return f'{_STYLE}<div class="tb-cores">{drawn}</div>'


def _steps(edges: list[float], values: list[float], top: float) -> str:
    """The outline of bars that stand side by side."""
    heights = [_HEIGHT * (1 - min(value / top, 1.0)) for value in values]
    moves = [f"M{edges[0]:.1f},{_HEIGHT}"]
    for (left, right), height in zip(pairwise(edges), heights, strict=True):
        moves.append(f"L{left:.1f},{height:.1f}L{right:.1f},{height:.1f}")
    return "".join([*moves, f"L{edges[-1]:.1f},{_HEIGHT}Z"])
