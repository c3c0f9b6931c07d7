"""The compiler, the headers and the flags: those that torch's own C++ timer uses, and what identifies them."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from torchbench_magic.errors import MissingTool

__all__ = ["Headers", "Toolchain", "find_toolchain", "knows_more"]

Headers = Literal["lean", "full"]

_INCLUDED: dict[Headers, tuple[str, ...]] = {
    # tensors, factories, the functional namespaces: what snippets use, in half the time
    "lean": ("c10/util/irange.h", "torch/types.h", "torch/fft.h", "torch/special.h"),
    # what torch's templates include: modules, optimizers, data, serialization, Python
    "full": ("c10/util/irange.h", "torch/csrc/utils/pybind.h", "pybind11/pybind11.h", "torch/extension.h"),
}
_LIBRARIES: dict[Headers, tuple[str, ...]] = {
    "lean": ("c10", "torch_cpu", "torch"),
    "full": ("c10", "torch_cpu", "torch", "torch_python"),
}
_MORE = ("torch/csrc/api/include", "torch/csrc/autograd", "torch/csrc/utils", "pybind11")
_RUNTIME = Path(__file__).parent / "runtime.h"


@dataclass(frozen=True)
class Toolchain:
    """A compiler that makes libraries for this torch.

    Attributes:
        command: the compiler's, as a list.
        version: what it says of itself.
        flags: for compiling, torch's own ones included.
        link_flags: for linking, without the libraries.
        identity: of all that decides what comes out of a source: compiler, flags, torch's build and place.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    identity: str

    @property
    def precompiles(self) -> bool:
        """Precompiled headers are found beside the header by their name: GCC's way."""
        return "Free Software Foundation" in self.version

    def prelude(self, headers: Headers) -> str:
        """What stands before each snippet."""
        included = "".join(f"#include <{name}>\n" for name in _INCLUDED[headers])
        return f"{included}\n{_RUNTIME.read_text(encoding='utf-8')}"

    def libraries(self, headers: Headers) -> list[str]:
        return [f"-l{name}" for name in _LIBRARIES[headers]]

    def key(self, headers: Headers, text: str = "") -> str:
        """Identifies what is compiled from ``text``: 32 hex digits."""
        parts = "\0".join((self.identity, headers, self.prelude(headers), text))
        return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def find_toolchain() -> Toolchain:
    """The compiler that ``CXX`` names, or g++ or c++, with the flags for this torch.

    Raises:
        MissingTool: there is none; in one line, with the command that installs it.
    """
    asked = os.environ.get("CXX", "")
    try:
        candidates = [shlex.split(asked)] if asked.strip() else [["g++"], ["c++"]]
    except ValueError:  # a quotation that does not end
        candidates = []
    for candidate in candidates:
        found = shutil.which(candidate[0])
        if found is not None:
            return _toolchain((found, *candidate[1:]), os.path.getmtime(found))
    if asked.strip():
        raise MissingTool(f"C++ snippets need a compiler, and CXX={asked} names none: unset CXX, or install it")
    raise MissingTool(
        "C++ snippets need a compiler, and g++ is not installed: `sudo apt-get install g++`, or"
        " `conda install -c conda-forge gxx`"
    )


def knows_more(names: set[str]) -> bool:
    """Whether one of these names occurs in the headers that only the full set includes."""
    import torch

    if not names:
        return False
    include = Path(torch.__file__).parent / "include"
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    files = (path for folder in _MORE for path in (include / folder).rglob("*.h"))
    return any(word.search(path.read_text(encoding="utf-8", errors="replace")) for path in files)


@cache
def _toolchain(command: tuple[str, ...], changed: float) -> Toolchain:
    """``changed``: when the compiler was installed, so that another one under its name is asked anew."""
    import torch

    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingTool(f"the C++ compiler {command[0]} does not run ({error}): set CXX to one that does") from None
    home = Path(torch.__file__).parent
    flags = (
        *_torch_flags(torch),
        "-std=c++20",
        "-fPIC",
        "-g1",  # lines and files of functions, for the counts; the whole of -g doubles the time
        "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{home / folder}" for folder in _folders()),
        *(f"-isystem{folder}" for folder in _python_folders()),
    )
    link_flags = ("-shared", f"-L{home / 'lib'}", f"-Wl,-rpath,{home / 'lib'}")
    built = (home / "lib").glob("libtorch_cpu.*")
    facts = [
        said.stdout,
        *command,
        *flags,
        *link_flags,
        torch.__version__,
        str(torch.version.git_version),
        platform.machine(),
        *(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in sorted(built)),
        f"{changed}",
    ]
    return Toolchain(command, said.stdout, flags, link_flags, "\0".join(facts))


def _torch_flags(torch: Any) -> list[str]:
    """What torch was compiled with, but for warnings and debugging, as torch's C++ timer takes them.

    Raises:
        MissingTool: this torch does not tell; other flags would be another program.
    """
    asked: Callable[[], str] | None = getattr(torch._C, "_cxx_flags", None)
    if asked is None:
        raise MissingTool("C++ snippets: this torch does not say how it was compiled (torch._C._cxx_flags)")
    given = asked()
    return [flag for flag in given.split() if not flag.startswith(("-W", "-g"))]


def _folders() -> list[str]:
    """Under torch's own folder; the last one holds callgrind.h."""
    return ["include", "include/torch/csrc/api/include", "utils/benchmark/utils/valgrind_wrapper"]


def _python_folders() -> list[str]:
    import sysconfig

    conda = os.environ.get("CONDA_PREFIX")
    return [sysconfig.get_path("include"), *([os.path.join(conda, "include")] if conda else [])]
