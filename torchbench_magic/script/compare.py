"""`compare`: statements and callables of a script timed side by side, in this process or in fresh ones."""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import Any

from torchbench_magic.cell_body import Body
from torchbench_magic.cluster.timing import compare_on_engines
from torchbench_magic.errors import BodyError, Interrupted, OptionError
from torchbench_magic.levers.trial import levers_of, try_levers
from torchbench_magic.process.code import check_callable
from torchbench_magic.process.environment import read_commit
from torchbench_magic.process.frame_owner import users_traceback
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress, interrupts_held
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.plan import Plan, Processes, thread_counts
from torchbench_magic.timing.processes import compare_in_processes
from torchbench_magic.timing.run import compare_bodies
from torchbench_magic.timing.task import Task

# ---- script_alternatives ---------------------------------------------------------------------------------------------
# What a script hands to `compare`: statements as text, and callables, which become the statement that calls them.


@dataclass(frozen=True)
class Called:
    """The alternatives of a script.

    Attributes:
        texts: name -> statement.
        bound: name that a statement calls -> the callable.
        namespace: the names that the statements find besides.
    """

    texts: Mapping[str, str]
    bound: Mapping[str, Callable[[], object]]
    namespace: Mapping[str, Any]

    @classmethod
    def of(cls, stmts: Mapping[str, object], given: Mapping[str, Any] | None, setup: str) -> Called:
        """Read what was given; a callable is called by its own name, or by another where that is taken.

        Args:
            stmts: name -> text or callable.
            given: the caller's names; None: those of the module that the callables are of, where all are callables, so
                that the functions which they call are known.
            setup: no callable is called by a name that stands in it.

        Raises:
            BodyError: neither text nor callable; a callable that `check_callable` refuses.
        """
        namespace = given if given is not None else _home(stmts)
        texts: dict[str, str] = {}
        bound: dict[str, Callable[[], object]] = {}
        for name, stmt in stmts.items():
            if isinstance(stmt, str):
                texts[name] = stmt
                continue
            if not callable(stmt):
                raise BodyError(f"{name!r}: give text or a callable, not {type(stmt).__name__}")
            check_callable(stmt, repr(name))
            own = _name_for(stmt, name, {**namespace, **bound}, setup)
            bound[own], texts[name] = stmt, f"{own}()"
        return cls(texts, bound, namespace)

    @contextmanager
    def names_explained(self, bodies: Mapping[str, Body]) -> Iterator[None]:
        """Say in one line what to do where a statement uses a name that nobody gave.

        Raises:
            OptionError: instead of the NameError of a statement's own line. Those of functions propagate.
        """
        __tracebackhide__ = True
        files = {body.file for body in bodies.values()} | {"<setup>"}
        try:
            yield
        except NameError as error:
            *_, (last, _) = walk_tb(error.__traceback__)
            if last.f_code.co_filename not in files or isinstance(error, UnboundLocalError):
                raise
            if not error.name or hasattr(builtins, error.name):
                raise
            way = "pass globals=globals(), or globals={'" + error.name + "': ...}"
            raise OptionError(f"the statements use {error.name!r}, which compare was not given: {way}") from None


def check_named(stmts: object) -> None:
    """Refuse what is no mapping of names to statements (OptionError)."""
    example = "give a dict such as {'add': 'x + x', 'mul': '2 * x'}"
    if not isinstance(stmts, Mapping):
        raise OptionError(f"compare takes statements by name, not {type(stmts).__name__}: {example}")
    for name in stmts:
        if not isinstance(name, str):
            raise OptionError(f"compare: the name {name!r} is not text but {type(name).__name__}: {example}")


def _home(stmts: Mapping[str, object]) -> Mapping[str, Any]:
    homes = [getattr(inspect.unwrap(s), "__globals__", None) if callable(s) else None for s in stmts.values()]
    first = homes[0] if homes else None
    return first if isinstance(first, dict) and all(home is first for home in homes) else {}


def _name_for(function: Callable[..., object], given: str, taken: Mapping[str, Any], setup: str) -> str:
    """The callable's own name where it has one that is free, or stands for it already; a lambda's is the given one."""
    own = getattr(function, "__name__", "")
    if not isinstance(own, str) or not own.isidentifier():
        own = re.sub(r"\W+", "_", given).strip("_")
        own = own if own.isidentifier() else f"call_{own}".rstrip("_")
    own = f"{own}_" if keyword.iskeyword(own) else own
    nth, name = 1, own
    while taken.get(name, function) is not function or hasattr(builtins, name) or re.search(rf"\b{name}\b", setup):
        nth += 1
        name = f"{own}_{nth}"
    return name


# ---- script_entrance -------------------------------------------------------------------------------------------------


