"""The options of `%tprofile` and `%%tprofile`."""

from __future__ import annotations

from dataclasses import dataclass

from torchbench_magic.errors import OptionError
from torchbench_magic.results.profiling.profile_options import ProfileOptions
from torchbench_magic.results.profiling.schedule import Schedule

from .option_line import inherited, of_magic, option
from .option_values import read_count, read_from_zero, read_rows, read_schedule, read_threads
from .options import SharedOptions, part

__all__ = ["ProfilerOptions"]


def _sort_keys() -> tuple[str, ...]:
    from torchbench_magic.views.profiling.operations import SORT_KEYS

    return tuple(SORT_KEYS)


@of_magic("tprofile")
@dataclass(frozen=True, kw_only=True)
class ProfilerOptions(SharedOptions, ProfileOptions):
    """What ``%tprofile`` and ``%%tprofile`` take: `ProfileOptions`, and what lies round them."""

    threads = inherited(
        "-t", "--threads", metavar="N", parse=read_threads,
        help="torch thread count.", shown_default="the current torch.get_num_threads()",
    )  # fmt: skip
    memory = inherited("--memory", help="Bytes allocated and freed, per op and per line, and the peak.")
    shapes = inherited("--shapes", help="Shapes, dtypes and strides of each op's inputs.")
    host_memory = inherited(
        "--host-memory",
        help="Bytes that Python and NumPy hold, per line, by tracemalloc: Python code that allocates takes"
        " several times as long with it.",
    )  # fmt: skip
    flops = inherited(
        "--flops",
        help="Floating-point operations (FLOP) of the operations that torch has a formula for: matrix products,"
        " convolutions, attention on a GPU (fused attention on the CPU has none); implies --shapes.",
    )  # fmt: skip
    twice = inherited(
        "--twice",
        help="Run the code again (short code several times, alternating with and without the profiler; long code once,"
        " without) to measure the profiler's overhead.",
    )  # fmt: skip
    python = inherited(
        "--python",
        help="Where Python time goes, including libraries: the tree of called functions, each with its time in torch"
        " and outside, from stack samples every millisecond. Needs pyinstrument.",
    )  # fmt: skip
    concurrency = inherited(
        "--concurrency",
        help="Whether the cores were used well: a verdict (healthy, oversubscribed, contended, gil-bound, lock-bound,"
        " serial, waiting, throttled, device) with its evidence, threads over time, DataLoader workers included, and a"
        " cell that compares thread counts. Linux only.",
    )  # fmt: skip
    efficiency = inherited(
        "--efficiency",
        help="How close each operation and line comes to this machine's limits: FLOP/s and bytes/s against peaks that"
        " are measured once (3 s), and what limits it: arithmetic, memory, page faults, calls; implies --flops.",
    )  # fmt: skip
    phases = inherited(
        "--phases",
        help="The phases of a training loop and nothing else: how long each step waits for input, runs forward,"
        " backward and the optimizer, and which steps took long. No operations; cheap enough for a whole run.",
    )  # fmt: skip
    group_by: str | None = option(
        "--group-by", metavar="op|shape|line|module|stack[:N]",
        values=lambda: ("op", "shape", "line", "module", "stack"),
        help="What a row of the operations table is: an op, an op with its input shapes (implies --shapes), a line,"
        " a module, or an op with the N (5) innermost frames that called it.",
        shown_default="op",
    )  # fmt: skip
    stacks: str | None = option(
        "--stacks", metavar="FILE",
        help="Write the call stacks with their self time to this file, for flamegraph.pl and speedscope.",
    )  # fmt: skip
    overwrite: bool = option(
        "--overwrite", default=False,
        help="Let `--trace` and `--stacks` replace a file of any kind; otherwise a trace replaces only a trace,"
            " stacks only stacks.",
    )  # fmt: skip
    sort_by: str | None = option(
        "-s", "--sort-by", metavar="KEY", values=_sort_keys,
        help="Column to sort the operations table by (torch's names).", shown_default="self time",
    )  # fmt: skip
    row_limit: int | None = option(
        "-l", "--row-limit", metavar="N", parse=read_rows,
        help="Rows of the operations table; -1 shows all.", shown_default="as many as fit the output",
    )  # fmt: skip
    lines_of = inherited(
        "--lines-of", metavar="MODULE|PATH", repeatable=True,
        help="Also record the lines of this module or file.",
        shown_default="cells, and .py files under the working directory",
    )  # fmt: skip
    trace: str | None = option(
        "--trace", metavar="FILE",
        help="Write a Chrome trace of the run, with the cell's lines as ranges, for Perfetto; gzip where the name ends"
        " in .gz. torchbench_magic.load_trace(FILE) reads it.",
    )  # fmt: skip
    engines: str | None = option(
        "--engines", metavar="PROFILE",
        help="Run the cell on every engine of this ipyparallel cluster (a profile, or a cluster's id), as the ranks of"
        " one torch.distributed job, and show them side by side: which rank the others wait for, and on which line.",
    )  # fmt: skip
    save: str | None = option(
        "--save", metavar="PATH",
        help="Add the profile to this results file; torchbench_magic.load(PATH) reads it.",
    )  # fmt: skip
    schedule = inherited(
        "--schedule", metavar="skip_first=,wait=,warmup=,active=,repeat=", parse=read_schedule,
        help="Record only some steps, as torch.profiler.schedule has it; the code calls torchbench_magic.step() at the"
        " end of each.",
        shown_default="the whole cell",
    )  # fmt: skip
    steps: int | None = option(
        "--steps", metavar="N", parse=read_count,
        help="Record N iterations of the one loop at the top of the cell; the rest runs unprofiled.",
        shown_default="the whole cell",
    )  # fmt: skip
    warmup: int | None = option(
        "--warmup", metavar="M", parse=read_from_zero,
        help="Iterations that run before those that --steps records.", shown_default="1",
    )  # fmt: skip
    on_trace: str | None = option(
        "--on-trace", metavar="DIR|NAME",
        help="For each recorded cycle write a trace into this folder, or call this function with the cycle's Profile.",
    )  # fmt: skip
    max_events = inherited(
        "--max-events", metavar="N", parse=read_count,
        help="Limit of line events per thread, and of torch events; above it, detail is dropped and a warning says so.",
        shown_default="5 000 000",
    )  # fmt: skip

    @property
    def asked(self) -> ProfileOptions:
        """What is asked of the profiling core.

        Raises:
            OptionError: what is asked does not go together.
        """
        if self.phases:
            self._check_phases()
        shapes = self.shapes or self.group_by == "shape"
        return part(ProfileOptions, self, shapes=shapes, schedule=self._steps_asked(), in_loop=self.steps is not None)

    def _check_phases(self) -> None:
        """OptionError for what shows operations, and for a part of the steps."""
        if self.steps is not None:
            raise OptionError("--phases records all steps: leave out --steps")
        of_operations = {"--trace": self.trace, "--on-trace": self.on_trace, "--stacks": self.stacks}
        of_operations["--group-by"] = self.group_by
        for name, value in of_operations.items():
            if value is not None:
                raise OptionError(f"--phases records no operations, and {name} is of these: leave out one of them")

    def _steps_asked(self) -> Schedule | None:
        """The schedule that ``--schedule``, or ``--steps`` and ``--warmup``, ask for.

        Raises:
            OptionError: they do not go together.
        """
        if self.steps is None:
            if self.warmup is not None:
                raise OptionError("--warmup says what runs before --steps: give both")
            if self.schedule is not None and self.twice:
                raise OptionError("--twice times the whole cell, and --schedule records a part of it: leave out one"
                    " of them")
            return self.schedule
        if self.schedule is not None:
            raise OptionError("--steps and --schedule both choose the recorded steps: leave out one of them")
        if self.twice:
            raise OptionError("--twice times the whole cell, and --steps records a part of it: leave out one of them")
        warmup = 1 if self.warmup is None else self.warmup
        # torch's profiler gets ready in the last iteration before the recorded ones
        return Schedule(wait=max(warmup - 1, 0), warmup=min(warmup, 1), active=self.steps, repeat=1)
