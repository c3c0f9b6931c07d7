"""``constant``: the same tensor made anew each time a line runs."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping

from torchbench_magic import units

from ...insights import Cure, Insight
from ..profile import Profile
from .line_uses import LineUse, Recorded, recorded_lines
from .source_trees import StatementPlace, call_name, calls_in, is_torch_call, place_in
from .unchanging import Unchanging, recorded_functions, unchanging_at
from .wording import LEAST_SECONDS, LEAST_SHARE, stake_text

__all__ = ["constant"]

FEWEST = 10
"""Runs of the line: fewer are no loop worth a change."""

_MAKES = {
    "arange", "eye", "full", "hann_window", "hamming_window", "linspace", "logspace", "ones", "tril_indices",
    "triu_indices", "zeros",
}  # fmt: skip
"""Functions of torch whose result depends on their arguments alone. Never random ones, and not `empty`."""
_SHAPES = {"cos", "cumsum", "exp", "flip", "log", "outer", "sin", "sqrt", "tanh", "tril", "triu"}
"""Functions that keep a constant one."""
_VIEWS = {
    "as_strided", "as_tensor", "asarray", "bfloat16", "broadcast_to", "chunk", "contiguous", "cpu", "detach",
    "diagonal",
    "double", "dropout", "expand", "expand_as", "flatten", "float", "half", "movedim", "narrow", "permute", "ravel",
    "reshape", "reshape_as", "select", "split", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "to",
    "transpose", "type", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as",
}  # fmt: skip
"""Methods and functions whose result may be the tensor itself, or lie in its memory."""
_NUMBERS = {"abs", "bool", "complex", "float", "int", "max", "min", "pow", "round"}
"""Builtins whose result depends on their arguments alone: ``float("-inf")``."""
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
"""Operators -> the op that they run on tensors."""


def constant(profile: Profile) -> list[Insight]:
    """One for each line that makes a tensor from arguments that are the same each time.

    That they are the same is shown by the text, and by what the run found in its variables (see `unchanging`).
    Silent: outside of loops and functions; where an argument is not shown to be the same, or is of another kind in the
    recorded shapes; with ``requires_grad`` or ``out``; where the tensor may be changed in place or kept (assigned to
    and changed, given to a function that is not torch's, appended, returned): made once, it would not stay the same.
    Seconds at stake: the ops that make it.
    """
    recorded = recorded_lines(profile)
    if recorded.wall <= 0:
        return []
    found = [_insight(profile, recorded, use) for use in recorded.lines]
    return [each for each in found if each is not None]


def _insight(profile: Profile, recorded: Recorded, use: LineUse) -> Insight | None:
    source_id, line = use.key
    source = profile.sources.get(source_id)
    place = place_in(source, line)
    if source is None or place is None or not place.around or use.runs < FEWEST or not use.ops:
        return None
    if not _MAKES & {call_name(call).rpartition(".")[2] for call in calls_in(place.head)}:
        return None
    same = unchanging_at(profile, source, place, use.functions)  # a `float` of one's own may give anything
    changing = _changing_modules(profile, recorded)
    made = [each for each in _constants(place, same) if _is_only_read(place, each, profile, changing)]
    names = {name for each in made for name in _op_names(each)}
    if not made or names & set(_beside(place, made)) or _has_other_inputs(profile, use, names):
        return None  # whose time it is cannot be told
    ops = [op for op in use.ops if op.is_called_by_line and op.name in names]
    seconds = max(sum(op.wall for op in ops) - recorded.per_op * use.calls_within(ops), 0.0)
    share = seconds / recorded.wall
    if share < LEAST_SHARE or seconds < LEAST_SECONDS:
        return None
    words = ast.unparse(made[0])
    text = (
        f"`{use.where}` makes the same tensor {units.count(use.runs)} times (`{words}`): "
        f"{stake_text(seconds, recorded.wall, profile.wall_time)}."
    )
    evidence: dict[str, object] = {
        "runs": use.runs,
        "operations": sum(op.calls for op in ops),
        "seconds_each_run": seconds / use.runs,
        "expressions": ", ".join(ast.unparse(each) for each in made),
    }
    return Insight("constant", seconds, share, text, evidence, (use.where,), (_cure(place, made),))


def _has_other_inputs(profile: Profile, use: LineUse, names: set[str]) -> bool:
    """Whether the recorded shapes show the ops that make it, or what these run, on inputs of several kinds: more than
    one run of the line has calls of them."""
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
            return True
    return False


def _cure(place: StatementPlace, made: list[ast.Call]) -> Cure:
    where = "the loop" if not isinstance(place.around[-1], ast.FunctionDef | ast.AsyncFunctionDef) else "the function"
    if len(made) > 1:
        return Cure(f"Make them once, before {where}.")
    name = _assigned_to(_parents(place)[id(made[0])], made[0]) or "made_once"
    text = f"Make it once, before {where}; in a module, as a buffer (`register_buffer`)."
    return Cure(text, code=f"{name} = {ast.unparse(made[0])}")


def _op_names(made: ast.Call) -> Iterator[str]:
    """Ops that run where the text makes a tensor: its calls, and arithmetic on what these return."""
    for node in ast.walk(made):
        if isinstance(node, ast.Call) or (isinstance(node, ast.BinOp) and any(map(is_torch_call, calls_in([node])))):
            yield from _op_name(node)


def _beside(place: StatementPlace, made: list[ast.Call]) -> Iterator[str]:
    """Ops that the rest of the line may run: its calls, and arithmetic on whatever it may be."""
    within = {id(node) for each in made for node in ast.walk(each)}
    for node in (node for each in place.head for node in ast.walk(each)):
        if id(node) not in within:
            yield from _op_name(node)


def _op_name(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and not _is_number(node):
        yield f"aten::{call_name(node).rpartition('.')[2]}"
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield f"aten::{_ARITHMETIC[type(node.op)]}"


# ---- what is the same each time ---------------------------------------------------------------------------------


def _constants(place: StatementPlace, same: Unchanging) -> Iterator[ast.Call]:
    """The largest calls on the line that make the same tensor each time, as far as that is shown."""
    if not same.defaults:
        return
    left = list(place.head)
    while left:
        node = left.pop()
        if isinstance(node, ast.Call) and _is_constant(node, same):
            if any(call_name(call).rpartition(".")[2] in _MAKES for call in calls_in([node])):
                yield node
            continue
        if not isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            left += list(_expressions(node))


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.keyword):
            yield child.value


def _is_constant(node: ast.expr, same: Unchanging) -> bool:
    """A function of torch that makes or shapes a tensor, of arguments that are the same each time; a method that shapes
    what such a one made."""
    if not isinstance(node, ast.Call):
        return False
    root, _, _ = call_name(node).partition(".")
    last = call_name(node).rpartition(".")[2]
    if root in same.varying:  # a `torch` of one's own
        return False
    if not is_torch_call(node):
        made = node.func.value if isinstance(node.func, ast.Attribute) and last in _SHAPES else None
        if made is None or not _is_constant(made, same):
            return False
    elif last not in _MAKES | _SHAPES:
        return False
    if any(word.arg in (None, "requires_grad", "out") for word in node.keywords):
        return False
    given = [*node.args, *(word.value for word in node.keywords)]
    return all(_is_same(each, same) for each in given)


def _is_same(node: ast.expr, same: Unchanging) -> bool:
    """Whether an argument is the same each time: constants, names that stay, arithmetic on these, other constants."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        return same.has_value(node)
    if isinstance(node, ast.UnaryOp):
        return _is_same(node.operand, same)
    if isinstance(node, ast.BinOp):
        return _is_same(node.left, same) and _is_same(node.right, same)
    if isinstance(node, ast.Tuple | ast.List):
        return all(_is_same(each, same) for each in node.elts)
    if isinstance(node, ast.Call) and _is_number(node) and call_name(node) not in same.varying:
        return not node.keywords and all(_is_same(each, same) for each in node.args)
    return _is_constant(node, same)


def _is_number(call: ast.Call) -> bool:
    """``float("-inf")``, ``math.sqrt(d)``."""
    above, _, last = call_name(call).rpartition(".")
    return above == "math" or (not above and last in _NUMBERS)


# ---- whether it is only read ------------------------------------------------------------------------------------


def _parents(place: StatementPlace) -> dict[int, ast.AST]:
    """id of each node of the text -> the node that it is part of."""
    return {id(child): node for node in ast.walk(place.module) for child in ast.iter_child_nodes(node)}


def _assigned_to(statement: ast.AST, made: ast.Call) -> str:
    if isinstance(statement, ast.Assign) and statement.value is made and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else ""
    return ""


def _changing_modules(profile: Profile, recorded: Recorded) -> bool:
    """Whether a module that a line calls, or the text of one, may change its input: an op in place ran there.

    Of modules of torch the ops are on the line that calls them, of the user's own on the lines of ``forward``.
    """
    for other in recorded.lines:
        if any(op.is_called_by_line and op.name.endswith("_") for op in other.ops):
            place = place_in(profile.sources.get(other.key[0]), other.key[1])
            around = place.around if place is not None else ()
            if other.modules or any(getattr(each, "name", "") == "forward" for each in around):
                return True
    return False


def _is_only_read(place: StatementPlace, made: ast.Call, profile: Profile, changing: bool) -> bool:
    """Whether nothing that the text shows can change or keep the tensor.

    Args:
        changing: modules may change what they are given.
    """
    frames = profile.frames
    modules = frames.loc[frames["kind"] == "module", "name"].unique() if not changing else ()
    known = {str(name).rpartition(".")[2] for name in modules} | {
        str(op).removeprefix("aten::") for op in profile.ops["op"].unique()
    }
    known -= recorded_functions(profile)  # of the user's own, whatever their names
    parents = _parents(place)
    user = parents[id(made)]
    if isinstance(user, ast.AugAssign):
        return user.value is made
    if not isinstance(user, ast.stmt):
        return _reads(made, parents, known)
    name = _assigned_to(user, made)
    uses = [
        node
        for node in ast.walk(place.around[-1])
        if isinstance(node, ast.Name)
        and node.id == name
        and (not isinstance(node.ctx, ast.Store) or isinstance(parents.get(id(node)), ast.AugAssign))
    ]
    return bool(name) and all(_reads(node, parents, known) for node in uses)


def _reads(node: ast.expr, parents: Mapping[int, ast.AST], known: set[str]) -> bool:
    """Whether what uses ``node`` makes a new tensor of it: an operator, a function of torch, a module, an op's method.

    Args:
        known: names of the ops and modules that ran.
    """
    user = parents.get(id(node))
    if isinstance(user, ast.keyword):
        if user.arg == "out":
            return False
        user = parents.get(id(user))
    if isinstance(user, ast.BinOp | ast.UnaryOp | ast.Compare):
        return True
    if isinstance(user, ast.AugAssign):
        return user.value is node
    if isinstance(user, ast.Subscript):  # x[mask], and mask[:n] where that is used in such a way
        is_index = user.slice is node
        return is_index or (isinstance(user.ctx, ast.Load) and _reads(user, parents, known))
    if isinstance(user, ast.Call) and user.func is not node:
        called = call_name(user).rpartition(".")[2]
        if called.endswith("_") or any(word.arg == "inplace" for word in user.keywords):
            return False
        if called in _VIEWS:
            return _reads(user, parents, known)
        return is_torch_call(user) or called in known
    if isinstance(user, ast.Attribute):
        call = parents.get(id(user))
        if not isinstance(call, ast.Call) or call.func is not user:
            return user.attr in ("shape", "dtype", "device", "ndim")
        if user.attr in _VIEWS:
            return _reads(call, parents, known)
        return user.attr in known and not user.attr.endswith("_")
    return False
