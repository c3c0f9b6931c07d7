"""Why a graph broke, and what helps, each in one sentence: of the text that torch has for it, which is a page."""

from __future__ import annotations

import os
import re
import sys

__all__ = ["break_in_words"]

_BUILTIN = re.compile(r"builtin operator `(\w+)`")
_METHOD = re.compile(r"trace method `([^`]+)` of class `([^`]+)`")
_C_FUNCTION = re.compile(r"trace the builtin `([^`]+?)\.?`")
_OUTPUT = re.compile(r"Operator `(?:aten\.)?(\w+)[^`]*`'s output shape depends")
_SKIPPED = re.compile(r"Skip calling function `<function (\S+) at 0x\w+>` since it was wrapped with (`[^`]+`)")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OPTIMIZERS = os.path.join("torch", "optim") + os.sep
_LONGEST = 160


def break_in_words(text: str, file: str = "", line: int = 0) -> tuple[str, str]:
    """(reason, hint), each without a full stop; the hint is empty where torch has none.

    Args:
        file, line: of the code that broke it, which a line of the user's may only have called.
    """
    first = text.strip().partition("\n")[0].strip()
    if first.startswith("generic_jump"):
        of_tensor = "TensorVariable" in first
        what = "the values of a tensor" if of_tensor else "a value that is not known while compiling"
        return f"a branch depends on {what}", "Use `torch.where`, or decide outside the compiled code"
    explanation, hints = _parts(text)
    if (found := _SKIPPED.search(explanation)) is not None:
        return f"`{found[1]}` is called, which {found[2]} keeps from being compiled", f"Remove the {found[2]}"
    explanation = _ADDRESS.sub("", explanation)
    if (found := _BUILTIN.search(explanation)) is not None:
        hint = f"Move the `{found[1]}` out of the compiled code"
        return f"`{found[1]}` cannot be compiled", hint
    if (found := _METHOD.search(explanation)) is not None:
        return f"`{found[2]}.{found[1]}` cannot be compiled", "Move it out of the compiled code"
    if (found := _C_FUNCTION.search(explanation)) is not None:
        return f"`{found[1]}` is not Python and cannot be compiled", "Move it out of the compiled code"
    if "item()" in first or "item()" in explanation:
        hint = "Keep it a tensor, or set `torch._dynamo.config.capture_scalar_outputs = True`"
        return "`.item()` reads a number from a tensor", hint
    if (found := _OUTPUT.search(explanation)) is not None:
        hint = "Set `torch._dynamo.config.capture_dynamic_output_shape_ops = True`, or use `torch.where`"
        return f"the shape of the result of `{found[1]}` depends on the values of a tensor", hint
    if "User-inserted" in explanation:
        return _of_torch(file, line) or ("`torch._dynamo.graph_break()` is called", "Remove the call")
    return _clipped(_sentence(explanation) or first), _clipped(_sentence(hints[0]) if hints else "")


def _of_torch(file: str, line: int) -> tuple[str, str] | None:
    """Of a call to break the graph that is written in torch's library: there is no such call for the user to remove."""
    if not file.startswith(_torch_folder()):
        return None
    within = "an optimizer's step" if _OPTIMIZERS in file else "a function of torch"
    return f"torch's own code breaks it on purpose, in {within} (`{os.path.basename(file)}:{line}`)", ""


def _torch_folder() -> str:
    """Where torch is installed, with the separator at its end; no folder at all where it is not imported."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return os.path.dirname(file) + os.sep if file else "?"


def _parts(text: str) -> tuple[str, list[str]]:
    """The explanation and the hints."""
    explanation = re.search(r"Explanation: (.*)", text)
    return (explanation[1].strip() if explanation else ""), re.findall(r"Hint: (.*)", text)


def _sentence(text: str) -> str:
    """The first sentence without its full stop."""
    return re.split(r"(?<=[\w)`])\.(?:\s|$)", text.strip(), maxsplit=1)[0]


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"
