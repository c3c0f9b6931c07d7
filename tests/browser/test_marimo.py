"""Results in a marimo notebook: each is a page in a frame, live as in JupyterLab; a widget is what it shows."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, expect

from .results import filters, rows, sorts_by_click_and_by_key

pytest.importorskip("marimo")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
HOMES = ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
APP = """\
import marimo

app = marimo.App()


@app.cell
def _():
    import torch
    import torchbench_magic
    x = torch.ones(64)
    stmts = {"one": "x + 1", "two": "x * 2", "three": "x.exp()"}
    compared = torchbench_magic.compare(stmts, globals={"x": x}, min_run_time=0.02)
    compared
    return compared, torch, torchbench_magic


@app.cell
def _(compared):
    compared.explore()
    return


@app.cell
def _(torch, torchbench_magic):
    torchbench_magic.profile(lambda: torch.ones(8).exp())
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The notebook as marimo serves it on this machine."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "marimo", "run", "app.py", "--headless", "--no-token", "--host=127.0.0.1"]
    with (tmp_path / "marimo.log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--port={port}"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | dict.fromkeys(HOMES, str(tmp_path)),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_results_in_marimo_sort_and_filter(visit: Any, url: str, shots: Path) -> None:
    page = visit.context.new_page()
    for _ in range(120):
        try:
            page.goto(url)
            break
        except Error:
            time.sleep(0.5)
    frames = page.locator("iframe")
    expect(frames).to_have_count(3, timeout=120_000)
    for at in range(2):
        compared = page.frame_locator("iframe").nth(at).locator(".tb")
        expect(rows(compared)).to_have_count(3, timeout=30_000)
    sorts_by_click_and_by_key(compared, "median")
    filters(page, compared, "three")
    profiled = page.frame_locator("iframe").nth(2).locator(".tb")
    expect(profiled).to_contain_text("torch.ones(8).exp()")
    page.screenshot(path=shots / "marimo.png", full_page=True)
    asked = {url.split("/")[2] for url in visit.left_the_machine}  # of marimo's own page, as fonts
    assert not any("torchbench" in each for each in asked)
    visit.left_the_machine.clear()
