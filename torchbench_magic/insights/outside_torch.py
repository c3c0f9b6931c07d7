"""``python`` and ``numpy``: lines whose time is not torch's, where it can be told whose it is.

A profile knows the time of a line outside torch's ops, and not what it is: Python, another library, reading a file,
waiting. So these two speak only where the text of the line leaves one answer, and are silent everywhere else.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

import numpy as np

from torchbench_magic import units
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.statements import (
    StatementPlace,
    call_name,
    calls_in,
    is_torch_call,
    leaves_for_numpy,
    place_in,
)
from torchbench_magic.result_base import Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, LineUse, Recorded, of_each_line, stake_text

FEWEST = 10
"""Runs of the line: what is imported, compiled or allocated at its first run is no pattern."""
LARGE = 0.04
"""Seconds outside torch from which on a tensor that is handed to numpy is evidence at fewer runs, even a single one.
What may happen at a first run is less: of the parts of numpy that are imported when they are first named ``random``,
the largest that computes, took 16 ms (``ma`` 11, ``polynomial`` 5; numpy 2.4, 2 shared cores)."""
DOMINATES = 0.5
"""Of the line's time, without what recording added: with less the line is about its operations."""
CALL = 2e-6
"""Seconds of Python that belong to the call of an op (see `insights.overhead`): these are not at stake here."""
_LONGEST = 0.25
"""Of the line's time in its longest single run: with more it was one event (an import, a compiler, a collection)."""

_WAITS = frozenset({"breakpoint", "exec", "eval", "input", "open", "print", "__import__", "next", "iter", "compile"})
"""Builtins that may wait, or run anything."""
_COMPUTES = frozenset(
    name
    for name, each in vars(builtins).items()
    if getattr(each, "__module__", "") == "builtins" and callable(each) and name not in _WAITS and name[0] != "_"
)
_METHODS = {
    *("append", "extend", "items", "keys", "values", "sort", "lower", "upper", "split", "splitlines", "strip"),
    *("startswith", "endswith", "isdigit", "tolist", "item", "size", "dim", "numel", "data_ptr", "cpu", "detach"),
    *("float", "double", "half", "long", "int", "to", "contiguous", "view", "reshape", "clone"),
}
"""Methods of Python's own containers and texts, and of tensors. Not `get`, `join`, `pop`, `copy`, `update`, `remove`:
queues, threads, files and requests have these too, and wait in them."""

