"""The options of the magics: each declared once, with its type, its reader and its default."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from torchbench_magic.core.timing.plan import Plan
from torchbench_magic.errors import OptionError
from torchbench_magic.results.profiling.profile_options import ProfileOptions
from torchbench_magic.results.profiling.schedule import Schedule

from .option_line import inherited, of_magic, option
from .option_values import (
    lever_names,
    looks_like_levers,
    read_by,
    read_clock,
    read_count,
    read_form,
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
    read_variable,
)

if TYPE_CHECKING:
    from torchbench_magic.core.counting.count_options import Counting, Form
    from torchbench_magic.results.timing.across_runs.side_by_side import SideBy

__all__ = ["CompareOptions", "DoctorOptions", "ProfilerOptions", "SharedOptions", "TimerOptions"]

T = TypeVar("T")


def _part(kind: type[T], options: T, **changed: Any) -> T:
    """What the core is asked: the fields of ``kind``, which ``options`` inherit, and nothing else of theirs."""
    return kind(**{item.name: getattr(options, item.name) for item in fields(kind)} | changed)  # type: ignore[arg-type]


def _sort_keys() -> tuple[str, ...]:
    from torchbench_magic.views.profiling.operations import SORT_KEYS

    return tuple(SORT_KEYS)


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """What every measuring magic takes."""

    output: str | None = option(
        "-o", metavar="NAME", parse=read_variable,
        help="Bind the result to this variable; it never replaces something that is not a result.",
    )  # fmt: skip
    quiet: bool = option("-q", default=False, help="Show nothing.")
    explore: bool = option("-w", "--explore", default=False, help="Show the live widget instead of the inline table.")


@of_magic("timer")
@dataclass(frozen=True, kw_only=True)
class TimerOptions(SharedOptions, Plan):
    """What ``%timer`` and ``%%timer`` take: a `Plan`, and what lies round it."""

    threads = inherited(
        "-t", "--threads", metavar="N[,N...]", parse=read_thread_counts,
        help="torch thread counts to measure at.", shown_default="the current torch.get_num_threads()",
    )  # fmt: skip
    min_run_time = inherited(
        "--min-run-time", metavar="S", parse=read_seconds, trait="min_run_time",
        help="Seconds that are always spent, per alternative and thread count.",
    )  # fmt: skip
    max_run_time = inherited(
        "--max-run-time", metavar="S", parse=read_seconds, trait="max_run_time",
        help="Seconds per alternative and thread count that end the run; between the two it ends as soon as"
        " every verdict is settled.",
        shown_default="5 x min, stretched up to 30 s where slow bodies need it",
    )  # fmt: skip
    number = inherited(
        "-n", "--number", metavar="N", parse=read_count,
        help="Calls in a block; then the run times do not apply.", shown_default="chosen by the body's time",
    )  # fmt: skip
    repeat = inherited(
        "-r", "--repeat", metavar="R", parse=read_count,
        help="Blocks per alternative; then the run times do not apply.", shown_default="chosen by time; 7 with -n",
    )  # fmt: skip
    until = inherited(
        "--until", metavar="PCT", parse=read_per_cent,
        help="Run on until the interval of each ratio (of the median, for a lone statement) is that narrow, or"
        " the maximum (then 30 s) is reached.",
        shown_default="until every verdict is settled",
    )  # fmt: skip
    adaptive = inherited(
        "--adaptive", metavar="THRESHOLD", parse=read_threshold,
        help="Run on until IQR / median is below this, as torch's adaptive_autorange does, or the maximum (then 30 s)"
        " is reached.",
        shown_default="until every verdict is settled",
    )  # fmt: skip
    margin = inherited(
        "--margin", metavar="PCT", parse=read_per_cent,
        help="Ratios inside 1 ± this are called the same.", shown_default="1",
    )  # fmt: skip
    setup: str | None = option(
        "--setup", metavar="CODE",
        help="Code that runs once before and is not timed; before the rest of the magic line and before the"
        " section named setup.",
    )  # fmt: skip
    label = inherited("--label", metavar="TEXT", help="What is measured.", shown_default="In[n]")
    sub_label = inherited("--sub-label", metavar="TEXT", help="Which input it is measured on.")
    description = inherited(
        "--description", metavar="TEXT",
        help="Name of the one alternative of a cell without sections.", shown_default="the statement",
    )  # fmt: skip
    env = inherited("--env", metavar="TEXT", help="Name of the environment it is measured in.")
    baseline = inherited(
        "--baseline", metavar="NAME",
        help="The section that the others are compared to.", shown_default="the first section",
    )  # fmt: skip
    device = inherited(
        "--device", metavar="DEVICE", values=lambda: ("auto", "cpu", "cuda"),
        help="Device to wait for: auto (the accelerator, where there is one), cpu (never wait), cuda, cuda:1, ...",
    )  # fmt: skip
    clock = inherited(
        "--clock", metavar="CLOCK", parse=read_clock, values=lambda: ("wall", "cpu", "device"),
        help="What the figures are of: wall time, cpu (processor time of the process), or device (time between two"
        " events on the accelerator).",
    )  # fmt: skip
    cold = inherited("--cold", help="Each sample is one call, after the processor's caches were emptied.")
    check = inherited(
        "--check",
        help="First compare what the alternatives return, by torch.testing.assert_close: the value of the last line, or"
        " of the last line of a trailing with block.",
    )  # fmt: skip
    restore = inherited(
        "--restore",
        help="Before each block (before each call with -n 1) and after the run, put back what the code changes: tensors"
        " that it reads, gradients, buffers, and the state of optimizers and learning rate schedules. Iterators that"
        " can be copied and files that are read are put back too, and a block is one call then; a generator cannot be.",
    )  # fmt: skip
    gc = inherited(
        "--gc",
        help="Leave the garbage collector on in timed code; a setup that calls gc.enable() does the same.",
    )  # fmt: skip
    processes = inherited(
        "--processes", metavar="[N]", parse=read_processes, bare="auto",
        help="Measure in N fresh interpreters, one after the other, and judge the ratios over them: a kernel's"
        " addresses alone move a ratio by up to 3 %. Setup runs in each of them; the variables that the code uses are"
        " sent there. Without N as many as an exact interval needs: 6 for two alternatives.",
        shown_default="this kernel alone",
    )  # fmt: skip
    engines = inherited(
        "--engines", metavar="PROFILE",
        help="Measure on the engines of a running ipyparallel cluster, by the name of its profile or its id: with"
        " --sweep or --fuzz each point on one of them, else the same on all, each an environment of its own. A host has"
        " one engine at work at a time. What the code uses is sent there, up to 64 MB.",
        shown_default="this kernel",
    )  # fmt: skip
    levers = inherited(
        "--try", metavar="[LEVER,...]", parse=read_levers, bare=(), is_value=looks_like_levers,
        values=lever_names,
        help="Compare the body as it is with the same body under each lever: inference_mode, no_grad, compile, bf16,"
        " fp16, channels_last, matmul-medium, threads:N, fused-optimizer, foreach, sdpa, flush-denormal, contiguous."
        " The text stays; each result is compared with the body's own, and what the body changes is put back. Without"
        " LEVER all that apply.",
        shown_default="nothing is tried",
    )  # fmt: skip
    sweep: tuple[str, ...] = option(
        "--sweep", metavar='"NAME=EXPR"', default=(), repeatable=True,
        help="Measure at each value that the Python expression gives, as a variable of setup and body; several"
        " --sweep options are combined, each value with each.",
        shown_default="one point",
    )  # fmt: skip
    fuzz: str | None = option(
        "--fuzz", metavar="KIND[:COUNT]",
        values=lambda: ("binary", "unary", "spectral", "sparse-binary", "sparse-unary"),
        help="Measure on COUNT (10) inputs that a fuzzer draws: setup and body find them as x, y, ... KIND is"
        " binary, unary, spectral, sparse-binary, sparse-unary or the name of a Fuzzer of the notebook.",
    )  # fmt: skip
    seed = inherited(
        "--seed", metavar="N", parse=read_seed,
        help="Seed of the order of blocks and of the fuzzer's draws.",
        shown_default="a new one for the order; for the draws the fuzzer's own, 0 for a KIND of torch",
    )  # fmt: skip

    cpp: bool = option(
        "--cpp", default=False,
        help="The cell, its setup and --setup are C++, which sees none of the notebook's names; headers are written"
        " `// --- NAME`. Compiled once per text, with what torch's own C++ timer includes; the code may be compiled to"
        " nothing where it has no effect. A section `// --- global setup` is like --global-setup.",
    )  # fmt: skip
    global_setup: str | None = option(
        "--global-setup", metavar="CODE",
        help="With --cpp: code at the level of the file, such as #include lines.",
        shown_default="none",
    )  # fmt: skip
    callgrind: int | None = option(
        "--callgrind", metavar="[NUMBER]", parse=read_count, bare=100,
        help="Count instructions too, with valgrind, over NUMBER calls (100): at one thread unless -t is given. With"
        " two or more alternatives the difference to the baseline is shown.",
        shown_default="not counted",
    )  # fmt: skip
    callgrind_form: Form = option(  # noqa: RUF009  (`option` makes the field)
        "--callgrind-form", metavar="function|module", parse=read_form, default="function",
        values=lambda: ("function", "module"),
        help="Count the loop that is timed, or statements at the level of a module, as torch does.",
    )  # fmt: skip
    save: str | None = option(
        "--save", metavar="PATH", trait="store",
        help="Append each finished point to this file of results at once; torchbench_magic.load(PATH) reads it.",
    )  # fmt: skip
    resume: bool = option(
        "--resume", default=False,
        help="Take points that are in that file over, where code, inputs, options, versions and machine are the same;"
        " else say what differs.",
    )  # fmt: skip

    @property
    def counting(self) -> Counting | None:
        """What is asked of the counting core; None where nothing is to be counted."""
        from torchbench_magic.core.counting.count_options import Counting

        return None if self.callgrind is None else Counting(self.callgrind, self.callgrind_form)

    def plan(self, *, label: str | None) -> Plan:
        """What is asked of the timing core; ``label`` where the options give none."""
        return _part(Plan, self, label=self.label if self.label is not None else label)


@of_magic("tcompare")
@dataclass(frozen=True, kw_only=True)
class CompareOptions(SharedOptions):
    """What ``%tcompare`` takes."""

    baseline: str | None = option(
        "--baseline", metavar="NAME",
        help="What the others are compared to: an alternative, a result, or with --by env an environment.",
        shown_default="the first",
    )  # fmt: skip
    by: SideBy = option(  # noqa: RUF009  (`option` makes the field)
        "--by", metavar="description|env", parse=read_by, default="description",
        values=lambda: ("description", "env"),
        help="Compare alternatives within each environment, or each alternative between environments.",
    )  # fmt: skip
    last: bool = option(
        "--last", default=False,
        help="Compare one result, by default _timer, with the last stored run of the same identity, and list what is"
        " not as it was. The file is PATH or %config TorchBench.store.",
    )  # fmt: skip


@of_magic("tdoctor")
@dataclass(frozen=True, kw_only=True)
class DoctorOptions(SharedOptions):
    """What ``%tdoctor`` takes."""

    self_test: bool = option(
        "--self-test", default=False,
        help="Also compare equal code with itself, which takes some seconds, and tell the smallest difference that this"
        " machine can resolve now.",
    )  # fmt: skip


@of_magic("tprofile")
@dataclass(frozen=True, kw_only=True)
class ProfilerOptions(SharedOptions, ProfileOptions):
    """What ``%tprofile`` and ``%%tprofile`` take: `ProfileOptions`, and what lies round them."""

    threads = inherited(
        "-t", "--threads", metavar="N", parse=read_threads,
        help="torch thread count to run at.", shown_default="the current torch.get_num_threads()",
    )  # fmt: skip
    memory = inherited("--memory", help="Bytes allocated and freed, per op and per line, and the peak.")
    shapes = inherited("--shapes", help="Shapes, dtypes and strides of each op's inputs.")
    host_memory = inherited(
        "--host-memory",
        help="Bytes that Python and numpy hold, per line, by tracemalloc: Python code that allocates runs several times"
        " slower meanwhile.",
    )  # fmt: skip
    flops = inherited(
        "--flops",
        help="Floating point operations of those operations that torch has a formula for: matrix products,"
        " convolutions, attention on a GPU (fused attention on the CPU has none); implies --shapes.",
    )  # fmt: skip
    twice = inherited(
        "--twice",
        help="Run the code again (short code several times, with and without the profiler in turns; long code once,"
        " without) and tell what recording costs.",
    )  # fmt: skip
    python = inherited(
        "--python",
        help="Where Python time goes, in libraries too: the tree of the functions called, each with its time in torch"
        " and outside of it, from samples of the stack each millisecond. Needs pyinstrument.",
    )  # fmt: skip
    concurrency = inherited(
        "--concurrency",
        help="Whether the cores were used well: threads over time, those of DataLoader workers too, in one word"
        " (healthy, oversubscribed, contended, gil-bound, lock-bound, serial, waiting, throttled) with the evidence,"
        " and the cell that compares thread counts. Linux only.",
    )  # fmt: skip
    efficiency = inherited(
        "--efficiency",
        help="How near each operation and line came to what this machine can do: FLOP/s and bytes/s against peaks that"
        " are measured once (3 s), and what holds it up: arithmetic, memory, page faults, calls; implies --flops.",
    )  # fmt: skip
    phases = inherited(
        "--phases",
        help="The phases of a training loop and nothing else: how long each step waits for input, runs forward,"
        " backward and the optimizer, and which steps took long. No operations; it costs so little that it can stay"
        " on.",
    )  # fmt: skip
    group_by: str | None = option(
        "--group-by", metavar="op|shape|line|module|stack[:N]",
        values=lambda: ("op", "shape", "line", "module", "stack"),
        help="Rows of the table of ops: each op, or each op and its input shapes (implies --shapes), line, module, or"
        " the N (5) innermost frames above it.",
        shown_default="op",
    )  # fmt: skip
    stacks: str | None = option(
        "--stacks", metavar="FILE",
        help="Write the call stacks with their self time to this file, for flamegraph.pl and speedscope.",
    )  # fmt: skip
    overwrite: bool = option(
        "--overwrite", default=False,
        help="Let `--trace` and `--stacks` replace a file of any kind; else a trace replaces a trace, stacks stacks.",
    )  # fmt: skip
    sort_by: str | None = option(
        "-s", "--sort-by", metavar="KEY", values=_sort_keys,
        help="Column that orders the table of ops, by torch's names.", shown_default="self time",
    )  # fmt: skip
    row_limit: int | None = option(
        "-l", "--row-limit", metavar="N", parse=read_rows,
        help="Rows of the table of ops that are shown; -1 for all.", shown_default="what fits the output",
    )  # fmt: skip
    lines_of = inherited(
        "--lines-of", metavar="MODULE|PATH", repeatable=True,
        help="Give the lines of this module or file too.",
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
        " one torch.distributed job, and lay them side by side: which one the others wait for, and on which line.",
    )  # fmt: skip
    save: str | None = option(
        "--save", metavar="PATH",
        help="Add the profile to this file of results; torchbench_magic.load(PATH) reads it.",
    )  # fmt: skip
    schedule = inherited(
        "--schedule", metavar="skip_first=,wait=,warmup=,active=,repeat=", parse=read_schedule,
        help="Record only some steps, as torch.profiler.schedule has it; the code calls torchbench_magic.step() at the"
        " end of each.",
        shown_default="all of the cell",
    )  # fmt: skip
    steps: int | None = option(
        "--steps", metavar="N", parse=read_count,
        help="Record N iterations of the one loop at the top of the cell; the rest runs unprofiled.",
        shown_default="all of the cell",
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
        help="Line events of a thread, and events of torch, above which detail is dropped, and said to be.",
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
        return _part(ProfileOptions, self, shapes=shapes, schedule=self._steps_asked(), in_loop=self.steps is not None)

    def _check_phases(self) -> None:
        """OptionError for what shows operations, and for a part of the steps."""
        if self.steps is not None:
            raise OptionError("--phases records all steps: leave --steps out")
        of_operations = {"--trace": self.trace, "--on-trace": self.on_trace, "--stacks": self.stacks}
        of_operations["--group-by"] = self.group_by
        for name, value in of_operations.items():
            if value is not None:
                raise OptionError(f"--phases records no operations, and {name} is of these: leave one of them out")

    def _steps_asked(self) -> Schedule | None:
        """The schedule that ``--schedule``, or ``--steps`` and ``--warmup``, ask for.

        Raises:
            OptionError: they do not go together.
        """
        if self.steps is None:
            if self.warmup is not None:
                raise OptionError("--warmup says what runs before --steps: give both")
            if self.schedule is not None and self.twice:
                raise OptionError("--twice times the whole cell, and --schedule records a part of it: leave one out")
            return self.schedule
        if self.schedule is not None:
            raise OptionError("--steps and --schedule both say which steps are recorded: leave one of them out")
        if self.twice:
            raise OptionError("--twice times the whole cell, and --steps records a part of it: leave one of them out")
        warmup = 1 if self.warmup is None else self.warmup
        # torch's profiler gets ready in the last iteration before the recorded ones
        return Schedule(wait=max(warmup - 1, 0), warmup=min(warmup, 1), active=self.steps, repeat=1)
