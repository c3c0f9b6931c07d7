"""``copies``: tensors that a line converts, or lays out anew, again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from torchbench_magic import units
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.results import Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, LineUse, OpUse, Recorded, recorded_lines, stake_text

FEWEST = 10
"""Copies: what is converted once or twice has to be converted."""
LEAST_EACH = 5e-6
"""Seconds of one copy, as recorded: a shorter one is dispatch, see `insights.overhead`."""

LEAST_WITHIN = 0.1
"""Share from which on copies are said that another op makes for itself (`matmul` of heads that were transposed): they
are the price of an operation that does something else besides, and a few per cent of them are usual in attention."""

_CONVERTS = "aten::_to_copy"  # another dtype (or device): what `.to`, `.float()`, autocast and mixed arithmetic run
_LAYS_OUT = frozenset({"aten::contiguous", "aten::clone"})
_BACKWARD = "autograd::engine::"
_ASKED_FOR = frozenset({"aten::clone", "aten::copy_", "aten::index_put_", "aten::detach"})
"""Called by the line itself these are copies that its author wanted."""
_CAUSES = {
    "aten::to": "a conversion (`.to`, `.float()`, `.double()`)",
    "aten::contiguous": "`contiguous`",
    "aten::reshape": "`reshape` of a tensor that cannot be viewed",
    "aten::flatten": "`flatten` of a tensor that cannot be viewed",
}


def copies(profile: Profile) -> list[Insight]:
    """One for each line that spends time in `aten::_to_copy`, `aten::contiguous` or a `aten::clone` within another op.

    Silent: below `LEAST_WITHIN` where another op makes them; for a ``.clone()`` or ``copy_`` that the line asks for;
    for what is copied fewer than `FEWEST` times; in the backward pass, whose copies follow from the forward's; within a
    convolution, which picks its own layout, and as the result of an operation that runs in place on it: nobody can cure
    these.
    Seconds at stake: the copies with all they call.
    """
    recorded = recorded_lines(profile)
    if recorded.wall <= 0:
        return []
    found = [_insight(profile, recorded, use) for use in recorded.lines]
    return [each for each in found if each is not None]


def _insight(profile: Profile, recorded: Recorded, use: LineUse) -> Insight | None:
    paths = {op.path for op in use.ops}
    copied = [op for op in use.ops if _is_copy(op, paths) and op.calls and op.wall / op.calls >= LEAST_EACH]
    calls = sum(op.calls for op in copied)
    seconds = max(sum(op.wall for op in copied) - recorded.per_op * use.calls_within(copied), 0.0)
    share = seconds / recorded.wall
    by_op: dict[str, float] = defaultdict(float)
    for op in copied:
        by_op[_cause(op)] += op.wall
    cause = max(by_op, key=lambda name: by_op[name], default="")
    least = LEAST_SHARE if cause in _CAUSES else LEAST_WITHIN
    if calls < FEWEST or share < least or seconds < LEAST_SECONDS:
        return None
    converting = sum(op.wall for op in copied if op.name == _CONVERTS)
    converts = converting >= sum(op.wall for op in copied) / 2
    count = units.count(calls)
    done = f"converts {count} tensors" if converts else f"copies {count} tensors into another layout"
    text = (
        f"`{use.where}` {done}, by {_CAUSES.get(cause, f'`{cause}`')}: "
        f"{stake_text(seconds, recorded.wall, profile.wall_time)}."
    )
    evidence: dict[str, object] = {
        "copies": calls,
        "seconds_per_copy": seconds / calls,
        "seconds_converting": converting,
        "seconds_changing_layout": sum(op.wall for op in copied) - converting,
        "called_by": cause,
    }
    return Insight("copies", seconds, share, text, evidence, (use.where,), _cures(by_op, converts))


def _is_copy(op: OpUse, paths: Collection[tuple[str, ...]]) -> bool:
    """The outermost copy of its kind; not one that is asked for, and none that others choose.

    Args:
        paths: of all ops on the line. One that clones and then runs itself in place (``masked_fill``, ``masked_fill_``)
            makes its result so.
    """
    if op.name != _CONVERTS and op.name not in _LAYS_OUT:
        return False
    if not op.above and op.name in _ASKED_FOR:
        return False
    if op.above and (op.above[0] in _ASKED_FOR or (*op.above, f"{op.above[-1]}_") in paths):
        return False
    return not any(_closes(name) for name in op.above)


def _closes(name: str) -> bool:
    """Whether copies within this op are not the line's to change, or counted with it already."""
    inner = name == _CONVERTS or name in _LAYS_OUT
    return inner or name.startswith((_BACKWARD, "Optimizer")) or "conv" in name or "mkldnn" in name


def _cause(op: OpUse) -> str:
    """What the line called, or the copy itself."""
    return op.above[0] if op.above else op.name


def _cures(by_op: Mapping[str, float], converts: bool) -> tuple[Cure, ...]:
    if converts:
        return (
            Cure("Create the tensor in that dtype, or convert it once before the loop."),
            Cure("Use one dtype: mixed arithmetic converts every time."),
        )
    once = Cure("Change the layout once, before the loop: `x = x.contiguous()`.", lever="contiguous")
    if set(by_op) <= {"aten::contiguous"}:
        return (Cure("Leave out `contiguous` if the next operation takes any strides; compare with `%%timer`."), once)
    return (once, Cure("Keep a layout for which `view` works."))
