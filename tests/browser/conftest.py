"""JupyterLab and Notebook on 127.0.0.1, driven through Debian's Chromium; the rest of the world is shut off.

Every request of a page that does not stay on this machine is aborted and remembered; a test that leads to one
fails. Cells are run through the front end's own commands; clicks and keys are real.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, Route, sync_playwright

SHOTS = Path(__file__).parent / "shots"
VIEWPORT = {"width": 1200, "height": 1000}
LOCAL = ("http://127.0.0.1:", "ws://127.0.0.1:", "file:", "data:", "blob:", "about:")
CHROMIUM_FLAGS = [
    "--no-sandbox",  # root in a container has none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
# Where each front end opens a notebook.
FRONT_ENDS = {"lab": "lab/tree", "notebook": "notebooks"}


@dataclass
class Server:
    """A running Jupyter server that serves both front ends."""

    url: str
    token: str
    root: Path
    settings: Path

    def page_of(self, front_end: str, notebook: str) -> str:
        return f"{self.url}/{FRONT_ENDS[front_end]}/{notebook}?token={self.token}"

    def answer(self, path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(f"{self.url}/{path}?token={self.token}", method=method)
        with urllib.request.urlopen(request, timeout=10) as reply:
            return bytes(reply.read())

    def stop_kernels(self) -> None:
        """End every session, so that a page opened next has only what was saved."""
        for session in json.loads(self.answer("api/sessions")):
            self.answer(f"api/sessions/{session['id']}", method="DELETE")


@dataclass
class Visit:
    """What one test does in a browser window, and what went wrong in it."""

    context: BrowserContext
    left_the_machine: list[str] = field(default_factory=list)
    page_errors: list[str] = field(default_factory=list)
    opened: list[Page] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """First in the page that the test before has left: a new one costs a process, and more than most tests."""
        left = [page for page in self.context.pages if page not in self.opened]
        page = left[0] if left else self.context.new_page()
        self.opened.append(page)
        page.on("pageerror", self.note)
        page.goto(url)
        return page

    def leave(self) -> None:
        """At most one page is left, as a new one is but for its document."""
        self.context.clear_permissions()
        for page in self.context.pages[1:]:
            page.close()
        for page in self.context.pages:
            if page in self.opened:
                page.remove_listener("pageerror", self.note)
            page.set_viewport_size(VIEWPORT)  # type: ignore[arg-type]
            page.emulate_media(color_scheme="light")
            page.mouse.move(0, 0)

    def note(self, error: Error) -> None:
        """Remember a script's failure, unless the front end's own bundle threw it (Notebook's does, at start)."""
        thrown_at = next((frame for frame in (error.stack or "").splitlines() if "    at " in frame), "")
        if "/static/" not in thrown_at:
            self.page_errors.append(f"{error}\n{error.stack}")

    def watch(self, route: Route) -> None:
        if route.request.url.startswith(LOCAL):
            route.continue_()
        else:
            self.left_the_machine.append(route.request.url)
            route.abort()


@pytest.fixture
def server(jupyter: Server) -> Iterator[Server]:
    """JupyterLab with Notebook beside it, without kernels, and with the settings of its first day."""
    shutil.rmtree(jupyter.settings, ignore_errors=True)
    _write_settings(jupyter.settings)
    yield jupyter
    jupyter.stop_kernels()


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all files of a worker: it takes longer to start than most tests."""
    folder = tmp_path_factory.mktemp("front end")
    root = folder / "notebooks"
    root.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = Server(f"http://127.0.0.1:{port}", secrets.token_hex(16), root, folder / "settings")
    environment = {
        "JUPYTER_TOKEN": started.token,  # not among the arguments, which every user of the machine can read
        "JUPYTER_CONFIG_DIR": folder / "config",
        "JUPYTER_DATA_DIR": folder / "data",
        "JUPYTER_RUNTIME_DIR": folder / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": folder / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": folder / "workspaces",
        "IPYTHONDIR": folder / "ipython",
    }
    options = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={root}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.expose_app_in_browser=True",
        "--JupyterNotebookApp.expose_app_in_browser=True",
    ]
    log = folder / "server.log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            env=os.environ | {name: str(value) for name, value in environment.items()},
            stdout=written,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(started, process, log)
        yield started
    finally:
        process.terminate()
        process.wait(20)


def _write_settings(folder: Path) -> None:
    """All cells in the page at once (else a cell out of sight is not drawn), and no question about news."""
    write_setting(folder, "@jupyterlab/notebook-extension", "tracker", {"windowingMode": "none"})
    write_setting(
        folder, "@jupyterlab/apputils-extension", "notification", {"fetchNews": "false", "checkForUpdates": False}
    )


def write_setting(folder: Path, extension: str, plugin: str, values: dict[str, Any]) -> None:
    """A user's settings of a plugin of the front ends; pages opened from then on have them."""
    file = folder / extension / f"{plugin}.jupyterlab-settings"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values), encoding="utf-8")


def _wait_for(started: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    while True:
        assert process.poll() is None, f"the server ended:\n{log.read_text()}"
        try:
            started.answer("api/status")
            return
        except OSError:
            time.sleep(0.2)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, headless, with a profile of its own."""
    program = shutil.which("chromium")
    assert program, "Chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=CHROMIUM_FLAGS, headless=True)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def window(chromium: Browser) -> Iterator[BrowserContext]:
    with chromium.new_context(viewport=VIEWPORT) as context:  # type: ignore[arg-type]
        yield context


@pytest.fixture
def visit(window: BrowserContext) -> Iterator[Visit]:
    """At the end of the test nothing has left the machine and no script has failed."""
    visit = Visit(window)
    window.route("**/*", visit.watch)
    yield visit
    window.unroute("**/*", visit.watch)
    visit.leave()
    assert visit.left_the_machine == []
    assert visit.page_errors == []


@pytest.fixture
def opened(visit: Visit, tmp_path: Path) -> Callable[..., Page]:
    """Opens a page that is given as text, as a file; where asked for, waits ``until`` there is an element."""

    def open_text(text: str, *, until: str = "") -> Page:
        file = tmp_path / "page.html"
        file.write_text(text, encoding="utf-8")
        page = visit.open(file.as_uri())
        if until:
            page.locator(until).first.wait_for()
        return page

    return open_text


@pytest.fixture(scope="session")
def shots() -> Path:
    """The folder for pictures, to be looked at by people; git ignores it."""
    SHOTS.mkdir(exist_ok=True)
    return SHOTS
