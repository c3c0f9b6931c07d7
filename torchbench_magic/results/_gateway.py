"""The one way up from a result: what it shows of itself, and where it is handed on to, is found here, on first call.

``results`` may not import ``views`` (a result must be usable where nothing can be shown), and a record may not import
the store or the exporter that is made of such records. The tables below name the function of each verb; they are
resolved lazily, and the layering test pins them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["HANDED_ON", "OF_EVERY", "TABLE", "hand_on", "show"]

_VIEWS = "torchbench_magic.views"
_RESULTS = "torchbench_magic.results"
_CORE = "torchbench_magic.core"

TABLE: dict[tuple[str, str], str] = {
    ("Comparison", "document"): f"{_VIEWS}.timing.comparison:document",
    ("Comparison", "facts"): f"{_VIEWS}.json_forms.timings:facts",
    ("Comparison", "to_markdown"): f"{_VIEWS}.timing.pull_request:pull_request",
    ("Comparison", "under"): f"{_VIEWS}.timing.comparison:under",
    ("Comparison", "compare"): f"{_VIEWS}.torch_forms.torch_compare:torch_compare",
    ("Comparison", "plot"): f"{_VIEWS}.timing.plot:plot",
    ("Comparison", "explore"): f"{_VIEWS}.widgets.explorers:ComparisonExplorer",
    ("Counts", "flamegraph"): f"{_VIEWS}.counting.call_flame:flamegraph",
    ("CountsDiff", "explore"): f"{_VIEWS}.widgets.counts_explorer:CountsExplorer",
    ("CountsDiff", "flamegraph"): f"{_VIEWS}.counting.call_flame:of_diff",
    ("CountsDiff", "facts"): f"{_VIEWS}.json_forms.others:facts_of_counts",
    ("CountsDiff", "document"): f"{_VIEWS}.counting.counts:document",
    ("Diagnosis", "document"): f"{_VIEWS}.diagnosis:document",
    ("Diagnosis", "facts"): f"{_VIEWS}.json_forms.others:facts_of_diagnosis",
    ("Diagnosis", "under"): f"{_VIEWS}.diagnosis:under",
    ("Diagnosis", "explore"): f"{_VIEWS}.widgets.explorers:DiagnosisExplorer",
    ("ProfileDiff", "explore"): f"{_VIEWS}.widgets.explorers:ProfileDiffExplorer",
    ("ProfileDiff", "facts"): f"{_VIEWS}.json_forms.profiles:facts_of_diff",
    ("ProfileDiff", "document"): f"{_VIEWS}.profiling.profile_diff:document",
    ("Profile", "document"): f"{_VIEWS}.profiling.profile:document",
    ("Profile", "facts"): f"{_VIEWS}.json_forms.profiles:facts",
    ("Profile", "under"): f"{_VIEWS}.profiling.memory:documents",
    ("Profile", "table"): f"{_VIEWS}.torch_forms.op_table:table",
    ("Profile", "plot"): f"{_VIEWS}.profiling.pictures.plot_profile:plot",
    ("Profile", "flamegraph"): f"{_VIEWS}.profiling.pictures.profile_flame:flamegraph",
    ("Profile", "explore"): f"{_VIEWS}.widgets.explorers:ProfileExplorer",
    ("RankProfile", "document"): f"{_VIEWS}.ranks.rank_document:document",
    ("RankProfile", "facts"): f"{_VIEWS}.json_forms.others:facts_of_ranks",
    ("RankProfile", "explore"): f"{_VIEWS}.widgets.explorers:RankExplorer",
    ("Profile", "timeline"): f"{_VIEWS}.profiling.pictures.timeline:timeline",
}

OF_EVERY: dict[str, str] = {
    "repr": f"{_VIEWS}.carriers.any_result:to_text",
    "mimebundle": f"{_VIEWS}.carriers.any_result:mimebundle",
    "to_markdown": f"{_VIEWS}.carriers.any_result:to_markdown",
    "to_html": f"{_VIEWS}.carriers.any_result:to_html",
    "framed": f"{_VIEWS}.carriers.any_result:framed",
    "to_json": f"{_VIEWS}.json_forms.envelope:to_json",
}
"""What all results that have a document show of themselves alike."""

HANDED_ON: dict[tuple[str, str], str] = {
    ("Comparison", "rebase"): f"{_RESULTS}.timing.across_runs.side_by_side:rebase",
    ("Comparison", "save"): f"{_RESULTS}.storage.store:save",
    ("Insight", "try_"): f"{_CORE}.levers.insight_trial:try_insight",
    ("Profile", "export_trace"): f"{_RESULTS}.storage.chrome_trace:write_chrome_trace",
    ("Profile", "insights"): f"{_RESULTS}.profiling.insights.found:insights_of",
    ("Profile", "peak_parts"): f"{_RESULTS}.profiling.insights.of_memory.peak_parts:peak_parts",
    ("Profile", "save"): f"{_RESULTS}.storage.store:save",
    ("RankProfile", "insights"): f"{_RESULTS}.ranks.rank_insights:rank_insights",
    ("RankProfile", "save"): f"{_RESULTS}.storage.store:save",
    ("RankProfile", "merged_trace"): f"{_CORE}.ranks.merging:write_merged_trace",
}


def show(result: object, verb: str, **options: Any) -> Any:
    """Call the view function that shows ``verb`` of ``result``."""
    return _call(TABLE.get((type(result).__name__, verb)) or OF_EVERY[verb], result, options)


def hand_on(result: object, verb: str, **options: Any) -> Any:
    """Call the function that does ``verb`` with ``result``: one of a module that is made of such results."""
    return _call(HANDED_ON[type(result).__name__, verb], result, options)


def _call(target: str, result: object, options: dict[str, Any]) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)(result, **options)
