"""What every result can do: show itself, live or as text, and become a page of its own."""

from __future__ import annotations

import os
from typing import Any

from ._gateway import hand_on, show

__all__ = ["Shown", "Storable"]


class Shown:
    """A result that a notebook displays. What draws it is found on first call, see `_gateway`."""

    def to_html(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str | None:
        """The result as one page that sorts, filters and zooms without kernel and network.

        Args:
            path: the file to write, whole or not at all; a page of ours that is there is replaced. None returns the
                text instead.
            overwrite: replace any other file too.

        Raises:
            InputError: the file cannot be written.
        """
        written: str | None = show(self, "to_html", path=path, overwrite=overwrite)
        return written

    def to_markdown(self, **options: Any) -> str:
        """The tables as GitHub markdown; ``options`` are those of the view, such as ``sort_by`` of a profile."""
        return str(show(self, "to_markdown", **options))

    def explore(self) -> Any:
        """A live widget over this result (ipywidgets)."""
        return show(self, "explore")

    def __repr__(self) -> str:
        return str(show(self, "repr"))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return show(self, "mimebundle")


class Storable(Shown):
    """A result that a store keeps."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add it to the store at ``path``, which is made where there is none; read it back with
        ``torchbench_magic.load``. What is stored there already is not stored twice.

        Raises:
            StoreError: the file cannot be written as it stands.
        """
        hand_on(self, "save", path=path)
