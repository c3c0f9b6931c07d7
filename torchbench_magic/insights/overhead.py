"""``overhead``: lines whose time is the calling of many small operations, not what these compute."""

from __future__ import annotations

from collections import defaultdict

from torchbench_magic import units
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.statements import call_name, calls_in, place_in
from torchbench_magic.result_base import Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, LineUse, OpUse, Recorded, places_text, recorded_lines, stake_text
from .optimizers import FUSED

SMALL = 5e-6
"""Seconds of one call of an op by itself, as recorded, up to which it is mostly dispatch. Adding four numbers takes
0.95 us bare and 1.5 us recorded (torch 2.13, 2 shared cores, design notes on profiling), so from five of these on
another half of the time and more is arithmetic."""
FEWEST = 100
"""Calls from Python: fewer are no pattern, and take less than a millisecond."""
DOMINATES = 0.5
"""Of the line's time: below that the line is about something else."""
_PYTHON = 5e-6, 10e-6
"""Seconds of Python for an op that a line calls, and for a module: what is counted as part of the call, at most.
Reading a short expression and its arguments took 1 to 2 us an op as recorded, a call of an nn.Module 5 us more. What is
above is Python of another kind (`insights.outside_torch`)."""
_STEP, _FETCH = "Optimizer.step#", "enumerate(DataLoader)#"
"""Ranges of torch's own: of an optimizer's step, of the fetching of a batch."""
DISPATCH = 0.95e-6
"""Seconds that the call of the smallest op takes bare (see `SMALL`): what a line spends on its calls at least, however
much of its recorded time the estimated cost of recording is."""


def overhead(profile: Profile) -> list[Insight]:
    """One for each loop (or function, or lone line) in which small operations dominate lines.

    Silent: where the ops compute (a few large ones, however many small views stand beside them); for fewer than
    `FEWEST` calls; for a line that waits for threads or workers; for time outside torch that the calls do not explain.
    Seconds at stake: the ops' own time and the Python that calls them, without what recording added. One call is
    left in any case, so no cure saves all of it.
    """
    recorded = recorded_lines(profile)
    if recorded.wall <= 0:
        return []
    groups: dict[tuple[str, int], list[tuple[LineUse, float]]] = defaultdict(list)
    for use in recorded.lines:
        stake = _stake(use)
        least = DISPATCH * _called(_small(use))
        if least and max(stake - use.cost, least) >= DOMINATES * max(use.time, least):
            groups[_loop_of(profile, use)].append((use, min(recorded.without(stake, use), use.recorded)))
    found = [_insight(profile, recorded, group) for group in groups.values()]
    return [each for each in found if each is not None]


def _small(use: LineUse) -> list[OpUse]:
    return [op for op in use.ops if op.calls and op.own / op.calls <= SMALL]


def _called(ops: list[OpUse]) -> int:
    return sum(op.calls for op in ops if op.is_called_by_line)


def _stake(use: LineUse) -> float:
    """Seconds of small ops and of the Python that calls them, as recorded."""
    small = _small(use)
    python = min(use.python, _called(small) * _PYTHON[0] + use.modules * _PYTHON[1])
    return sum(op.own for op in small) + python


def _loop_of(profile: Profile, use: LineUse) -> tuple[str, int]:
    """What repeats the line: the innermost loop around it, else its function, else the line itself."""
    source_id, line = use.key
    place = place_in(profile.sources.get(source_id), line)
    loop = place.repeated_by if place is not None else None
    return (source_id, -loop.lineno) if loop is not None else (source_id, line)


def _insight(profile: Profile, recorded: Recorded, group: list[tuple[LineUse, float]]) -> Insight | None:
    group = sorted(group, key=lambda each: -each[1])
    uses = [use for use, _ in group]
    seconds = min(sum(stake for _, stake in group), recorded.wall)
    small = [op for use in uses for op in _small(use)]
    called = _called(small)
    share = seconds / recorded.base
    if called < FEWEST or share < LEAST_SHARE or seconds < LEAST_SECONDS:
        return None
    places = tuple(use.where for use in uses)
    runs = "run" if len(places) > 1 else "runs"
    modules = sum(use.modules for use in uses)
    how = f"in {units.count(modules)} calls of modules" if modules else ""
    how = how or f"{units.seconds_text(seconds / called, digits=2)} each"
    text = (
        f"{places_text(places)} {runs} {units.count(called)} small operations{' ' if modules else ', '}{how}: calling "
        f"them takes {stake_text(seconds, recorded.base, recorded.measured)}."
    )
    names: dict[str, int] = defaultdict(int)
    for op in small:
        if op.is_called_by_line:
            names[op.name] += op.calls
    evidence: dict[str, object] = {
        "operations": called,
        "operations_within": sum(op.calls for op in small) - called,
        "seconds_per_operation": seconds / called,
        "seconds_in_operations": sum(op.own for op in small),
        "seconds_outside_torch": sum(use.python for use in uses),
        "seconds_of_recording": sum(use.cost for use in uses),
        "module_calls": modules,
        "most_called": max(names, key=lambda name: names[name]),
    }
    return Insight("overhead", seconds, share, text, evidence, places, _cures(profile, recorded, uses, seconds))


