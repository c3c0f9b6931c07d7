"""Python as it is timed: the alternatives' statements, over a copy of the caller's names in which the setup runs."""

from __future__ import annotations

import ast
import contextlib
import dis
import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import cache, reduce
from itertools import chain
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError
from torchbench_magic.process.code import (
    BoundNames,
    globals_read,
    names_by,
    names_used,
    notebook_functions,
    parse_body,
    variables_read,
)
from torchbench_magic.process.contention import Clocks
from torchbench_magic.process.interrupts import interrupt_of, interrupts_let_through
from torchbench_magic.process.reach import search, texts_within
from torchbench_magic.process.settings import collector
from torchbench_magic.result_base import Doubt

from .blocks import Block, BlockAround, Ended, compile_block
from .check import check_equal_results
from .plan import Counting
from .point_run import LeftBySetup, TimedBlocks
from .repeat_probe import Probe
from .repeat_recording import VALUE
from .samples import Subject
from .sweep import Point
from .task import InputsRead, Task, given_names, unused_inputs
from .watched_objects import WatchedObjects, reached_by

if TYPE_CHECKING:
    from torchbench_magic.counting.count import Job


class PythonBodies:
    """The statements of one point; see `timing.point_run.TimedCode`.

    Args:
        point: makes the names of the point, here and now; None where there is no sweep.

    Attributes:
        names: what setup and statements find: the caller's names, copied, with those of the point.
    """

    def __init__(self, task: Task, point: Point | None = None) -> None:
        self.task, self.point = task, point
        with interrupts_let_through():
            made = point.make() if point is not None else {}
        self.names: dict[str, Any] = {**task.implied, **task.namespace, **task.local, **made}
        self._made = frozenset(made)
        self._began = {name: id(value) for name, value in self.names.items()}
        self._given = given_names(point, made)
        self._read = InputsRead(task, set(made))
        self._left = LeftBySetup()

    @property
    def sources(self) -> Mapping[str, str]:
        return self.task.sources

    async def set_up(self, *, may_await: bool) -> Ended[LeftBySetup]:
        try:
            with self._setting_up():
                for part in self.task.compiled(self.task.setup):
                    if part.is_coroutine and not may_await:
                        raise BodyError("setup awaits: time it in a notebook cell, where an event loop runs")
                    with interrupts_let_through():
                        if part.is_coroutine:
                            await part.run_async(self.names)
                        else:
                            part.run(self.names)
            return Ended(self._left)
        except BaseException as error:  # noqa: BLE001  # Ctrl-C too: `Ended.get` raises it
            return Ended(error=interrupt_of(error))

    @contextlib.contextmanager
    def _setting_up(self) -> Iterator[None]:
        """Take what the setup sets for all alternatives: torch's threads, and a garbage collector that it switches on.
        As in timeit, the collector is off meanwhile."""
        import torch

        with collector(is_on=False):
            yield
            self._left = LeftBySetup(torch.get_num_threads(), gc.isenabled())

    def compile(self) -> TimedBlocks:
        task, names, home = self.task, self.names, self.task.namespace
        blocks = [self._block(name, body) for name, body in task.bodies.items()]
        used = {name for block in blocks for name in block.names}
        functions = notebook_functions(used, names, home)
        found = {name: reached_by(block, names) for name, block in zip(task.bodies, blocks, strict=True)}
        called = chain(functions, *(one.functions for one in found.values()))
        doubts = list(unused_inputs(self._given, task, blocks, called))
        self._read.note(names)
        by_name = {name: block.names for name, block in zip(task.bodies, blocks, strict=True)}
        copies = {label: held for variant in task.variants.values() for label, held in variant.copies.items()}
        objects = WatchedObjects(task.plan, used | copies.keys(), {**names, **copies} if copies else names, functions)
        objects.readers = _readers(by_name, names, home)
        bound = self._bound_before()
        objects.rebound = {
            name: shadowed_names(bound, found[name].functions, home)
            + rebound_names(self._tree(task.bodies[name]), block.inputs, block.going_on, names, home)
            for name, block in zip(task.bodies, blocks, strict=True)
        }
        others = [variant.names for variant in task.variants.values() if variant.names is not None]
        objects.watch(found, blocks, names, others)
        starts = {name: variant.before for name, variant in task.variants.items() if variant.before is not None}
        probes = []
        many = task.plan.number not in (None, 1)  # in a block the calls go on from each other
        for (name, body), block in zip(task.bodies.items(), blocks, strict=True):
            code = replace(self._block(name, body, with_value_kept), kept=block.kept)  # names go on through both
            probes.append(
                Probe(
                    _Started(code, starts[name]) if name in starts else code,
                    code,
                    task.clocks.wall,
                    None if many else objects.before_block,
                    is_alone=len(task.bodies) == 1 and not (many and objects.before_block),
                )
            )
        return TimedBlocks(blocks, objects, doubts, probes)

    def _bound_before(self) -> dict[str, str]:
        """Name -> who bound it to what is not the notebook's: the setup, a sweep's axis, a fuzzer that drew it."""
        absent, given = object(), {**self.task.namespace, **self.task.local}
        by_point = dict.fromkeys(self._made, "drawn" if self.point is not None and self.point.drawn else "axis")
        by_setup = {n: "setup" for n, value in self.names.items() if self._began.get(n) != id(value)}
        found = {n: who for n, who in (by_point | by_setup).items() if given.get(n, absent) is not self.names.get(n)}
        return {n: who for n, who in found.items() if n != "__builtins__" and n not in self.task.implied}

    def _block(self, name: str, body: Body, *more: Callable[[ast.Module], ast.Module]) -> Block:
        """An alternative's code, over the run's names or over its own; changed by ``more`` at last."""
        task, variant = self.task, self.task.variants.get(name)
        by_variant = variant.transform if variant is not None else None
        transforms = [each for each in (task.transform_ast, by_variant, *more) if each is not None]
        transform = (lambda tree: reduce(lambda so_far, each: each(so_far), transforms, tree)) if transforms else None
        own = self.names if variant is None or variant.names is None else variant.names
        within = variant.within if variant is not None else None
        goes_on = not task.plan.restore
        return compile_block(body, own, flags=task.flags, transform_ast=transform, within=within, goes_on=goes_on)

    def _tree(self, body: Body) -> ast.Module:
        return parse_body(body, flags=self.task.flags, transform_ast=self.task.transform_ast)

    def check(self, watched: WatchedObjects, put_back: Callable[[], object]) -> list[Doubt]:
        return check_equal_results(self.task, self.names, watched.versions, put_back, watched.rebound)

    def subject(self, name: str, source: str, known: Mapping[str, Any]) -> Subject:
        of_python = {"setup": self.task.setup_text, "functions": self.task.functions[name]}
        return self.task.subject(self.point, name, {"stmt": source, **of_python, **known})

    def leave(self) -> None:
        self._read.drop_changed(self.names)

    def facts(self, name: str) -> Mapping[str, Any]:
        return self._read.of(name)

    def job(self, name: str, threads: int, counting: Counting) -> Job:
        from torchbench_magic.counting.count import Job

        task, body = self.task, self.task.bodies[name]
        return Job(body, self.names, counting.number, threads, counting.form, task.flags, task.transform_ast)


