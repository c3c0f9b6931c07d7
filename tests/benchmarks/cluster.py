"""Ranks of jobs over gloo: planted stragglers, jobs without one, planted skews of clocks, and two traces of 60 MB.

``python tests/benchmarks/cluster.py [--runs N] [--none N] [--only engines|traces]``, on an idle machine of two cores or
more; ten minutes. A recording is 24 steps of `tests/cluster/job.py` under torchrun. On engines, a cell of 8 steps
runs as with ``%%tprofile --engines``; ``--only engines`` keeps the other figures of the file as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]

from record import RESULTS, Figure, record  # noqa: E402
from tabulate import tabulate  # noqa: E402

from tests.cluster.record_traces import launched  # noqa: E402
from tests.engines.conftest import running_cluster  # noqa: E402
from torchbench_magic import load_ranks  # noqa: E402
from torchbench_magic.cell_body import Body, CellText  # noqa: E402
from torchbench_magic.cluster.job_profile import RankProfile  # noqa: E402
from torchbench_magic.cluster.rank_job import RankCell, profile_on_engines  # noqa: E402
from torchbench_magic.process.code import compile_body  # noqa: E402
from torchbench_magic.profiling.options import ProfileOptions  # noqa: E402

STEPS = 24
SKEWS = (3.7, -3.7, 30.0, -30.0)  # ms
MEGABYTES = 60


def recorded(folder: Path, ranks: int, how: str, late: int, runs: int) -> list[Path]:
    out = folder / f"{how}-{late}-of-{ranks}"
    launched(ranks, out, how, late, runs, STEPS)
    return [out / str(run) for run in range(runs)]


def stragglers(folder: Path, runs: int) -> Iterator[tuple[str, int, RankProfile]]:
    """(how, rank, result) of every run with a planted one."""
    for ranks in (2, 3):
        for how in ("sleep", "batch"):
            for late in range(ranks):
                for one in recorded(folder, ranks, how, late, runs):
                    yield how, late, load_ranks(one)


def none_planted(folder: Path, runs: int) -> Iterator[RankProfile]:
    for ranks, count in ((2, runs - runs // 2), (3, runs // 2)):
        for one in recorded(folder, ranks, "none", -1, count):
            yield load_ranks(one)


def skewed(folder: Path, ms: float, at: int, target: Path) -> RankProfile:
    """The traces as if each rank had a host of its own, and the clock of rank ``at`` were ahead."""
    for file in sorted(folder.glob("rank*.json")):
        made = json.loads(file.read_text())
        rank = made["distributedInfo"]["rank"]
        made["host_name"] = f"host-{rank}"
        for event in made["traceEvents"]:
            if rank == at and "ts" in event:
                event["ts"] += ms * 1000
        (target / file.name).write_text(json.dumps(made))
    return load_ranks(target)


def inside(profile: RankProfile, ms: float, at: int) -> bool:
    return all(
        low <= ((rank == at) - (at == 0)) * ms / 1e3 <= high
        for rank, low, high in profile.clock_error.itertuples(index=False)
    )


def skews(folder: Path) -> Iterator[tuple[bool, float]]:
    """(whether the true offset of every rank lies in its bounds, half the widest of them in ms)."""
    for job in sorted(folder.iterdir()):
        ranks = len(list((job / "0").glob("rank*.json")))
        for at in range(ranks):
            for ms in SKEWS:
                with tempfile.TemporaryDirectory() as target:
                    profile = skewed(job / "0", ms, at, Path(target))
                width = (profile.clock_error["high"] - profile.clock_error["low"]).max() / 2
                yield inside(profile, ms, at), float(width) * 1e3


def enlarged(file: Path, target: Path) -> None:
    """The trace again and again, one after the other, until it has 60 MB, in torch's layout."""
    made = json.loads(file.read_text())
    events = [event for event in made["traceEvents"] if event.get("cat") != "python_function" and "ts" in event]
    begin, end = min(e["ts"] for e in events), max(e["ts"] + e.get("dur", 0) for e in events)
    one = len(json.dumps(events, indent=2))
    more: list[dict[str, Any]] = []
    for time_over in range(MEGABYTES * 1_000_000 // one + 1):
        more += [{**event, "ts": event["ts"] + time_over * (end - begin + 1000)} for event in events]
    target.write_text(json.dumps({**made, "traceEvents": more}, indent=2))


def speeds(folder: Path) -> tuple[float, float, float]:
    """MB of the smaller file, seconds of reading both, of merging both."""
    with tempfile.TemporaryDirectory() as name:
        large = Path(name)
        for file in sorted((folder / "none--1-of-2" / "0").glob("rank*.json")):
            enlarged(file, large / file.name)
        size = min(file.stat().st_size for file in large.iterdir()) / 1e6
        before = time.perf_counter()
        profile = load_ranks(large)
        read = time.perf_counter() - before
        before = time.perf_counter()
        profile.merged_trace(large / "merged.json.gz")
        return size, read, time.perf_counter() - before


CELL = """\
import time, torch
layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(layer.parameters(), 0.01)
for step in range(8):
    batch = torch.rand(256, 256)
    if rank == late:
        time.sleep(0.02)
    optimizer.zero_grad()
    layer(batch).square().mean().backward()
    optimizer.step()
"""
SLEEPS = 7  # the line
TIMES_ITSELF = """\
import time, torch
import torch.distributed as dist
spent = 0.0
for step in range(20):
    if rank == late:
        time.sleep(0.02)
    began = time.perf_counter()
    dist.all_reduce(torch.ones(1000))
    if step:
        spent += time.perf_counter() - began
print(spent)
"""


def job_on_engines(running: Any, late: int, source: str = CELL) -> tuple[RankProfile, float]:
    """The result, and the seconds until it was there and drawn, beyond what the slowest rank ran."""
    text = CellText.of(source, "<cell>", 1)
    body = Body(source, text.file, 1, 1)
    code = compile_body(body)
    cell = RankCell(
        body=body, flags=0, codes=[code.code], namespace={"late": late}, text_of={text.file: text}.get,
        options=ProfileOptions(), shows_value=False,
    )  # fmt: skip
    before = time.perf_counter()
    with running.connected() as cluster:
        outcome = profile_on_engines(cluster, cell)
    assert outcome.profile is not None, outcome.error
    assert outcome.error is None
    outcome.profile._repr_mimebundle_()
    passed = time.perf_counter() - before
    return outcome.profile, passed - max(each.wall_time for each in outcome.profile.profiles)


def engines(runs: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name), 2) as running:
        job_on_engines(running, -1)  # the engines are warm
        beyond = sorted(job_on_engines(running, -1)[1] for _ in range(2 * runs))
        told = [job_on_engines(running, 1, TIMES_ITSELF)[0] for _ in range(4 * runs)]
    seconds = sorted(100 * each.ranks["blame"][1] / float(each.printed[0]) for each in told)
    found = []
    with tempfile.TemporaryDirectory() as name, running_cluster(Path(name), 3) as running:
        job_on_engines(running, -1)
        for late in range(3):
            for _ in range(runs):
                named = job_on_engines(running, late)[0].straggler
                found.append(named is not None and (named.rank, named.cell, named.line) == (late, 1, SLEEPS))
    middle = beyond[len(beyond) // 2]
    spread = (beyond[0], beyond[-1])
    return [
        Figure("on 2 warm engines, 8 steps: profile there beyond its own run", middle, "s", limit=1, spread=spread),
        Figure(f"on 3 engines, planted and named with its line, of {len(found)} runs", sum(found), "runs",
               at_least=len(found)),
        Figure("on 2 engines: what rank 1 delays others by, of what rank 0 itself times in its calls",
               seconds[len(seconds) // 2], "%", spread=(seconds[0], seconds[-1])),
    ]  # fmt: skip


def kept_figures(names: set[str]) -> list[Figure]:
    """Those of the file that are not measured again."""
    told = json.loads((RESULTS / "cluster.json").read_text(encoding="utf-8"))["figures"]
    fields = ("name", "value", "unit", "limit", "at_most", "at_least")
    return [
        Figure(**{key: each[key] for key in fields}, spread=tuple(each["spread"]) if each["spread"] else None)
        for each in told
        if each["name"] not in names
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="recordings for each planted straggler")
    parser.add_argument("--none", type=int, default=30, help="recordings without one")
    parser.add_argument("--only", choices=("engines", "traces"))
    given = parser.parse_args()
    on_engines = engines(given.runs) if given.only != "traces" else []
    conditions = {"steps": STEPS, "runs": given.runs, "none": given.none, "skews_ms": SKEWS}
    if given.only == "engines":
        others = kept_figures({each.name for each in on_engines})
        return record("cluster", [*others, *on_engines], **conditions)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        planted = list(stragglers(folder, given.runs))
        healthy = list(none_planted(folder, given.none))
        bounds = list(skews(folder))
        size, read, merged = speeds(folder)
    rows = [
        (how, late, len(result.ranks), result.straggler and result.straggler.rank,
         result.straggler and result.straggler.place, f"{result.ranks['blame'].max() * 1e3:.0f}",
         f"{result.threshold * 1e3:.1f}")
        for how, late, result in [*planted, *(("none", -1, each) for each in healthy)]
    ]  # fmt: skip
    print(tabulate(rows, ("planted", "on rank", "of", "named", "place", "blame ms", "threshold ms"), "plain"))
    right = {how: [r.straggler is not None and r.straggler.rank == late for h, late, r in planted if h == how]
             for how in ("sleep", "batch")}  # fmt: skip
    lines = [r.straggler is not None and r.straggler.place.endswith(" augment") for h, _, r in planted if h == "sleep"]
    thresholds = [result.threshold * 1e3 for _, _, result in planted] + [each.threshold * 1e3 for each in healthy]
    quiet = sum(each.straggler is None for each in healthy)
    widths = [width for _, width in bounds]
    figures = [
        *(Figure(f"planted ({how}) and named, of {len(each)} runs", sum(each), "runs", at_least=len(each))
          for how, each in right.items()),
        Figure(f"its line named (sleep), of {len(lines)} runs", sum(lines), "runs", at_least=len(lines)),
        Figure(f"none planted and none named, of {len(healthy)} runs", quiet, "runs", at_least=0.9 * len(healthy)),
        Figure("threshold of blame", sum(thresholds) / len(thresholds), "ms",
               spread=(min(thresholds), max(thresholds))),
        Figure(f"skews inside the stated bounds, of {len(bounds)}", sum(ok for ok, _ in bounds), "skews",
               at_least=len(bounds)),
        Figure("half the width of the bounds", sum(widths) / len(widths), "ms", spread=(min(widths), max(widths))),
        Figure("size of each of the two traces", size, "MB", at_least=MEGABYTES),
        Figure("two traces read and analysed", read, "s", limit=5),
        Figure("two traces merged, gzip", merged, "s", limit=8),
    ]  # fmt: skip
    if given.only == "traces":
        figures += [each for each in kept_figures({f.name for f in figures}) if each.name.startswith("on ")]
    return record("cluster", [*figures, *on_engines], **conditions)


if __name__ == "__main__":
    raise SystemExit(main())
