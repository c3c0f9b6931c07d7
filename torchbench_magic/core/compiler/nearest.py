"""Which of several compilations a call was nearest to: what that one asks and did not find is why there is another.

Torch names the first guard that failed of each compilation that is kept, the newest first. Against the newest alone an
argument is blamed that some older compilation was made for.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .guards import guard_text, variable_at

__all__ = ["failed_among", "nearest_reason"]

_LOCAL = re.compile(r"\bL\['([^']+)'\]")
_TENSOR = re.compile(
    r"check_tensor\((?P<name>.+?), \w+, DispatchKeySet\(.*?\), torch\.(?P<dtype>\w+), device=.*?, "
    r"requires_grad=(?P<grad>True|False), size=\[(?P<size>[^\]]*)\]"
)
_ID = re.compile(r"___check_(?P<what>type|obj)_id\((?P<name>.+?), (?P<id>\d+)\)")
_EQUALS = re.compile(r"(?P<name>[^=<>!(]+?|len\([^()]+\)) (?:==|is) (?P<value>.+)$")
_INVALIDATED = "Cache line invalidated"  # of an object that is gone: it serves no call any more, however near
_MOST = 1_000_000
_COUNTED = re.compile(r"tensor '.+?' (?:size|rank|dtype|requires_grad) mismatch")  # by `_differences`


def nearest_reason(
    reasons: Sequence[str],
    guards: Sequence[Sequence[str]],
    local_names: Mapping[str, Any],
    global_names: Mapping[str, Any],
) -> str:
    """Of the reasons, that of the compilation with the fewest guards that fail; of equal ones the newest.

    Args:
        reasons: of each compilation, its first guard that failed, the newest first.
        guards: of each of them, all that it asks, in torch's words.
    """
    if not reasons:
        return ""
    if len(reasons) != len(guards):  # torch has none for some: which belong together is not known
        return reasons[0]
    failed = [
        _MOST if _INVALIDATED in reason else max(failed_among(each, local_names, global_names) + _is_unseen(reason), 1)
        for reason, each in zip(reasons, guards, strict=True)
    ]
    return reasons[failed.index(min(failed))]


def _is_unseen(reason: str) -> bool:
    """Whether the guard that torch names is none of those that `failed_among` counts, such as that of the gradient
    mode: it failed too."""
    text = guard_text(reason)
    return not any(pattern.match(text) for pattern in (_COUNTED, _ID, _EQUALS))


def failed_among(guards: Sequence[str], local_names: Mapping[str, Any], global_names: Mapping[str, Any]) -> int:
    """How many of them fail, as far as that can be told without running the user's code."""
    return sum(_failed(_LOCAL.sub(r"\1", guard), local_names, global_names) for guard in guards)


def _failed(guard: str, local_names: Mapping[str, Any], global_names: Mapping[str, Any]) -> int:
    if (found := _TENSOR.match(guard)) is not None:
        value, is_known = variable_at(found["name"], local_names, global_names)
        return _differences(value, found) if is_known else 0
    if (found := _ID.match(guard)) is not None:
        value, is_known = variable_at(found["name"], local_names, global_names)
        return int(is_known and id(type(value) if found["what"] == "type" else value) != int(found["id"]))
    if (found := _EQUALS.match(guard)) is None:
        return 0
    name = found["name"]
    of_length = re.fullmatch(r"len\((.+)\)", name)
    value, is_known = variable_at(of_length[1] if of_length else name, local_names, global_names)
    try:
        expected = ast.literal_eval(found["value"])
    except (ValueError, SyntaxError):
        return 0
    if of_length is not None:
        return int(type(value) in (list, tuple, dict, set, str) and len(value) != expected)
    return int(is_known and (type(value) not in (bool, int, float, str, type(None)) or value != expected))


def _differences(value: Any, found: re.Match[str]) -> int:
    """In how many ways a tensor is another than the one that was compiled for; a subclass is not asked."""
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return int(not isinstance(value, torch.Tensor))
    sizes = [text.strip() for text in found["size"].split(",") if text.strip()]
    differs = len(sizes) != value.dim() or any(
        size.isdigit() and int(size) != now for size, now in zip(sizes, value.shape, strict=True)
    )
    return sum((str(value.dtype) != f"torch.{found['dtype']}", str(value.requires_grad) != found["grad"], differs))
