"""A guard that failed, in words: which argument changed, from what to what.

A guard is what compiled code asks before it runs: ``n == 1``, ``tensor 'x' rank mismatch. expected 1, actual 2``. Its
text is torch's own for people to read, so that an unknown one is handed on as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

__all__ = ["GuardChange", "change_of", "guard_text", "variable_at", "value_after"]

_LONGEST = 40  # characters of a value
_TENSOR = re.compile(
    r"tensor '(?P<name>.+?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<at>\d+))?\. "
    r"expected (?P<before>.+?)(?:, actual (?P<after>.+))?$"
)
_TYPE = re.compile(r"___check_type_id\((?P<name>.+?), \d+\)(?:, type=<class '(?P<before>[^']+)'>)?")
_SAME = re.compile(r"___check_obj_id\((?P<name>.+?), \d+\)")
_KEPT = re.compile(r"^(?:___stack\d+|__nested_\w+)\b")  # the compiler's own variables in the rest of a function
_GONE = re.compile(r"Cache line invalidated because (?:L\['(?P<local>[^']+)'\]|(?P<name>.+?)) got deallocated$")
_LOST = re.compile(r"expected type of '(?P<name>.+?)' to be a tensor type, ' but found <class '(?P<after>[^']+)'>")
_EQUALS = re.compile(r"(?P<name>[^=<>!]+?) == (?P<before>.+)$")
_IS = re.compile(r"(?P<name>[^=<>!]+?) is (?P<before>(?:not )?None|True|False)$")
_BACKEND = "BACKEND_MATCH failure"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_GLOBAL = re.compile(r"GLOBAL_STATE changed: (?P<what>.+)$")
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Bool": "bool",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}
_STATES = {
    "grad_mode": "whether gradients are recorded (`torch.no_grad`)",
    "num_threads": "the number of threads",
    "default_dtype": "the default dtype",
    "deterministic_algorithms": "whether algorithms are deterministic",
    "allow_tf32": "whether TF32 is allowed",
}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class GuardChange:
    """What made a compilation of no use.

    Attributes:
        argument: what changed, as the user would write it (``n``, ``self.bn.training``); empty where it is no variable.
        before, after: its value, or that property of it, in short; empty where it is not known.
        text: the same as a sentence without a full stop.
    """

    argument: str
    before: str
    after: str
    text: str


def guard_text(reason: str) -> str:
    """The guard alone: without the compilation it is of, and the user's line that torch writes behind it."""
    first = reason.partition("\nUser stack trace")[0].strip()
    first = re.sub(r"^\[?!?[\d/]+\]?: ", "", first)
    first = re.split(r"\s{2,}# ", first)[0].strip()
    return re.sub(r"\s*\(HINT: .*\)$", "", first)


def value_after(guard: str, local_names: Mapping[str, Any], global_names: Mapping[str, Any]) -> str:
    """In short, what the guard asks of as it is now; empty where that is not known.

    No code of the user's runs: attributes are read from the objects' own dictionaries.
    """
    guard = _same_if_gone(guard)
    for pattern in (_TENSOR, _TYPE, _SAME, _EQUALS, _IS):
        if (found := pattern.match(guard)) is not None:
            break
    else:
        return ""
    if pattern is _SAME:
        value, is_known = variable_at(found["name"], local_names, global_names)
        return _called(value) if is_known and _KEPT.match(found["name"]) is not None else ""
    if pattern is _TENSOR:
        return ""  # torch says it itself, where it can be said
    name = found["name"].strip()
    of_length = re.fullmatch(r"len\((.+)\)", name)
    value, is_known = variable_at(of_length[1] if of_length else name, local_names, global_names)
    if not is_known:
        return ""
    if of_length is not None:
        return str(len(value)) if type(value) in (list, tuple, dict, set, str) else ""
    if pattern is _TYPE:
        return type(value).__qualname__
    return _short(value)


def _same_if_gone(guard: str) -> str:
    """What was compiled for an object that is gone asked for that object: the same in the words of a guard."""
    found = _GONE.match(guard)
    return guard if found is None else f"___check_obj_id({found['local'] or found['name']}, 0)"


def _called(value: Any) -> str:
    """Of a function or method the name, ``list.append``; empty for anything else."""
    if type(value) in (BuiltinFunctionType, FunctionType):
        return str(value.__qualname__)
    if type(value) is MethodType and type(value.__func__) is FunctionType:
        return str(value.__func__.__qualname__)
    return ""


