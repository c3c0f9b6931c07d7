"""What of a line's text is shown to be the same each time the line runs: names, attributes, sizes of tensors.

Shown by the text of all code that was recorded, and by what the run found in its variables and left in them
(`Profile.inputs`, `Profile.values`). Whatever is not shown may differ.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..profile import Profile
from ..source_texts import Source
from .source_trees import FUNCTIONS, StatementPlace, bound_in, call_name, is_torch_call, parsed_text

__all__ = ["Unchanging", "recorded_functions", "unchanging_at"]

_LIBRARIES = {"F", "math", "nn", "np", "numpy", "torch"}
"""Roots of names whose attributes are constants: ``torch.float32``, ``math.pi``."""
_BINDS_NONE = _LIBRARIES | {"os", "random", "sys", "time"}
"""Modules none of whose functions binds a name of the user's."""
_OF_TENSOR = {"device", "dtype", "ndim", "shape"}
_NUMBERS = {"bool", "complex", "float", "int", "len", "round"}
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
        return name in _NUMBERS or name.startswith("math.") or name == "torch.device"
    return False


