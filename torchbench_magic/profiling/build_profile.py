"""From a finished run to its `Profile`, with the inputs that its body reads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

import numpy as np
import pandas as pd

from torchbench_magic.cell_body import Body
from torchbench_magic.process.code import BoundNames, globals_read, notebook_functions, parse_body
from torchbench_magic.process.compile_watch import switched_off
from torchbench_magic.process.contention import contention_between
from torchbench_magic.process.environment import read_environment
from torchbench_magic.process.input_shapes import inputs_of
from torchbench_magic.process.input_values import Values, values_of, without_changed
from torchbench_magic.process.values_between_runs import variable_of
from torchbench_magic.profiling.compiling import cells_compiled, compilation_tables, given_up_before
from torchbench_magic.profiling.cores.verdict import Concurrency, doubts_of_concurrency, proof_of, verdict_of
from torchbench_magic.profiling.loops.spans import compiled_phases
from torchbench_magic.profiling.loops.table import recorded_loop
from torchbench_magic.profiling.memory.holders import Holdings, find_holders, holder_table, is_users_code, last_value
from torchbench_magic.profiling.python.table import doubts_of_sampling, sampled_functions
from torchbench_magic.profiling.workers.record import waits_for_workers, worker_table
from torchbench_magic.result_base import Doubt

from .device_times import share_of_devices
from .join import JoinedRun, RunEvents, join_run, read_run
from .kineto import collector_paused
from .options import ProfileOptions
from .profile import Profile
from .profile_tables import lay_out
from .recorder import RecordedRun
from .recording_cost import EventNumbers, OwnThread, cost_doubt, profiler_cost, recording_times
from .schema import LINE_COLUMNS, frame_of
from .sources import CodeSources, ProfiledBody, sources_of
from .warnings import doubts_of_holders, find_doubts


@dataclass(frozen=True, eq=False)
class Reached:
    """What the code leads to after its run.

    Attributes:
        value: of its trailing expression, which whoever shows it keeps.
    """

    namespace: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None


@collector_paused()
def report(
    run: RecordedRun,
    options: ProfileOptions,
    body: ProfiledBody,
    *,
    error: BaseException | None = None,
    numbering: list[int] | None = None,
    names: Reached = Reached(),
) -> Profile:
    """Read, join and lay out what ``run`` recorded of ``body``.

    Args:
        error: what ended the body early.
        names: from where, with ``memory``, those who hold memory now are looked for.
        numbering: native ids of the threads by the numbers that earlier cycles gave them; new ones are added.
    """
    started = time.perf_counter()
    held = _holders(run, options, body, names) if options.memory and error is None else None
    read = read_run(run, options, body.own)
    if read.dropped:
        options = replace(options, memory=False, shapes=False)
    compiled = cells_compiled(run.compiled, [*run.record.codes, *body.own], body.cells)
    texts = sources_of([*run.record.codes, *compiled], body.own, body.cells)
    whole = join_run(run, read, texts, body, numbering)
    recorded = _recorded(run, read, options)
    own_thread = OwnThread(run.own_cpu / 1e9, run.own_waited)
    added = recording_times(whole, recorded, own_thread) if recorded is not None else None
    names_of = {stream.native_id: stream.name for stream in run.record.streams} | run.python_threads
    natives = [thread.segments.native_id for thread in whole.joined.threads]
    thread_names = [names_of.get(native, f"thread {native} (not Python's)") for native in natives]
    laid = lay_out(whole, texts.of, thread_names, with_flops=options.flops, added=added)
    if read.lost or read.dropped.ops:  # what was torch and what was Python is not known
        laid.lines[["self_cpu_time", "cpu_time", "python_time", "backward_cpu_time"]] = np.nan
        laid.frames[["self_cpu_time", "backward_cpu_time", "module_backward_time"]] = np.nan
    assert laid.trace is not None
    loop, sources = recorded_loop(run.marks, body, laid.trace, laid.sources, added, run.between_steps)
    python, doubts_of_python = _python(run, read, whole, texts, body)
    workers = worker_table(run.workers, run.marks.workers, body.cells)
    asked = {code for _, code in run.marks.asked.values()}
    given_up = given_up_before(run.compiled, run.record.codes, asked, laid.frames, laid.ops)
    compilations, graph_breaks = compilation_tables([*run.compiled, *given_up], laid.ops, texts, body.cells)
    in_steps = options.schedule is not None
    waits = waits_for_workers(laid.ops, workers, laid.wall_time, only_steps=in_steps)
    cost = profiler_cost(laid.wall_time, float(added.sum())) if added is not None else None
    if run.samples is not None and cost == "little":
        cost = None  # what the sampler looked at is not counted
    source_id = texts.of[texts.own[0].co_filename].source_id if body.own else None
    text = None if source_id is None else laid.sources[source_id].text
    cores = _concurrency(run, text, share_of_devices(laid.trace, with_waits=True), partial=error is not None)
    doubts = [
        *doubts_of_concurrency(cores),
        _unseen(run.unseen),
        switched_off([] if text is None else [text]),
        waits,
        *find_doubts(run, read, whole.joined, texts.of, options, error),
        cost_doubt(cost, recorded) if cost is not None and recorded is not None else None,
        *doubts_of_python,
        *doubts_of_holders(held),
        compiled_phases(run.marks.record) if loop["step"].notna().any() else None,
        *texts.doubts,
    ]
    return replace(
        laid,
        lines=_that_ran(laid.lines) if run.record.source != "none" else frame_of(LINE_COLUMNS, {}),
        workers=workers,
        compilations=compilations,
        graph_breaks=graph_breaks,
        phases_by_line=loop,
        sources=sources,
        python=python,
        num_threads=run.num_threads,
        concurrency=cores,
        holders=holder_table(held, read.changes) if held is not None and read.changes is not None else None,
        source_id=source_id,
        options=options,
        warnings=[doubt for doubt in doubts if doubt is not None],
        environment=read_environment(),
        contention=contention_between(run.load.spent) if run.load is not None else None,
        partial=error is not None,
        n_events=len(read.of_body),
        n_line_events=run.record.n_events,
        line_source=run.record.source,
        bytes_before=run.bytes_before,
        profiler_cost=cost,
        profiler_time=run.overhead + time.perf_counter() - started,
    )


def _holders(run: RecordedRun, options: ProfileOptions, body: ProfiledBody, names: Reached) -> Holdings:
    """Who holds memory now. A cycle of steps ends in the middle of functions that still run."""
    cell = body.cells(body.own[0].co_filename) if body.own else None
    running = run.running(is_users_code) if options.schedule is not None else ()
    return find_holders(names.namespace, running=running, last=last_value(names.value, cell))


def _python(
    run: RecordedRun, read: RunEvents, whole: JoinedRun, texts: CodeSources, body: ProfiledBody
) -> tuple[pd.DataFrame | None, list[Doubt]]:
    """The tree of Python functions, and what is doubtful about it; None where it was not asked for."""
    if run.samples is None:
        return None, []
    own = body.own[0] if body.own else None
    if own is None:
        label = "the call"
    elif own.co_name == "<module>":
        label = texts.of[texts.own[0].co_filename].label
    else:
        label = own.co_qualname.replace("<locals>.", "")
    table = sampled_functions(run.samples, whole, body, label, run.record.codes, texts.codes)
    if read.lost or read.dropped.ops:
        table[["torch_time", "python_time", "waiting_time", "self_torch_time", "self_waiting_time"]] = np.nan
    return table, doubts_of_sampling(run.samples, whole)


def _concurrency(run: RecordedRun, text: str | None, on_device: float, *, partial: bool) -> Concurrency | None:
    """How the cores were used, with the cell that compares thread counts; None where it was not asked for.

    Args:
        on_device: share of the time in which a device was at work or was waited for.
    """
    if run.concurrency is None:
        return None
    threads = run.threads_after  # where the code sets it, it does so before its work as a rule
    made = run.concurrency.result(*run.moments, run.load, threads, partial=partial)
    if on_device:
        use = replace(made.use, device=on_device)
        made = replace(made, use=use, verdict=made.verdict if partial else verdict_of(use))
        made = replace(made, missing=()) if made.verdict == "device" else made  # the cores were not judged
    if threads != run.num_threads:
        said = f"The code set torch's threads from {run.num_threads} to {threads}: the verdict uses {threads}."
        made = replace(made, missing=(*made.missing, said))
    changes = made.verdict not in ("waiting", "device")  # else the counts change nothing
    has_proof = changes and max(made.use.cores, threads) > 1
    return replace(made, proof=proof_of(text, made.use.cores, threads) if has_proof else "")


def _unseen(error: Exception | None) -> Doubt | None:
    """What is said where the compiler could not be looked at as it ran."""
    if error is None:
        return None
    text = f"What torch.compile did may be incomplete: reading it raised {type(error).__name__}: {error}"
    return Doubt("compile-unseen", " ".join(text.split())[:300])


def _that_ran(lines: pd.DataFrame) -> pd.DataFrame:
    """Without the ``def`` of a function that ran before the recording began."""
    never_ran = (lines["calls"].to_numpy() == 0) & (lines["wall_time"].to_numpy() == 0)
    stands_still = never_ran & lines["line"].notna().to_numpy()
    return lines[~stands_still].reset_index(drop=True) if stands_still.any() else lines


def _recorded(run: RecordedRun, read: RunEvents, options: ProfileOptions) -> EventNumbers | None:
    """What the observers of this run had to record; None where that is not known."""
    if read.lost or read.dropped or run.host is not None:  # what tracemalloc costs is in no table
        return None
    return EventNumbers(
        ops=int(read.of_body.is_kind("cpu_op", "user_annotation").sum()),
        allocations=int(read.of_body.is_memory.sum()),
        lines=run.record.n_events,
        calls=run.outside_calls,
        shapes=options.shapes,
    )


# ---- body_inputs -----------------------------------------------------------------------------------------------------
# What a profiled body reads: the inputs and values that tell its run from a run on others.


class InputsOfBody:
    """The variables that a body finds, as they are before it runs; see `inputs_of` and `values_of`.

    Args:
        own: code objects of the body.
        names: where it finds its names.
        text: the body's; names that it binds before it reads them are its own. None: of a callable.
    """

    def __init__(self, own: Sequence[CodeType], names: Mapping[str, Any], text: Body | None) -> None:
        self._own, self._names = own, names
        self._read = {name for code in own for name in (*globals_read(code), *code.co_freevars)}
        if text is not None:
            bound = BoundNames(parse_body(text))
            self._read -= bound.bound - bound.reset
        self._inputs, self._values = self._now()

    def _now(self) -> tuple[tuple[tuple[str, str], ...], Values]:
        functions = notebook_functions(self._read, self._names, self._names)
        inputs = inputs_of(self._read, self._names, functions)
        values = values_of(self._read, self._own, self._names, self._names)
        return inputs, tuple(value for value in values if value[:2] not in inputs)

    def noted(self, profile: Profile) -> Profile:
        """The profile with what the body read; what the run changed is no input of it."""
        inputs, values = self._now()
        changed = {variable_of(value[0]) for value in set(self._values) ^ set(values)}
        kept = tuple(one for one in self._inputs if one in inputs)
        return replace(profile, inputs=kept, values=without_changed(self._values, changed))
