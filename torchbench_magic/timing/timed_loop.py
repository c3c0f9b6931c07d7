"""A cell's text as the body of a timed loop, and how its blocks are asked for, with or without an event loop."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

from torchbench_magic.cell_text import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import BoundNames, TransformAst, bound_names, globals_read, names_used, parse_body
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.interrupts import interrupt_of, interrupts_let_through

from .samples import NEAR_LOOP

__all__ = [
    "Block",
    "BlockAround",
    "Timeable",
    "compile_block",
    "FAILED",
    "BlockRequest",
    "Ended",
    "Steps",
    "driven",
]

# ---- timed_loop ------------------------------------------------------------------------------------------------------
# A cell's text as the body of a timed loop.
#
# The text becomes the body of ``for _ in it:`` inside a function over the caller's namespace, so that a call costs
# about 4 ns instead of the 18 ns of a function call or the 61 ns of ``exec``, and nothing is written to the
# namespace. Line numbers and the file name stay those of the cell.

REPLICAS = 8
"""Copies of each block. Two compilations of one source differ by up to 0.15 %: a random copy a block averages it."""

_Synchronize = Callable[[], object]


class Timeable(Protocol):
    """What the timing loop asks of compiled code, in whatever language; see `Block`."""

    @property
    def replicas(self) -> Sequence[object]: ...

    @property
    def is_async(self) -> bool: ...

    @property
    def near_loop(self) -> float:
        """Seconds a call below which it is near the loop's own cost."""

    @property
    def source(self) -> str: ...

    def start(self, replica: int, calls: int, clocks: Clocks, sync: _Synchronize) -> Any: ...

    def start_empty(self, calls: int, clocks: Clocks, sync: _Synchronize) -> tuple[int, int]: ...


class BlockAround:
    """What runs a block in another way, and is that block in all else.

    Attributes:
        block: what is run.
    """

    block: Timeable

    @property
    def replicas(self) -> Sequence[object]:
        return self.block.replicas

    @property
    def is_async(self) -> bool:
        return self.block.is_async

    @property
    def near_loop(self) -> float:
        return self.block.near_loop

    @property
    def source(self) -> str:
        return self.block.source

    def start_empty(self, calls: int, clocks: Clocks, sync: _Synchronize) -> tuple[int, int]:
        return self.block.start_empty(calls, clocks, sync)


@dataclass(frozen=True)
class Block:
    """A compiled cell, ready to run n times between two clock readings.

    Attributes:
        replicas: functions of one meaning; ``replicas[i](it, wall, cpu, sync, names)`` returns the nanoseconds
            (wall, cpu) of one pass over ``it``, or a coroutine that does when ``is_async``.
        empty: the same loop without the body, resets of names included: what a call costs besides the body.
        is_async: the body awaits.
        names: names that the body reads from the namespace, with those of functions and lambdas inside it.
        inputs: those of them whose value of the namespace an iteration may read: the body does not always bind them
            first.
        kept: values that names of the namespace have at the start of every iteration.
        source: the text that was compiled.
    """

    replicas: tuple[FunctionType, ...]
    empty: FunctionType
    is_async: bool
    names: frozenset[str]
    kept: Mapping[str, Any]
    source: str
    inputs: frozenset[str] = frozenset()
    near_loop: ClassVar[float] = NEAR_LOOP["python"]

    def start(self, replica: int, calls: int, clocks: Clocks, sync: _Synchronize) -> Any:
        """Run one block of ``calls``; (wall, cpu) in nanoseconds, or an awaitable of it when ``is_async``."""
        run = self.replicas[replica]
        return run(itertools.repeat(None, calls), clocks.wall, clocks.cpu, sync, self.kept)

    def start_empty(self, calls: int, clocks: Clocks, sync: _Synchronize) -> tuple[int, int]:
        run = self.empty
        wall, cpu = run(itertools.repeat(None, calls), clocks.wall, clocks.cpu, sync, self.kept)
        return wall, cpu


