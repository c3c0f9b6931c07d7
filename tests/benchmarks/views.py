"""How long the pictures take in headless Chromium, how large they are, and that they ask the network for nothing.

Times are of the script: to draw a table of 5,000 rows, to sort it, to zoom into a flame graph of 50,000 frames, to zoom
and move a timeline of 700,000 events, as a page of its own has it, with the table of the span; the page's layout is
forced within each, so that it is part of the time. Median of ten, each in a page of its own. What the timeline's table
says of each span is compared with the events.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from nbclient import NotebookClient
from playwright.sync_api import Browser, sync_playwright
from record import Figure, record

from torchbench_magic import units
from torchbench_magic.views.carriers import document_json, html, mounting
from torchbench_magic.views.document import Document, Phrase
from torchbench_magic.views.drawing import bars, flame
from torchbench_magic.views.profiling.pictures.timeline import Timeline
from torchbench_magic.views.profiling.pictures.timeline_spec import spec_of
from torchbench_magic.views.table import Cell, Column, Group, Row, Table

REPETITIONS = 10
ROWS, FRAMES, EVENTS = 5_000, 50_000, 700_000
PAGES_OF_EVENTS = 3
SIZES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
MOST_OUTPUT, MOST_QUICKSTART = 1_000_000, 300_000
QUICKSTART = Path(__file__).parents[2] / "examples" / "01_quickstart.ipynb"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND"]  # fmt: skip

TABLE = """() => {
    const took = (act) => {
        const began = performance.now();
        act();
        document.body.offsetHeight;
        return performance.now() - began;
    };
    const host = document.getElementById("host"), shown = took(() => mount(host, given));
    const rows = host.shadowRoot.querySelectorAll("tbody tr.row").length;
    const button = [...host.shadowRoot.querySelectorAll("th button")].find((one) => one.textContent.startsWith("self"));
    const sorted = took(() => button.click());
    return { shown, sorted, rows, first: host.shadowRoot.querySelector("tbody tr.row").textContent };
}"""
FLAME = """() => {
    const host = document.getElementById("host");
    mount(host, given);
    const canvas = host.shadowRoot.querySelector("canvas"), times = [];
    const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    for (let turn = 0; turn < 5; turn++) {
        press("ArrowDown");
        const began = performance.now();
        press("Enter");
        canvas.getContext("2d").getImageData(0, 0, 1, 1); // until it is drawn
        times.push(performance.now() - began);
    }
    return { zoomed: Math.max(...times), zoom: Number(canvas.dataset.zoom), drawn: Number(canvas.dataset.drawn) };
}"""

TIMELINE = """() => {
    const took = (act) => {
        const began = performance.now();
        act();
        host.shadowRoot.querySelector("canvas").getContext("2d").getImageData(0, 0, 1, 1); // until it is drawn
        document.body.offsetHeight;
        return performance.now() - began;
    };
    const host = document.getElementById("host"), shown = took(() => mount(host, given));
    const zoomed = [], moved = [], listed = [];
    const canvas = host.shadowRoot.querySelector("canvas");
    const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    const list = () => {
        const rows = [...host.shadowRoot.querySelectorAll("tbody tr")];
        const cells = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
        listed.push([Number(canvas.dataset.listedFrom), Number(canvas.dataset.listedTo),
            host.shadowRoot.querySelector("th:nth-child(5) small").textContent, cells]);
    };
    for (const key of ["+", "+", "+", "+", "+", "+", "-", "-", "+", "+", "+", "+"]) {
        zoomed.push(took(() => press(key)));
        for (const way of ["ArrowRight", "ArrowRight", "ArrowLeft"]) moved.push(took(() => press(way)));
        list();
    }
    return { shown, zoomed, moved, listed, drawn: Number(canvas.dataset.drawn) };
}"""


def many_rows(count: int) -> Document:
    """Names of everyday length, three columns of numbers and a bar."""
    rng = np.random.default_rng(0)
    values = rng.lognormal(size=(count, 3))
    columns = (
        Column("op", "operation", kind="code"),
        Column("self", "self", "ms", "number"),
        Column("bar", "", kind="bar"),
        Column("total", "total", "ms", "number"),
        Column("calls", "calls", kind="number"),
    )
    rows = tuple(
        Row(
            (
                Cell(f"aten::some_operation_{at}"),
                Cell(f"{own:.3f}", own),
                Cell(picture=((("torch", min(own / 20, 1.0)),), ())),
                Cell(f"{own + rest:.3f}", own + rest),
                Cell(f"{calls:.0f}", calls),
            )
        )
        for at, (own, rest, calls) in enumerate(values.tolist())
    )
    table = Table("operations", columns, (Group(rows),))
    return Document("many", (Phrase("many rows"),), (table,), where="_tprofile.ops")


def many_frames(count: int) -> flame.FlameGraph:
    """A tree with four children a frame, whose times add up."""
    parent = np.maximum((np.arange(count) - 1) // 4, 0)
    parent[0] = -1
    own = np.random.default_rng(0).lognormal(size=count)
    total = own.copy()
    for at in range(count - 1, 0, -1):
        total[parent[at]] += total[at]
    kinds = np.array(["python", "op", "line", "backward"])[np.arange(count) % 4]
    names = [f"function_{at % 3000} (module.py:{at % 900})" for at in range(count)]
    measure = flame.Measure("time", total, own, units.spread_scale(total.tolist()), axis=True)
    return flame.FlameGraph(f"{count} frames", parent, names, kinds.tolist(), (measure,))


def many_events(count: int) -> Timeline:
    """20 s of a loop: 40 names, each on six of 60 lines, in two rows, one inside the other."""
    random = np.random.default_rng(0)
    half, whole = count // 2, 20_000_000_000
    start = np.sort(random.integers(0, whole, half))
    room = np.diff(start, append=whole)
    duration = np.minimum(random.lognormal(9, 1, half).astype(np.int64), room)
    inside = start + duration // 10
    columns = {
        "depth": np.repeat([0, 1], half),
        "start": np.append(start, inside),
        "duration": np.append(duration, duration // 2),
        "name": (name := random.integers(0, 40, 2 * half)),
        "place": (7 * name + random.integers(0, 6, 2 * half)) % 60,
    }
    ones = np.ones(2 * half, dtype=np.int64)
    drawn = bars.Bars.join(bars.Bars(**columns, track=0 * ones, hue=ones, count=ones))
    names, places = (tuple(f"{what}{n}" for n in range(many)) for what, many in (("aten::op_", 40), ("In[3]:", 60)))
    return Timeline("700,000 events", whole, ("MainThread",), names, places, drawn)


def told_truly(line: Timeline, found: list[dict[str, Any]]) -> bool:
    """Whether each row of each table that was read has the calls and, as it is written, the time of the events."""
    for begin, end, unit, rows in found[0]["listed"]:
        wanted = line.between(begin + 1e-12, end).set_index(["name", "place"])
        for _, name, place, calls, time, _ in rows:
            events = wanted.loc[(name, place)]
            shown, true = float(re.sub(r"[^0-9.]", "", time)), float(events["time"]) / SIZES[unit]
            if int(re.sub(r"\D", "", calls)) != events["calls"] or abs(shown - true) > max(0.006 * true, 0.006):
                return False
    return True


def timed(
    browser: Browser, folder: Path, module: str, given: str, script: str, repetitions: int = REPETITIONS
) -> list[dict[str, Any]]:
    """What the script returns, from fresh pages; no page asks for anything but its own file."""
    file = folder / "page.html"
    names = "globalThis.mount = mount; globalThis.given = JSON.parse(document.getElementById('given').textContent);"
    file.write_text(
        f'<!doctype html><meta charset="utf-8"><div id="host"></div><script type="application/json" id="given">{given}'
        f'</script><script type="module">{module}\n{names}</script>',
        encoding="utf-8",
    )
    found = []
    for _ in range(repetitions):
        page = browser.new_page(viewport={"width": 932, "height": 900})
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_function("globalThis.given !== undefined")
        found.append(page.evaluate(script))
        assert asked == [file.as_uri()], asked
        page.close()
    return found


def quickstart() -> tuple[list[int], str]:
    """Bytes of each output of the quickstart as a notebook stores it, and all its html as one page."""
    book = nbformat.read(QUICKSTART, as_version=4)
    NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(QUICKSTART.parent)}}
    ).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    fragments = [output["data"].get("text/html", "") for output in outputs if "data" in output]
    return [len(json.dumps(output, ensure_ascii=False).encode()) for output in outputs], html.around(
        "".join(fragments), "quickstart"
    )


def requests_of(browser: Browser, folder: Path, text: str) -> int:
    """How many requests a page makes besides its own file."""
    file = folder / "requests.html"
    file.write_text(text, encoding="utf-8")
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri(), wait_until="networkidle")
    page.close()
    return len([url for url in asked if url != file.as_uri()])


def figure(name: str, values: list[float], limit: float) -> Figure:
    return Figure(name, statistics.median(values), "ms", at_most=limit, spread=(min(values), max(values)))


def main() -> int:
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    table, graph = many_rows(ROWS), many_frames(FRAMES)
    half_a_million, huge = many_rows(500_000), flame.markup(graph)
    sizes, shown = quickstart()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, headless=True)
        where = Path(folder)
        drawn = timed(browser, where, html.module(), document_json.as_json(table, 10**7), TABLE)
        largest = f"{max(cell.cells[1].value for cell in table.tables[0].rows()):.3f}"
        assert all(one["rows"] < 100 and largest in one["first"] for one in drawn), "sorted from the largest"
        given = json.dumps(flame.spec_of(graph)).replace("<", "\\u003c")
        zoomed = timed(browser, where, flame.module(), given, FLAME)
        assert all(one["zoom"] > 0 and one["drawn"] > 10 for one in zoomed)
        asked = requests_of(browser, where, shown)
        line = many_events(EVENTS)
        events = mounting.script_data(spec_of(line, 2 * EVENTS, 0))
        moved = timed(browser, where, bars.module(), events, TIMELINE, PAGES_OF_EVENTS)
        is_true = told_truly(line, moved)
        version = browser.version
        browser.close()
    largest_output = max(mounting.stored(html.render(half_a_million)), mounting.stored("".join(huge)))
    figures = [
        figure(f"table of {ROWS} rows shown", [one["shown"] for one in drawn], 100),
        figure(f"table of {ROWS} rows sorted", [one["sorted"] for one in drawn], 50),
        figure(f"flame graph of {FRAMES} frames zoomed", [one["zoomed"] for one in zoomed], 30),
        figure(f"timeline of {EVENTS} events shown", [one["shown"] for one in moved], 2000),
        figure(f"timeline of {EVENTS} events zoomed", [time for one in moved for time in one["zoomed"]], 50),
        figure(f"timeline of {EVENTS} events moved", [time for one in moved for time in one["moved"]], 50),
        Figure("spans of it whose table is not of the events", int(not is_true), "", at_most=0),
        Figure("its page", len(mounting.packed_text(events)), "bytes", at_most=10_000_000),
        Figure("output of 500 000 rows, of 50 000 frames", largest_output, "bytes", at_most=MOST_OUTPUT),
        Figure("largest output of the quickstart", max(sizes), "bytes", limit=MOST_QUICKSTART),
        Figure("requests of the quickstart's outputs", asked, "requests", at_most=0),
    ]
    return record("views", figures, repetitions=REPETITIONS, chromium=version, sizes="as a notebook stores them")


if __name__ == "__main__":
    sys.exit(main())
