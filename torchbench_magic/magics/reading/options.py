"""The options of the magics, those of `%tprofile` in `profiler_options`: each declared once, with its type, its reader
and its default."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from torchbench_magic.core.timing.plan import Plan

from .option_line import inherited, of_magic, option
from .option_values import (
    lever_names,
    looks_like_levers,
    read_by,
    read_clock,
    read_count,
    read_form,
    read_levers,
    read_per_cent,
    read_processes,
    read_seconds,
    read_seed,
    read_thread_counts,
    read_threshold,
    read_variable,
)

if TYPE_CHECKING:
    from torchbench_magic.core.counting.count_options import Counting, Form
    from torchbench_magic.results.timing.across_runs.side_by_side import SideBy

__all__ = ["CompareOptions", "DoctorOptions", "SharedOptions", "TimerOptions", "part"]

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
        "--clock", metavar="CLOCK", parse=read_clock, values=lambda: ("wall", "cpu", "device"),
        help="The clock: wall, cpu (CPU time of the process), or device (time between two events on the"
        " accelerator).",
    )  # fmt: skip
    cold = inherited("--cold", help="Empty the CPU caches before each sample; a sample is then one call.")
    check = inherited(
        "--check",
        help="First compare the results of the alternatives with torch.testing.assert_close: the value of the last"
        " line, or of the last line of a trailing with block.",
    )  # fmt: skip
    restore = inherited(
        "--restore",
        help="Before each block (before each call with -n 1) and after the run, restore what the code changes: tensors"
        " it reads, gradients, buffers, and the state of optimizers and learning rate schedules. Iterators that can be"
        " copied and files that are read are restored too (each block is then one call); generators cannot be.",
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
        shown_default="this kernel only",
    )  # fmt: skip
    engines = inherited(
        "--engines", metavar="PROFILE",
        help="Measure on the engines of a running ipyparallel cluster, given by its profile or its id. With --sweep"
        " or --fuzz each point is measured on one engine; otherwise every engine measures everything, as an environment"
        " of its own. Only one engine per host works at a time. What the code uses is sent there, up to 64 MB.",
        shown_default="this kernel",
    )  # fmt: skip
    levers = inherited(
        "--try", metavar="[LEVER,...]", parse=read_levers, bare=(), is_value=looks_like_levers,
        values=lever_names,
        help="Compare the body as it is with the same body under each lever: inference_mode, no_grad, compile, bf16,"
        " fp16, channels_last, matmul-medium, threads:N, fused-optimizer, foreach, sdpa, flush-denormal, contiguous."
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
        "--callgrind-form", metavar="function|module", parse=read_form, default="function",
        values=lambda: ("function", "module"),
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
        from torchbench_magic.core.counting.count_options import Counting

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
        "--by", metavar="description|env", parse=read_by, default="description",
        values=lambda: ("description", "env"),
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
