"""The live form of a result: ipywidgets controls round the same table, where Python must answer.

The table is an anywidget that mounts ``static/table.js``, the module of the inline output. What is chosen there is
readable in Python: ``w.selection`` (and ``w.rows``, the selected rows of the result's own table) can be observed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import anywidget
import ipywidgets
import pandas as pd
import traitlets

from torchbench_magic.results.machine.diagnosis import Diagnosis
from torchbench_magic.results.profiling.profile import Profile
from torchbench_magic.results.profiling.profile_diff import ProfileDiff
from torchbench_magic.results.ranks.rank_profiles import RankProfile
from torchbench_magic.results.timing.comparison import Comparison

from .. import diagnosis as diagnosis_view
from ..carriers import document_json
from ..carriers.any_result import bundle
from ..carriers.kept_output import CONTROLS, LIVE, WITHOUT_KERNEL, Lasting
from ..carriers.page_modules import es_module, self_unpacking
from ..carriers.result_boxes import box_class
from ..document import Document, printable
from ..drawing import flame
from ..frame_rows import frame_rows
from ..profiling import profile as profile_view
from ..profiling import profile_diff
from ..profiling.grouping import GROUPINGS
from ..profiling.insight_lines import insights_table
from ..profiling.operations import sort_column
from ..profiling.pictures import profile_flame
from ..profiling.place_names import place
from ..ranks import rank_document
from ..timing import comparison as comparison_view
from .cure_trials import CureTrials, first_by_lever

__all__ = [
    "ComparisonExplorer",
    "DiagnosisExplorer",
    "Explorer",
    "ProfileDiffExplorer",
    "ProfileExplorer",
    "RankExplorer",
    "TableExplorer",
    "TableWidget",
]

MOST_ROWS = 5000  # of one table that travel to the browser
MOST_FRAMES = 50_000
_COMPARES = re.compile("[<>=~]")


class TableWidget(anywidget.AnyWidget):
    """A document drawn by ``static/table.js``.

    Attributes:
        state: what the reader chose: sort, view, axis, selection.
        answers: there is something to ask Python for, so the browser may say that it does not answer. Not while a
            cell measures: then Python is busy as a rule.
    """

    _esm = self_unpacking(es_module("widget"))
    _css = WITHOUT_KERNEL
    spec = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)
    answers = traitlets.Bool(False).tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(self._answer)

    def _answer(self, _: Any, content: Any, __: Any) -> None:
        """Say that there is a kernel; what was asked for before has been done."""
        if isinstance(content, dict) and content.get("type") == "asked":
            self.send({"type": "here"})


class FlameWidget(anywidget.AnyWidget):
    """A flame graph drawn by ``static/flame.js``. ``state`` is what the reader chose: width, order, zoom, selection."""

    _esm = self_unpacking(flame.module())
    _css = WITHOUT_KERNEL
    spec = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)


class TableExplorer(Lasting, ipywidgets.VBox):
    """Controls, and the ``table`` of a ``document`` in which rows are selected: ``selection`` has their keys."""

    selection = traitlets.Tuple()
    document: Document
    table: TableWidget

    def __init__(self, controls: Sequence[ipywidgets.Widget]) -> None:
        for control in controls:
            control.add_class(CONTROLS)
        super().__init__([*controls, self.table])
        self.add_class(LIVE)

    def _choose(self, change: Any) -> None:
        tables = change["new"].get("tables", {})
        self.selection = tuple(key for state in tables.values() for key in self._keys(state.get("selected") or []))

    def _keys(self, keys: list[str]) -> list[Any]:
        return list(keys)

    def _drawn(self) -> ipywidgets.DOMWidget:
        return self.table

    def _still(self) -> dict[str, str]:
        return bundle(self.document)


class Explorer(TableExplorer):
    """Controls and a table over one result.

    Attributes:
        result: what is shown now.
        document: the same, as any carrier could draw it.
        table: the anywidget.
        selection: keys of the selected rows, a tuple: positions in ``.frame`` of a comparison; of a profile
            ``In[3]:4`` for lines, names for operations.
    """

    _UNCUT: ClassVar[frozenset[str]] = frozenset()  # tables that the row limit leaves whole

    def __init__(self, result: Any, controls: Sequence[ipywidgets.Widget] = ()) -> None:
        self.result = result
        self.pattern = ipywidgets.Text(placeholder="filter, regex", layout=ipywidgets.Layout(width="220px"))
        self.row_limit = ipywidgets.BoundedIntText(
            0, min=0, max=10**6, description="rows", layout=ipywidgets.Layout(width="150px")
        )
        self.row_limit.tooltip = "rows per table; 0: no limit"
        self.message = ipywidgets.Label()
        self._matcher: re.Pattern[str] | None = None
        self._compared = ""
        self.table = TableWidget(answers=True)
        self._refresh()
        self.pattern.observe(self._search, "value")
        for control in (*controls, self.row_limit):
            control.observe(self._refresh, "value")
        self.table.observe(self._choose, "state")
        super().__init__([ipywidgets.HBox([*controls, self.pattern, self.row_limit, self.message])])

    @property
    def rows(self) -> pd.DataFrame:
        """The selected rows of the result's own table."""
        raise NotImplementedError

    def _build(self) -> Document:
        raise NotImplementedError

    def _draw(self) -> Document:
        document = self._build()
        tables = document.tables
        if self._matcher is not None:
            tables = tuple(table.filtered(self._matcher) for table in tables)
        if self.row_limit.value:
            limit, where = self.row_limit.value, document.where
            tables = tuple(table if table.name in self._UNCUT else table.head(limit, where) for table in tables)
        return replace(document, tables=tables, drawn=())  # the widget has its own pictures

    def _refresh(self, _: Any = None) -> None:
        self.document = self._draw()
        compared = {"filter": self._compared} if self._compared else {}
        self.table.spec = document_json.as_dict(self.document, MOST_ROWS) | compared

    def _search(self, change: Any) -> None:
        """Filter by a regular expression; one that is not usable keeps the last view and says why. A filter that may
        compare numbers is the table's own, in the browser, which has their units."""
        self._compared = change["new"] if _COMPARES.search(change["new"]) else ""
        if self._compared:
            self._matcher, self.message.value = None, ""
            self._refresh()
            return
        try:
            self._matcher = re.compile(change["new"], re.IGNORECASE) if change["new"] else None
        except re.error as error:
            self.message.value = printable(f"not a usable pattern: {error}")
            return
        self.message.value = ""
        self._refresh()


