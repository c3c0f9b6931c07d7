"""Importing torch, which may be missing, broken, too old, or another module of that name.

An import of torch that fails leaves its C++ parts loaded, and a second one fails at something else ("function ...
already has a docstring"), which hides the cause. So the first failure is kept and said again until the process ends.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from torchbench_magic.errors import MissingTool

OLDEST = (2, 8)
_MOST_SAID = 200
_known: dict[str, str] = {}
"""``"failed"``: what was wrong with it; ``"checked"``: nothing is."""


def import_torch() -> None:
    """Have torch imported.

    Raises:
        MissingTool: it cannot be, and why, in one line; the process has to be restarted once it can.
    """
    __tracebackhide__ = True
    if "checked" in _known and "torch" in sys.modules:
        return
    if said := _known.get("failed") or _problem():
        raise MissingTool(said)
    _known["checked"] = "torch"


def _problem() -> str:
    """What is wrong with the torch that is found here; empty where nothing is."""
    if "torch" not in sys.modules and any(name.startswith("torch.") for name in sys.modules):
        return _kept(
            "torch is half imported: an earlier `import torch` of this process failed or was interrupted. Restart the"
            f" kernel; {_SHOWN_BY}"
        )
    try:
        import torch
    except Exception as error:  # noqa: BLE001  # whatever its libraries, or a file of that name, do
        return _why(error)
    return _unusable(torch)


_SHOWN_BY = '`python -c "import torch"` in a terminal shows what is wrong'


def _why(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return "torch is not installed: python -m pip install torch"  # nothing is loaded: the next cell may find it
    if other := _other_module():
        return _kept(other)
    lines = [line for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    if len(reason) > _MOST_SAID:
        reason = f"{reason[:_MOST_SAID]}…"
    return _kept(f"torch cannot be imported ({reason}). {_SHOWN_BY}; when that runs, restart the kernel")


def _unusable(torch: ModuleType) -> str:
    if not hasattr(torch, "Tensor"):
        return _kept(_other_module() or "torch has no Tensor: its installation is damaged; reinstall it")
    version = str(getattr(torch, "__version__", ""))
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return _kept(
            f"torch {version} is too old: torchbench_magic needs {needed} or newer. python -m pip install -U torch,"
            " then restart the kernel"
        )
    return ""


def _other_module() -> str:
    """What hides PyTorch: a file or a folder of its name that stands before it on the module path; empty if nothing."""
    loaded = sys.modules.get("torch")
    try:
        spec = loaded.__spec__ if loaded is not None else find_spec("torch")
    except (ValueError, ImportError):
        return ""
    if spec is None:
        return ""
    folders = list(spec.submodule_search_locations or ())
    if any((Path(folder) / "version.py").exists() for folder in folders):
        return ""
    found = spec.origin if spec.origin is not None or not folders else folders[0]
    return f"`import torch` finds {found}, which is not PyTorch: rename it, then restart the kernel"


def _kept(said: str) -> str:
    _known["failed"] = said
    return said
