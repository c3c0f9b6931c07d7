"""Equal code against itself, with the comparison that `%%timer` makes: what this machine can tell apart now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torchbench_magic.errors import Interrupted
from torchbench_magic.process.interrupts import Progress
from torchbench_magic.script.compare import compare
from torchbench_magic.timing.comparison import Comparison

from .findings import Finding, SelfTest

SECONDS, MOST_SECONDS = 0.6, 1.5
"""For each alternative, as a minimum and a maximum: two of them and three cases make 4 to 9 s."""
CASES = {
    "matrix product (256 × 256)": ("x = torch.rand(256, 256)\nout = torch.empty(256, 256)", "torch.mm(x, x, out=out)"),
    "elementwise, 8 MB a tensor": ("x = torch.rand(1 << 21)\nout = torch.empty(1 << 21)", "torch.add(x, x, out=out)"),
    "tiny operation": ("x = torch.ones(1)", "x + 1"),
}
"""Name -> (setup, statement): bound by cores, by memory, by the calls themselves."""


@dataclass(frozen=True)
class _Part:
    """The progress of one case, said with its name and number."""

    progress: Progress
    at: int
    name: str

    def update(self, done: float, total: float | None, what: str) -> None:
        self.progress.update(done, total, f"{self.name} against itself (self-test {self.at + 1} of {len(CASES)})")


def self_tests(progress: Progress, seconds: float = SECONDS, most: float = MOST_SECONDS) -> Iterator[SelfTest]:
    """Each case as it is finished.

    Args:
        seconds, most: for which each alternative is sampled at least and, where that settles nothing, at most.

    Raises:
        Interrupted: on Ctrl-C; ``.partial`` is the `SelfTest` of the case under way, or None.
    """
    for at, (name, (setup, stmt)) in enumerate(CASES.items()):
        try:
            made = compare(
                {"first": stmt, "second": stmt},
                setup=setup,
                min_run_time=seconds,
                max_run_time=most,
                progress=_Part(progress, at, name),
            )
        except Interrupted as interrupt:
            known = interrupt.partial
            raise Interrupted(as_self_test(name, known) if isinstance(known, Comparison) else None) from None
        yield as_self_test(name, made)


def as_self_test(name: str, made: Comparison) -> SelfTest:
    """What a comparison of two equal alternatives says."""
    row = made.frame.iloc[-1]
    return SelfTest(
        name=name,
        median=float(row["median"]),
        ratio=float(row["ratio"]),
        low=float(row["ratio_low"]),
        high=float(row["ratio_high"]),
        verdict=str(row["verdict"]),
        seconds=made.elapsed,
    )


def self_test_findings(tests: tuple[SelfTest, ...]) -> Iterator[Finding]:
    """Whether equal code was called different."""
    wrong = [one for one in tests if one.is_wrong]
    if wrong:
        names = ", ".join(f"{one.name}: {one.verdict}, {one.ratio:.3f}" for one in wrong)
        text = "The self-test found a difference between equal code: other comparisons may be wrong now, too."
        fix = "Run it again: one in 20 does this by chance. If it persists, measure with `--processes`."
        yield Finding("self-test", "warn", text, names, fix)
    elif tests:
        said = ", ".join(f"{one.name}: {one.verdict}" for one in tests)
        yield Finding("self-test", "ok", "The self-test found no false difference.", said)
