"""Installs the wheel of ``dist/`` into a new environment and runs the demo from there: the end of ``make dist``.

    .venv/bin/python tests/packaging/from_the_wheel.py dist

What is installed is what a user gets, with the versions of ``constraints.txt``. Only torch and what it brings for GPUs
are linked from the environment that runs this, because they are some hundred MB or more.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
LARGE = re.compile(r"torch|triton|(nvidia|cuda)[-_].*")


def main(folder: Path) -> None:
    """Ends with the message of the first step that fails."""
    (wheel,) = folder.resolve().glob("*.whl")
    with tempfile.TemporaryDirectory(prefix="from the wheel ") as place:
        python = Path(place) / "venv" / "bin" / "python"
        run(sys.executable, "-m", "venv", str(python.parents[1]), cwd=place)
        site = Path(answer(python, "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place))
        for entry in large_packages():
            (site / entry.name).symlink_to(entry)
        pip = (str(python), "-m", "pip", "--disable-pip-version-check")
        run(*pip, "install", "-q", "-c", str(CONSTRAINTS), f"{wheel}[lab]", cwd=place)
        run(*pip, "check", cwd=place)
        where = answer(python, "import torchbench_magic; print(torchbench_magic.__file__)", cwd=place)
        if not where.startswith(str(site)):
            sys.exit(f"the package comes from {where}, not from the wheel")
        version = answer(python, "-m", "torchbench_magic", "--version", cwd=place)
        if not wheel.name.startswith(f"{version.replace(' ', '-')}-"):
            sys.exit(f"{wheel.name} says that it is {version}")
        run(str(python), "-m", "torchbench_magic", "demo", cwd=place)


def large_packages() -> Iterator[Path]:
    """The files and folders of torch and of what it brings for GPUs, in the environment that runs this."""
    names = set()
    for package in metadata.distributions():
        if LARGE.fullmatch(package.metadata["Name"]):
            names |= {Path(str(package.locate_file(file.parts[0]))) for file in package.files or () if file.parts}
    yield from sorted(path for path in names if path.name not in ("..", "__pycache__"))


def run(*command: str, cwd: str) -> None:
    status = subprocess.run(command, cwd=cwd, env=environment()).returncode
    if status:
        sys.exit(f"{' '.join(command)} ended with {status}")


def answer(python: Path, *arguments: str, cwd: str) -> str:
    code = arguments if len(arguments) > 1 else ("-c", *arguments)
    done = subprocess.run([str(python), *code], cwd=cwd, env=environment(), capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else sys.exit(done.stderr)


def environment() -> dict[str, str]:
    """Without what would lead to packages or settings of elsewhere."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "IPYTHON", "JUPYTER"))}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
