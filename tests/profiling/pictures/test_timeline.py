"""The timeline: what it says, what it draws together, and how it is used in a browser; of many events, too."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.profiling.many_events import calls_of, profile_of_many
from tests.profiling.profiles import profile_of_two_kernels
from torchbench_magic.errors import InputError
from torchbench_magic.profiling import chrome_trace
from torchbench_magic.profiling.memory.picture import _owners, stack
from torchbench_magic.profiling.pictures.timeline import MOST_BYTES, Bars, Timeline, spec_of, timeline
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import MEMORY_COLUMNS, frame_of
from torchbench_magic.profiling.trace import EVENT_COLUMNS, Trace, compact
from torchbench_magic.show.renderers import mimebundle

# ==== timeline ========================================================================================================


HOSTILE = '<img src=x onerror="window.hit=1"></script><script>window.hit=1</script>'


def crowded(events: int) -> Profile:
    """So many ops of 1 us side by side within 10 ms, and one of 1 ms."""
    few = profile_of_two_kernels()
    trace = few.trace
    assert trace is not None
    none = np.full(events + 1, -1)
    start = np.append(np.linspace(0, 9_000_000, events).astype(np.int64), 9_000_000)
    columns = dict.fromkeys(EVENT_COLUMNS, none) | {
        "name": np.append(np.zeros(events), 1),
        "kind": np.zeros(events + 1),
        "start": start,
        "duration": np.append(np.full(events, 10), 1_000_000),
        "track": np.zeros(events + 1),
    }
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    return profile_of_two_kernels(trace=Trace(**fields | {"events": compact(EVENT_COLUMNS, columns)}))


def test_the_sentence_says_how_busy_each_track_is() -> None:
    made = timeline(profile_of_two_kernels())
    assert made.title == "MainThread is in torch for 30 % of 10.0 ms; cuda:0 stream 7 is busy for 25 %"


def test_lines_ops_and_kernels_have_tracks_of_their_own() -> None:
    made = timeline(profile_of_two_kernels())
    found = {track: rows["name"].tolist() for track, rows in made.frame.groupby("track", sort=False)}
    assert found == {
        "lines": ["In[3]:2 y = x @ x", "In[3]:3 z = y.relu()", "In[3]:4 torch.cuda.synchronize()"],
        "MainThread": ["aten::mm", "aten::relu", "cudaLaunchKernel", "cudaLaunchKernel"],
        "cuda:0 stream 7": ["gemm", "relu_kernel"],
    }
    frame = made.frame.set_index("name")
    assert (frame.loc["gemm", "place"], frame.loc["gemm", "start"]) == ("In[3]:2", 0.004)
    assert frame.loc["cudaLaunchKernel", "depth"].tolist() == [1, 1]


def test_a_span_lists_what_ran_in_it_with_the_time_inside() -> None:
    span = timeline(profile_of_two_kernels()).between(0.002, 0.0055).set_index(["track", "name"])
    assert span.loc[("MainThread", "aten::mm"), "time"] == pytest.approx(0.001)
    assert span.loc[("cuda:0 stream 7", "gemm"), "time"] == pytest.approx(0.0015)
    assert ("cuda:0 stream 7", "relu_kernel") not in span.index


def test_short_bars_are_drawn_together_and_counted_and_none_is_lost() -> None:
    made = timeline(crowded(60_000))
    drawn = made.bars.fewer(2000)
    assert len(drawn) < 3000
    assert int(drawn.count.sum()) == len(made.bars) == 60_001 + 3
    assert int(drawn.busy.sum()) == int(made.bars.duration.sum())
    assert 1_000_000 in drawn.duration.tolist()
    spec = spec_of(made, 2000)
    said = r"[\d\u202f]+ of 60\u202f004 bars are short and drawn together\. \.timeline"
    assert re.match(said, spec["note"])


def test_the_picture_of_half_a_million_events_is_small() -> None:
    bundle = timeline(crowded(500_000))._repr_mimebundle_()
    assert len(json.dumps(bundle["text/html"])) <= MOST_BYTES


def test_without_events_it_says_so() -> None:
    with pytest.raises(InputError, match="no events over time"):
        timeline(profile_of_two_kernels(trace=None))


def test_the_text_is_a_table_of_what_took_most_time() -> None:
    text = repr(timeline(profile_of_two_kernels()))
    assert text.splitlines()[0].startswith("MainThread is in torch for 30 %")
    assert re.search(r"cuda:0 stream 7 +gemm +1 +2\u202f000", text)


def test_names_are_never_markup() -> None:
    html = timeline(profile_of_two_kernels(HOSTILE))._repr_mimebundle_()["text/html"]
    assert "<img" not in html
    assert html.count("</script>") == 2


def test_a_brushed_span_is_readable_in_python() -> None:
    widget = timeline(profile_of_two_kernels()).explore()
    assert widget.selection == ()
    assert len(widget.rows) == 9
    widget.state = {"view": [0, 0.01], "brush": [0.0085, 0.01]}
    assert widget.selection == (0.0085, 0.01)
    assert widget.rows["name"].tolist() == ["In[3]:4 torch.cuda.synchronize()", "relu_kernel"]
    widget.state = {"view": [0, 0.01]}
    assert widget.selection == ()


# ---- in a browser -----------------------------------------------------------------------------------------------

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """The picture on a page; no script may fail and nothing may be asked for."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    assert program, "Chromium is not installed: apt-get install chromium"
    html = timeline(profile_of_two_kernels(HOSTILE))._repr_mimebundle_()["text/html"]
    (tmp_path / "page.html").write_text(f'<!doctype html><meta charset="utf-8"><body>{html}', encoding="utf-8")
    errors: list[str] = []
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=list(FLAGS), headless=True)
        page = browser.new_page(viewport={"width": 932, "height": 700})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((tmp_path / "page.html").as_uri())
        yield page
        browser.close()
    assert errors == []


