"""The wheel, installed in an environment of its own, works without a word in the notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).resolve().parents[2]

DEFINE = """\
import torch

def double_and_add(a):
    b = a * 2
    return b + a
"""

PROFILE_WITH_AWAIT = """%%tprofile
import asyncio
x = torch.ones(1000)
await asyncio.sleep(0.01)
y = double_and_add(x)
"""

RUN = """\
import sys, tempfile
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config
sockets = {"transport": "ipc", "ip": tempfile.mkdtemp() + "/kernel"}
book = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(book, kernel_name="python3", timeout=120, config=Config(ConnectionFileMixin=sockets)).execute()
nbformat.write(book, sys.argv[1])
"""

LINES_SEEN = """\
import json
print(json.dumps(_tprofile.lines[["cell", "line"]].dropna().astype(int).values.tolist()))
"""


@dataclass(frozen=True)
class Installed:
    """An environment that holds the wheel, and the tests' own packages by a path file."""

    python: Path
    prefix: Path
    wheel: Path

    def environ(self) -> dict[str, str]:
        """An environment in which only this installation is found: no settings of the user's."""
        home = self.prefix / "home"
        home.mkdir(exist_ok=True)
        dropped = ("JUPYTER", "IPYTHON", "PYTHONPATH", "TORCHBENCH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return kept | {"HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "JUPYTER_PLATFORM_DIRS": "0"}

    def run(self, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python), *arguments],
            env=self.environ() | environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=240,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel, built and installed in a new venv in a directory with a space in its name.

    The dependencies are those of the tests' environment, seen through a path file: what is tested is what the
    wheel brings, not the network.
    """
    folder = tmp_path_factory.mktemp("an environment")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")

    prefix = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True, timeout=120)
    python = prefix / "bin" / "python"
    site = Path(_answer(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    # Not as a second site directory: its path files would bring the checkout's editable install along.
    (site / "tests-environment.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return Installed(python, prefix, wheel)


def _answer(python: Path, code: str) -> str:
    done = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def notebook(*cells: str, installed: Installed, cwd: Path, **environment: str) -> list[str]:
    """Run cells in a kernel of the new environment. Returns what each printed and displayed, as text."""
    file = cwd / "notebook.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), file)
    done = installed.run("-c", RUN, str(file), cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    texts = []
    for cell in nbformat.read(file, as_version=4).cells:
        parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
        texts.append("\n".join(parts))
    return texts


def test_the_wheel_holds_the_front_end_the_types_and_the_startup_file(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        names = archive.namelist()
    for wanted in (
        "torchbench_magic/py.typed",
        "torchbench_magic/show/static/makers.js",
        "torchbench_magic/show/static/table.js",
        "torchbench_magic/examples/01_quickstart.ipynb",
    ):
        assert wanted in names
    (startup,) = [name for name in names if name.endswith("50-torchbench_magic.py")]
    assert startup.endswith(".data/data/etc/ipython/startup/50-torchbench_magic.py")
    assert not [name for name in names if name.startswith(("tests/", "examples/")) or "__pycache__" in name]


def test_the_package_comes_from_the_wheel_and_says_its_version(installed: Installed, tmp_path: Path) -> None:
    where = installed.run("-c", "import torchbench_magic; print(torchbench_magic.__file__)", cwd=tmp_path)
    assert where.stdout.startswith(str(installed.prefix)), where.stdout + where.stderr
    said = installed.run("-m", "torchbench_magic", "--version", cwd=tmp_path)
    assert said.stdout.split()[1] in installed.wheel.name


@pytest.mark.slow
def test_without_load_ext_the_first_profile_names_lines_of_both_cells(
    installed: Installed, tmp_path: Path
) -> None:
    *_, seen = notebook(DEFINE, PROFILE_WITH_AWAIT, LINES_SEEN, installed=installed, cwd=tmp_path)
    lines = {(cell, line) for cell, line in json.loads(seen)}
    assert {(2, 3), (2, 4), (2, 5)} <= lines, "the cell itself; the magic is its line 1"
    assert {(1, 4), (1, 5)} <= lines, "the body of the function of the first cell"
    assert lines <= {(1, 3), (1, 4), (1, 5), (2, 2), (2, 3), (2, 4), (2, 5)}, "and no line that did not run"


def test_without_load_ext_the_options_are_listed_and_nothing_heavy_is_imported(
    installed: Installed, tmp_path: Path
) -> None:
    imported, config = notebook(
        "import sys; print([m for m in ('torch', 'pandas', 'ipywidgets', 'anywidget') if m in sys.modules])",
        "%config TorchBench",
        installed=installed,
        cwd=tmp_path,
    )
    assert imported.strip() == "[]"
    assert "min_run_time" in config


def test_autoload_can_be_turned_off(installed: Installed, tmp_path: Path) -> None:
    (said,) = notebook(
        "print(get_ipython().find_cell_magic('timer') is None)",
        installed=installed,
        cwd=tmp_path,
        TORCHBENCH_MAGIC_AUTOLOAD="0",
    )
    assert said.strip() == "True"


def test_in_a_terminal_the_magics_are_known_without_load_ext(installed: Installed, tmp_path: Path) -> None:
    asked = "print(get_ipython().magics_manager.lazy_magics.keys() >= {'timer', 'tprofile', 'tcompare'})"
    done = installed.run("-m", "IPython", "--simple-prompt", "--no-banner", "-c", asked, cwd=tmp_path)
    assert "True" in done.stdout, done.stdout + done.stderr
