"""The magics, and what loads them.

Loading imports neither torch nor pandas nor ipywidgets: the core and the views are imported by the first cell
that needs them.
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext torchbench_magic``: takes the names ``timer``, ``tprofile``, ``tcompare`` and ``tdoctor``, whoever
    had them."""
    from .loading import load_magics

    load_magics(shell)


def unload_ipython_extension(shell: Any) -> None:
    """``%unload_ext torchbench_magic``: puts everything back."""
    from .loading import unload

    unload(shell)