def _cures(profile: Profile, recorded: Recorded, uses: list[LineUse], seconds: float) -> tuple[Cure, ...]:
    """The first is about most of the seconds, as far as that is known."""
    cures = []
    if _ranges(profile, uses, _FETCH):
        text = (
            "Take each batch out of whole tensors (shuffled by a random permutation, if the loader shuffles): the"
            " loader fetches and stacks it sample by sample."
        )
        return (Cure(text, code="x[i : i + n], y[i : i + n]"),)
    in_step = min(_in_optimizers(profile, recorded, uses), seconds)
    is_of_optimizer = in_step >= DOMINATES * seconds  # the loop, and the function to compile, are torch's own code
    if is_of_optimizer:
        pass
    elif any(use.modules for use in uses) or any(_runs_backward(profile, use) for use in uses):
        cures.append(Cure("Use larger batches: each operation then does more work."))
    elif _is_in_loop(profile, uses[0]):
        cures.append(Cure("Replace the loop by operations on whole tensors (index, stack, broadcast)."))
    else:
        cures.append(Cure("Batch: one operation on a larger tensor instead of many on small ones."))
    compiled = "Compile the calling function with `torch.compile`: it fuses them and avoids Python."
    if not is_of_optimizer and not any(use.is_compiled for use in uses):
        cures.append(Cure(compiled, lever="compile"))
    steppers = {name.removeprefix(_STEP).partition(".")[0] for name in _ranges(profile, uses, _STEP)}
    if in_step > 0 and steppers & set(FUSED):
        text = (
            "Update all parameters in one call, if the optimizer supports it: `fused=True`. Its step is"
            f" {units.seconds_text(in_step, digits=2)} of these {units.seconds_text(seconds, digits=2)}."
        )
        # on one CPU thread it took up to 2.8 times as long as the loop: see `insights.optimizers`
        each = Cure("`foreach=True` can be slower than the loop on a CPU: try it before you keep it.", lever="foreach")
        cures += [Cure(text, lever="fused-optimizer"), each]
    return tuple(cures)


def _ranges(profile: Profile, uses: list[LineUse], names: str) -> set[str]:
    """Names of the ranges and operations on these lines that begin so."""
    frames, lines = profile.frames, {use.key for use in uses}
    found = frames[frames["name"].astype(str).str.startswith(names) & frames["line"].notna()]
    rows = zip(found["source_id"], found["line"], found["name"], strict=True)
    return {str(name) for source_id, line, name in rows if (source_id, int(line)) in lines}


def _in_optimizers(profile: Profile, recorded: Recorded, uses: list[LineUse]) -> float:
    """Seconds of the steps of optimizers that these lines call, without what recording surely added."""
    frames = profile.frames
    steps = frames[
        (frames["kind"] == "python") & (frames["thread"] == 0) & frames["name"].astype(str).str.startswith(_STEP)
    ]
    total = 0.0
    for use in uses:
        mine = steps[(steps["source_id"] == use.key[0]) & (steps["line"] == use.key[1])]
        if use.recorded > 0:
            part = recorded.without(use.recorded, use) / use.recorded
            total += part * float(mine["wall_time"].fillna(0.0).sum())
    return total


def _is_in_loop(profile: Profile, use: LineUse) -> bool:
    place = place_in(profile.sources.get(use.key[0]), use.key[1])
    return place is not None and place.repeated_by is not None


def _runs_backward(profile: Profile, use: LineUse) -> bool:
    """Whether the line calls a backward pass: what is in it cannot be written otherwise there."""
    place = place_in(profile.sources.get(use.key[0]), use.key[1])
    names = [f".{call_name(call)}" for call in calls_in(place.head)] if place is not None else []
    return any(name.endswith((".backward", ".autograd.grad")) for name in names)