_SHELL = """\
{head}def __tb_block(__tb_it, __tb_wall, __tb_cpu, __tb_sync, __tb_names):
{before}
    __tb_sync()
    __tb_c0 = __tb_cpu()
    __tb_t0 = __tb_wall()
    for __tb_i in __tb_it:
{resets}
        pass
    __tb_sync()
    __tb_t1 = __tb_wall()
    __tb_c1 = __tb_cpu()
{after}
    return __tb_t1 - __tb_t0, __tb_c1 - __tb_c0
"""


def compile_block(
    body: Body,
    namespace: dict[str, Any],
    *,
    flags: int = 0,
    transform_ast: TransformAst | None = None,
    replicas: int = REPLICAS,
) -> Block:
    """Compile a cell's text over a namespace (the functions' globals; it is not copied).

    Raises:
        SyntaxError: as the cell itself would raise it, with its own line.
        BodyError: an empty text, or code that cannot stand in a loop (``import *``, ``from __future__``).
    """
    namespace.setdefault("__builtins__", builtins)  # as `exec` does: a warning that C code raises imports by it
    tree = _parse(body, flags, transform_ast)
    # compiled as it stands first: that refuses return, yield and break outside their places
    module = compile(tree, body.file, "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    is_async = bool(module.co_flags & inspect.CO_COROUTINE)
    used = frozenset(names_used(module))
    names = bound_names(tree)
    first = tree.body[0].lineno
    tree = _GlobalsDropped().visit(tree)
    loop = _shell(names, namespace, is_async, tree.body, first)
    bare = _shell(names, namespace, False, [], first)
    code = _function_code(compile(loop, body.file, "exec", flags, dont_inherit=True))
    copies = tuple(_function(code.replace(), namespace) for _ in range(replicas))
    empty = _function(_function_code(compile(bare, body.file, "exec", flags, dont_inherit=True)), namespace)
    kept = {n: namespace[n] for n in names.reset | names.shared if n in namespace}
    inputs = frozenset(globals_read(module) - (names.bound - names.reset))
    return Block(copies, empty, is_async, used, kept, body.source, inputs)


def _parse(body: Body, flags: int, transform_ast: TransformAst | None) -> ast.Module:
    """Parse with the visible line numbers; say in one line what cannot be timed."""
    tree = parse_body(body, flags=flags, transform_ast=transform_ast)
    if not tree.body:
        raise BodyError("nothing to time: the body is empty")
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.module == "__future__" or any(a.name == "*" for a in node.names):
            what = f"from {node.module} import {', '.join(a.name for a in node.names)}"
            raise BodyError(f"line {node.lineno}: `{what}` cannot be timed: write it in the setup section")
    return tree


class _GlobalsDropped(ast.NodeTransformer):
    """Drop ``global`` statements of the body's own level: they mean nothing at the level of a module."""

    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    def _keep(self, node: ast.AST) -> ast.AST:
        return node

    # names that ast.NodeVisitor asks for
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _keep  # noqa: N815


def _shell(
    names: BoundNames, namespace: dict[str, Any], is_async: bool, body: list[ast.stmt], first: int
) -> ast.Module:
    """The function around the loop, its own lines placed on the first line of the cell."""
    before = [f"global {', '.join(sorted(names.shared))}"] if names.shared else []
    before += [f"__tb_kept_{n} = __tb_names[{n!r}]" for n in sorted(names.reset | names.shared) if n in namespace]
    resets = {  # a name that was unbound is so again, whatever the last iteration left: bind, then delete
        n: f"{n} = __tb_kept_{n}" if n in namespace else f"{n} = None; del {n}" for n in names.reset | names.shared
    }
    text = _SHELL.format(
        head="async " if is_async else "",
        before=_indented(before, 4),
        resets=_indented([resets[n] for n in sorted(resets)], 8),
        after=_indented([resets[n] for n in sorted(names.shared)], 4),  # the other alternatives read these too
    )
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            node.lineno = node.end_lineno = first
            node.col_offset = node.end_col_offset = 0
    function = tree.body[0]
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    function.lineno = 1  # as a module's: traceback printers number the cell's lines from where its code begins
    loop = next(s for s in function.body if isinstance(s, ast.For))
    loop.body[-1:] = body or [loop.body[-1]]
    return ast.fix_missing_locations(tree)


def _indented(lines: list[str], by: int) -> str:
    return "\n".join(" " * by + line for line in lines)


def _function_code(module: CodeType) -> CodeType:
    """The function's code, named as the level of a cell is, so that a traceback reads like the cell's own."""
    code = next(c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == "__tb_block")
    return code.replace(co_name="<module>", co_qualname="<module>")


def _function(code: CodeType, namespace: dict[str, Any]) -> FunctionType:
    return FunctionType(code, namespace, "<module>")


# ---- block_requests --------------------------------------------------------------------------------------------------
# Running the steps of a measurement, with or without an event loop.
#
# The code that measures is a generator: it yields a `BlockRequest` for each block and is sent the readings of the
# clocks. So the loop is written once, for plain cells and for cells that await.

T = TypeVar("T")
_LOOP_EVERY_NS = 50e6


class BlockRequest(NamedTuple):
    """A request to run one block; ``primed``: after so many untimed calls, so that it starts with warm caches.

    A call that ``is_tried`` may fail: an exception of it is answered by a reading of `FAILED`.
    """

    block: Timeable
    replica: int
    calls: int
    primed: int = 0
    is_tried: bool = False


FAILED = (-1, -1)
"""What is sent back for a tried call that raised."""

Steps = Generator[BlockRequest, tuple[int, int], T]
"""Yields calls, is sent (wall, cpu) nanoseconds, returns T."""


@dataclass(frozen=True)
class Ended(Generic[T]):
    """What running code came to, an exception as a value: a coroutine lets no StopIteration of the user's through."""

    value: T | None = None
    error: BaseException | None = None

    def get(self) -> T:
        """The value; the exception is raised."""
        try:
            if self.error is not None:
                raise self.error
            return cast(T, self.value)
        finally:
            del self  # what is raised holds this frame, which is not to hold it in turn


async def driven(steps: Steps[T], clocks: Clocks, sync: Callable[[], object], *, may_await: bool) -> Ended[T]:
    """Run the steps to their end; an exception of the measured code leaves through the steps' own cleanup.

    A Ctrl-C is let through to the code, and waits in what measures it.

    Args:
        may_await: an event loop runs; without it this never suspends, and code that awaits is refused (BodyError).
    """
    try:
        call, done = _advance(steps, None)
        let_run = clocks.wall()
        while call is not None:
            awaits = call.block.is_async
            if awaits and not may_await:
                raise BodyError("the code awaits: time it in a notebook cell, where an event loop runs")
            if call.primed:
                with interrupts_let_through():
                    primed = call.block.start(call.replica, call.primed, clocks, sync)
                    _ = await primed if awaits else primed
            try:
                with interrupts_let_through():
                    started = call.block.start(call.replica, call.calls, clocks, sync)
                    reading = await started if awaits else started
            except Exception:
                if not call.is_tried:
                    raise
                reading = FAILED
            if awaits and clocks.wall() - let_run > _LOOP_EVERY_NS:
                with interrupts_let_through():
                    await asyncio.sleep(0)  # code that never suspends would keep the event loop from a Ctrl-C
                let_run = clocks.wall()
            call, done = _advance(steps, reading)
        return Ended(done)
    except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `Ended.get` raises it
        return Ended(error=interrupt_of(error))
    finally:
        steps.close()


def _advance(steps: Steps[T], reading: tuple[int, int] | None) -> tuple[BlockRequest | None, T | None]:
    """The next call, or what the steps returned. The measured code is not run in here: a StopIteration of its own
    must not be taken for the end of the steps."""
    try:
        return (next(steps) if reading is None else steps.send(reading)), None
    except StopIteration as stop:
        return None, stop.value
