"""Functions that the compiler gives up: they run as they are, and torch says nothing but a line in its log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchbench_magic.results.doubts import Doubt

from . import dynamo
from .breaks import break_in_words
from .compile_watch import CompiledFrame

__all__ = ["is_broken_for_good", "switched_off", "why_given_up"]

_UNSUPPORTED = "Unsupported"  # the exception of what the compiler cannot trace
_CALLED = re.compile(r"\btorch\.compile\b|\.compile\(")
_LIMIT = re.compile(r"exceeding the (\w+) cache size limit \(currently set to (\d+)\)")


def why_given_up(frame: CompiledFrame) -> str:
    """In words, why the function runs as it is from then on; empty where it does not."""
    if (found := _LIMIT.search(frame.why)) is not None:
        return f"{found[1]} of {found[2]} reached"
    if is_broken_for_good(frame):
        return f"it cannot go on after a graph break: {break_in_words(frame.why)[0]}"
    if frame.failure and frame.is_suppressed:
        said = frame.why.strip().splitlines()
        return f"an error was suppressed: {' '.join(said[:2]) or frame.failure}"
    return ""


def switched_off(texts: Iterable[str]) -> Doubt | None:
    """What is to be said where code calls ``torch.compile`` and that does nothing; None where it works, or is not
    called."""
    if not dynamo.is_switched_off() or not any(_CALLED.search(text) for text in texts):
        return None
    text = (
        "torch.compile is switched off here (`TORCH_COMPILE_DISABLE`, `TORCHDYNAMO_DISABLE` or"
        " `torch._dynamo.config.disable`): what it gives is the code as it is, not compiled."
    )
    return Doubt("compile-off", text, "Take the setting away and restart the kernel.")


def is_broken_for_good(frame: CompiledFrame) -> bool:
    """Whether a graph broke where the rest of the function cannot be compiled by itself, as in a loop."""
    return frame.failure == _UNSUPPORTED and _LIMIT.search(frame.why) is None
