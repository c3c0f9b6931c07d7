"""The words of column ``mode``: how a module was called in a forward pass, and what became of its result; of an
optimizer's step, what its gradients were."""

from __future__ import annotations

__all__ = ["EVALUATION", "GRAPH", "TRAINED", "TRAIN_MODE", "UNCLEARED", "VARIES", "mode_text"]

TRAIN_MODE = "train"
"""The module was in training mode; else in evaluation mode."""
GRAPH = "graph"
"""It recorded a graph for a backward pass."""
VARIES = "varies"
"""It has dropout or batch norm, to which the mode makes a difference."""
TRAINED = "trained"
"""A backward pass followed, before the loop asked for its next input."""
EVALUATION = "evaluation"
"""It is of a loop none of whose iterations has a backward pass, or one of several in a row that lead to none."""
UNCLEARED = "uncleared"
"""Of an optimizer's step: a backward pass has added to the gradients of its step before, which nothing had cleared."""


def mode_text(words: dict[str, bool]) -> str:
    """Those that are true, in a fixed order; empty where none is."""
    return " ".join(word for word in (TRAIN_MODE, GRAPH, VARIES, TRAINED, EVALUATION) if words.get(word))
