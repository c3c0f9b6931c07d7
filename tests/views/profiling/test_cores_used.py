"""How the cores were used: what is said, shown and drawn."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from torchbench_magic.profiling.cores.table import TIMELINE_COLUMNS, Concurrency, CoreUse
from torchbench_magic.profiling.cores.view import cores_clause, cores_picture, cores_table
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.view import document
from torchbench_magic.show import html, markdown, text
from torchbench_magic.show.document import plain

from ...results.profiles import profile_of_two_kernels

USE = CoreUse(
    wall=2.0, cores=2, run=1.5, wait=2.5, ext=0.2, steal=0.0, throttled=0.0, threads=8, most=6,
    alone=0.1, idle=0.0, gil=0.0, lock=0.0, samples=200,
)  # fmt: skip


def seen(verdict: Any = "oversubscribed", **changed: Any) -> Profile:
    times = [0.5, 1.0, 1.5, 2.0]
    columns = (times, [1.5, 1.5, 1.0, 2.0], [2.5, 2.5, 30.0, 2.0], [0.0] * 4)
    timeline = pd.DataFrame(dict(zip(TIMELINE_COLUMNS, columns, strict=True)))
    known = {"timeline": timeline, "torch_threads": 8, "proof": "%%timer --threads 1,2,8\nf(x) < 3"}
    known |= {name: changed.pop(name) for name in ("missing", "hung", "proof", "timeline") if name in changed}
    return profile_of_two_kernels(concurrency=Concurrency(verdict, replace(USE, **changed), **known))  # type: ignore[arg-type]


def both() -> Profile:
    return seen()


def test_the_sentence_has_the_verdict_and_the_threads_against_the_cores() -> None:
    said = plain(cores_clause(seen()))
    assert said.startswith("; cores: oversubscribed, 4.00 threads wanted one of 2 cores (1.50 ran, 2.50 waited)")
    assert said.endswith(", others used 0.20")
    assert plain(cores_clause(seen(ext=0.01, cores=1))).endswith("wanted one of 1 core (1.50 ran, 2.50 waited)")
    assert plain(cores_clause(seen("not available"))) == "; cores: not available"
    assert plain(cores_clause(profile_of_two_kernels())) == ""
    assert plain(cores_clause(seen("throttled", run=math.nan))) == "; cores: throttled, the CPU quota stops the code"


def test_every_carrier_has_the_evidence_and_ends_with_the_line_that_compares_thread_counts() -> None:
    made = document(seen(missing=("CPU quota: unknown (/sys/fs/cgroup).",)))
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

    assert "waiting for the GIL" in rows(seen())
    assert "waiting for the GIL" not in rows(seen(gil=math.nan))
    assert "hangs" in rows(seen(hung=("A worker hangs.",)))
    assert cores_table(profile_of_two_kernels()) is None


def test_the_picture_has_threads_over_time_against_the_cores() -> None:
    drawn = cores_picture(seen())
    assert drawn.count("<svg") == 1
    assert "2 cores" in drawn
    assert "(cut off above)" in drawn  # 31 threads of 2 cores
    heights = [float(each) for each in re.findall(r"[ML][\d.]+,([\d.]+)", drawn)]
    assert min(heights) == 0
    assert max(heights) == 64
    assert "<svg" in html.render(document(seen()))
    assert cores_picture(profile_of_two_kernels()) == ""
    assert cores_picture(seen(timeline=Concurrency().timeline)) == ""


@pytest.mark.parametrize("verdict", ["healthy", "contended", "gil-bound", "lock-bound", "serial", "waiting"])
def test_each_word_is_explained(verdict: str) -> None:
    assert f"Cores: {verdict} = " in " ".join(text.render(document(seen(verdict))).split())
