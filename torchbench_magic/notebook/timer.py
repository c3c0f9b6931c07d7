"""``%timer STMT`` and ``%%timer``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from IPython.core.magic import line_cell_magic, magics_class, no_var_expand

from torchbench_magic.cell_body import Body
from torchbench_magic.errors import BodyError, OptionError
from torchbench_magic.process.interrupts import interrupts_held, interrupts_let_through

from .cells import Place, python_of, timed_statement
from .option_parser import describe, documented
from .options import TimerOptions
from .saving import keeping
from .scope import unseen_names
from .sections import Section, Sections, has_code, split_sections
from .session import Delivery, SessionMagics, import_libraries, one_line_errors

if TYPE_CHECKING:
    from torchbench_magic.result_base import Doubt
    from torchbench_magic.storage.resume import Recording
    from torchbench_magic.timing.comparison import Comparison
    from torchbench_magic.timing.sweep import Point
    from torchbench_magic.timing.task import Task

_HELP = f"""Time a statement, or compare the alternatives of a cell.

::

    %timer [options] STMT

    %%timer [options] [SETUP]
    # --- setup
    code that is not timed
    # --- NAME
    a statement, of several lines if need be
    # --- ANOTHER NAME
    another one, compared with the first

Without `# ---` headers the whole cell is the statement. With `--sweep "n=[1, 10, 100]"` or `--fuzz` every alternative
is measured at each point; setup runs once per point. With `--try` the one body of a cell is compared with itself under
levers such as `compile`. Setup and statements run in a copy of the notebook's names,
so nothing is written there; inside a function they see its local variables. With `--cpp` the cell is C++. The result
is a Comparison: it is returned, shown, and kept as `_timer`.

Options (before the statement; `--` ends them):