class ComparisonExplorer(Explorer):
    """Choose the baseline and the time that is shown."""

    result: Comparison

    def __init__(self, comparison: Comparison) -> None:
        names = list(dict.fromkeys(s.description for s in comparison.subjects if s.description is not None))
        self._given = comparison
        self.baseline = ipywidgets.Dropdown(
            options=[(printable(name), name) for name in names or ["-"]],
            value=comparison.baseline if comparison.baseline in names else (names or ["-"])[0],
            description="baseline",
            disabled=len(names) < 2,
        )
        metrics = [(header, name) for name, header in comparison_view.METRICS.items()]
        self.metric = ipywidgets.Dropdown(options=metrics, description="metric")
        super().__init__(comparison, [self.baseline, self.metric])

    @property
    def rows(self) -> pd.DataFrame:
        return self.result.frame.iloc[list(self.selection)]

    def _build(self) -> Document:
        if not self.baseline.disabled:
            self.result = self._given.rebase(self.baseline.value)
        return comparison_view.document(self.result, metric=self.metric.value)

    def _keys(self, keys: list[str]) -> list[Any]:
        return [int(key) for key in keys]


class ProfileExplorer(Explorer):
    """Choose what the operations are sorted and grouped by, at first as it is given; flame graph and timeline beneath.

    What is chosen in one of them is shown by the others.

    Attributes:
        trials: buttons that try the cures of ``result.insights``; there where a cure can be tried without a change of
            the code.
    """

    result: Profile
    _UNCUT = frozenset({"lines", "insights"})  # a source is read whole; the limit is of the operations, as ``-l`` is
    _METRICS: ClassVar[dict[str, str]] = {
        "self time": "self_cpu_time",
        "total time": "cpu_time",
        "calls": "calls",
        "allocated": "allocated",
        "device time": "self_device_time",
    }

    def __init__(
        self,
        profile: Profile,
        sort_by: str | None = None,
        row_limit: int | None = None,
        group_by: str | None = None,
    ) -> None:
        metrics = [(word, name) for word, name in self._METRICS.items() if profile.ops[name].notna().any()]
        self.metric = ipywidgets.Dropdown(options=metrics or [("self time", "self_cpu_time")], description="metric")
        if sort_by is not None and sort_column(sort_by) in [name for _, name in self.metric.options]:
            self.metric.value = sort_column(sort_by)
        known = [each for each in GROUPINGS if each != "shape" or profile.options.shapes]
        self._is_asked = group_by is not None
        chosen = group_by if group_by is not None else "op"
        self.group_by = ipywidgets.Dropdown(
            options=list(dict.fromkeys([chosen, *known])), value=chosen, description="group by"
        )
        super().__init__(profile, [self.metric, self.group_by])
        self.row_limit.value = max(row_limit or 0, 0)
        self.add_class(box_class(profile))
        if first_by_lever(profile.insights):
            self.trials = CureTrials(profile.insights, TableWidget)
            self.children: tuple[ipywidgets.Widget, ...] = (*self.children, self.trials)
        self._add_pictures(profile)

    def _add_pictures(self, profile: Profile) -> None:
        """Flame graph and timeline, folded away until they are asked for."""
        pictures: dict[str, ipywidgets.Widget] = {}
        graph = profile_flame.graph_of(profile)
        if graph is not None:
            self.flame = FlameWidget(spec=flame.spec_of(graph.largest(MOST_FRAMES)))
            pictures["flame graph"] = self.flame
        if profile.trace is not None and len(profile.trace):
            self.timeline = profile.timeline().explore()
            pictures["timeline"] = self.timeline
        if pictures:
            folded = ipywidgets.Accordion([*pictures.values()], titles=tuple(pictures), selected_index=None)
            self.children = (*self.children, folded)

    @property
    def rows(self) -> pd.DataFrame:
        """Rows of ``.lines`` whose place is selected; of ``.ops`` where operations are."""
        lines, ops = self.result.lines, self.result.ops
        places = [place(*where) for where in zip(lines["cell"], lines["file"], lines["line"], strict=True)]
        on_lines = lines[pd.Series(places, index=lines.index, dtype=object).isin(self.selection)]
        return on_lines if len(on_lines) else ops[ops["op"].isin(self.selection)]

    def _build(self) -> Document:
        limit = self.row_limit.value or -1
        drawn = profile_view.document(
            self.result,
            sort_by=self.metric.value,
            row_limit=limit,
            group_by=self.group_by.value,
            operations_first=self._is_asked,  # tables keep their places when another grouping is chosen
            most_rest=None,
        )
        insights = insights_table(self.result.insights)
        return drawn if insights is None else replace(drawn, tables=(*drawn.tables, insights))


