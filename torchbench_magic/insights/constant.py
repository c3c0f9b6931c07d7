"""Tensors that a line makes again and again: ``constant``, of numbers that its own text binds once at most, and
``copies``, converted or laid out anew.

That a constant is the same each time is not proven: other code may bind the names anew or write into the tensor. So the
text says what was seen, and the cure has an "if".
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from torchbench_magic import units
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.statements import (
    FUNCTIONS,
    StatementPlace,
    bound_in,
    call_name,
    calls_in,
    is_torch_call,
    place_in,
)
from torchbench_magic.result_base import Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, LineUse, OpUse, Recorded, of_each_line, stake_text

FEWEST = 10
"""Runs of the line: fewer are no loop worth a change."""

_MAKES = {
    "arange", "eye", "full", "hann_window", "hamming_window", "linspace", "logspace", "ones", "tril_indices",
    "triu_indices",
}  # fmt: skip
"""Functions of torch whose result depends on their arguments alone. Never random ones; and not `zeros` and `empty`,
which are made to be written to."""
_KEEPS = {"cos", "cumsum", "exp", "flip", "log", "outer", "sin", "sqrt", "tanh", "tril", "triu"}
"""Functions whose result depends on their arguments alone, too."""
_BUILTINS = {"abs", "bool", "complex", "float", "int", "len", "max", "min", "pow", "round"}
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
"""Operators -> the op that they run on tensors."""
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)


def constant(profile: Profile) -> list[Insight]:
    """One for each line that makes a tensor of what the text does not bind anew.

    Silent: outside of loops and functions; where recorded shapes show inputs of several kinds; where the text shows
    that the tensor is written to or kept. Seconds at stake: the ops that make it.
    """
    return of_each_line(profile, _constant_of)


def _constant_of(profile: Profile, recorded: Recorded, use: LineUse) -> Insight | None:
    place = place_in(profile.sources.get(use.key[0]), use.key[1])
    if place is None or not place.around or use.runs < FEWEST or not use.ops:
        return None
    made = [each for each in _made(place) if not _is_written(each, place)]
    within = [node for each in made for node in ast.walk(each)]
    written = {_op_name(node) for node in within if any(_is_torch(each) for each in ast.walk(node))} - {""}
    if written & {_op_name(node) for one in place.head for node in ast.walk(one) if node not in within}:
        return None  # whose time it is cannot be told
    sizes = _sizes(profile, use, written)
    ops = [op for op in use.ops if op.is_called_by_line and op.name in written]
    seconds = max(sum(op.wall for op in ops) - recorded.per_op * use.calls_within(ops), 0.0)
    share = seconds / recorded.base
    if sizes == "several" or share < LEAST_SHARE or seconds < LEAST_SECONDS:
        return None
    words = ast.unparse(made[0])
    where = "function" if isinstance(place.around[-1], FUNCTIONS) else "loop"
    of_sizes = ", on inputs of the same sizes" if sizes == "same" else ""
    text = (
        f"`{use.where}` runs `{words}` {units.count(use.runs)} times{of_sizes}, and this code does not rebind"
        f" its arguments: {stake_text(seconds, recorded.base, recorded.measured)}."
    )
    evidence: dict[str, object] = {
        "runs": use.runs,
        "operations": sum(op.calls for op in ops),
        "seconds_each_run": seconds / use.runs,
        "expressions": ", ".join(ast.unparse(each) for each in made),
    }
    cure = Cure(
        f"If its arguments do not change and nothing writes into the tensor, make it once, before the {where}; in a"
        " module, as a buffer (`register_buffer`).",
        code=f"{_assigned_to(made[0], place) or 'made_once'} = {words}",
    )
    return Insight("constant", seconds, share, text, evidence, (use.where,), (cure,))


def _sizes(profile: Profile, use: LineUse, names: set[str]) -> str:
    """Of the inputs of the ops that make it, and of what these run: "same", "several", or "" where shapes were not
    recorded. They are several if more than one run of the line has calls of each kind."""
    within = {op.name for op in use.ops if op.path[0] in names}
    ops = profile.ops
    mine = ops[
        (ops["thread"] == 0)
        & (ops["source_id"] == use.key[0])
        & (ops["line"] == use.key[1])
        & ops["op"].isin(within)
        & ops["input_shapes"].notna()
    ]
    for _, rows in mine.groupby(mine["op"].astype(str)):
        kinds = rows[["input_shapes", "input_dtypes"]].astype(str).drop_duplicates()
        if len(kinds) > math.ceil(rows["calls"].sum() / use.runs):
            return "several"
    return "" if mine.empty else "same"


# ---- what the text says ------------------------------------------------------------------------------------------


def _made(place: StatementPlace) -> Iterator[ast.Call]:
    """The largest calls on the line that make a tensor of what the text does not bind anew."""
    left: list[ast.AST] = list(place.head)
    while left:
        node = left.pop()
        if isinstance(node, ast.Call) and _is_same(node, place):
            if any(_last(each) in _MAKES for each in calls_in([node])):
                yield node
        elif not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            left += ast.iter_child_nodes(node)


def _is_torch(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and is_torch_call(node)


def _last(call: ast.Call) -> str:
    return call_name(call).rpartition(".")[2]


def _is_same(made: ast.Call, place: StatementPlace) -> bool:
    """Whether the text shows no other value for what a call is made of: it calls nothing but functions that give the
    same for the same, and its names are bound once at most, before what repeats it, and not written to there."""
    words = [word.arg for node in ast.walk(made) if isinstance(node, ast.Call) for word in node.keywords]
    if not all(map(_gives_the_same, calls_in([made]))) or not {None, "requires_grad", "out"}.isdisjoint(words):
        return False
    names = {node.id for node in ast.walk(made) if isinstance(node, ast.Name)}
    above = [each for each in place.module.body if each.lineno < place.around[-1].lineno and isinstance(each, _SIMPLE)]
    bound, before = list(bound_in(place.module)), {name for each in above for name in bound_in(each)}
    known = {name for name in names if name not in bound or (name in before and bound.count(name) == 1)}
    return names == known and names.isdisjoint(map(_root, _written_in(place)))


def _gives_the_same(call: ast.Call) -> bool:
    root, last = call_name(call).partition(".")[0], _last(call)
    if is_torch_call(call):
        return last in _MAKES | _KEEPS
    return root == "math" or last in (_BUILTINS if root == last else _KEEPS if root == "" else ())


def _op_name(node: ast.AST) -> str:
    """The op that a call or arithmetic may run."""
    if isinstance(node, ast.Call):
        return f"aten::{_last(node)}"
    return f"aten::{_ARITHMETIC[type(node.op)]}" if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC else ""


def _assigned_to(made: ast.Call, place: StatementPlace) -> str:
    """The one name that it is assigned to; empty where it is not."""
    for each in place.statements:
        if isinstance(each, ast.Assign) and each.value is made and len(each.targets) == 1:
            return each.targets[0].id if isinstance(each.targets[0], ast.Name) else ""
    return ""


def _is_written(made: ast.Call, place: StatementPlace) -> bool:
    """Whether the text around writes to it, or keeps it for others to write to."""
    name = _assigned_to(made, place)
    kept = [
        node.value
        for node in ast.walk(place.around[-1])
        if isinstance(node, ast.Return | ast.Yield) or (isinstance(node, ast.Assign) and node.value is not made)
    ]
    return any(each is made or (name and _root(each) == name) for each in (*_written_in(place), *kept))


def _written_in(place: StatementPlace) -> Iterator[ast.AST]:
    """What the text around a line writes to by its name, or hands to what may: methods such as ``add_`` and
    ``append``."""
    for node in ast.walk(place.around[-1]):
        if isinstance(node, ast.AugAssign):
            yield node.target
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield node
        elif isinstance(node, ast.Call):
            words = {word.arg for word in node.keywords}
            if _last(node).endswith("_") or _last(node) == "append" or words & {"out", "inplace"}:
                yield from (node.func, *node.args, *(word.value for word in node.keywords))


def _root(node: ast.AST | None) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# ---- copies ----------------------------------------------------------------------------------------------------------

FEWEST_COPIES = 10
"""What is converted once or twice has to be converted."""
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
    for what is copied fewer than `FEWEST_COPIES` times; in the backward pass, whose copies follow from the forward's;
    within a convolution, which picks its own layout, and as the result of an operation that runs in place on it: nobody
    can cure these.
    Seconds at stake: the copies with all they call.
    """
    return of_each_line(profile, _copies_of)


