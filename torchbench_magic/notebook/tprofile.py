"""``%tprofile STMT`` and ``%%tprofile``, also as a job on engines."""

from __future__ import annotations

import sys
import tokenize
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from IPython.core.displayhook import DisplayHook
from IPython.core.magic import line_cell_magic, magics_class, no_var_expand

from torchbench_magic.errors import BodyError, Interrupted, OptionError
from torchbench_magic.process.code import CompiledBody
from torchbench_magic.process.interrupts import Progress, interrupts_held, interrupts_let_through
from torchbench_magic.process.sent_errors import raise_at

from .option_parser import describe, documented
from .options import ProfilerOptions
from .saving import check_files, check_store, write_files, write_job
from .scope import Names, unseen_names
from .sections import has_code
from .session import Delivery, Session, SessionMagics, import_libraries, one_line_errors

if TYPE_CHECKING:
    from torchbench_magic.cluster.rank_job import RankCell, RankOutcome
    from torchbench_magic.profiling.profile import Profile
    from torchbench_magic.profiling.run import Asked
    from torchbench_magic.result_base import Doubt

# ---- rank_cells ------------------------------------------------------------------------------------------------------
# ``%%tprofile --engines``: what its line may ask for, the cell as a job on engines, and the files that it writes.

_REFUSED = {
    "memory": "torch does not record the threads of gloo with it, so waiting would not be visible",
    "host_memory": "tracemalloc makes Python several times slower, by a different factor on each rank",
    "twice": "the cell is one job",
    "concurrency": "it watches one process",
    "efficiency": "it measures peaks, which ranks on one host would disturb",
    "python": "its samples are of one process",
    "schedule": "a job is recorded as a whole: run a few steps in the cell",
    "steps": "a job is recorded as a whole: run a few steps in the cell",
    "warmup": "a job is recorded as a whole: run a few steps in the cell",
    "on_trace": "a job is recorded as a whole; `--trace FILE` writes all ranks into one trace",
    "stacks": "stacks are of one process: `.profiles[0].export_stacks(PATH)` writes those of a rank",
    "group_by": "the tables of a job have one row per rank or operation",
    "sort_by": "the tables of a job have one row per rank or operation",
    "row_limit": "the tables of a job have one row per rank or operation",
}
"""Field of the options -> why it makes no sense with ``--engines``."""


def check_engine_options(options: ProfilerOptions, body: CompiledBody | None, *, is_cell: bool) -> None:
    """
    Raises:
        OptionError: an option that does not go with ``--engines``, and why.
        BodyError: the cell awaits; it is a line.
    """
    defaults = ProfilerOptions()
    for name, why in _REFUSED.items():
        if getattr(options, name) != getattr(defaults, name):
            raise OptionError(f"--{name.replace('_', '-')} does not go with --engines: {why}")
    if not is_cell:
        raise BodyError("--engines profiles a cell: write %%tprofile --engines, and the code below it")
    if body is not None and body.is_coroutine:
        raise BodyError("a cell that awaits cannot run as ranks: put the coroutine into asyncio.run(...)")


def run_ranks(session: Session, name: str, cell: RankCell, progress: Progress) -> RankOutcome:
    """Connect, run, disconnect."""
    from torchbench_magic.cluster.engines import connected
    from torchbench_magic.cluster.rank_job import profile_on_engines

    with connected(name, getattr(session.shell, "ipython_dir", None)) as cluster:
        return profile_on_engines(cluster, cell, progress)


def deliver_ranks(outcome: RankOutcome, options: ProfilerOptions, doubts: list[Doubt], delivery: Delivery) -> None:
    """The result goes to the reader; after it, what ended the job early."""
    profile: Any = outcome.profile
    is_interrupted = False
    for rank, text in outcome.printed.items():  # there is no result to hold it
        sys.stdout.write("".join(f"rank {rank}: {line}\n" for line in text.splitlines()))
    if profile is not None:
        profile = replace(profile, warnings=[*doubts, *profile.warnings])
        profile, is_interrupted = write_job(profile, options, delivery.progress)
    if isinstance(outcome.error, Interrupted) or is_interrupted:
        raise Interrupted(profile)
    if outcome.error is not None:
        delivery.deliver(profile)
        raise_at(outcome.lines, outcome.error)
    delivery.result = profile


# ---- profiler --------------------------------------------------------------------------------------------------------

_HELP = f"""Run a statement or a cell once and show which lines and torch ops use the time and the memory.

::

    %tprofile [options] STMT

    %%tprofile [options]
    code, run once in the notebook's namespace like an ordinary cell

The result is a Profile: it is returned, shown, and kept as `_tprofile`. The value of a cell's trailing expression
is displayed as usual. After an exception, what ran until then is still shown and kept.

With `--engines PROFILE` the cell runs on each engine of an ipyparallel cluster, as the ranks of one job: it finds
`rank`, `world_size` and a process group. The result is a RankProfile, ranks side by side.

A long job: with `--steps N` some iterations of the cell's loop are recorded; with `--schedule` the code calls
`torchbench_magic.step()` at the end of each step. Then the Profile has `.cycles`, and is their sum. `--phases` tells
what each step of a training loop spends its time on, and nothing else: it is meant to stay on for a whole run.

Options (before the statement; `--` ends them):

{describe(ProfilerOptions)}
"""


@dataclass(frozen=True)
class _Request:
    """What a line and a cell ask for."""

    options: ProfilerOptions
    body: CompiledBody
    asked: Asked
    shows_value: bool
    names: Names
    doubts: Sequence[Doubt]


