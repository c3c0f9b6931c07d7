"""How the cores were used: the rule, the value that is kept, and what is said, shown and drawn of it."""

from __future__ import annotations

import math
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.profiling.profiles import profile_of_two_kernels
from torchbench_magic import load
from torchbench_magic.profiling.cores.verdict import (
    TIMELINE_COLUMNS,
    Concurrency,
    CoreUse,
    joined_concurrency,
    mean_use,
    verdict_of,
)
from torchbench_magic.profiling.cores.view import cores_clause, cores_picture, cores_table
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.steps import sum_of_cycles
from torchbench_magic.profiling.view import document
from torchbench_magic.show import html, markdown, text
from torchbench_magic.show.document import plain
from torchbench_magic.storage.records import Record, profile_of, profile_record

# ==== core verdicts ===================================================================================================
# The rule that says how the cores were used: by given figures, at each of its thresholds.


HEALTHY = CoreUse(
    wall=1.0, cores=4, run=3.9, wait=0.1, ext=0.05, steal=0.0, throttled=0.0, threads=4, most=4,
    alone=0.02, idle=0.0, gil=0.0, lock=0.0, samples=100,
)  # fmt: skip
ONE = replace(HEALTHY, run=0.98, wait=0.02, threads=1, most=1, alone=1.0)