class ProfileDiffExplorer(Explorer):
    """Filter the lines and operations of two profiles; ``rows`` are those of ``.lines`` or ``.ops`` selected."""

    result: ProfileDiff

    @property
    def rows(self) -> pd.DataFrame:
        """Rows of ``.lines`` whose place is selected; of ``.ops`` where operations are."""
        lines, ops = self.result.lines, self.result.ops
        chosen = [profile_diff.place_in_other(self.result, row) in self.selection for row in frame_rows(lines)]
        return lines[chosen] if any(chosen) else ops[ops["op"].isin(self.selection)]

    def _build(self) -> Document:
        return profile_diff.document(self.result)


class DiagnosisExplorer(Explorer):
    """Filter what the doctor found; ``rows`` are those of ``.frame`` selected."""

    result: Diagnosis

    @property
    def rows(self) -> pd.DataFrame:
        frame = self.result.frame
        return frame[frame["kind"].isin(self.selection)]

    def _build(self) -> Document:
        return diagnosis_view.whole(self.result)


class RankExplorer(Explorer):
    """Filter ranks and operations; ``rows`` are those of ``.ranks`` selected."""

    result: RankProfile

    @property
    def rows(self) -> pd.DataFrame:
        ranks = self.result.ranks
        return ranks[[f"rank {rank}" in self.selection for rank in ranks["rank"]]]

    def _build(self) -> Document:
        return rank_document.document(self.result)
