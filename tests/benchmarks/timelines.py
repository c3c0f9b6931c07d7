"""How long a timeline of 700,000 events takes to be zoomed and moved in Chromium, and whether its table is true.

It is the timeline of a page of its own, with every event. Each step draws the picture and lists the span; the page's
layout is forced within it, so that it is part of the time. Of each span the calls and times of the table are compared
with the events themselves. The steps are of three fresh pages.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright
from record import Figure, record
from views import FLAGS, timed

from torchbench_magic.profiling.pictures import timeline
from torchbench_magic.profiling.pictures.timeline import Timeline, spec_of
from torchbench_magic.show import javascript, page_data

EVENTS, PAGES = 700_000, 3
SIZES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}

STEPS = """() => {
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
        listed.push([Number(canvas.dataset.from), Number(canvas.dataset.to),
            host.shadowRoot.querySelector("th:nth-child(5) small").textContent, cells]);
    };
    for (const key of ["+", "+", "+", "+", "+", "+", "-", "-", "+", "+", "+", "+"]) {
        zoomed.push(took(() => press(key)));
        for (const way of ["ArrowRight", "ArrowRight", "ArrowLeft"]) moved.push(took(() => press(way)));
        list();
    }
    return { shown, zoomed, moved, listed, drawn: Number(canvas.dataset.drawn) };
}"""


def many_events(count: int) -> Timeline:
    """20 s of a loop: 40 names, each on six of 60 lines, in two rows, one inside the other."""
    random = np.random.default_rng(0)
    half, whole = count // 2, 20_000_000_000
    start = np.sort(random.integers(0, whole, half))
    duration = np.minimum(random.lognormal(9, 1, half).astype(np.int64), np.diff(start, append=whole))
    name, ones = random.integers(0, 40, 2 * half), np.ones(2 * half, dtype=np.int64)
    drawn = timeline.Bars.join(
        timeline.Bars(
            track=0 * ones,
            depth=np.repeat([0, 1], half),
            start=np.append(start, start + duration // 10),
            duration=np.append(duration, duration // 2),
            name=name,
            hue=ones,
            place=(7 * name + random.integers(0, 6, 2 * half)) % 60,
            count=ones,
            busy=np.append(duration, duration // 2),
        )
    )
    names, places = (tuple(f"{what}{n}" for n in range(many)) for what, many in (("aten::op_", 40), ("In[3]:", 60)))
    return Timeline(f"{count} events", whole, ("MainThread",), names, places, drawn)


def untrue(line: Timeline, listed: list[Any]) -> tuple[int, int]:
    """(rows that were read, those of them whose calls or time are not those of the events)."""
    read = wrong = 0
    for begin, end, unit, rows in listed:
        wanted = line.between(begin + 1e-12, end).set_index(["name", "place"])
        for _, name, place, calls, time, _ in rows:
            events = wanted.loc[(name, place)]
            shown, true = float(re.sub(r"[^0-9.]", "", time)), float(events["time"]) / SIZES[unit]
            read += 1
            wrong += int(re.sub(r"\D", "", calls)) != events["calls"] or abs(shown - true) > max(0.006 * true, 0.006)
    return read, wrong


def figure(name: str, values: list[float], limit: float) -> Figure:
    return Figure(name, statistics.median(values), "ms", at_most=limit, spread=(min(values), max(values)))


def main() -> int:
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    line = many_events(EVENTS)
    given = page_data.script_data(spec_of(line, 2 * EVENTS, 0))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, headless=True)
        found = timed(browser, Path(folder), timeline.module(), given, STEPS, PAGES)
        version = browser.version
        browser.close()
    read, wrong = untrue(line, found[0]["listed"])
    assert read > 100
    figures = [
        figure("zoomed", [time for one in found for time in one["zoomed"]], 50),
        figure("moved", [time for one in found for time in one["moved"]], 50),
        figure("shown at first", [one["shown"] for one in found], 2000),
        Figure("rows of its table that are not those of the events", wrong, f"of {read}", at_most=0),
        Figure("its page", len(javascript.packed_text(given)), "bytes", at_most=10_000_000),
    ]
    return record("timelines", figures, events=EVENTS, pages=PAGES, chromium=version)


if __name__ == "__main__":
    sys.exit(main())