_TORCH = {"torch", "F", "nn.functional", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special"}
_WAITS_IN_TORCH = {"load", "save", "compile", "wait", "from_file"}
_FASTER_IN_NUMPY = frozenset({"sort", "argsort", "partition", "argpartition"})
"""Numpy sorts numbers with vector instructions: where `np.sort` took 276 ms, `torch.sort`, which gives the indices too,
took 784 ms."""
_READS_FILES = frozenset({"load", "save", "savez", "savetxt", "loadtxt", "genfromtxt", "fromfile", "memmap"})
_FROM_NUMPY = frozenset({"from_numpy", "as_tensor", "tensor"})
_SAME_NAME = {
    "abs", "allclose", "arange", "argmax", "argmin", "argwhere", "bincount", "clip", "cos",
    "cumprod", "cumsum", "diff", "dot", "einsum", "exp", "flip", "histogram", "isnan", "kron", "linspace",
    "log", "log1p", "logaddexp", "matmul", "max", "maximum", "mean", "min", "minimum",
    "outer", "prod", "quantile", "roll", "round", "searchsorted", "sin", "sqrt", "stack", "sum",
    "tanh", "tile", "trace", "tril", "triu", "unique", "where",
}  # fmt: skip
_IN_TORCH = dict(zip(_SAME_NAME, _SAME_NAME, strict=True)) | {
    "concatenate": "cat",
    "transpose": "permute",
    "linalg.norm": "linalg.norm",
    "linalg.inv": "linalg.inv",
}
"""Functions of numpy -> those of torch that do the same."""


def python(profile: Profile) -> list[Insight]:
    """One for each line on which the time outside torch, between its operations or calls of modules, dominates.

    Silent: where the line runs no op and no module (then it may be any library); where it calls what is not known to
    compute (`_known_calls`), as a file, ``sleep``, a lock do; at the head of a loop over anything but a range; for
    numpy (a kind of its own); where one run of it took most of the time, or where that cannot be told (no trace).
    Seconds at stake: the time outside torch but `CALL` for each op, without what recording added.
    """
    return of_each_line(profile, _python_on, _waiting_lines(profile))


def _python_on(profile: Profile, recorded: Recorded, use: LineUse) -> Insight | None:
    seconds = max(recorded.without(use.python, use) - CALL * use.called, 0.0)
    share = seconds / recorded.base
    if share < LEAST_SHARE or seconds < LEAST_SECONDS:
        return None
    if use.python - use.cost - CALL * use.called < DOMINATES * use.time or use.runs < FEWEST:
        return None
    if not use.called or use.called + use.modules < use.runs:  # around nothing: memory that is given back, hooks
        return None
    place = place_in(profile.sources.get(use.key[0]), use.key[1])
    if place is None or any(leaves_for_numpy(call, place.module) for call in calls_in(place.head)):
        return None
    if not _known_calls(place, use):
        return None
    if not longest_run(profile, use) <= _LONGEST:
        return None
    between = units.count(use.called)
    text = (
        f"`{use.where}` is outside torch for {stake_text(seconds, recorded.base, recorded.measured)}, around its"
        f" {between} operations: {units.seconds_text(seconds / use.runs, digits=2)} each time it runs."
    )
    evidence: dict[str, object] = {
        "runs": use.runs,
        "operations": use.called,
        "module_calls": use.modules,
        "seconds_outside_torch": use.python,
        "seconds_in_torch": use.torch,
        "seconds_of_recording": use.cost,
    }
    return Insight("python", seconds, share, text, evidence, (use.where,), _python_cures(use, place))


def _python_cures(use: LineUse, place: StatementPlace) -> tuple[Cure, ...]:
    own = Cure("Use operations on whole tensors, or do it once before the loop.")
    if any(is_torch_call(call) and call_name(call).endswith("tensor") for call in calls_in(place.head)):
        return (
            Cure("Creating a tensor from a Python list reads it number by number: use torch functions instead."),
            own,
        )
    if use.modules or use.is_compiled:
        larger = Cure("Use larger batches: Python then runs less often.")
        compiled = Cure("Compile the module with `torch.compile`: it avoids the Python in between.", lever="compile")
        return (larger,) if use.is_compiled else (compiled, larger)
    return (own,)


def numpy(profile: Profile) -> list[Insight]:
    """One for each line that hands a tensor to numpy, or takes one from it, and whose time is outside torch.

    Silent: below `FEWEST` runs for less than `LARGE`, and for tensors that are made from numpy there (data that is
    prepared once comes from somewhere); where no tensor is involved that the text shows (``.numpy()``,
    ``torch.from_numpy``, a name that was made by these); where numpy sorts, which it does faster, or reads or writes a
    file; where the line calls anything else that is not known to compute.
    Seconds at stake: the time of the line outside torch, without what recording added. The same in torch takes some of
    it, and may take more: numpy is faster at times.
    """
    return of_each_line(profile, _numpy_on, _waiting_lines(profile))


def _numpy_on(profile: Profile, recorded: Recorded, use: LineUse) -> Insight | None:
    seconds = recorded.without(use.python, use)
    share = seconds / recorded.base
    if share < LEAST_SHARE or seconds < LEAST_SECONDS:
        return None
    if use.python - use.cost < DOMINATES * use.time:
        return None
    place = place_in(profile.sources.get(use.key[0]), use.key[1])
    if place is None or not _known_calls(place, use):
        return None
    leaving = [call_name(call) for call in calls_in(place.head) if leaves_for_numpy(call, place.module)]
    handed_over = _hands_over if use.runs >= FEWEST else _gives_to_numpy
    if not leaving or not _takes_tensor(place, handed_over) or (use.runs < FEWEST and seconds < LARGE):
        return None
    own = [name for name in leaving if not name.endswith(".numpy")]
    if own and all(name.rpartition(".")[2] in _FASTER_IN_NUMPY for name in own):
        return None
    called = [name if not name.startswith(".") else f"…{name}()" for name in dict.fromkeys(own or leaving)]
    words = ", ".join(f"`{name}`" for name in called[:3])
    at_stake = stake_text(seconds, recorded.base, recorded.measured)
    text = f"`{use.where}` uses NumPy instead of torch ({words}): {at_stake}."
    evidence: dict[str, object] = {
        "runs": use.runs,
        "numpy_calls": ", ".join(called),
        "seconds_outside_torch": use.python,
        "seconds_in_torch": use.torch,
        "seconds_of_recording": use.cost,
    }
    return Insight("numpy", seconds, share, text, evidence, (use.where,), _numpy_cures(own))


def _numpy_cures(called: list[str]) -> tuple[Cure, ...]:
    short = {name.partition(".")[2]: name for name in called}
    same = [f"`torch.{_IN_TORCH[name]}` for `{full}`" for name, full in short.items() if name in _IN_TORCH]
    stay = f"Use torch: {', '.join(same)}" if same else "Use the same function in torch, if there is one"
    return (Cure(f"{stay} (compare both with `%%timer`: NumPy can be faster)."),)


def _takes_tensor(place: StatementPlace, is_handed: Callable[[ast.Call], bool]) -> bool:
    """Whether the text shows a tensor on its way, as ``is_handed`` says of a call, on the line or in a name that it
    reads."""
    if any(is_handed(call) for call in calls_in(place.head)):
        return True
    handed: set[str] = set()
    assigns = [node for node in ast.walk(place.module) if isinstance(node, ast.Assign)]
    for _ in range(3):  # x.numpy() -> a; np.log(a) -> b
        for node in assigns:
            through = any(is_handed(call) for call in calls_in([node.value])) or (
                bool(_read_names([node.value]) & handed)
            )
            if through:
                handed |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return bool(_read_names(place.head) & handed)


def _read_names(expressions: list[ast.expr]) -> set[str]:
    return {n.id for e in expressions for n in ast.walk(e) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _hands_over(call: ast.Call) -> bool:
    """A tensor to numpy, or an array to torch."""
    return _gives_to_numpy(call) or (is_torch_call(call) and call_name(call).rpartition(".")[2] in _FROM_NUMPY)


def _gives_to_numpy(call: ast.Call) -> bool:
    return call_name(call).endswith(".numpy")


# ---- what a line may be waiting for -----------------------------------------------------------------------------


def _waiting_lines(profile: Profile) -> frozenset[tuple[str, int]]:
    """Lines that are known to wait, for other threads or for something else: the thread used no processor on them."""
    facts = [doubt.facts for doubt in profile.warnings if doubt.kind == "waits"]
    return frozenset((str(each.get("source_id")), int(str(each.get("line")))) for each in facts if "line" in each)


def _known_calls(place: StatementPlace, use: LineUse) -> bool:
    """Whether all that the line calls computes: builtins, math, torch, numpy without files, ops and modules that the
    profile saw on it, functions with lines of their own, methods of Python's own containers. At the head of a loop over
    anything but a ``range`` a loader, a queue or a file may be waited for."""
    for statement in place.statements:
        if isinstance(statement, ast.With | ast.AsyncWith | ast.AsyncFor | ast.Import | ast.ImportFrom | ast.Try):
            return False
        if isinstance(statement, ast.For) and ast.unparse(statement.iter).partition("(")[0] != "range":
            return False
    nodes = [node for each in place.head for node in ast.walk(each)]
    if any(isinstance(node, ast.Await | ast.Yield | ast.YieldFrom) for node in nodes):
        return False
    return all(_computes(call, place, use) for call in calls_in(place.head))


def _computes(call: ast.Call, place: StatementPlace, use: LineUse) -> bool:
    name = call_name(call)
    above, _, last = name.rpartition(".")
    if leaves_for_numpy(call, place.module):
        return last not in _READS_FILES
    if is_torch_call(call):
        return above in _TORCH and last not in _WAITS_IN_TORCH
    if name in _COMPUTES or above == "math" or last in use.functions:
        return True
    if last in {op.name.removeprefix("aten::") for op in use.ops} or last in use.module_names:
        return True
    return bool(above) and last in _METHODS


def longest_run(profile: Profile, use: LineUse) -> float:
    """Share of the line's time (with what it calls) in its longest uninterrupted stretch; NaN where it is not known."""
    trace = profile.trace
    if trace is None or use.key[0] not in trace.sources:
        return float("nan")
    nodes, segments = trace.nodes, trace.segments
    on_line = (
        (nodes["source"] == trace.sources.index(use.key[0])) & (nodes["line"] == use.key[1]) & (nodes["thread"] == 0)
    ).to_numpy()
    mine = segments[segments["thread"] == 0]
    starts = mine["start"].to_numpy()
    lengths = np.diff(np.append(starts, trace.duration))[on_line[mine["node"].to_numpy()]]
    whole = float(lengths.sum())
    return float(lengths.max()) / whole if whole > 0 else float("nan")
