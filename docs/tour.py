"""Films the README's moving picture in a real JupyterLab: ``pictures/tour-light.gif`` and ``tour-dark.gif``.

    python docs/tour.py

The README's training loop is profiled, and its flame graph opened by a click. Needs the test tools (JupyterLab,
Playwright, Pillow) and Chromium; on a busy machine the result itself says that it is one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import Locator, Page, sync_playwright

PICTURES = Path(__file__).parent / "pictures"
MOST_BYTES = 750_000  # of one film
SIZE = {"width": 1000, "height": 830}
COLOURS = 96
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]

README = Path(__file__).parents[1] / "README.md"

EXECUTE = "async command => { await window.jupyterapp.commands.execute(command); }"
THEME = "async theme => { await window.jupyterapp.commands.execute('apputils:change-theme', {theme}); }"
IDLE = """() => {
    const session = window.jupyterapp?.shell?.currentWidget?.context?.sessionContext;
    return session?.session?.kernel?.status === 'idle';
}"""
BARE = """async () => {
    await window.jupyterapp.commands.execute('application:toggle-left-area');
    for (const bar of document.querySelectorAll('.jp-NotebookPanel-toolbar')) bar.style.display = 'none';
    window.dispatchEvent(new Event('resize'));
}"""
NO_QUESTIONS = {"fetchNews": "false", "checkForUpdates": False}


class Film:
    """Frames and how long each is shown, in milliseconds."""

    def __init__(self, page: Page, clip: dict[str, int]) -> None:
        self._page, self._clip = page, clip
        self._frames: list[tuple[Image.Image, int]] = []

    def shoot(self, milliseconds: int) -> None:
        shot = Image.open(BytesIO(self._page.screenshot(clip=self._clip)))  # type: ignore[arg-type]
        self._frames.append((shot.convert("RGB"), milliseconds))

    def save(self, target: Path) -> None:
        width, height = self._frames[0][0].size
        together = Image.new("RGB", (width, height * len(self._frames)))
        for at, (frame, _) in enumerate(self._frames):
            together.paste(frame, (0, height * at))
        palette = together.quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
        drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame, _ in self._frames]
        times = [time for _, time in self._frames]
        drawn[0].save(target, save_all=True, append_images=drawn[1:], duration=times, loop=0, optimize=True)


@contextmanager
def jupyter(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves ``folder`` and knows nothing of this user's settings."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    own["JUPYTERLAB_SETTINGS_DIR"], own["JUPYTER_TOKEN"] = str(folder / "settings"), secrets.token_hex(16)
    asked = folder / "settings" / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    asked.parent.mkdir(parents=True, exist_ok=True)
    asked.write_text(json.dumps(NO_QUESTIONS))
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", f"--ServerApp.root_dir={folder}"]
    options += ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None"]
    command = [sys.executable, "-m", "jupyterlab", *options]
    process = subprocess.Popen(command, env=os.environ | own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/api", timeout=2).close()
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        yield f"{address}/lab/tree/tour.ipynb?token={own['JUPYTER_TOKEN']}&reset"
    finally:
        process.terminate()
        process.wait(20)


def film(page: Page, scheme: str) -> Film:
    """The cells, the result of the second, and the flame graph of it."""
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_function(IDLE, timeout=60_000)
    page.evaluate(THEME, THEMES[scheme])
    page.locator(f"body[data-jp-theme-name='{THEMES[scheme]}']").wait_for(state="attached")
    page.evaluate(BARE)
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    cells.first.click()
    page.evaluate(EXECUTE, "notebook:run-cell-and-select-next")
    page.wait_for_function(IDLE, timeout=120_000)
    page.wait_for_timeout(1500)
    shown = page.locator(".jp-WindowedPanel-outer").first.bounding_box()
    assert shown is not None
    taken = Film(page, {side: int(length) for side, length in shown.items()})
    taken.shoot(1800)
    page.evaluate(EXECUTE, "notebook:run-cell")
    result = cells.nth(1).locator(".jp-OutputArea-output .tb").first
    result.wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    _to_top(page, cells.nth(1))
    taken.shoot(4500)
    _click(page, taken, result.get_by_role("button", name="flame graph").first)
    page.wait_for_timeout(600)
    taken.shoot(3500)
    return taken


def _to_top(page: Page, cell: Locator) -> None:
    cell.evaluate("node => node.scrollIntoView({block: 'start'})")
    page.wait_for_timeout(200)


def _click(page: Page, taken: Film, target: Locator) -> None:
    """With a mark where the pointer is, which a picture of a page does not have."""
    box = target.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    mark = "border:3px solid #f37726;border-radius:50%;width:26px;height:26px;position:fixed;z-index:99999"
    page.evaluate(
        """([x, y, style]) => {
            const mark = document.body.appendChild(document.createElement('div'));
            mark.id = 'pointer';
            mark.style.cssText = `${style};pointer-events:none;left:${x - 16}px;top:${y - 16}px`;
        }""",
        [x, y, mark],
    )
    taken.shoot(900)
    page.mouse.click(x, y)
    page.evaluate("() => document.getElementById('pointer').remove()")


def main() -> None:
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        sources = re.findall(r"^```python\n(.*?)\n```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        book: Any = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in sources[:2]])
        book.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(book, folder / "tour.ipynb")
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, headless=True)
        for scheme in sys.argv[1:] or THEMES:
            with jupyter(folder) as address:  # each with a session of its own, whose cells begin at 1
                page = browser.new_page(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
                page.goto(address)
                target = PICTURES / f"tour-{scheme}.gif"
                film(page, scheme).save(target)
                page.close()
            if target.stat().st_size > MOST_BYTES:
                sys.exit(f"{target.name} is larger than {MOST_BYTES} bytes: {target.stat().st_size}")
            sys.stdout.write(f"{target.name}: {target.stat().st_size} bytes\n")
        browser.close()


if __name__ == "__main__":
    main()
