"""The options of all magics: each declared once, with its type, its reader and its help."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from torchbench_magic.errors import OptionError
from torchbench_magic.profiling.options import ProfileOptions, Schedule
from torchbench_magic.timing.plan import Counting, Plan

from .option_parser import (
    among,
    inherited,
    lever_names,
    looks_like_levers,
    looks_like_tolerances,
    of_magic,
    option,
    read_count,
    read_from_zero,
    read_levers,
    read_per_cent,
    read_processes,
    read_rows,
    read_schedule,
    read_seconds,
    read_seed,
    read_thread_counts,
    read_threads,
    read_threshold,
    read_tolerances,
    read_variable,
)

if TYPE_CHECKING:
    from torchbench_magic.counting.count import Form
    from torchbench_magic.timing.across_runs import SideBy

T = TypeVar("T")


def part(kind: type[T], options: T, **changed: Any) -> T:
    """What the core is asked: the fields of ``kind``, which ``options`` inherit, and nothing else of theirs."""
    return kind(**{item.name: getattr(options, item.name) for item in fields(kind)} | changed)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """What every measuring magic takes."""

    output: str | None = option(
        "-o", metavar="NAME", parse=read_variable,
        help="Store the result in this variable; a variable that holds anything but a result is never replaced.",
    )  # fmt: skip
    quiet: bool = option("-q", default=False, help="Show nothing; only a file that could not be written is reported.")
    explore: bool = option("-w", "--explore", default=False, help="Show the live widget instead of the inline table.")


@of_magic("timer")
@dataclass(frozen=True, kw_only=True)
class TimerOptions(SharedOptions, Plan):
    """What ``%timer`` and ``%%timer`` take: a `Plan`, and what lies round it."""

    threads = inherited(
        "-t", "--threads", metavar="N[,N...]", parse=read_thread_counts,
        help="torch thread counts to measure.", shown_default="the current torch.get_num_threads()",
    )  # fmt: skip
    min_run_time = inherited(
        "--min-run-time", metavar="S", parse=read_seconds, trait="min_run_time",
        help="Minimum time in seconds, per alternative and thread count.",
    )  # fmt: skip
    max_run_time = inherited(
        "--max-run-time", metavar="S", parse=read_seconds, trait="max_run_time",
        help="Maximum time in seconds, per alternative and thread count; after the minimum, the run ends when every"
        " verdict is settled.",
        shown_default="5 x min, up to 30 s for slow code",
    )  # fmt: skip
    number = inherited(
        "-n", "--number", metavar="N", parse=read_count,
        help="Calls per block; the run times then do not apply.", shown_default="chosen automatically",
    )  # fmt: skip
    repeat = inherited(
        "-r", "--repeat", metavar="R", parse=read_count,
        help="Blocks per alternative; the run times then do not apply.", shown_default="chosen automatically; 7 with"
            " -n",
    )  # fmt: skip
    until = inherited(
        "--until", metavar="PCT", parse=read_per_cent,
        help="Run until the interval of each ratio (of the median, for a single statement) is this narrow, or"
        " the maximum (then 30 s) is reached.",
        shown_default="until every verdict is settled",
    )  # fmt: skip
    adaptive = inherited(
        "--adaptive", metavar="THRESHOLD", parse=read_threshold,
        help="Run until IQR / median is below this, as torch's adaptive_autorange does, or the maximum (then 30 s)"
        " is reached.",
        shown_default="until every verdict is settled",
    )  # fmt: skip
    margin = inherited(
        "--margin", metavar="PCT", parse=read_per_cent,
        help="Ratios within 1 ± this count as the same.", shown_default="1",
    )  # fmt: skip
    setup: str | None = option(
        "--setup", metavar="CODE",
        help="Untimed code that runs once, before the rest of the magic line and the section named setup.",
    )  # fmt: skip
    label = inherited("--label", metavar="TEXT", help="Name of what is measured.", shown_default="In[n]")
    sub_label = inherited("--sub-label", metavar="TEXT", help="Name of the input.")
    description = inherited(
        "--description", metavar="TEXT",
        help="Name of the statement, in a cell without sections.", shown_default="the statement",
    )  # fmt: skip
    env = inherited("--env", metavar="TEXT", help="Name of the environment, for `%tcompare --by env`.")
    baseline = inherited(
        "--baseline", metavar="NAME",
        help="The section that the others are compared with.", shown_default="the first section",
    )  # fmt: skip
    device = inherited(
        "--device", metavar="DEVICE", values=lambda: ("auto", "cpu", "cuda"),
        help="Device to wait for: auto (the accelerator, if any), cpu (never wait), cuda, cuda:1, ...",
    )  # fmt: skip
    clock = inherited(
        "--clock", metavar="CLOCK", **among("wall", "cpu", "device"),
        help="The clock: wall, cpu (CPU time of the process), or device (time between two events on the"
        " accelerator).",
    )  # fmt: skip
    cold = inherited("--cold", help="Empty the CPU caches before each sample; a sample is then one call.")
    check = inherited(
        "--check", metavar="[rtol=R,atol=A]", parse=read_tolerances, bare=True, is_value=looks_like_tolerances,
        help="First compare the results of the alternatives: the value of the last line, or of the last line of a"
        " trailing with block. Arrays, tensors, frames and numbers are compared by value, across libraries, with the"
        " tolerances of torch.testing.assert_close for the less precise dtype, or with those given; integers must be"
        " equal.",
        shown_default="off",
    )  # fmt: skip
    restore = inherited(
        "--restore",
        help="Before each call (each block is then one call; with -n N before each block of N) and after the run,"
        " restore what the code changes: tensors, arrays and frames that it reads, gradients, buffers, and the state of"
        " optimizers and learning rate schedules. Iterators that can be copied, files that are read, and containers"
        " that items are taken from are restored too. What only grew, attributes, globals and generators are not, and"
        " are named.",
    )  # fmt: skip
    gc = inherited(
        "--gc",
        help="Keep the garbage collector on in timed code; a setup that calls gc.enable() does the same.",
    )  # fmt: skip
    processes = inherited(
        "--processes", metavar="[N]", parse=read_processes, bare="auto",
        help="Measure in N new processes, one after the other, and judge the ratios over them: memory addresses alone"
        " change a ratio by up to 3 %. Setup runs in each of them; the variables that the code uses are sent there."
        " Without N, as many as an exact interval needs: 6 for two alternatives.",
        shown_default="this session only",
    )  # fmt: skip
    engines = inherited(
        "--engines", metavar="PROFILE",
        help="Measure on the engines of a running ipyparallel cluster, given by its profile or its id. With --sweep"
        " or --fuzz each point is measured on one engine; otherwise every engine measures everything, as an environment"
        " of its own. Only one engine per host works at a time. What the code uses is sent there, up to 64 MB.",
        shown_default="this session",
    )  # fmt: skip
    levers = inherited(
        "--try", metavar="[LEVER,...]", parse=read_levers, bare=(), is_value=looks_like_levers,
        values=lever_names,
        help="Compare the body as it is with the same body under each lever: inference_mode, no_grad, compile, bf16,"
        " fp16, channels_last, matmul-medium, threads:N, fused-optimizer, foreach, flush-denormal, contiguous."
        " The source is unchanged; each result is compared with the body's own, and changed state is restored. Without"
        " LEVER, all that apply are tried.",
        shown_default="off",
    )  # fmt: skip
    sweep: tuple[str, ...] = option(
        "--sweep", metavar='"NAME=EXPR"', default=(), repeatable=True,
        help="Measure once for each value of the Python expression; setup and body read it as NAME. Several"
        " --sweep options give all combinations.",
        shown_default="one point",
    )  # fmt: skip
    fuzz: str | None = option(
        "--fuzz", metavar="KIND[:COUNT]",
        values=lambda: ("binary", "unary", "spectral", "sparse-binary", "sparse-unary"),
        help="Measure on COUNT (10) inputs drawn by a fuzzer, available as x, y, ... KIND is"
        " binary, unary, spectral, sparse-binary, sparse-unary or the name of a Fuzzer of the notebook.",
    )  # fmt: skip
    seed = inherited(
        "--seed", metavar="N", parse=read_seed,
        help="Seed for the order of blocks and for the fuzzer.",
        shown_default="a new one for the order; for the inputs the fuzzer's own seed (0 for torch's KINDs)",
    )  # fmt: skip

    cpp: bool = option(
        "--cpp", default=False,
        help="The cell, its setup and --setup are C++, which sees none of the notebook's names; section headers"
        " are written `// --- NAME`. Compiled once per text, with the headers that torch's own C++ timer includes; the"
        " compiler may remove code that has no effect. A section `// --- global setup` is like --global-setup.",
    )  # fmt: skip
    global_setup: str | None = option(
        "--global-setup", metavar="CODE",
        help="With --cpp: file-level code, such as #include lines.",
        shown_default="none",
    )  # fmt: skip
    callgrind: int | None = option(
        "--callgrind", metavar="[NUMBER]", parse=read_count, bare=100,
        help="Count instructions too, with valgrind, over NUMBER calls (100), at one thread unless -t is given. With"
        " two or more alternatives, the difference from the baseline is shown.",
        shown_default="not counted",
    )  # fmt: skip
    callgrind_form: Form = option(  # noqa: RUF009  (`option` makes the field)
        "--callgrind-form", metavar="function|module", **among("function", "module"), default="function",
        help="Count the code as timed (function), or at module level, as torch does.",
    )  # fmt: skip
    save: str | None = option(
        "--save", metavar="PATH", trait="store",
        help="Append each finished point to this results file; torchbench_magic.load(PATH) reads it.",
    )  # fmt: skip
    resume: bool = option(
        "--resume", default=False,
        help="Reuse points stored in the file of --save if code, inputs, options, versions and machine are the same;"
        " otherwise say what differs.",
    )  # fmt: skip

    @property
    def counting(self) -> Counting | None:
        """What is asked of the counting core; None where nothing is to be counted."""
        return None if self.callgrind is None else Counting(self.callgrind, self.callgrind_form)

    def plan(self, *, label: str | None) -> Plan:
        """What is asked of the timing core; ``label`` where the options give none."""
        return part(Plan, self, label=self.label if self.label is not None else label)


@of_magic("tcompare")
@dataclass(frozen=True, kw_only=True)
class CompareOptions(SharedOptions):
    """What ``%tcompare`` takes."""

    baseline: str | None = option(
        "--baseline", metavar="NAME",
        help="What the others are compared with: an alternative, a result, or with --by env an environment.",
        shown_default="the first",
    )  # fmt: skip
    by: SideBy = option(  # noqa: RUF009  (`option` makes the field)
        "--by", metavar="description|env", **among("description", "env"), default="description",
        help="Compare alternatives within each environment, or each alternative between environments.",
    )  # fmt: skip
    last: bool = option(
        "--last", default=False,
        help="Compare one result, by default _timer, with the last stored run of the same identity, and list what"
        " has changed. The file is PATH or %config TorchBench.store.",
    )  # fmt: skip


@of_magic("tdoctor")
@dataclass(frozen=True, kw_only=True)
class DoctorOptions(SharedOptions):
    """What ``%tdoctor`` takes."""

    self_test: bool = option(
        "--self-test", default=False,
        help="Also compare code with itself (takes some seconds), to find the smallest difference that this"
        " machine can resolve now.",
    )  # fmt: skip


# ---- profiler_options ------------------------------------------------------------------------------------------------


def _sort_keys() -> tuple[str, ...]:
    from torchbench_magic.profiling.ops_view import SORT_KEYS

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
        " ten times as long with it, and more.",
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
        shown_default="cells, and .py files under the folder where the extension was loaded",
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
                raise OptionError(
                    "--twice times the whole cell, and --schedule records a part of it: leave out one of them"
                )
            return self.schedule
        if self.schedule is not None:
            raise OptionError("--steps and --schedule both choose the recorded steps: leave out one of them")
        if self.twice:
            raise OptionError("--twice times the whole cell, and --steps records a part of it: leave out one of them")
        warmup = 1 if self.warmup is None else self.warmup
        # torch's profiler gets ready in the last iteration before the recorded ones
        return Schedule(wait=max(warmup - 1, 0), warmup=min(warmup, 1), active=self.steps, repeat=1)
