"""The extension as the startup file declares it: loaded by the first use of a magic, takes only free names."""

from __future__ import annotations

from typing import Any

from torchbench_magic.process.interrupts import interrupts_held


def load_ipython_extension(shell: Any) -> None:
    """Load as ``%load_ext torchbench_magic`` does, but leave magics of the user's alone."""
    with interrupts_held():
        from .loading import load_magics

        load_magics(shell, only_free_names=True)
        # So that %unload_ext and %reload_ext know the extension by the name that the user knows.
        shell.extension_manager.loaded.add("torchbench_magic")
