"""Draws every kind of picture, light and dark, in Chromium, as small PNG files under ``pictures/``.

    python docs/pictures.py [NAME ...]

Needs the test tools (Playwright, Pillow), Chromium and, for ``counts``, valgrind. On a machine that does something else
meanwhile the pictures say so.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from IPython.core.interactiveshell import InteractiveShell
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import torchbench_magic

PICTURES = Path(__file__).parent / "pictures"
MOST_BYTES = 60_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--host-resolver-rules=MAP * ~NOTFOUND"]

DEFINED = """\
def forward(linear, input, mask):
    out = linear(input)
    found = np.argwhere(mask.numpy() > 0.99995)
    return out, torch.from_numpy(found)
"""
MODULE = """\
for _ in range(3):
    out, found = forward(linear, input, mask)
    out.square().mean().backward()
"""
TRAINING = """\
for _ in range(4):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Shown:
    """A result, and the view of it to choose; empty for the first."""

    result: Any
    view: str = ""


def compare() -> Shown:
    """Three ways to a batched dot product."""
    alternatives = {
        "bmm": "torch.bmm(x.unsqueeze(1), x.unsqueeze(2)).flatten()",
        "mul_sum": "x.mul(x).sum(-1)",
        "einsum": "torch.einsum('bn,bn->b', x, x)",
    }
    x = torch.rand(1000, 64)
    return Shown(torchbench_magic.compare(alternatives, globals={"torch": torch, "x": x}, min_run_time=0.5))


def processes() -> Shown:
    """The pair of the README, in six fresh interpreters."""
    pair = {"bmm": "torch.bmm(x.unsqueeze(1), x.unsqueeze(2)).flatten()", "mul_sum": "x.mul(x).sum(-1)"}
    names = {"torch": torch, "x": torch.randn(10_000, 64)}
    return Shown(torchbench_magic.compare(pair, globals=names, processes=6))


def single() -> Shown:
    """One statement, with its samples."""
    x = torch.rand(1000, 64)
    return Shown(torchbench_magic.compare({"x.mul(x).sum(-1)": "x.mul(x).sum(-1)"}, globals={"x": x}, min_run_time=1.0))


def scaling() -> Shown:
    """Two alternatives over sizes, with the size at which they swap places."""
    cell = """\
%%timer -q -o swept --sweep "n=[2**k for k in range(0, 13, 2)]" -t 1 --min-run-time 0.05 --max-run-time 0.3
# --- setup
x = torch.ones((256, n))
# --- mul_sum
x.mul(x).sum(-1)
# --- bmm
torch.bmm(x.unsqueeze(1), x.unsqueeze(2)).flatten()
"""
    return Shown(run_cells(cell, result="swept"))


def threads() -> Shown:
    """A product at one and two threads, with what the second one pays."""
    cell = "%%timer -q -o curve -t 1,2 --min-run-time 0.5\na @ a\n"
    return Shown(run_cells(cell, result="curve", a=torch.rand(700, 700)))


def counts() -> Shown:
    """Instructions per function of a broadcast against none."""
    cell = """\
%%timer -q -o counted --callgrind --min-run-time 0.02
# --- same shape
x * same
# --- broadcast
x * column
"""
    names = {"x": torch.ones(128, 128), "same": torch.ones(128, 128), "column": torch.ones(128, 1)}
    return Shown(run_cells(cell, result="counted", **names).diff())


def lines() -> Shown:
    """A cell line by line."""
    return Shown(module())


def ops() -> Shown:
    """The operations of a training loop, by shape."""
    return Shown(training(shapes=True), "operations")


def flame() -> Shown:
    """A flame graph of a module's forward and backward."""
    return Shown(module().flamegraph())


def timeline() -> Shown:
    """When which operation ran, of a training loop."""
    return Shown(training().timeline())


def memory() -> Shown:
    """Bytes over time, with the lines that hold them at the peak."""
    return Shown(training(memory=True))


DRAWN: dict[str, Callable[[], Shown]] = {
    draw.__name__: draw
    for draw in (compare, processes, single, scaling, threads, counts, lines, ops, flame, timeline, memory)
}


def module() -> Any:
    names = {
        "np": np,
        "torch": torch,
        "linear": torch.nn.Linear(500, 10),
        "input": torch.rand(128, 500),
        "mask": torch.rand((100, 200, 200), dtype=torch.double),
    }
    return run_cells(DEFINED, f"%%tprofile\n{MODULE}", result="_tprofile", **names)


def training(**options: bool) -> Any:
    nn = torch.nn
    convolutions = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU())
    net = nn.Sequential(convolutions, nn.Flatten(), nn.LazyLinear(10))
    x = torch.rand(16, 3, 32, 32)
    net(x)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        net(x).sum().backward()
        optimizer.step()
    words = " ".join(f"--{name}" for name, is_on in options.items() if is_on)
    cell = f"%%tprofile {words}".strip() + f"\n{TRAINING}"
    return run_cells(cell, result="_tprofile", net=net, x=x, optimizer=optimizer)


def run_cells(*cells: str, result: str, **names: Any) -> Any:
    """What the cells of a notebook leave under a name; what they print is dropped."""
    shell = InteractiveShell.instance()
    shell.reset()  # cells are counted from 1
    shell.push({"torch": torch, **names})
    with contextlib.redirect_stdout(io.StringIO()):
        shell.run_line_magic("load_ext", "torchbench_magic")
        for cell in cells:
            shell.run_cell(cell, store_history=True).raise_error()
    return shell.user_ns[result]


def draw(browser: Browser, shown: Shown, scheme: Any, folder: Path) -> Path:
    """The page as a browser shows it, in the ``scheme`` light or dark."""
    file = folder / "page.html"
    shown.result.to_html(file)
    page: Page = browser.new_page(viewport={"width": 860, "height": 200}, color_scheme=scheme)
    page.goto(file.as_uri())
    page.locator(".tb:visible, canvas:visible").first.wait_for()
    if shown.view:
        page.get_by_role("button", name=shown.view, exact=True).click()
    page.wait_for_timeout(300)
    page.screenshot(path=folder / "page.png", full_page=True)
    page.close()
    return folder / "page.png"


def main() -> None:
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, headless=True)
        for name in sys.argv[1:] or DRAWN:
            shown = DRAWN[name]()
            for scheme in ("light", "dark"):
                target = PICTURES / f"{name}-{scheme}.png"
                with Image.open(draw(browser, shown, scheme, Path(folder))) as picture:
                    picture.convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(target, optimize=True)
                if target.stat().st_size > MOST_BYTES:
                    sys.exit(f"{target.name} is larger than {MOST_BYTES} bytes")
                sys.stdout.write(f"{target.name}: {target.stat().st_size} bytes\n")
        browser.close()


if __name__ == "__main__":
    main()
