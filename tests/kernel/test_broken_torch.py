"""A kernel whose torch fails to import: one plain line a magic, none of this package's frames, and no second try."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from .conftest import ROOT, Kernel, by_files, environment_of

pytestmark = pytest.mark.interpreter

SAID = "torch cannot be imported (OSError: libtorch_cpu.so: cannot open shared object file). "
FAKE = f"""import torch.version
from pathlib import Path
with Path(__file__).with_name("imports").open("a") as file:
    file.write("x")
raise OSError({SAID.partition("OSError: ")[2].removesuffix("). ")!r})
"""


def with_fake_torch(folder: Path) -> Path:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(FAKE)
    (folder / "torch" / "version.py").write_text("")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the one kernel, so that it is known how often that tries to import torch."""
    return with_fake_torch(tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="module")
def kernel(folder: Path) -> Iterator[Kernel]:
    environment = environment_of(folder / "ipython", quiet=False)
    environment["PYTHONPATH"] = os.pathsep.join((str(folder), environment["PYTHONPATH"]))
    at = {"metadata": {"path": str(folder)}}
    client = NotebookClient(nbformat.v4.new_notebook(), timeout=60, resources=at, config=by_files())
    with client.setup_kernel(env=environment):
        yield Kernel(client)


def test_the_extension_loads(kernel: Kernel) -> None:
    kernel.run("%unload_ext torchbench_magic")
    ran = kernel.run("%load_ext torchbench_magic")
    assert not ran.outputs


@pytest.mark.parametrize(
    "cell",
    [
        "%timer 1 + 1",
        "%%timer\n1 + 1",
        "%%timer\nimport asyncio\nawait asyncio.sleep(0)",
        "%tprofile 1 + 1",
        "%%tprofile\n1 + 1",
        "%%tprofile\nimport asyncio\nawait asyncio.sleep(0)",
        "%tcompare a",
    ],
)
def test_each_magic_says_it_in_one_line(kernel: Kernel, folder: Path, cell: str) -> None:
    ran = kernel.run(cell)
    assert ran.stderr.startswith(f"UsageError: {SAID}"), ran.outputs
    assert len(ran.stderr.strip().splitlines()) == 1
    assert not ran.error
    assert (folder / "torch" / "imports").read_text() == "x"


def test_functions_say_it_as_their_last_line(kernel: Kernel) -> None:
    for call in ("from torchbench_magic import compare", "import torchbench_magic; torchbench_magic.profile(int)"):
        error = kernel.run(call).error
        assert f"MissingTool: {SAID}" in error.splitlines()[-1]
        assert "During handling" not in error
        assert "torch/__init__" not in error


def test_the_demo_says_it_in_one_line(tmp_path: Path) -> None:
    notebook = tmp_path / "asks.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import torch")]), notebook)
    environment = environment_of(tmp_path / "ipython", quiet=False)
    environment["PYTHONPATH"] = os.pathsep.join((str(with_fake_torch(tmp_path)), str(ROOT)))
    ran = subprocess.run(
        [sys.executable, "-m", "torchbench_magic", "demo", str(notebook)],
        env=environment, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.startswith(SAID), ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_the_demo_of_what_is_no_notebook_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.ipynb").write_text("{")
    ran = subprocess.run(
        [sys.executable, "-m", "torchbench_magic", "demo", str(tmp_path / "text.ipynb")],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "not a readable notebook" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
