"""A torch that cannot be imported is told in one line, whatever is wrong with it and whoever asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.interpreter

ROOT = Path(__file__).resolve().parents[2]
BROKEN = "import torch.version\nraise OSError('libtorch_cpu.so: cannot open shared object file:\\n\\x1b[31mnone')"
KINDS: dict[str, tuple[dict[str, str], str]] = {
    "a broken library": (
        {"torch/__init__.py": BROKEN, "torch/version.py": ""},
        "torch cannot be imported (OSError: libtorch_cpu.so: cannot open shared object file:)",
    ),
    "a library of an unreadable name": (
        {"torch/__init__.py": "raise ImportError('\\x1b[2J\\u202e')", "torch/version.py": ""},
        "torch cannot be imported (ImportError: \\x1b[2J\\u202e)",
    ),
    "an error without a text": (
        {"torch/__init__.py": "raise RuntimeError", "torch/version.py": ""},
        "torch cannot be imported (RuntimeError)",
    ),
    "a torch that is too old": (
        {"torch/__init__.py": "__version__ = '2.7.1+cpu'\nclass Tensor: pass", "torch/version.py": ""},
        "torch 2.7.1+cpu is too old: torchbench_magic needs 2.8 or newer",
    ),
    "a torch of which half is gone": (
        {"torch/__init__.py": "", "torch/version.py": ""},
        "torch has no Tensor: its installation is damaged",
    ),
    "a torch.py beside the notebook": ({"torch.py": "x = 1"}, "torch.py, which is not PyTorch: rename it"),
    "a torch.py that imports torch": (
        {"torch.py": "import torch\ntorch.ones(3)"}, "torch.py, which is not PyTorch: rename it",
    ),
    "a torch.py that is no Python": ({"torch.py": "def"}, "torch.py, which is not PyTorch: rename it"),
    "a folder torch beside the notebook": (
        {"torch/__init__.py": "import nothing_of_that_name"}, "__init__.py, which is not PyTorch: rename it",
    ),
}  # fmt: skip
NONE = "sys.modules['torch'] = None"
HALF = "try:\n import torch\nexcept BaseException: pass"
ENTRANCES = {
    "compare": "from torchbench_magic import compare",
    "profile": "import torchbench_magic; torchbench_magic.profile(int)",
    "benchmark_op": "import torchbench_magic; torchbench_magic.benchmark_op(None, 'mm')",
    "load_torch_pickle": "from torchbench_magic import load_torch_pickle",
    "the drop-in": "from torchbench_magic import benchmark",
    "a module of the drop-in": "from torchbench_magic.benchmark.utils.timer import Timer",
}


def said(folder: Path, code: str, *, before: str = "") -> str:
    """What is said of an exception of ``code``, which must be ours: its text."""
    asking = f"import sys\n{before}\ntry:\n    {code}\nexcept Exception as error:\n    print(repr(error)); print(error)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    ran = subprocess.run(
        [sys.executable, "-c", asking], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    kind, *lines = ran.stdout.splitlines()
    assert kind.startswith("MissingTool("), ran.stdout
    assert len(lines) == 1, ran.stdout
    assert lines[0].isprintable()
    return lines[0]


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_said_in_one_line(kind: str, tmp_path: Path) -> None:
    files, expected = KINDS[kind]
    assert expected in said(made(tmp_path, files), ENTRANCES["profile"])


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_every_entrance_for_scripts_says_it(entrance: str, tmp_path: Path) -> None:
    files, expected = KINDS["a broken library"]
    assert expected in said(made(tmp_path, files), ENTRANCES[entrance])


def test_torch_that_is_not_installed_is_asked_for(tmp_path: Path) -> None:
    assert said(tmp_path, ENTRANCES["profile"], before=NONE) == "torch is not installed: python -m pip install torch"


def test_the_first_failure_is_said_again_and_not_what_a_second_import_fails_at(tmp_path: Path) -> None:
    folder = made(tmp_path, KINDS["a broken library"][0])
    mend = f"open({str(folder / 'torch' / '__init__.py')!r}, 'w').write('raise ValueError(1)')"
    again = f"try:\n    {ENTRANCES['profile']}\nexcept Exception: {mend}"
    assert "OSError: libtorch_cpu.so" in said(folder, ENTRANCES["profile"], before=again)


def test_a_torch_that_the_users_own_import_left_half_imported_is_not_imported_again(tmp_path: Path) -> None:
    folder = made(tmp_path, KINDS["a broken library"][0])
    text = said(folder, ENTRANCES["compare"], before=HALF)
    assert text.startswith("torch is half imported: an earlier `import torch` of this process failed")
    assert "Restart the kernel" in text


def test_names_that_need_no_torch_are_there_without_it(tmp_path: Path) -> None:
    names = "Comparison, Profile, CountsDiff, load, load_trace, step, profile, benchmark_op"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    code = f"import sys; {NONE}\nfrom torchbench_magic import {names}"
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, check=True)
