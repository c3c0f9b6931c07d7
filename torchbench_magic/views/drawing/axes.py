"""What the plots with matplotlib have in common. matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchbench_magic.errors import MissingTool

from ..document import clipped, printable
from ..table import HUES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CURVE_HUES", "literal", "new_axes"]

CURVE_HUES = tuple(HUES[of] for of in ("other", "torch", "python", "memory", "backward", "slower"))
_LONGEST = 60


def new_axes(inches: tuple[float, float] | None = None) -> Axes:
    """The Axes of a new figure.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingTool("plots need matplotlib: pip install 'torchbench_magic[plot]'") from None
    _, ax = pyplot.subplots(layout="constrained", figsize=inches)
    return ax


def literal(text: str, longest: int = _LONGEST) -> str:
    """A name as matplotlib writes it as it stands: no formula between ``$``, no control characters, not endless."""
    return clipped(printable(text), longest).replace("$", r"\$")
