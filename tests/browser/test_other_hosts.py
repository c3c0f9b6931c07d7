"""Outputs as VS Code and Colab show them: as far as that can be had without them.

Both show outputs in a sandboxed frame with a page of their own, put html in by script, and draw widgets with
ipywidgets' own html-manager, which loads anywidget as an AMD module. The frames, the insertion and the manager here are
like theirs; what is not here is the kernel behind a widget. ``docs/hosts.md`` says how to check by hand.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from html import escape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anywidget
import pytest
from ipywidgets.embed import embed_snippet
from playwright.sync_api import FrameLocator, expect

from tests.show.builders import comparison_of, profile_of

from .results import rows, sorts_by_click_and_by_key

pytestmark = pytest.mark.browser

SANDBOX = "allow-scripts allow-same-origin allow-forms allow-pointer-lock allow-downloads"
VS_CODE = """<!doctype html><meta charset=utf-8>
<style>:root{--vscode-editor-background:#1e1e1e;--vscode-foreground:#cccccc;--vscode-descriptionForeground:#9d9d9d;
--vscode-panel-border:#454545;--vscode-focusBorder:#007fd4}body{background:#1e1e1e;color:#ccc}</style><body></body>
<script>for (const html of OUTPUTS) { // as innerHTML, whose scripts do not run, and then its scripts anew
    const output = document.createElement("div");
    output.innerHTML = html;
    document.body.append(output);
    for (const still of output.querySelectorAll("script")) {
        const script = document.createElement("script");
        for (const name of still.getAttributeNames()) script.setAttribute(name, still.getAttribute(name));
        script.text = still.textContent;
        still.replaceWith(script);
    }
}</script>"""
COLAB = """<!doctype html><meta charset=utf-8><body></body>
<script>
for (const html of OUTPUTS) document.body.append(document.createRange().createContextualFragment(html));
</script>"""

MANAGER = "@jupyter-widgets/html-manager@1.0"
# As much of require.js as these modules need: `define` with or without a name, and `require` of what is defined.
AMD = """let named;
const modules = {};
const made = (name) => {
    const module = modules[name] ?? (() => { throw new Error(name + " is not defined"); })();
    if (!("value" in module)) {
        const exports = {}, of = { exports, require };
        of.module = of;
        const value = module.make(...module.needs.map((need) => need in of ? of[need] : made(need)));
        module.value = value ?? exports;
    }
    return module.value;
};
function define(...given) {
    const make = given.pop(), needs = Array.isArray(given.at(-1)) ? given.pop() : [];
    modules[given[0] ?? named] = { needs, make };
}
define.amd = {};
function require(needs, done) { return Array.isArray(needs) ? done(...needs.map(made)) : made(needs); }
window.requirejs = require;"""


def framed(page: str) -> str:
    return f'<iframe sandbox="{SANDBOX}" width=960 height=560 srcdoc="{escape(page)}"></iframe>'


def with_outputs(host: str, outputs: list[str]) -> str:
    return framed(host.replace("OUTPUTS", json.dumps(outputs).replace("</", "<\\/")))


def opened(visit: Any, folder: Path, frames: str) -> Any:
    (folder / "host.html").write_text(f"<!doctype html><meta charset=utf-8><body>{frames}", encoding="utf-8")
    return visit.open((folder / "host.html").as_uri())


def html_of(result: Any) -> str:
    return str(result._repr_mimebundle_()["text/html"])


def test_as_vs_code_shows_them(visit: Any, tmp_path: Path, shots: Path) -> None:
    """All outputs of a notebook in one frame, with its theme."""
    page = opened(visit, tmp_path, with_outputs(VS_CODE, [html_of(comparison_of()), html_of(profile_of())]))
    shown = page.frame_locator("iframe").locator(".tb")
    expect(shown).to_have_count(2, timeout=20_000)
    sorts_by_click_and_by_key(shown.first, "median")
    assert shown.first.evaluate("e => getComputedStyle(e).backgroundColor") == "rgb(30, 30, 30)", "the editor's"
    page.screenshot(path=shots / "like-vs-code.png", full_page=True)


def test_as_colab_shows_them(visit: Any, tmp_path: Path, shots: Path) -> None:
    """Each output in a frame of its own."""
    frames = "".join(with_outputs(COLAB, [html_of(result)]) for result in (comparison_of(), profile_of()))
    page = opened(visit, tmp_path, frames)
    for at in range(2):
        expect(page.frame_locator("iframe").nth(at).locator(".tb")).to_be_visible(timeout=20_000)
    sorts_by_click_and_by_key(page.frame_locator("iframe").first.locator(".tb"), "median")
    page.screenshot(path=shots / "like-colab.png", full_page=True)


@pytest.fixture(scope="module")
def html_manager(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``@jupyter-widgets/html-manager``, which is in no Python package; npm brings it."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "pack", "--silent", MANAGER]
    packed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    if packed.returncode:
        pytest.skip(f"npm could not bring {MANAGER}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package" / "dist"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of the test's folder: modules are imported by address only where a page has an origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def managed(widget: Any) -> str:
    """A page whose widgets the html-manager draws from their saved state."""
    snippet = embed_snippet(views=[widget], embed_url="none.js", requirejs=False, cors=False, drop_defaults=False)
    start = (
        "require(['@jupyter-widgets/html-manager/dist/libembed-amd'], (made) => made.renderWidgets("
        "document.documentElement, (name) => new Promise((done, failed) => require([name], done, failed))))"
    )
    snippet = snippet.replace('<script src="none.js"></script>', "")
    return (
        f'<!doctype html><meta charset=utf-8><script>{AMD}</script><script src="libembed-amd.js">'
        f'</script><script>named = "anywidget"</script><script src="anywidget.js"></script>'
        f"<body>{snippet}<script>{start}</script>"
    )


@pytest.mark.slow
def test_a_saved_widget_in_the_html_manager_is_a_table_with_its_controls_off(
    visit: Any, html_manager: Path, served: str, tmp_path: Path, shots: Path
) -> None:
    of_anywidget = Path(anywidget.__file__).parents[4] / "share" / "jupyter" / "nbextensions" / "anywidget" / "index.js"
    shutil.copy(of_anywidget, tmp_path / "anywidget.js")
    shutil.copy(html_manager / "libembed-amd.js", tmp_path)
    (tmp_path / "frame.html").write_text(managed(comparison_of().explore()), encoding="utf-8")
    frame_of_it = f'<iframe sandbox="{SANDBOX}" width=960 height=560 src="frame.html"></iframe>'
    (tmp_path / "host.html").write_text(f"<!doctype html><body>{frame_of_it}", encoding="utf-8")
    page = visit.open(f"{served}/host.html")
    frame: FrameLocator = page.frame_locator("iframe")
    shown = frame.locator(".torchbench-live")
    expect(rows(shown)).to_have_count(len(comparison_of().frame), timeout=30_000)
    expect(shown.get_by_text("The session does not answer")).to_be_visible(timeout=10_000)
    assert shown.locator(".torchbench-controls").evaluate("e => e.inert")
    sorts_by_click_and_by_key(shown, "median")
    page.screenshot(path=shots / "like-html-manager.png", full_page=True)
