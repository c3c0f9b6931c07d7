"""The one way from a result to a view: what a result shows of itself is found here, on first call.

``results`` may not import ``views`` (a result must be usable where nothing can be shown). The table below
names the function of each verb; it is resolved lazily, and the layering test pins it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["TABLE", "show"]

_VIEWS = "torchbench_magic.views"

TABLE: dict[tuple[str, str], str] = {
    ("Comparison", "to_html"): f"{_VIEWS}.page:to_html",
    ("Comparison", "repr"): f"{_VIEWS}.comparison:to_text",
    ("Comparison", "mimebundle"): f"{_VIEWS}.comparison:mimebundle",
    ("Comparison", "to_markdown"): f"{_VIEWS}.comparison:to_markdown",
    ("Comparison", "compare"): f"{_VIEWS}.torch_compare:compare",
    ("Comparison", "plot"): f"{_VIEWS}.plot:plot",
    ("Comparison", "explore"): f"{_VIEWS}.widgets:explore",
    ("Counts", "flamegraph"): f"{_VIEWS}.call_flame:flamegraph",
    ("CountsDiff", "explore"): f"{_VIEWS}.counts_explorer:explore",
    ("CountsDiff", "flamegraph"): f"{_VIEWS}.call_flame:of_diff",
    ("CountsDiff", "to_html"): f"{_VIEWS}.page:to_html",
    ("CountsDiff", "repr"): f"{_VIEWS}.counts:to_text",
    ("CountsDiff", "mimebundle"): f"{_VIEWS}.counts:mimebundle",
    ("CountsDiff", "to_markdown"): f"{_VIEWS}.counts:to_markdown",
    ("ProfileDiff", "explore"): f"{_VIEWS}.profile_diff_explorer:explore",
    ("ProfileDiff", "to_html"): f"{_VIEWS}.page:to_html",
    ("ProfileDiff", "repr"): f"{_VIEWS}.profile_diff:to_text",
    ("ProfileDiff", "mimebundle"): f"{_VIEWS}.profile_diff:mimebundle",
    ("ProfileDiff", "to_markdown"): f"{_VIEWS}.profile_diff:to_markdown",
    ("Profile", "to_html"): f"{_VIEWS}.page:to_html",
    ("Profile", "repr"): f"{_VIEWS}.profile:to_text",
    ("Profile", "mimebundle"): f"{_VIEWS}.profile:mimebundle",
    ("Profile", "to_markdown"): f"{_VIEWS}.profile:to_markdown",
    ("Profile", "table"): f"{_VIEWS}.torch_table:table",
    ("Profile", "plot"): f"{_VIEWS}.plot_profile:plot",
    ("Profile", "flamegraph"): f"{_VIEWS}.profile_flame:flamegraph",
    ("Profile", "explore"): f"{_VIEWS}.widgets:explore",
    ("Profile", "timeline"): f"{_VIEWS}.timeline:timeline",
}


def show(result: object, verb: str, **options: Any) -> Any:
    """Call the view function that shows ``verb`` of ``result``."""
    module, _, name = TABLE[type(result).__name__, verb].partition(":")
    return getattr(import_module(module), name)(result, **options)