def _copies_of(profile: Profile, recorded: Recorded, use: LineUse) -> Insight | None:
    paths = {op.path for op in use.ops}
    copied = [op for op in use.ops if _is_copy(op, paths) and op.calls and op.wall / op.calls >= LEAST_EACH]
    calls = sum(op.calls for op in copied)
    seconds = max(sum(op.wall for op in copied) - recorded.per_op * use.calls_within(copied), 0.0)
    share = seconds / recorded.base
    by_op: dict[str, float] = defaultdict(float)
    for op in copied:
        by_op[op.above[0] if op.above else op.name] += op.wall
    cause = max(by_op, key=lambda name: by_op[name], default="")
    least = LEAST_SHARE if cause in _CAUSES else LEAST_WITHIN
    if calls < FEWEST_COPIES or share < least or seconds < LEAST_SECONDS:
        return None
    converting = sum(op.wall for op in copied if op.name == _CONVERTS)
    converts = converting >= sum(op.wall for op in copied) / 2
    count = units.count(calls)
    done = f"converts {count} tensors" if converts else f"copies {count} tensors into another layout"
    text = (
        f"`{use.where}` {done}, by {_CAUSES.get(cause, f'`{cause}`')}: "
        f"{stake_text(seconds, recorded.base, recorded.measured)}."
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