{describe(TimerOptions)}
"""


@dataclass(frozen=True)
class _Request:
    """What a line and a cell ask for; ``awaits``: only within an event loop."""

    options: TimerOptions
    task: Task
    awaits: bool = False
    doubts: Sequence[Doubt] = ()


@magics_class
class TimerMagics(SessionMagics):
    @no_var_expand
    @line_cell_magic
    @documented(_HELP)
    def timer(self, line: str, cell: str | None = None) -> Comparison:
        with one_line_errors(), interrupts_held() as held:
            request = self._read(line, cell)
            if request.awaits:
                raise BodyError("await needs a cell of its own that begins with %%timer, and %autoawait on")
            held.raise_if_any()
            with (
                self._session.delivering("timer", request.options) as delivery,
                keeping(request.options, delivery.progress) as kept,
            ):
                measured = self._measured(_hooked(request, kept, delivery))
                delivery.result = measured if kept is None else kept.finish(measured)
        return delivery.result

    async def timer_async(self, line: str, cell: str) -> Comparison:
        """As ``%%timer``, for a cell that awaits."""
        with one_line_errors(), interrupts_held() as held:
            import_libraries()
            from torchbench_magic.timing.run import compare_bodies_async

            request = self._read(line, cell)
            held.raise_if_any()
            with (
                self._session.delivering("timer", request.options) as delivery,
                keeping(request.options, delivery.progress) as kept,
            ):
                task = _hooked(request, kept, delivery)
                measured = await compare_bodies_async(task) if _is_here(task) else self._elsewhere(task, awaits=True)
                delivery.result = measured if kept is None else kept.finish(measured)
        return delivery.result

    def _read(self, line: str, cell: str | None) -> _Request:
        """Everything that can be wrong about the line and the cell is said here, before anything runs."""
        import_libraries()
        from torchbench_magic.timing.task import Task

        session, shell = self._session, self._session.shell
        options, rest, local, place = session.begun(TimerOptions, "timer", line, cell)
        check_language(options)
        if options.callgrind is None and options.callgrind_form != "function":
            raise OptionError("--callgrind-form says how --callgrind counts: give both")
        if options.levers is not None and (options.resume or options.cpp):
            raise OptionError(f"--try does not go with {'--cpp' if options.cpp else '--resume'}")
        plan = options.plan(label=None if place.number is None else f"In[{place.number}]")
        if options.cpp:
            from torchbench_magic.cpp.run import SnippetTask

            code = read_cpp(options, rest, cell, place)
            return _Request(options, SnippetTask(**vars(code), plan=plan, counting=options.counting))
        setup_lines = [] if options.setup is None else [options.setup]
        if cell is None:
            sections = Sections(None, (Section(None, rest, place.magic_line),))
        else:
            sections = split_sections(python_of(cell), cell, first_line=place.magic_line + 1)
            setup_lines += [rest] if rest.strip() else []
        setup = [session.as_cell(text, place, max(place.magic_line, 1)) for text in setup_lines]
        if sections.setup is not None:
            setup.append(session.as_cell(sections.setup.text, place, sections.setup.first_line))
        bodies = {
            section.name or "statement": timed_statement(shell, section, place) for section in sections.alternatives
        }
        parts = [session.compiled(body, place) for body in [*setup, *bodies.values()]]
        awaits = any(part.is_coroutine for part in parts)
        doubts = unseen_names(parts, shell.user_ns)
        task = Task(
            bodies,
            setup=setup,
            namespace=shell.user_ns,
            local=local,
            plan=plan,
            points=self._points(options, local),
            counting=options.counting,
            **session.compiling,
        )
        if plan.levers is not None:
            _check_trial(task, awaits)
        return _Request(options, task, awaits, doubts)

    def _points(self, options: TimerOptions, local: Mapping[str, Any]) -> Sequence[Point]:
        """The points to measure at; expressions are evaluated here, tensors are drawn when their turn comes."""
        if not (options.sweep or options.fuzz):
            return ()
        if options.sub_label is not None:
            raise OptionError("--sub-label names a single input; here each point has its own name: leave it out")
        from torchbench_magic.timing.fuzzers import points_of

        names, on_gpu = {**self._session.shell.user_ns, **local}, options.device.startswith("cuda")
        with interrupts_let_through():  # the values are the user's code
            return points_of(options.sweep, options.fuzz, names, seed=options.seed, cuda=on_gpu)

    def _measured(self, task: Task) -> Comparison:
        if task.plan.levers is not None:
            from torchbench_magic.levers.trial import try_levers

            return try_levers(task)
        if not _is_here(task):
            return self._elsewhere(task)
        return task.measured()

    def _elsewhere(self, task: Task, *, awaits: bool = False) -> Comparison:
        """In fresh interpreters, or on engines."""
        from torchbench_magic.cluster.timing import compare_on_engines
        from torchbench_magic.timing.processes import compare_in_processes

        if task.plan.engines is None:
            return compare_in_processes(task, awaits=awaits)
        return compare_on_engines(task, awaits=awaits, ipython_dir=self._session.shell.ipython_dir)


def _check_trial(task: Task, awaits: bool) -> None:
    from torchbench_magic.levers.run_variant import NO_AWAIT
    from torchbench_magic.levers.trial import check_trial

    check_trial(task)
    if awaits:
        raise BodyError(NO_AWAIT)


def _hooked(request: _Request, kept: Recording | None, delivery: Delivery) -> Task:
    """The task with what it calls while it runs: the store, the progress, and `deliver` when the code fails, of which
    all results have what was found in the text."""
    delivery.doubts = request.doubts
    task = replace(request.task, failed=delivery.deliver, progress=delivery.progress)
    # C++ has one point
    return task if kept is None else replace(task, keep=kept.keep, skip=None if request.options.cpp else kept.skip)


def _is_here(task: Task) -> bool:
    """Whether this process measures."""
    return task.plan.processes is None and task.plan.engines is None


# ---- cpp -------------------------------------------------------------------------------------------------------------

_FOR_PYTHON = ("sweep", "fuzz", "check", "restore", "resume")


@dataclass(frozen=True)
class CppCell:
    """The C++ of a cell: name -> statement, and what comes before, in order."""

    bodies: dict[str, Body]
    setup: list[Body]
    global_setup: list[Body]


def check_language(options: TimerOptions) -> None:
    """Refuse options that are not for the language of the cell.

    Raises:
        OptionError: in one line.
    """
    if not options.cpp:
        if options.global_setup is not None:
            raise OptionError("--global-setup is C++ at the level of a file: give --cpp too, or use --setup")
        return
    asked = [f"--{name}" for name in _FOR_PYTHON if getattr(options, name)]
    asked += ["--clock device"] if options.clock == "device" else []
    asked += ["--callgrind-form"] if options.callgrind_form != "function" else []
    if asked:
        raise OptionError(f"--cpp: {asked[0]} is for Python, C++ sees none of the notebook's names; leave it out")


def read_cpp(options: TimerOptions, rest: str, cell: str | None, place: Place) -> CppCell:
    """Divide a C++ cell (None: the line ``%timer --cpp STMT``).

    Raises:
        SectionError, BodyError: in one line.
    """
    line = max(place.magic_line, 1)
    setup = [] if options.setup is None else [Section(None, options.setup, line)]
    global_setup = [] if options.global_setup is None else [Section(None, options.global_setup, line)]
    if cell is None:
        sections = Sections(None, (Section(None, rest, line),))
    else:
        sections = split_sections(cell, first_line=place.magic_line + 1, language="c++")
        setup += [Section(None, rest, line)] if rest.strip() else []
    setup += [sections.setup] if sections.setup is not None else []
    global_setup += [sections.global_setup] if sections.global_setup is not None else []
    if not all(has_code(section.text, "c++") for section in sections.alternatives):
        raise BodyError("nothing to time: write the C++ statement after the options, or below %%timer")

    def body(section: Section) -> Body:
        return Body(section.text, place.file, section.first_line, place.number)

    bodies = {section.name or "statement": body(section) for section in sections.alternatives}
    return CppCell(bodies, [body(section) for section in setup], [body(section) for section in global_setup])