@magics_class
class ProfilerMagics(SessionMagics):
    @no_var_expand
    @line_cell_magic
    @documented(_HELP)
    def tprofile(self, line: str, cell: str | None = None) -> Profile:
        with one_line_errors(), interrupts_held() as held:
            from torchbench_magic.profiling.run import NOT_BEGUN, profile_body

            request = self._read(line, cell)
            if request.body.is_coroutine:
                raise BodyError("await needs a cell of its own that begins with %%tprofile, and %autoawait on")
            held.raise_if_any(NOT_BEGUN)
            if request.options.engines is not None:
                return self._on_engines(request)
            with self._delivering(request) as delivery:
                check_store(request.options, delivery.progress)
                outcome = profile_body(request.body, replace(request.asked, progress=delivery.progress))
                self._take(outcome, request, delivery)
        return delivery.result

    async def tprofile_async(self, line: str, cell: str) -> Profile:
        """As ``%%tprofile``, for a cell that awaits."""
        with one_line_errors(), interrupts_held() as held:
            from torchbench_magic.profiling.run import NOT_BEGUN, profile_body_async

            request = self._read(line, cell)
            held.raise_if_any(NOT_BEGUN)
            with self._delivering(request) as delivery:
                check_store(request.options, delivery.progress)
                asked = replace(request.asked, progress=delivery.progress)
                outcome = await profile_body_async(request.body, asked)
                self._take(outcome, request, delivery)
        return delivery.result

    def _read(self, line: str, cell: str | None) -> _Request:
        """Everything that can be wrong about the line and the cell is said here, before anything runs."""
        import_libraries()
        from torchbench_magic.profiling.run import Asked
        from torchbench_magic.profiling.steps import mark_loop
        from torchbench_magic.profiling.view import check_keys

        session = self._session
        options, rest, local, place = session.begun(ProfilerOptions, "tprofile", line, cell)
        check_keys(options.sort_by, options.group_by)
        check_files(options)
        names = Names(session.shell.user_ns, local)
        asked = Asked(
            options=options.asked,
            namespace=names.namespace,
            cells=session.book.text_of,
            root=session.root,
            on_trace=_on_trace(options.on_trace, names.namespace),
        )
        if cell is not None and rest.strip():
            raise OptionError(f"%%tprofile takes no code on its line: {rest.strip()}; put it into the cell")
        text = rest if cell is None else cell
        if not has_code(text):
            raise BodyError(f"nothing to profile: write the code after {'%tprofile' if cell is None else '%%tprofile'}")
        body = session.as_cell(text, place, place.magic_line + (cell is not None))
        compiled = session.compiled(body, place, mark_loop if options.steps is not None else None)
        if options.engines is not None:
            check_engine_options(options, compiled, is_cell=cell is not None)
        shows_value = cell is not None and not _is_silenced(cell)
        doubts = unseen_names([compiled], session.shell.user_ns)
        return _Request(options, compiled, asked, shows_value, names, doubts)

    def _on_engines(self, request: _Request) -> Any:
        """The cell as a job of which each engine is a rank."""
        from torchbench_magic.cluster.rank_job import RankCell

        options, session, body = request.options, self._session, request.body
        cell = RankCell(
            body=body.body,
            flags=session.shell.compile.flags,
            codes=[body.code] if body.last is None else [body.code, body.last],
            namespace=session.shell.user_ns,
            text_of=session.book.text_of,
            options=request.asked.options,
            shows_value=request.shows_value,
        )
        with session.delivering("tprofile", options) as delivery:
            check_store(options, delivery.progress)
            outcome = run_ranks(session, str(options.engines), cell, delivery.progress)
            deliver_ranks(outcome, options, list(request.doubts), delivery)
        return delivery.result

    def _delivering(self, request: _Request) -> AbstractContextManager[Delivery]:
        options = request.options
        view = {"sort_by": options.sort_by, "row_limit": options.row_limit, "group_by": options.group_by}
        return self._session.delivering("tprofile", options, **view)

    def _take(self, outcome: Any, request: _Request, delivery: Delivery) -> None:
        """The user's exception goes on its way, after what ran until then is shown; the value of the trailing
        expression is shown as a cell's is."""
        request.names.keep()
        profile = outcome.profile
        if request.doubts:
            profile = replace(profile, warnings=[*request.doubts, *profile.warnings])
        profile, is_interrupted = write_files(profile, request.options, delivery.progress)
        if isinstance(outcome.error, Interrupted):  # of a measurement that the cell makes: its result is another one
            raise Interrupted(profile)
        if outcome.error is not None:
            delivery.deliver(profile)
            raise outcome.error
        if is_interrupted:
            raise Interrupted(profile)
        delivery.result = profile
        if request.shows_value and outcome.value is not None:
            try:
                with interrupts_let_through():
                    sys.displayhook(outcome.value)
            except BaseException:  # the text of the value is the user's code: the profile is there all the same
                delivery.deliver(profile)
                raise
            delivery.keeps_out = False  # Out[n] is the value


def _on_trace(target: str | None, names: Mapping[str, Any]) -> Callable[[Profile], object] | None:
    """The notebook's function of that name, or one that writes traces into that folder."""
    from torchbench_magic.profiling.steps import traces_into

    if target is None or target not in names:
        return None if target is None else traces_into(target)
    if not callable(names[target]):
        kind = type(names[target]).__name__
        raise OptionError(f"--on-trace {target}: {target} is a {kind}, not a function; write ./{target} for a folder")
    return names[target]


def _is_silenced(cell: str) -> bool:
    """Whether the cell ends in ``;``. Text that does not tokenize as Python (a shell line) does not."""
    try:
        return DisplayHook.semicolon_at_end_of_expression(cell)
    except (tokenize.TokenError, SyntaxError):
        return False
