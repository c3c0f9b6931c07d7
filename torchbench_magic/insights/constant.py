"""``constant``: tensors that are made again and again with the same values, and what shows that they are the same."""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from torchbench_magic import units
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.sources import (
    FUNCTIONS,
    StatementPlace,
    bound_in,
    call_name,
    calls_in,
    is_torch_call,
    parsed_text,
    place_in,
)
from torchbench_magic.profiling.trace import Source
from torchbench_magic.results import Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, LineUse, Recorded, recorded_lines, stake_text

__all__ = [
    "constant",
    "Unchanging",
    "recorded_functions",
    "unchanging_at",
]

# ---- unchanging ------------------------------------------------------------------------------------------------------
# What of a line's text is shown to be the same each time the line runs: names, attributes, sizes of tensors.
#
# Shown by the text of all code that was recorded, and by what the run found in its variables and left in them
# (`Profile.inputs`, `Profile.values`). Whatever is not shown may differ.

_LIBRARIES = {"F", "math", "nn", "np", "numpy", "torch"}
"""Roots of names whose attributes are constants: ``torch.float32``, ``math.pi``."""
_BINDS_NONE = _LIBRARIES | {"os", "random", "sys", "time"}
"""Modules none of whose functions binds a name of the user's."""
_OF_TENSOR = {"device", "dtype", "ndim", "shape"}
_GIVE_NUMBERS = {"bool", "complex", "float", "int", "len", "round"}
"""Builtins that give a number, whatever they are given."""
_REACHES_NAMES = {
    "__import__", "__setattr__", "delattr", "eval", "exec", "globals", "locals", "run_cell", "run_line_magic",
    "setattr", "vars",
}  # fmt: skip
"""Functions through which code can bind any name or attribute without naming it in its text."""
_SETS_DEFAULTS = {"set_default_device", "set_default_dtype", "set_default_tensor_type"}
_RESHAPES = {"resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"}
"""Methods that change the shape of the tensor itself."""
_KEEPS_DEFAULTS = {
    "autocast", "catch_warnings", "enable_grad", "inference_mode", "no_grad", "open", "profile", "record_function",
    "set_grad_enabled", "suppress",
}  # fmt: skip
"""Contexts in which ``torch.ones`` makes what it makes outside of them."""
_PLAIN = re.compile(r"(tuple of \d+|(str|bytes) of .*|dtype|device|None|True|False|[-+\d.(][-+\d.ejinfa()]*|-?inf|nan)")
"""Of `Profile.inputs`: what cannot change but by another value being given to the name."""
_TENSOR = re.compile(r"(0-d|\d+( × \d+)*) [a-z]+\d*(, |$)")
_CONTAINERS = frozenset(name for kind in (list, dict, str, set, tuple) for name in dir(kind) if name[0] != "_")
_OTHER_METHODS = {"backward", "item", "numpy", "size", "step", "tolist", "zero_grad"}
_BUILTINS = frozenset(name for name in dir(builtins) if name[0] != "_")


