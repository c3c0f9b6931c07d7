"""How the counting process is started: valgrind's options, and an environment that is the same in every kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torchbench_magic.errors import MissingTool

from .client_requests import why_unsupported

_BOOT = """\
import sys
sys.prefix = sys.exec_prefix = sys.argv[2]
import ctypes, json, mmap, pickle, platform, shutil, socket, struct, typing
from importlib import util
sys.pycache_prefix = "/dev/null"
spec = util.spec_from_file_location("torchbench_magic", sys.argv[1] + "/__init__.py")
sys.modules[spec.name] = package = util.module_from_spec(spec)
spec.loader.exec_module(package)
from torchbench_magic.counting.server import main
main()
"""
_NEEDED = ("torch", "numpy", "cloudpickle", "typing_extensions.py", "sympy", "mpmath", "networkx", "jinja2", "fsspec")
"""What torch, and what unpickles a job, import: the directory that brings one of them is on the server's path. Python's
own directories are there already: it is the same Python."""


def command(program: str, directory: str, preloaded: Sequence[str] = ()) -> list[str]:
    """What is started; after valgrind's own options the same words in every notebook of one environment.

    Args:
        preloaded: modules that it imports besides torch.
    """
    return [
        program,
        "--tool=callgrind",
        "--instr-atstart=no",
        "--collect-atstart=yes",  # of threads that start; the server's own is switched by hand
        "--num-transtab-sectors=2",  # of 32: most of what starting translates is never run again, and is 75 MiB
        "--vex-iropt-level=1",  # of 2: what is translated is run once, as a rule
        "--vgdb=no",  # not seen by callgrind_control, which torch's own collector uses
        f"--callgrind-out-file={directory}/cost.%p",
        f"--log-file={directory}/log.%p",
        *(sys.executable, "-P", "-S", "-c", _BOOT, str(Path(__file__).parents[1]), sys.prefix, *preloaded),
    ]


def counting_environment() -> dict[str, str]:
    """Small, and the same in every kernel: its size alone moves counts by up to 1.6 %."""
    fixed = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    quiet = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    taken = {name: os.environ[name] for name in ("HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return taken | fixed | quiet | {"PATH": "/usr/local/bin:/usr/bin:/bin"}  # a job brings the notebook's own


def start_path() -> list[str]:
    """What the server needs of the module path to import torch.

    Directories of the notebook are not among it, nor what a package adds as it is imported: each entry more moves the
    server's heap, and with it counts. A job brings the rest.
    """
    import torch

    kept, found = [], set[str]()
    for entry in sys.path:
        brought = {name for name in _NEEDED if entry and os.path.exists(os.path.join(entry, name))} - found
        if brought:  # not so a copy that comes later: setuptools, once imported, adds a folder that has some of them
            kept.append(entry)
            found |= brought
    return list(dict.fromkeys([*kept, str(Path(torch.__file__).parents[1])]))


def program() -> str:
    """The path of valgrind.

    Raises:
        MissingTool: with the command that installs it, or what else stands in the way.
    """
    if why := why_unsupported():
        raise MissingTool(why)
    found = shutil.which("valgrind")
    if found is None:
        raise MissingTool(
            "instructions are counted by valgrind, which is not installed: `sudo apt-get install valgrind`, or"
            " `conda install -c conda-forge valgrind`"
        )
    return found


def check_valgrind_runs() -> None:
    """Does it run anything at all here? A kernel without pages that are writable and executable stops it.

    Raises:
        MissingTool: it does not.
    """
    ran = subprocess.run([program(), "--tool=none", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if ran.returncode:
        said = (ran.stderr.strip().splitlines() or [f"status {ran.returncode}"])[-1]
        raise MissingTool(
            f"valgrind, which counts instructions, cannot run on this system ({said}): see what `valgrind --tool=none"
            " true` says; a system that forbids pages both writable and executable stops it"
        )