def with_value_kept(tree: ast.Module) -> ast.Module:
    """The same code with the value of its last expression bound to `VALUE`."""
    if tree.body and isinstance(last := tree.body[-1], ast.Expr):
        bound = ast.copy_location(ast.Assign([ast.Name(VALUE, ast.Store())], last.value), last)
        tree.body[-1] = ast.fix_missing_locations(bound)
    return tree


class _Started(BlockAround):
    """A block before which something is set. It is that of the recorded calls, the first of which is the alternative's
    first: from then on its settings are exchanged with those of the others, as whatever code sets is."""

    def __init__(self, block: Block, before: Callable[[], object]) -> None:
        self.block, self._before = block, before

    def start(self, replica: int, calls: int, clocks: Clocks, sync: Callable[[], object]) -> Any:
        self._before()
        return self.block.start(replica, calls, clocks, sync)


def _readers(
    used: Mapping[str, Iterable[str]], names: Mapping[str, Any], home: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Variable -> the alternatives that read it, or call a function of the notebook that may."""
    found: dict[str, list[str]] = {}
    for alternative, own in used.items():
        for variable in variables_read(own, names, notebook_functions(own, names, home)):
            found.setdefault(variable, []).append(alternative)
    return found


# ---- shadowed names --------------------------------------------------------------------------------------------------
# Names that setup or timed code binds, while functions that it calls read the notebook's own of that name.


def shadowed_names(
    bound: Mapping[str, str], functions: Iterable[FunctionType], home: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """(who bound it, "`n`, but `f`") of each name that was bound before the timed code, and that a function of the
    notebook reads, which finds the notebook's own.

    Args:
        bound: name -> "setup", "axis" or "drawn".
        functions: that the timed code may call.
        home: the notebook's names.
    """
    functions = list(functions)
    return tuple(
        (bound[name], f"`{name}`, but `{reader}`")
        for name in sorted(bound)
        for reader in dict.fromkeys(_readers_of(name, functions, [home]))
    )


def rebound_names(
    tree: ast.Module, inputs: Set[str], going_on: Set[str], names: Mapping[str, Any], home: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """("own", "`n`, but `f`") of each name that is bound where a function called afterwards reads another of it.

    What timed code binds is local to the timed loop. A function of the notebook looks for its globals in the notebook,
    and one that the setup made among the names of the run: neither sees what the timed code bound.

    Args:
        tree: of the timed code; it stays as it is.
        inputs: names that an iteration may read of ``names``.
        going_on: names that go on to the next iteration, all of which is called afterwards.
        names: of the run.
        home: those of the notebook, which its functions read.
    """
    bound = BoundNames(tree)
    imported = {alias.asname or alias.name.split(".")[0] for alias in _imports(tree)}
    module = compile(tree, "<bound>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    said: dict[tuple[str, str], None] = {}
    mentioned = {*names_used(module), *texts_within(module)}
    reached = cache(lambda roots: search(roots, mentioned, names).functions)
    everywhere = {name for function in reached(frozenset(inputs)) for name in names_used(function.__code__)}
    for name, later in _looked_up_later(module).items():
        if name in imported or name not in everywhere:  # an import binds what it was, as a rule
            continue
        where = [home] if name in bound.shared else [home, names]
        readers = _readers_of(name, reached(frozenset(inputs if name in going_on else later & inputs)), where)
        said |= dict.fromkeys(("own", f"`{name}`, but `{reader}`") for reader in readers)
    return tuple(said)


def _readers_of(name: str, functions: Iterable[FunctionType], where: Iterable[object]) -> Iterator[str]:
    """The functions that read a global of that name, of those whose globals are among ``where``."""
    for function in functions:
        if any(function.__globals__ is one for one in where) and name in globals_read(function.__code__):
            yield function.__qualname__


def _imports(tree: ast.Module) -> Iterator[ast.alias]:
    return (a for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for a in node.names)


def _looked_up_later(code: CodeType) -> dict[str, set[str]]:
    """Name that code binds -> the names that it may look up after that; functions in it may run at any time."""
    stores: list[tuple[float, str]] = []
    loads: list[tuple[float, str]] = []
    back: list[tuple[int, int]] = []
    for one in dis.get_instructions(code):
        if one.opname in ("STORE_NAME", "STORE_GLOBAL"):
            stores.append((one.offset, one.argval))
        elif one.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            loads.append((one.offset, one.argval))
        elif one.opcode in dis.hasjrel and one.argval < one.offset:
            back.append((one.offset, one.argval))
        elif isinstance(one.argval, CodeType):
            stores += ((-1, name) for name in names_by(one.argval, "STORE_GLOBAL"))
            loads += ((math.inf, name) for name in globals_read(one.argval))
    found: dict[str, set[str]] = {}
    for at, name in stores:
        first = _earliest_again(at, back)
        found.setdefault(name, set()).update(read for there, read in loads if there > first)
    return found


def _earliest_again(at: float, back: Iterable[tuple[int, int]]) -> float:
    """The earliest place that runs after ``at``: loops lead back to their begin."""
    back = [*back]
    first = at
    while (earlier := min((to for start, to in back if start >= first), default=first)) < first:
        first = earlier
    return first