def _short(value: Any) -> str:
    if type(value) not in _PLAIN:
        return f"a {type(value).__qualname__}"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def variable_at(path: str, local_names: Mapping[str, Any], global_names: Mapping[str, Any]) -> tuple[Any, bool]:
    """The value that ``self._modules['bn'].training`` or ``G['scale']`` stands for, and whether it is known."""
    try:
        tree = ast.parse(path.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None, False

    def value_of(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return global_names if node.id == "G" and node.id not in local_names else local_names[node.id]
        if isinstance(node, ast.Attribute):
            own: dict[str, Any] = object.__getattribute__(value_of(node.value), "__dict__")
            return own if node.attr == "__dict__" else own[node.attr]
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            held = value_of(node.value)
            if type(held).__module__ not in ("builtins", "collections"):
                raise LookupError
            return held[node.slice.value]
        raise LookupError

    try:
        return value_of(tree), True
    except (LookupError, AttributeError, TypeError):
        return None, False


def change_of(guard: str, after: str = "") -> GuardChange:
    """The guard in words; ``after`` is what `value_after` found as it failed."""
    guard = _same_if_gone(guard)
    change = _change_of(guard, after)
    if _KEPT.match(change.argument) is None:
        return change
    if _SAME.match(guard) is not None:
        of = f" (`{after}`)" if after else ""
        return GuardChange("", "", "", f"a value{of} kept across the graph break is a different object")
    text = change.text.replace(f"`{change.argument}`", "a value kept across the graph break")
    return GuardChange("", change.before, change.after, text)


def _change_of(guard: str, after: str) -> GuardChange:
    if (found := _TENSOR.match(guard)) is not None:
        return _of_tensor(found)
    if (found := _GLOBAL.match(guard)) is not None:
        what = " and ".join(_STATES.get(one, one.replace("_", " ")) for one in found["what"].split())
        return GuardChange("", "", "", f"{what} changed")
    if guard.startswith(_BACKEND):
        return GuardChange("", "", "", "it was compiled for another backend; each new backend function is another one")
    if (found := _LOST.match(guard)) is not None:
        name, kind = _as_written(found["name"]), found["after"].rpartition(".")[2]
        kind = "None" if kind == "NoneType" else f"a {kind}"
        return _was(name, "a tensor", kind)
    if (found := _TYPE.match(guard)) is not None:
        before = (found["before"] or "").rpartition(".")[2]
        return _was(_as_written(found["name"]), before, after, "of type ")
    if (found := _SAME.match(guard)) is not None:
        name = _as_written(found["name"])
        return GuardChange(name, "", "", f"`{name}` is another object")
    for pattern in (_IS, _EQUALS):
        if (found := pattern.match(guard)) is not None:
            name = found["name"].strip()
            if (inner := re.fullmatch(r"len\((.+)\)", name)) is not None:
                return _was(_as_written(inner[1]), found["before"], after, "of length ")
            return _was(_as_written(name), found["before"], after)
    guard = _ADDRESS.sub("", guard)
    return GuardChange("", "", "", f"the guard `{guard}` failed" if guard else "torch does not say why")


def _was(name: str, before: str, after: str, what: str = "") -> GuardChange:
    if not before:
        return GuardChange(name, before, after, f"`{name}` changed")
    if not after:
        return GuardChange(name, before, after, f"`{name}` is no longer {what}{before}")
    return GuardChange(name, before, after, f"`{name}` was {what}{before}, now {after}")


def _of_tensor(found: re.Match[str]) -> GuardChange:
    name, what = _as_written(found["name"]), found["what"].strip()
    before, after = found["before"].strip(), (found["after"] or "").strip()
    if what == "dtype":
        return _was(name, _DTYPES.get(before, before), _DTYPES.get(after, after))
    if what == "rank":
        dimensions = "dimension" if before == "1" else "dimensions"
        return GuardChange(name, before, after, f"`{name}` had {before} {dimensions}, now {after}")
    if what in ("size", "stride"):
        return GuardChange(name, before, after, f"`{name}` had {what} {before} in dimension {found['at']}, now {after}")
    if what == "requires_grad":
        before = {"0": "False", "1": "True"}.get(before.rpartition("=")[2], before)
        after = {"False": "True", "True": "False"}.get(before, "")
        return GuardChange(f"{name}.requires_grad", before, after, f"`{name}.requires_grad` was {before}, now {after}")
    if what == "dispatch key set":
        before, after = _device_of(before), _device_of(after)
        if before != after:
            return GuardChange(name, before, after, f"`{name}` was on {before}, now on {after}")
        return GuardChange(name, "", "", f"`{name}` is another kind of tensor (its dispatch keys differ)")
    if what.startswith("device"):
        return GuardChange(name, before, after, f"`{name}` was on device {before}, now on {after}")
    return GuardChange(name, before, after, f"the {what} of `{name}` was {before}, now {after}")


def _device_of(keys: str) -> str:
    """``DispatchKeySet(Meta, BackendSelect, ...)``: the first is the backend."""
    return keys.partition("(")[2].partition(",")[0].rstrip(")").lower()


def _as_written(name: str) -> str:
    """``self._modules['bn'].training`` as ``self.bn.training``, ``G['scale']`` as ``scale``."""
    name = re.sub(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", r".\1", name.strip())
    name = re.sub(r"\.__dict__\['([^']+)'\]", r".\1", name)
    return re.sub(r"^G\['([^']+)'\]", r"\1", name)