def data(page: Any, name: str) -> str:
    return str(page.locator("canvas").get_attribute(f"data-{name}"))


@pytest.mark.browser
def test_it_is_zoomed_moved_and_brushed_by_keyboard_and_mouse(page: Any) -> None:
    canvas = page.locator("canvas")
    assert canvas.get_attribute("tabindex") == "0"
    assert data(page, "drawn") == "9"
    assert page.evaluate("window.hit") is None
    canvas.focus()
    page.keyboard.press("+")
    assert (float(data(page, "from")), float(data(page, "to"))) == pytest.approx((0.0025, 0.0075))
    page.keyboard.press("ArrowRight")
    assert float(data(page, "from")) == pytest.approx(0.003)
    page.keyboard.press("Escape")
    assert (float(data(page, "from")), float(data(page, "to"))) == pytest.approx((0, 0.01))
    page.keyboard.press("Shift+ArrowRight")
    assert [float(x) for x in data(page, "brush").split()] == pytest.approx([0.005, 0.0055])
    page.keyboard.press("Enter")
    assert float(data(page, "to")) == pytest.approx(0.0055)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    box = canvas.bounding_box()
    left, wide = box["x"] + 132, box["width"] - 132
    page.mouse.move(left + 0.9 * wide - 40, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(left + wide - 1, box["y"] + 30, steps=4)
    page.mouse.up()
    caption = page.locator("caption").last.inner_text()
    assert caption.startswith("chosen span:")
    names = page.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert "relu_kernel" in names
    assert "gemm" not in names


@pytest.mark.browser
def test_a_wheel_without_ctrl_leaves_the_picture_to_the_page(page: Any) -> None:
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 400, box["y"] + 20)
    page.mouse.wheel(0, -200)
    assert data(page, "to") == "0.01"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    canvas = "document.querySelector('.torchbench-timeline').shadowRoot.querySelector('canvas')"
    page.wait_for_function(f"{canvas}.dataset.to < 0.01")


# ---- the live table is of all that ran --------------------------------------------------------------------------


def busy(events: int, seed: int = 3, names: int = 40) -> Profile:
    """Ops of random lengths, some nested in others, on lines of their own; far more than are drawn."""
    few = profile_of_two_kernels()
    trace = few.trace
    assert trace is not None
    random = np.random.default_rng(seed)
    start = np.sort(random.integers(0, 9_990_000, events))
    duration = np.minimum(random.lognormal(6, 2, events).astype(np.int64), 10_000_000 - start)
    columns = dict.fromkeys(EVENT_COLUMNS, np.full(events, -1)) | {
        "name": random.integers(0, names, events),
        "kind": np.zeros(events),
        "start": start,
        "duration": duration,
        "track": np.zeros(events),
    }
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    fields |= {"events": compact(EVENT_COLUMNS, columns), "names": tuple(f"aten::op_{n}" for n in range(names))}
    return profile_of_two_kernels(trace=Trace(**fields))


@pytest.mark.browser
def test_the_live_table_counts_all_calls_those_drawn_together_as_a_row_of_their_track(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    assert program, "Chromium is not installed: apt-get install chromium"
    made = timeline(busy(60_000))
    (tmp_path / "page.html").write_text(made._repr_mimebundle_()["text/html"], encoding="utf-8")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=list(FLAGS), headless=True)
        page = browser.new_page(viewport={"width": 932, "height": 700})
        page.goto((tmp_path / "page.html").as_uri())
        assert int(data(page, "drawn")) < 10_000
        page.get_by_role("button", name=re.compile(r"show all \d")).click()
        shown = page.locator("div.tl > div table").last
        calls = [int(re.sub(r"\D", "", text)) for text in shown.locator("tbody td:nth-child(4)").all_inner_texts()]
        names = shown.locator("tbody td:nth-child(2)").all_inner_texts()
        whole = made.between(0, 1)
        assert sum(calls) == int(whole["calls"].sum())
        by_name = whole.set_index("name")["calls"]
        alone = [(name, count) for name, count in zip(names, calls, strict=True) if not name.startswith("short calls")]
        assert len(alone) < len(names)
        assert all(count <= by_name[name] for name, count in alone)
        assert "count whole at its ends" in page.locator(".tl caption").last.inner_text()
        browser.close()


# ==== many events =====================================================================================================
# Pictures of many events: what is drawn is what a plain way over them says, and nothing runs once for each.


WORK: dict[str, Callable[[Profile, Path], Any]] = {
    "page": lambda profile, folder: mimebundle(profile),
    "timeline": lambda profile, folder: profile.timeline()._repr_mimebundle_(),
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
        Bars(**columns, start=start, duration=duration, count=rng.integers(1, 4, count), busy=duration)
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
    columns = {"start": "min", "end": "max", "count": "sum", "name": "first", "busy": "sum"}
    wanted = short.agg(columns)
    kept = rows[rows["duration"] > longest].set_index(["track", "depth", "pixel"])[list(wanted.columns)]
    expected = sorted(map(tuple, pd.concat([wanted, kept]).reset_index().drop(columns="pixel").to_numpy().tolist()))
    made = (drawn.track, drawn.depth, drawn.start, drawn.start + drawn.duration, drawn.count, drawn.name, drawn.busy)
    assert sorted(zip(*(column.tolist() for column in made), strict=True)) == expected


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