def compare(
    stmts: Mapping[str, str | Callable[[], object]],
    *,
    setup: str = "",
    globals: Mapping[str, Any] | None = None,  # noqa: A002  (torch's name for it)
    threads: int | Sequence[int] | None = None,
    min_run_time: float = 0.2,
    max_run_time: float | None = None,
    baseline: str | None = None,
    label: str | None = None,
    sub_label: str | None = None,
    env: str | None = None,
    seed: int | None = None,
    gc: bool = False,
    processes: Processes | None = None,
    engines: str | None = None,
    try_: bool | str | Sequence[str] | None = None,
    progress: Progress = NO_PROGRESS,
) -> Comparison:
    """Compare statements or calls from a script. ::

        compare({"mul_sum": "f(x, x)", "bmm": "g(x, x)"}, globals=globals())
        compare({"mul_sum": lambda: f(x, x), "bmm": lambda: g(x, x)})

    A callable is timed as the statement ``fn()``, so its time holds what calling it costs (20 to 50 ns for a function
    of Python); between callables of one kind that cost is the same. For less, give text.

    Args:
        stmts: name -> statement (several lines are fine), or a callable without arguments; both kinds may be mixed.
        setup: code that runs once before.
        globals: names the statements use; ``torch`` is there in any case.
        threads: torch thread counts to visit; None is the current one.
        min_run_time, max_run_time: seconds, per statement and thread count; see `Plan`.
        baseline: the name that the others are compared to; None is the first.
        label, sub_label, env: as in ``torch.utils.benchmark.Timer``.
        seed: of the order of blocks.
        gc: leave the garbage collector on in timed code.
        processes: measure in so many fresh interpreters, one after the other, and judge the ratios over them; "auto" is
            as many as an interval needs, 6 for two statements. Setup runs in each, and what the
            statements use is sent there.
        engines: measure on the engines of this ipyparallel cluster, a profile or the id of a cluster: the same on all,
            each an environment of its own; `%%timer --engines` says more.
        try_: compare the one statement as it is with itself under levers: their names, as a list or "compile,bf16";
            True is all that apply. What the statement changes is put back, and the results are compared.
        progress: told what is under way.

    Raises:
        OptionError, BodyError: what cannot be run as asked; a callable that needs arguments, a generator function or a
            coroutine function (``lambda: list(f())``, ``lambda: asyncio.run(f())``); a name that a statement uses and
            nobody gave.
        Interrupted: on Ctrl-C; ``.partial`` holds what was measured, which may be all.
        Exception: whatever a statement or callable raises, without the frames between `compare` and it.
    """
    __tracebackhide__ = True
    import torch

    check_named(stmts)
    lone = next(iter(stmts), None) if len(stmts) == 1 and not isinstance(next(iter(stmts.values())), str) else None
    levers = levers_of(try_)
    plan = Plan(
        threads=thread_counts(threads),
        min_run_time=min_run_time,
        max_run_time=max_run_time,
        baseline=baseline,
        label=label,
        sub_label=sub_label,
        description=lone if levers is None else None,
        env=env,
        seed=seed,
        gc=gc,
        processes=processes,
        engines=engines,
        levers=levers,
    )
    if levers is not None:
        _check_trial(stmts, plan)
    called = Called.of(stmts, globals, setup)
    bodies = {name: Body(text, f"<{name}>") for name, text in called.texts.items()}
    try:
        with called.names_explained(bodies):
            task = Task(
                bodies,
                setup=[Body(setup, "<setup>")] if setup.strip() else [],
                namespace=called.namespace,
                implied={"torch": torch, **called.bound},
                plan=plan,
                progress=progress,
            )
            with interrupts_held() as held:
                made = _measured(task)
                if held.take():
                    raise Interrupted(made)
    except BaseException as error:  # Ctrl-C too
        texts = {"<setup>": setup} | {body.file: body.source for body in bodies.values()}
        calls = {bodies[name].file for name, stmt in stmts.items() if not isinstance(stmt, str)}
        error.__traceback__ = users_traceback(error, texts, calls)  # what is raised again gets no entry for this frame
        raise
    return replace(made, environment=replace(made.environment, commit=read_commit()))  # a script may well store it


def _check_trial(stmts: Mapping[str, object], plan: Plan) -> None:
    """Refuse what ``try_`` does not go with (OptionError), in the words of a script."""
    if len(stmts) != 1:
        raise OptionError(
            f"try_ compares one statement with itself under levers, and here are {len(stmts)}: give one, and what runs"
            " before it as setup=; without try_, statements are compared with each other"
        )
    for name in ("processes", "engines", "baseline"):
        if getattr(plan, name) is not None:
            raise OptionError(f"try_ does not go with {name}: leave one of them out")
    if plan.threads is not None and len(plan.threads) > 1:
        raise OptionError("try_ measures at one thread count: give threads one number, and the lever threads:N another")


def _measured(task: Task) -> Comparison:
    """Here, in fresh interpreters, or on engines; under levers."""
    if task.plan.levers is not None:
        return try_levers(task)
    if task.plan.engines is not None:
        return compare_on_engines(task)
    return compare_bodies(task) if task.plan.processes is None else compare_in_processes(task)
