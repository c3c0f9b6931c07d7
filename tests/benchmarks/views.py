"""How long the pictures take in headless Chromium, how large they are, and that they ask the network for nothing.

Times are of the script: to draw a table of 5,000 rows, to sort it, to zoom into a flame graph of 50,000 frames; the
page's layout is forced within each, so that it is part of the time. Median of ten, each in a page of its own.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
from nbclient import NotebookClient
from playwright.sync_api import Browser, sync_playwright
from record import Figure, record

from torchbench_magic import units
from torchbench_magic.profiling.ops_view import operations
from torchbench_magic.show import flame, html, page_data
from torchbench_magic.show.document import Document, Phrase
from torchbench_magic.show.table import Cell, Column, Group, Row, Table

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.show.builders import ops_of

REPETITIONS = 10
ROWS, ALL_ROWS, FRAMES = 5_000, 50_000, 50_000
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
EVERY = """() => {
    const host = document.getElementById("host");
    const took = (act) => {
        const began = performance.now();
        act();
        document.body.offsetHeight;
        return performance.now() - began;
    };
    const shown = took(() => mount(host, { ...given, selectable: true }));
    const root = host.shadowRoot, heads = () => [...root.querySelectorAll("th button")];
    const head = (label) => heads().find((one) => one.textContent.startsWith(label));
    const first = () => root.querySelector("tbody tr.row").children;
    const sorted = took(() => head("calls").click()), most = first()[1].textContent;
    const named = took(() => head("operation").click()), name = first()[0].textContent;
    mount(host, { ...given, state: {} });
    const field = root.querySelector("input"), status = () => root.querySelector("[role=status]").textContent;
    const typed = (text) => took(() => { field.value = text; field.dispatchEvent(new Event("input")); });
    const pattern = typed("conv$"), found = status(), numbers = typed("self > 1 ms and calls >= 100"), kept = status();
    const ranked = took(() => head("total").click());
    return { shown, sorted, named, pattern, numbers, ranked, most, name, found, kept };
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


def every_operation(count: int) -> tuple[Document, pd.DataFrame]:
    """The table of a profile's operations as a widget holds it: all of them; and what it is of."""
    profile = ops_of(count)
    table = operations(profile, row_limit=-1, most_rest=None)
    return Document("profile", (Phrase("all operations"),), (table,), where="_tprofile.ops"), profile.ops


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


def timed(
    browser: Browser, folder: Path, module: str, given: str, script: str, pages: int = REPETITIONS
) -> list[dict[str, float]]:
    """What the script returns, from fresh pages; no page asks for anything but its own file."""
    file = folder / "page.html"
    names = "globalThis.mount = mount; globalThis.given = JSON.parse(document.getElementById('given').textContent);"
    file.write_text(
        f'<!doctype html><meta charset="utf-8"><div id="host"></div><script type="application/json" id="given">{given}'
        f'</script><script type="module">{module}\n{names}</script>',
        encoding="utf-8",
    )
    found = []
    for _ in range(pages):
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
        drawn = timed(browser, where, html.module(), page_data.as_json(table, 10**7), TABLE)
        largest = f"{max(cell.cells[1].value for cell in table.tables[0].rows()):.3f}"
        assert all(one["rows"] < 100 and largest in one["first"] for one in drawn), "sorted from the largest"
        every, ops = every_operation(ALL_ROWS)
        spec = page_data.script_data(page_data.as_dict(every, 5000))
        ranked = timed(browser, where, html.module(), spec, EVERY)
        kept = ((ops["self_cpu_time"] > 1e-3) & (ops["calls"] >= 100)).sum()
        for one in ranked:
            assert one["most"] == units.count(ALL_ROWS), "the largest of all rows"
            assert one["name"] == ops["op"].min()
            assert f"{units.count(ops['op'].str.endswith('conv').sum())} of " in one["found"]
            assert f"{units.count(kept)} of " in one["kept"]
        given = json.dumps(flame.spec_of(graph)).replace("<", "\\u003c")
        zoomed = timed(browser, where, flame.module(), given, FLAME)
        assert all(one["zoom"] > 0 and one["drawn"] > 10 for one in zoomed)
        asked = requests_of(browser, where, shown)
        version = browser.version
        browser.close()
    largest_output = max(page_data.stored(html.render(half_a_million)), page_data.stored("".join(huge)))
    figures = [
        figure(f"table of {ROWS} rows shown", [one["shown"] for one in drawn], 100),
        figure(f"table of {ROWS} rows sorted", [one["sorted"] for one in drawn], 50),
        figure(f"table of {ALL_ROWS} rows shown", [one["shown"] for one in ranked], 500),
        figure(f"{ALL_ROWS} rows sorted by a number", [one["sorted"] for one in ranked], 100),
        figure(f"{ALL_ROWS} rows sorted by name", [one["named"] for one in ranked], 100),
        figure(f"{ALL_ROWS} rows filtered by a pattern", [one["pattern"] for one in ranked], 100),
        figure(f"{ALL_ROWS} rows filtered by two numbers", [one["numbers"] for one in ranked], 100),
        figure("the rows that are left sorted", [one["ranked"] for one in ranked], 100),
        figure(f"flame graph of {FRAMES} frames zoomed", [one["zoomed"] for one in zoomed], 30),
        Figure("output of 500 000 rows, of 50 000 frames", largest_output, "bytes", at_most=MOST_OUTPUT),
        Figure("largest output of the quickstart", max(sizes), "bytes", limit=MOST_QUICKSTART),
        Figure("requests of the quickstart's outputs", asked, "requests", at_most=0),
    ]
    return record("views", figures, repetitions=REPETITIONS, chromium=version, sizes="as a notebook stores them")


if __name__ == "__main__":
    sys.exit(main())