@dataclass(frozen=True)
class Unchanging:
    """What stays the same where a line runs again.

    Attributes:
        plain: names that hold the same number, text, dtype, device or tuple each time.
        tensors: names that hold a tensor whose sizes, dtype and device are the same each time.
        attributes: ``cfg.n`` of those that hold the same number each time.
        varying: names that are something else, or that code around the line binds.
        defaults: nothing is known to change the default dtype and device meanwhile.
    """

    plain: frozenset[str]
    tensors: frozenset[str]
    attributes: frozenset[str]
    varying: frozenset[str]
    defaults: bool

    def has_value(self, node: ast.expr) -> bool:
        """Whether a name, an attribute, or a size of a tensor is shown to be the same each time."""
        if isinstance(node, ast.Name):
            return node.id in self.plain
        if isinstance(node, ast.Subscript):
            index = node.slice.operand if isinstance(node.slice, ast.UnaryOp) else node.slice
            return isinstance(index, ast.Constant) and self._is_shape(node.value)
        if not isinstance(node, ast.Attribute):
            return False
        words = ast.unparse(node)
        is_library = words.partition(".")[0] in _LIBRARIES - self.varying
        return is_library or words in self.attributes or self._is_shape(node)

    def _is_shape(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr not in _OF_TENSOR:
            return False
        return isinstance(node.value, ast.Name) and node.value.id in self.tensors


def recorded_functions(profile: Profile) -> frozenset[str]:
    """Last parts of the names of functions with lines of their own that ran: their text is among the sources."""
    frames = profile.frames
    names = frames.loc[frames["kind"] == "function", "name"].unique()
    return frozenset(str(name).rpartition(".")[2] for name in names)


def unchanging_at(profile: Profile, source: Source, place: StatementPlace, functions: Iterable[str]) -> Unchanging:
    """What stays the same at a line.

    Args:
        source: that the line stands in.
        functions: recorded functions that the line itself calls: no names of numbers.
    """
    texts = [_read(source.text) for source in profile.sources.values()]
    varying = place.assigned() | frozenset(functions)
    rebound = frozenset(name for text in texts for name in text.rebound)
    set_names = frozenset(name for text in texts for name in text.attributes_set)
    reached = any(text.reaches_names for text in texts) or _has_magics(source, place)
    defaults = not any(text.sets_defaults for text in texts) and not _may_set_defaults(profile, place)
    if reached or not _calls_known(profile, place):
        return Unchanging(frozenset(), frozenset(), frozenset(), varying, defaults)
    lost = varying | rebound | set_names | frozenset(_bound_elsewhere(profile, place))
    found = {name: words for name, words in profile.inputs or () if name not in lost}
    plain = {name for name, words in found.items() if _PLAIN.fullmatch(words)}
    plain |= frozenset(_bound_before(profile, source, place)) - lost
    reshaped = set_names & {"data", *_OF_TENSOR} or any(text.reshapes for text in texts)
    tensors = set() if reshaped else {name for name, words in found.items() if _TENSOR.match(words)}
    attributes = {
        label
        for label, held, unknown in profile.values or ()
        if not unknown and _PLAIN.fullmatch(held) and _is_kept(label, lost, set_names)
    }
    return Unchanging(frozenset(plain), frozenset(tensors), frozenset(attributes), varying, defaults)


def _is_kept(label: str, lost: frozenset[str], set_names: frozenset[str]) -> bool:
    root, *parts = label.split(".")
    return root not in lost and not set_names & set(parts)


# ---- what a text may change -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    """What the text of one source may do to names that it does not bind itself."""

    rebound: frozenset[str] = frozenset()
    attributes_set: frozenset[str] = frozenset()
    reaches_names: bool = False
    sets_defaults: bool = False
    reshapes: bool = False


@lru_cache(maxsize=64)
def _read(text: str) -> _Read:
    tree = parsed_text(text)
    if tree is None:
        return _Read(reaches_names=True, sets_defaults=True)
    rebound: set[str] = set()
    attributes: set[str] = set()
    called: set[str] = set()
    reaches = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            rebound.update(node.names)
        elif isinstance(node, ast.Attribute):
            reaches |= node.attr in ("__dict__", "user_ns")
            if not isinstance(node.ctx, ast.Load):
                attributes.add(node.attr)
        elif isinstance(node, ast.Call):
            called.add(call_name(node).rpartition(".")[2])
    in_place = {
        call_name(node.value).rpartition(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    } & {"bfloat16", "cpu", "cuda", "double", "float", "half", "to"}  # of a module: its parameters become others
    return _Read(
        frozenset(rebound),
        frozenset(attributes),
        reaches or bool(called & _REACHES_NAMES),
        bool(called & _SETS_DEFAULTS),
        bool(called & _RESHAPES or in_place),
    )


def _has_magics(source: Source, place: StatementPlace) -> bool:
    """Whether magics run in the loop or function around: they may bind names."""
    outer = place.around[-1]
    lines = source.text.splitlines()[outer.lineno - 1 : outer.end_lineno]
    return any(re.match(r"\s*[%!]", line) for line in lines)


def _calls_known(profile: Profile, place: StatementPlace) -> bool:
    """Whether all that the loop or function around calls by name is known: functions of torch and of numpy, ops,
    modules, builtins, methods of containers, and functions whose text was recorded."""
    frames = profile.frames
    modules = {str(name).rpartition(".")[2] for name in frames.loc[frames["kind"] == "module", "name"].unique()}
    ops = {str(op).removeprefix("aten::") for op in profile.ops["op"].unique()}
    known = modules | ops | recorded_functions(profile) | _BUILTINS | _CONTAINERS | _OTHER_METHODS
    for node in ast.walk(place.around[-1]):
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            return False
        if isinstance(node, ast.Call):
            root, _, _ = call_name(node).partition(".")
            if root not in _BINDS_NONE and call_name(node).rpartition(".")[2] not in known:
                return False
    return True


def _may_set_defaults(profile: Profile, place: StatementPlace) -> bool:
    """Whether a ``with`` that is entered anew each time may be ``with torch.device(...)``."""
    outside = {
        id(node)
        for node in ast.walk(place.module)
        if isinstance(node, ast.With) and any(inner is place.around[-1] for inner in ast.walk(node))
    }
    ran = profile.sources.get(profile.source_id or "")
    near = [place.module, None if ran is None else parsed_text(ran.text)]
    for tree in (parsed_text(source.text) for source in profile.sources.values()):
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.With) and id(node) not in outside:
                contexts = [item.context_expr for item in node.items]
                if any(_may_be_device(each, is_near=any(tree is one for one in near)) for each in contexts):
                    return True
    return False


def _may_be_device(context: ast.expr, *, is_near: bool) -> bool:
    """Whether it may be a device; far from the line, in other texts, only what is written as one counts."""
    if not isinstance(context, ast.Call):
        return is_near
    name = call_name(context).rpartition(".")[2]
    return name == "device" or (is_near and is_torch_call(context) and name not in _KEEPS_DEFAULTS)


# ---- names that the text binds ----------------------------------------------------------------------------------


def _bound_elsewhere(profile: Profile, place: StatementPlace) -> Iterator[str]:
    """Of a line in a function: names that the profiled code or the text around binds, but once before the function.

    While a loop runs, nothing outside of it does; a function may be called again after others bound its names anew.
    """
    if not isinstance(place.around[-1], FUNCTIONS):
        return
    ran: Source | None = profile.sources.get(profile.source_id or "")
    trees: list[ast.Module | None] = [place.module] if ran is None else [place.module, parsed_text(ran.text)]
    for tree in trees:
        for statement in tree.body if tree is not None else ():
            if statement is not place.around[-1] and not (tree is place.module and _is_before(statement, place)):
                yield from bound_in(statement)


def _is_before(statement: ast.stmt, place: StatementPlace) -> bool:
    return isinstance(statement, ast.Assign) and statement.lineno < place.around[-1].lineno


def _bound_before(profile: Profile, source: Source, place: StatementPlace) -> Iterator[str]:
    """Names that the text binds once, to a number or the like, before the loop or function around.

    Not of another cell than the one that ran: a later one may have bound them to anything.
    """
    ran = profile.sources.get(profile.source_id or "")
    if source.cell is not None and source is not ran:
        return
    times: dict[str, int] = {}
    for name in bound_in(place.module):
        times[name] = times.get(name, 0) + 1
    plain: set[str] = set()
    for statement in place.module.body:
        if not isinstance(statement, ast.Assign) or statement.lineno >= place.around[-1].lineno:
            continue
        if len(statement.targets) == 1 and _is_plain(statement.value, plain):
            target = statement.targets[0]
            is_shape = isinstance(statement.value, ast.Attribute) and statement.value.attr == "shape"
            parts = target.elts if isinstance(target, ast.Tuple) and is_shape else [target]
            names = [part.id for part in parts if isinstance(part, ast.Name)]
            plain |= {name for name in names if times.get(name) == 1}
    yield from plain


def _is_plain(node: ast.expr, plain: set[str]) -> bool:
    """Whether it gives a number, a text, a dtype, a device, a shape, or a tuple of these."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name):
        return node.id in plain
    if isinstance(node, ast.UnaryOp):
        return _is_plain(node.operand, plain)
    if isinstance(node, ast.BinOp):
        return _is_plain(node.left, plain) and _is_plain(node.right, plain)
    if isinstance(node, ast.Tuple):
        return all(_is_plain(part, plain) for part in node.elts)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.Attribute):
        is_library = isinstance(node.value, ast.Name) and node.value.id in _LIBRARIES
        return is_library or node.attr in _OF_TENSOR
    if isinstance(node, ast.Call):
        name = call_name(node)
        return name in _GIVE_NUMBERS or name.startswith("math.") or name == "torch.device"
    return False


# ---- constant --------------------------------------------------------------------------------------------------------
# ``constant``: the same tensor made anew each time a line runs.

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
