"""Functions that the compiler gives up: they run as they are, and torch says nothing but a line in its log."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from types import CodeType

from torchbench_magic.results.doubts import Doubt

from . import dynamo
from .breaks import break_in_words
from .compile_watch import CompiledFrame
from .guards import guard_text

__all__ = ["BEFORE", "broken_before", "is_broken_for_good", "refused_before", "switched_off", "why_given_up"]

BEFORE = "before this run"
"""Ends why a function runs as it is, where the compiler had given it up earlier in this process."""

_BREAK = "graph break"
_UNSUPPORTED = "Unsupported"  # the exception of what the compiler cannot trace
_CALLED = re.compile(r"\btorch\.compile\b|\.compile\(")
_LIMIT = re.compile(r"exceeding the (\w+) cache size limit \(currently set to (\d+)\)")


def why_given_up(frame: CompiledFrame) -> str:
    """In words, why the function runs as it is from then on; empty where it does not."""
    if frame.refused_before == _BREAK:
        return f"it could not continue after a graph break {BEFORE}: {break_in_words(frame.why, *frame.failed_at)[0]}"
    if frame.refused_before:
        return f"{frame.refused_before} of {dynamo.recompile_limit()} reached {BEFORE}"
    if (found := _LIMIT.search(frame.why)) is not None:
        return f"{found[1]} of {found[2]} reached"
    if is_broken_for_good(frame) and not frame.is_whole:
        return f"it cannot continue after a graph break: {break_in_words(frame.why, *frame.failed_at)[0]}"
    if frame.failure and frame.is_suppressed:
        said = frame.why.strip().splitlines()
        return f"an error was suppressed: {' '.join(said[:2]) or frame.failure}"
    return ""


def refused_before(codes: Iterable[CodeType], compiled: Collection[CompiledFrame]) -> list[CompiledFrame]:
    """Of the codes that ran, those that have as many compilations as the compiler allows, and of which it was given
    none in this run: it had refused to compile them again before, and it does not come back to them.

    The guard is that of the newest compilation, where the compiler still has its record.
    """
    limit = dynamo.recompile_limit()
    seen = {frame.code for frame in compiled} | {frame.compile_id.rpartition("/")[0] for frame in compiled}
    found = []
    for code in dict.fromkeys(codes):
        kept = dynamo.compiled_of(code) if limit is not None and code not in seen else ()
        number = kept[0].rpartition("/")[0] if kept else ""
        if not kept or len(kept) < (limit or 0) or number in seen:
            continue
        records = [dynamo.read_record(one) for one in dynamo.frame_records()]
        guards = [one.guard for one in records if one.guard and one.compile_id.rpartition("/")[0] == number]
        found.append(
            CompiledFrame(
                compile_id=kept[0],
                name=code.co_qualname.replace("<locals>.", ""),
                file=code.co_filename,
                line=code.co_firstlineno,
                code=code,
                guard=guard_text(guards[-1]) if guards else "",
                refused_before="recompile_limit",
            )
        )
    return found


def broken_before(codes: Iterable[CodeType], compiled: Collection[CompiledFrame]) -> list[CompiledFrame]:
    """Of the codes that ran though the compiler was asked for them, those whose newest record, of before this run, is
    of a graph break after which it could not go on: it runs them as they are since then. Of many compilations the
    compiler forgets the oldest records, and then nothing is known.
    """
    seen = {frame.code for frame in compiled}
    newest = {}
    for one in dynamo.frame_records():
        record = dynamo.read_record(one)
        if record.function and not record.is_backward:
            newest[record.file, record.line, record.function] = record
    found = []
    for code in dict.fromkeys(codes):
        last = newest.get((code.co_filename, code.co_firstlineno, code.co_name))
        if code in seen or last is None or last.failure != _UNSUPPORTED or _LIMIT.search(last.why):
            continue
        found.append(
            CompiledFrame(
                compile_id=last.compile_id,
                name=code.co_qualname.replace("<locals>.", ""),
                file=code.co_filename,
                line=code.co_firstlineno,
                code=code,
                failure=last.failure,
                why=last.why,
                failed_at=last.failed_at,
                refused_before=_BREAK,
            )
        )
    return found


def switched_off(texts: Iterable[str]) -> Doubt | None:
    """What is to be said where code calls ``torch.compile`` and that does nothing; None where it works, or is not
    called."""
    if not dynamo.is_switched_off() or not any(_CALLED.search(text) for text in texts):
        return None
    text = (
        "torch.compile is switched off here (`TORCH_COMPILE_DISABLE`, `TORCHDYNAMO_DISABLE` or"
        " `torch._dynamo.config.disable`): it returns the code unchanged, not compiled."
    )
    return Doubt("compile-off", text, "Remove the setting and restart the kernel.")


def is_broken_for_good(frame: CompiledFrame) -> bool:
    """Whether a graph broke where the rest of the function cannot be compiled by itself, as in a loop, or may not."""
    return frame.failure == _UNSUPPORTED and not frame.refused_before and _LIMIT.search(frame.why) is None
