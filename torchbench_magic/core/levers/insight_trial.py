"""From an insight to its proof: the levers of its cures, tried on the code that was profiled."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchbench_magic.core.code.body import compile_body
from torchbench_magic.core.code.code_reads import globals_assigned, globals_read
from torchbench_magic.core.code.notebook_cells import Notebook, notebook_now
from torchbench_magic.core.code.own_frames import PROFILED_CELL, users_traceback
from torchbench_magic.core.process.held_interrupts import interrupts_held
from torchbench_magic.core.process.torch_import import import_torch
from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.core.timing.timing_task import Task
from torchbench_magic.errors import InputError, Interrupted
from torchbench_magic.results.cell_text import Body, code_title
from torchbench_magic.results.insights import Insight
from torchbench_magic.results.timing.comparison import Comparison

from .asked import check_levers
from .trying import try_levers

__all__ = ["try_insight"]


def try_insight(
    insight: Insight,
    levers: Sequence[str] = (),
    names: Mapping[str, Any] | None = None,
    min_run_time: float = 0.2,
) -> Comparison:
    """See `Insight.try_`."""
    __tracebackhide__ = True
    asked = tuple(levers) or insight.levers
    if not asked:
        raise InputError(
            f"{insight.kind}: what helps is a change of the code: write it as an alternative in a %%timer"
            " cell"
        )
    check_levers(asked, "try_")
    notebook = notebook_now()
    if not insight.body and notebook is None:
        raise InputError(
            f"{insight.kind}: its code is not from a cell, so its text was not kept; for code f(), write"
            f' torchbench_magic.compare({{"f": "f()"}}, globals=globals(), try_="{",".join(asked)}")'
        )
    if not insight.body:
        raise InputError(
            f"{insight.kind}: it is not from a whole %%tprofile cell; write `%%timer --try {','.join(asked)}` above the"
            " code"
        )
    if names is None and notebook is None:
        raise InputError(f"{insight.kind}: no notebook is open here; give the variables: try_(names=globals())")
    found: Mapping[str, Any] = names if names is not None else notebook.names  # type: ignore[union-attr]
    import_torch()
    compiling: Mapping[str, Any] = {} if notebook is None else notebook.compiling
    body = _body(insight, notebook)
    _check_names(insight, body, found, compiling)
    label = code_title(body.source)
    task = Task(
        {"profiled": body},
        namespace=found,
        plan=Plan(levers=asked, min_run_time=min_run_time, label=label or None),
        **compiling,
    )
    with interrupts_held() as held:
        try:
            made = try_levers(task)
        except Exception as error:  # the user's own: a variable may hold something else now
            error.__traceback__ = users_traceback(error, {PROFILED_CELL: insight.body})
            raise error
        if held.take():
            raise Interrupted(made)
    return replace(made, code=f"%%timer --try {','.join(asked)}\n{body.source.strip(chr(10))}")


def _body(insight: Insight, notebook: Notebook | None) -> Body:
    """The text without its magic line, at the lines that it has in its cell."""
    lines = insight.body.split("\n")
    above = next((at for at, line in enumerate(lines) if line.strip()), 0)
    above += lines[above].lstrip().startswith("%%")
    text = "\n".join(lines[above:])
    if notebook is not None:
        text = notebook.plain(text)
    return Body(text, PROFILED_CELL, above + 1)


def _check_names(insight: Insight, body: Body, names: Mapping[str, Any], compiling: Mapping[str, Any]) -> None:
    try:
        made = compile_body(body, **compiling)
    except SyntaxError as error:
        raise InputError(f"{insight.kind}: the profiled text is not valid Python by itself ({error.msg})") from None
    codes = [code for code in (made.code, made.last) if code is not None]
    assigned = {name for code in codes for name in globals_assigned(code)}
    read = {name for code in codes for name in globals_read(code)}
    gone = sorted(read - assigned - names.keys() - vars(builtins).keys())
    if gone:
        raise InputError(
            f"{insight.kind}: the code reads `{gone[0]}`, which no longer exists: run the cell that makes it first"
        )