CASES = {
    "healthy": (HEALTHY, {}),
    "more threads than cores": (HEALTHY, {"wait": 2.0, "threads": 8}, "oversubscribed"),
    "too many beside others": (HEALTHY, {"run": 2, "wait": 4, "threads": 8, "ext": 2.0}, "oversubscribed"),
    "one thread too many, at barriers": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 5}, "oversubscribed"),
    "the same, and others may be the cause": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 5, "ext": 1.0}, "contended"),
    "waiting that others can have caused": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 9, "ext": 0.5}, "healthy"),
    "as many threads as cores never are too many": (HEALTHY, {"run": 3, "wait": 0.9, "threads": 4}, "healthy"),
    "workers that feed one thread": (HEALTHY, {"wait": 1.5, "threads": 5, "processes": 4}, "healthy"),
    "more workers than cores": (HEALTHY, {"wait": 2.5, "threads": 6, "processes": 5}, "oversubscribed"),
    "workers with threads of their own": (HEALTHY, {"wait": 2.5, "threads": 7, "processes": 4}, "oversubscribed"),
    "others": (HEALTHY, {"run": 2.0, "wait": 2.0, "ext": 2.0}, "contended"),
    "others that are in nobody's way": (ONE, {"ext": 2.0}, "serial"),
    "the hypervisor": (HEALTHY, {"run": 2.0, "wait": 2.0, "ext": 0.1, "steal": 1.5}, "contended"),
    "a stolen core is no waiting": (ONE, {"run": 0.75, "steal": 0.25}, "serial"),
    "the interpreter's lock": (ONE, {"gil": 2.4, "threads": 4}, "gil-bound"),
    "two that take turns at it": (ONE, {"gil": 0.9, "threads": 2}, "gil-bound"),
    "another lock": (ONE, {"lock": 2.7, "threads": 4}, "lock-bound"),
    "waits at a lock while all cores run": (HEALTHY, {"lock": 3.0}, "healthy"),
    "one thread": (ONE, {}, "serial"),
    "one thread on one core": (ONE, {"cores": 1}, "healthy"),
    "half of the cores all the time": (HEALTHY, {"run": 2.0, "wait": 0.0, "threads": 2}, "healthy"),
    "half of the cores on the average": (HEALTHY, {"run": 2.0, "wait": 0.0, "alone": 0.7}, "serial"),
    "nobody": (ONE, {"run": 0.05, "wait": 0.0, "idle": 0.95}, "waiting"),
    "a quota": (HEALTHY, {"throttled": 0.4}, "throttled"),
    "a quota before all else": (HEALTHY, {"throttled": 0.4, "wait": 9.0, "threads": 9, "ext": 3.0}, "throttled"),
    "too short": (HEALTHY, {"wall": 0.1}, "not available"),
    "nothing seen": (HEALTHY, {"run": math.nan}, "not available"),
    "few looks at code that waits": (ONE, {"samples": 5, "run": 0.1, "wait": 0.0}, "waiting"),
    "the same beside others": (ONE, {"samples": 5, "run": 0.1, "wait": 0.0, "ext": 3.0}, "not available"),
    "few looks": (ONE, {"samples": 5}, "not available"),
    "few looks at far too many threads": (HEALTHY, {"samples": 5, "wait": 9.0, "threads": 12}, "oversubscribed"),
    "the load of others is not known": (HEALTHY, {"ext": math.nan, "steal": math.nan}, "healthy"),
    "it is not known what threads wait for": (ONE, {"gil": math.nan, "lock": math.nan}, "serial"),
    "it is not known whether a quota stopped it": (HEALTHY, {"throttled": math.nan}, "healthy"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_word_for_what_was_seen(name: str) -> None:
    use, changed, *expected = CASES[name]
    assert verdict_of(replace(use, **changed)) == (expected or ["healthy"])[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("ext", [0.0, 0.3, 0.6])
def test_as_many_threads_as_cores_are_never_too_many_whoever_else_runs(cores: int, ext: float) -> None:
    for share in (0.0, 0.1, 0.3, 0.5, 0.9):
        use = replace(
            HEALTHY, cores=cores, run=cores * (1 - share), wait=cores * share, threads=cores, ext=ext * cores
        )
        assert verdict_of(use) not in ("oversubscribed", "gil-bound", "lock-bound", "serial")


def test_where_a_device_is_what_the_time_depends_on_the_cores_are_not_judged() -> None:
    for use in (HEALTHY, ONE, CoreUse()):
        assert verdict_of(replace(use, device=0.9)) == "device"
        assert verdict_of(replace(use, device=0.5)) == verdict_of(use)
    assert mean_use([replace(ONE, wall=1.0, device=0.9), replace(ONE, wall=3.0)]).device == pytest.approx(0.225)


def test_stretches_are_joined_by_their_seconds() -> None:
    joined = mean_use([replace(HEALTHY, wall=1.0, cores=4), replace(ONE, wall=3.0, cores=2, ext=math.nan, threads=7)])
    assert (joined.wall, joined.cores, joined.threads, joined.samples) == (4.0, 2, 7, 200)
    assert joined.run == pytest.approx((3.9 + 3 * 0.98) / 4)
    assert joined.ext == 0.05  # of where it is known
    assert math.isnan(mean_use([replace(HEALTHY, gil=math.nan)]).gil)


# ==== concurrency =====================================================================================================
# How the cores were used, as a value: evidence, several stretches, what is stored.


USE = CoreUse(
    wall=2.0, cores=2, run=1.5, wait=2.5, ext=math.nan, steal=0.0, throttled=0.0, threads=8, most=6,
    alone=0.1, idle=0.0, gil=0.0, lock=0.0, samples=200,
)  # fmt: skip


def seen(**changed: object) -> Concurrency:
    timeline = pd.DataFrame(dict(zip(TIMELINE_COLUMNS, ([1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [0.0, 0.5]), strict=True)))
    known = {
        "verdict": "oversubscribed",
        "use": USE,
        "timeline": timeline,
        "torch_threads": 8,
        "missing": ("Load of others: no.",),
        "proof": "%%timer --threads 1,2,8\nf()",
    }
    return Concurrency(**(known | changed))  # type: ignore[arg-type]


def test_the_evidence_has_what_is_known() -> None:
    evidence = seen().evidence
    assert evidence["threads_wanted"] == 4.0
    assert evidence["usable_cores"] == 2
    assert "cores_used_by_others" not in evidence
    assert str(seen()) == "oversubscribed: 4.00 threads wanted one of 2 cores"
    assert str(Concurrency()) == "not available"
    assert seen().proof_line == "%%timer --threads 1,2,8"


def test_a_timeline_of_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"columns of \.timeline"):
        seen(timeline=pd.DataFrame({"time": [1.0]}))


def test_several_stretches_are_judged_together_and_stand_one_after_the_other() -> None:
    joined = joined_concurrency([seen(), seen(), Concurrency(missing=("Load of others: no.", "More."))])
    assert joined is not None
    assert joined.verdict == "oversubscribed"
    assert joined.use.wall == 4.0
    assert joined.timeline["time"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert joined.missing == ("Load of others: no.", "More.")
    assert joined_concurrency([]) is None
    nothing = joined_concurrency([Concurrency(), Concurrency()])
    assert nothing is not None
    assert nothing.verdict == "not available"


def test_the_sum_of_cycles_has_it() -> None:
    cycles = [profile_of_two_kernels(concurrency=seen()), profile_of_two_kernels(concurrency=seen())]
    summed = sum_of_cycles(cycles, ProfileOptions(concurrency=True), []).concurrency
    assert summed is not None
    assert summed.use.wall == 4.0


@pytest.mark.parametrize("concurrency", [None, seen(), Concurrency()])
def test_it_is_stored_and_read_back(tmp_path: Path, concurrency: Concurrency | None) -> None:
    profile_of_two_kernels(concurrency=concurrency).save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    if concurrency is None:
        assert read.concurrency is None
        return
    assert repr(read.concurrency.use) == repr(concurrency.use)
    assert (read.concurrency.verdict, read.concurrency.missing) == (concurrency.verdict, concurrency.missing)
    assert (read.concurrency.proof, read.concurrency.torch_threads) == (concurrency.proof, concurrency.torch_threads)
    pd.testing.assert_frame_equal(read.concurrency.timeline, concurrency.timeline)
    assert [each.kind for each in read.insights] == [
        each.kind for each in profile_of_two_kernels(concurrency=concurrency).insights
    ]


def test_cycles_are_stored_with_theirs(tmp_path: Path) -> None:
    cycles = [profile_of_two_kernels(concurrency=seen()), profile_of_two_kernels(concurrency=seen(verdict="healthy"))]
    sum_of_cycles(cycles, ProfileOptions(concurrency=True), []).save(tmp_path / "runs.sqlite")
    (read,) = load(tmp_path / "runs.sqlite")
    assert [each.concurrency.verdict for each in read.cycles] == ["oversubscribed", "healthy"]


def test_a_record_from_before_there_was_one_is_read() -> None:
    record = profile_record(profile_of_two_kernels())
    older = {name: value for name, value in record.header.items() if name != "concurrency"}
    options = {k: v for k, v in older["options"]["ProfileOptions"].items() if k != "concurrency"}
    older["options"] = {"ProfileOptions": options}
    assert profile_of(Record("Profile", 1, older, record.tables)).concurrency is None


def test_it_pickles() -> None:
    again = pickle.loads(pickle.dumps(seen()))
    assert again.evidence == seen().evidence


# ==== cores used ======================================================================================================


BESIDE_OTHERS = CoreUse(
    wall=2.0, cores=2, run=1.5, wait=2.5, ext=0.2, steal=0.0, throttled=0.0, threads=8, most=6,
    alone=0.1, idle=0.0, gil=0.0, lock=0.0, samples=200,
)  # fmt: skip


def profile_seen(verdict: Any = "oversubscribed", **changed: Any) -> Profile:
    times = [0.5, 1.0, 1.5, 2.0]
    columns = (times, [1.5, 1.5, 1.0, 2.0], [2.5, 2.5, 30.0, 2.0], [0.0] * 4)
    timeline = pd.DataFrame(dict(zip(TIMELINE_COLUMNS, columns, strict=True)))
    known = {"timeline": timeline, "torch_threads": 8, "proof": "%%timer --threads 1,2,8\nf(x) < 3"}
    known |= {name: changed.pop(name) for name in ("missing", "proof", "timeline") if name in changed}
    return profile_of_two_kernels(concurrency=Concurrency(verdict, replace(BESIDE_OTHERS, **changed), **known))  # type: ignore[arg-type]


def both() -> Profile:
    return profile_seen()


def test_the_sentence_has_the_verdict_and_the_threads_against_the_cores() -> None:
    said = plain(cores_clause(profile_seen()))
    assert said.startswith("; cores: oversubscribed, 4.00 threads wanted one of 2 cores (1.50 ran, 2.50 waited)")
    assert said.endswith(", others used 0.20")
    assert plain(cores_clause(profile_seen(ext=0.01, cores=1))).endswith("wanted one of 1 core (1.50 ran, 2.50 waited)")
    assert plain(cores_clause(profile_seen("not available"))) == "; cores: not available"
    assert plain(cores_clause(profile_of_two_kernels())) == ""
    assert (
        plain(cores_clause(profile_seen("throttled", run=math.nan)))
        == "; cores: throttled, the CPU quota stops the code"
    )


def test_every_carrier_has_the_evidence_and_ends_with_the_line_that_compares_thread_counts() -> None:
    made = document(profile_seen(missing=("CPU quota: unknown (/sys/fs/cgroup).",)))
    for render in (text.render, markdown.render, html.render):
        shown = render(made)
        assert "oversubscribed" in shown
        assert "how the cores were used" in shown
        assert "--threads 1,2,8" in shown
        assert "CPU quota: unknown" in shown
    assert text.render(made).rstrip().endswith("%%timer --threads 1,2,8")


def test_what_is_not_known_is_no_row() -> None:
    def rows(profile: Profile) -> list[str]:
        table = cores_table(profile)
        assert table is not None
        return [row.cells[0].text for row in table.rows()]

    assert "waiting for the GIL" in rows(profile_seen())
    assert "waiting for the GIL" not in rows(profile_seen(gil=math.nan))
    assert cores_table(profile_of_two_kernels()) is None


def test_the_picture_has_threads_over_time_against_the_cores() -> None:
    drawn = cores_picture(profile_seen())
    assert drawn.count("<svg") == 1
    assert "2 cores" in drawn
    assert "(cut off above)" in drawn  # 31 threads of 2 cores
    heights = [float(each) for each in re.findall(r"[ML][\d.]+,([\d.]+)", drawn)]
    assert min(heights) == 0
    assert max(heights) == 64
    assert "<svg" in html.render(document(profile_seen()))
    assert cores_picture(profile_of_two_kernels()) == ""
    assert cores_picture(profile_seen(timeline=Concurrency().timeline)) == ""


@pytest.mark.parametrize("verdict", ["healthy", "contended", "gil-bound", "lock-bound", "serial", "waiting"])
def test_each_word_is_explained(verdict: str) -> None:
    assert f"Cores: {verdict} = " in " ".join(text.render(document(profile_seen(verdict))).split())
