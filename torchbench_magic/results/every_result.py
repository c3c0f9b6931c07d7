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
        """The tables as GitHub markdown; ``options`` are those of the view, such as ``sort_by`` of a profile. A
        comparison is written as for a pull request, see `views.timing.pull_request`."""
        return str(show(self, "to_markdown", **options))

    def to_json(self, *, max_bytes: int | None = None) -> str:
        """The result as strict JSON in ASCII, of a documented and versioned layout: the sentence with the answer,
        verdicts with their intervals, doubts, insights, where it ran, how to repeat it. Seconds and bytes; what is not
        known, or has no end, is null.

        Args:
            max_bytes: the most that it takes; None is 4 KB for a comparison of a few measurements, 16 KB for whatever
                else. What does not fit is left out and counted in ``left_out``.

        Raises:
            OptionError: ``max_bytes`` is too small for any result.
        """
        return str(show(self, "to_json", max_bytes=max_bytes))

    def explore(self) -> Any:
        """A live widget over this result (ipywidgets)."""
        return show(self, "explore")

    def __repr__(self) -> str:
        return str(show(self, "repr"))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        return show(self, "mimebundle")

    def _mime_(self) -> tuple[str, str]:
        """What marimo asks for."""
        framed: tuple[str, str] = show(self, "framed")
        return framed


class Storable(Shown):
    """A result that a store keeps."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add it to the store at ``path``, which is made where there is none; read it back with
        ``torchbench_magic.load``. What is stored there already is not stored twice.

        Raises:
            StoreError: the file cannot be written as it stands.
        """
        hand_on(self, "save", path=path)
