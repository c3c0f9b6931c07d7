"""Pictures of many events: what is drawn is what a plain way over them says, and nothing runs once for each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.results.many_events import calls_of, profile_of_many
from torchbench_magic.profiling import chrome_trace
from torchbench_magic.profiling.memory.picture import _owners, stack
from torchbench_magic.profiling.pictures.timeline import Bars, Timeline, timeline
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import MEMORY_COLUMNS, frame_of
from torchbench_magic.show.renderers import mimebundle

WORK: dict[str, Callable[[Profile, Path], Any]] = {
    "page": lambda profile, folder: mimebundle(profile),
    "timeline": lambda profile, folder: profile.timeline()._repr_mimebundle_(),
    "export": lambda profile, folder: profile.export_trace(folder / "trace.json"),
}


def test_twice_the_events_are_not_more_calls(tmp_path: Path) -> None:
    """Of all these profiles only the timeline's longest bars are drawn; the first one pays for what is imported and
    remembered. A call for every twentieth of the 22 000 events more is too many."""
    first, few, many = profile_of_many(11_000), profile_of_many(11_000), profile_of_many(22_000)
    for name, work in WORK.items():
        work(first, tmp_path)
        calls = [calls_of(lambda profile=profile, work=work: work(profile, tmp_path)) for profile in (few, many)]
        assert calls[1] < calls[0] + 1000, name


def bars_of(seed: int) -> Bars:
    rng = np.random.default_rng(seed)
    count = 3000
    columns = {name: rng.integers(0, 3, count) for name in ("track", "depth", "name", "hue", "place")}
    start, duration = rng.integers(0, 10**6, count), rng.integers(1, 500, count) ** 2
    return Bars.join(
        Bars(**columns, start=start, duration=duration, count=rng.integers(1, 4, count))
    )


@pytest.mark.parametrize("seed", range(3))
def test_short_bars_that_are_drawn_together_span_all_of_theirs(seed: int) -> None:
    bars = bars_of(seed)
    most = 400
    drawn = bars.fewer(most)
    longest = np.partition(bars.duration, len(bars) - most // 2)[len(bars) - most // 2]
    rows = pd.DataFrame({name: getattr(bars, name) for name in bars.__dataclass_fields__})
    rows["end"] = rows["start"] + rows["duration"]
    span = int(rows["end"].max()) + 1
    rows["pixel"] = rows["start"] // max(1, span * 9 // (most // 2))
    short = rows[rows["duration"] <= longest].groupby(["track", "depth", "pixel"])
    wanted = short.agg(start=("start", "min"), end=("end", "max"), count=("count", "sum"), name=("name", "first"))
    kept = rows[rows["duration"] > longest].set_index(["track", "depth", "pixel"])[list(wanted.columns)]
    expected = sorted(map(tuple, pd.concat([wanted, kept]).reset_index().drop(columns="pixel").to_numpy().tolist()))
    columns = (drawn.track, drawn.depth, drawn.start, drawn.start + drawn.duration, drawn.count, drawn.name)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == expected


def test_a_span_sums_its_bars_by_track_name_and_place() -> None:
    bars = bars_of(5)
    place = np.where(bars.place == 2, -1, bars.place)
    line = Timeline(  # two tracks of one name are one
        "t", 10**6, ("a", "b", "a"), ("x", "y", "z"), ("p", "q"),
        Bars(*(place if name == "place" else getattr(bars, name) for name in bars.__dataclass_fields__)),
    )  # fmt: skip
    start, end = 0.0002, 0.0007
    rows = line.frame[(line.frame["start"] < end) & (line.frame["start"] + line.frame["duration"] >= start)]
    stop = np.minimum(rows["start"] + rows["duration"], end)
    rows = rows.assign(time=stop - np.maximum(rows["start"], start), calls=1)
    sums = rows.groupby(["track", "name", "place"], sort=False, dropna=False)[["calls", "time"]].sum().reset_index()
    wanted = sums.sort_values("time", ascending=False, kind="stable").reset_index(drop=True)
    found = line.between(start, end)
    assert found.columns.tolist() == ["track", "name", "place", "calls", "time"]
    assert found["time"].tolist() == pytest.approx(wanted["time"].tolist())
    for name in ("track", "name", "calls"):
        assert found[name].tolist() == wanted[name].tolist()
    assert [p if isinstance(p, str) else None for p in wanted["place"]] == found["place"].tolist()
    assert timeline(profile_of_many(2)).between(1.0, 2.0).empty


def changes(seed: int) -> pd.DataFrame:
    """Blocks of 12 lines and of no line, that are freed or not, and some from before."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, Any, Any, int]] = []  # change, block, line, thread
    alive: dict[int, int] = {}
    for at in range(600):
        if alive and rng.random() < 0.45:
            block = int(rng.choice(list(alive)))
            rows.append((-alive.pop(block), block, 99, 0))
        elif rng.random() < 0.1:
            rows.append((-64, pd.NA, 98, 0))
        else:
            line = int(rng.integers(1, 13))
            alive[at] = int(rng.integers(1, 5000))
            rows.append((alive[at], at, line if line < 12 else pd.NA, int(rng.integers(0, 2))))
    change, block, line, thread = zip(*rows, strict=True)
    count = len(rows)
    same = {"device": ["cpu"] * count, "cell": [3] * count, "source_id": ["ab12"] * count, "file": ["<cell>"] * count}
    return frame_of(
        MEMORY_COLUMNS,
        {"time": np.linspace(0, 0.01, count), "bytes": np.cumsum(change), "change": change, "block": block,
         "line": line, "thread": thread, **same},
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_each_change_of_memory_is_of_the_line_that_allocated_the_block(seed: int) -> None:
    memory = changes(seed)
    profile = profile_of_many(2)
    numbers: dict[Any, int] = {}
    of_block: dict[int, int] = {}
    wanted = []
    for change, block, line, thread in memory[["change", "block", "line", "thread"]].itertuples(index=False):
        if change > 0:
            key = () if line is pd.NA else (line, thread)
            of_block[block] = numbers.setdefault(key, len(numbers))
        wanted.append(-1 if block is pd.NA else of_block[block])
    keys, names = _owners(profile, memory)
    assert keys.tolist() == wanted
    assert [name == "no line" for name, _ in names] == [key == () for key in numbers]

    held = {key: np.cumsum(np.where(keys == key, memory["change"].to_numpy(int), 0)) for key in range(len(names))}
    highest = sorted((int(values.max(initial=0)) for values in held.values()), reverse=True)
    drawn = stack(Profile(**{**vars(profile), "memory": memory}), "cpu", columns=600)
    named = [layer for layer in drawn.layers if not layer.name.endswith("other lines")]
    ends = {int(values[-1]) for values in held.values() if int(values.max(initial=0)) >= highest[5]}
    assert {layer.at_end for layer in named} == ends
    assert sum(layer.at_end for layer in drawn.layers) == sum(int(values[-1]) for values in held.values())


def test_a_trace_is_the_same_in_however_many_parts_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = profile_of_many(40)
    made.export_trace(tmp_path / "at_once.json")
    monkeypatch.setattr(chrome_trace, "_BATCH", 7)
    made.export_trace(tmp_path / "parts.json.gz")
    whole, parts = (tmp_path / "at_once.json").read_bytes(), gzip.decompress((tmp_path / "parts.json.gz").read_bytes())
    assert whole == parts
    counted: dict[str, int] = {}
    for event in json.loads(whole)["traceEvents"]:
        kind = event.get("cat", event["ph"])
        counted[kind] = counted.get(kind, 0) + 1
    assert (counted["cpu_op"], counted["cell_line"], counted["C"]) == (80, 80, 80)


def test_a_moment_before_the_body_has_its_sign_and_its_decimals() -> None:
    wanted = ["-1.500", "-0.001", "0.000", "0.007", "12034.005"]
    assert chrome_trace._us(np.array([-1500, -1, 0, 7, 12_034_005])) == wanted
