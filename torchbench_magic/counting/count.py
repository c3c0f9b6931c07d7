"""Count the instructions of a statement: the function form that is timed, or torch's form."""

from __future__ import annotations

import ast
import marshal
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import compile_loop, names_looked_up
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress
from torchbench_magic.process.send import pack_variables
from torchbench_magic.process.send_modules import Loaded, looked_up_names
from torchbench_magic.process.settings import unusual_settings

from .callgrind_file import Costs
from .client import Server

Form = Literal["function", "module"]

_UNROLLED = 100  # statements in a row at module level, as torch's collector writes them
_WARM = 10


@dataclass(frozen=True)
class Job:
    """A statement to count.

    Attributes:
        body: its text.
        namespace: its globals, as setup left them; what it uses of them is sent, and must not be changed meanwhile.
        number: calls.
        threads: of torch.
        form: "function": the loop that is timed; "module": ``number`` statements at the level of a module, as torch
            counts them, where every name is looked up by its text.
        flags, transform_ast: how the caller's shell compiles its cells.
        setup: code that runs before, once, in the counting process (with the form "module": it is torch's way, so
            that setup may make what cannot be sent, such as a result of autograd).
    """

    body: Body
    namespace: dict[str, Any]
    number: int = 100
    threads: int = 1
    form: Form = "function"
    flags: int = 0
    transform_ast: Callable[[ast.Module], ast.Module] | None = None
    setup: str = ""


@dataclass(frozen=True)
class LibraryJob:
    """A compiled C++ snippet to count; see `cpp`.

    Attributes:
        library: the file, which the counting process loads.
        number: calls.
        threads: of torch.
    """

    library: str
    number: int = 100
    threads: int = 1


def count_instructions(
    job: Job | LibraryJob,
    server: Server,
    *,
    layouts: int = 1,
    timeout: float | None = None,
    progress: Progress = NO_PROGRESS,
) -> list[tuple[Costs, Costs]]:
    """Count the statement and the empty loop: totals over ``number`` calls, one pair for each heap layout.

    The first pair is the count. Those after it are of the same code in heaps that were shifted a little: what differs
    between them is the allocator's doing, not the code's.

    Raises:
        BodyError: code that awaits.
        CountError: a variable that cannot travel, or what `Server.count` raises.
        MissingTool: no valgrind.
    """
    import torch

    code, used, words = _compiled(job)
    sent = {
        **code,
        "number": job.number,
        "threads": job.threads,
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "grad": torch.is_grad_enabled(),
        "settings": unusual_settings(),
        "path": [entry or os.getcwd() for entry in sys.path],
        "search": os.environ.get("PATH", ""),
        "directory": os.getcwd(),
    }
    names, loaded = (job.namespace, None) if isinstance(job, Job) else ({}, Loaded())  # a snippet has no Python
    with pack_variables(used, names, words=words, loaded=loaded) as parcel:
        return [
            server.count(
                {**sent, "names": parcel.data, "layout": layout},
                storages=parcel.storages,
                timeout=timeout,
                progress=progress,
            )
            for layout in range(layouts)
        ]


def _compiled(job: Job | LibraryJob) -> tuple[dict[str, Any], set[str], set[str]]:
    """The code as it is sent, the names it uses, and the words that it may look up besides."""
    if isinstance(job, LibraryJob):
        return {"form": "library", "library": job.library}, set(), set()
    loop = compile_loop(job.body, job.namespace, flags=job.flags, transform_ast=job.transform_ast)
    if loop.is_async:
        raise BodyError("code that awaits cannot be counted: await outside of it")
    used = names_looked_up(loop.replicas[0].__code__) | set(loop.kept)
    if job.form == "function":
        code, empty = loop.replicas[0].__code__, loop.empty.__code__
        sent = {"form": job.form, "code": _sent(code), "empty": _sent(empty), "kept": sorted(loop.kept)}
        return sent, used, set(looked_up_names(code))
    stmt, nothing = _module(job, job.number), _module(job, job.number, "pass")
    setup: ast.Module = compile(job.setup, "<setup>", "exec", job.flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    before = compile(setup, "<setup>", "exec", job.flags, dont_inherit=True)
    used |= names_looked_up(before)
    warm = _module(job, min(_WARM, job.number), before=setup.body)
    texts = {"code": _sent(stmt), "empty": _sent(nothing), "warm": _sent(warm)}
    return {"form": job.form, **texts, "kept": []}, used, {*looked_up_names(before), *looked_up_names(stmt)}


def _sent(code: CodeType) -> bytes:
    """Version 2 writes no references, which depend on how often an object happens to be in use."""
    return marshal.dumps(code, 2)


def _module(job: Job, number: int, text: str | None = None, *, before: Sequence[ast.stmt] = ()) -> CodeType:
    """``number`` statements between two calls of the clock, at the level of a module; ``before`` runs before them."""
    body = job.body
    padded = "\n" * (body.first_line - 1) + (body.source if text is None else text)
    tree: ast.Module = compile(padded, body.file, "exec", job.flags | ast.PyCF_ONLY_AST, dont_inherit=True)
    if job.transform_ast is not None and text is None:
        tree = job.transform_ast(tree)
    passes, rest = divmod(number, _UNROLLED)
    if passes == 1:
        passes, rest = 0, number
    counted: list[ast.stmt] = tree.body * rest
    if passes:
        loop = ast.parse(f"for _ in range({passes}):\n    pass").body[0]
        assert isinstance(loop, ast.For)
        loop.body = tree.body * _UNROLLED
        counted.insert(0, loop)
    clock = ast.parse("__tb_clock()").body
    whole = ast.Module([*before, *clock, *counted, *ast.parse("__tb_clock()").body], [])
    code: CodeType = compile(ast.fix_missing_locations(whole), body.file, "exec", job.flags, dont_inherit=True)
    return code
