"""The live form of a result: ipywidgets controls round the same table, counts, and buttons that try a cure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any, ClassVar

import anywidget
import ipywidgets
import pandas as pd
import traitlets

from torchbench_magic import units
from torchbench_magic.cluster.job_profile import RankProfile
from torchbench_magic.counting import view as counting_view
from torchbench_magic.counting.diff import BY, CountsDiff, Total, difference
from torchbench_magic.counting.view import Step, after, replaced
from torchbench_magic.errors import InputError, Interrupted, TorchBenchError
from torchbench_magic.printable import printable
from torchbench_magic.process.interrupts import interrupts_held, interrupts_let_through
from torchbench_magic.process.output import CountingSink, dropped_output
from torchbench_magic.profiling import diff_view
from torchbench_magic.profiling import view as profiling_view
from torchbench_magic.profiling.diff import ProfileDiff
from torchbench_magic.profiling.lines_view import insights_table
from torchbench_magic.profiling.ops_view import GROUPINGS, place, sort_column
from torchbench_magic.profiling.pictures import profile_flame
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import Insight, show
from torchbench_magic.show import flame, page_data
from torchbench_magic.show.document import Document, clipped
from torchbench_magic.show.html import box_class
from torchbench_magic.show.javascript import es_module, self_unpacking
from torchbench_magic.show.kept_output import CONTROLS, LIVE, WITHOUT_KERNEL, Lasting
from torchbench_magic.show.renderers import bundle
from torchbench_magic.show.table import Table, frame_rows
from torchbench_magic.tdoctor.findings import Diagnosis
from torchbench_magic.tdoctor.view import whole
from torchbench_magic.timing import view as timing_view
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.counted_rows import diff_of, names_of_pair

# ---- cure_trials -----------------------------------------------------------------------------------------------------
# Buttons that try the cures of a profile's insights on the profiled cell, and the comparison under them.
#
# Front ends that have subshells send a click to a thread of its own, while a cell may be running. The trial is handed
# to the loop of the main thread, so it waits until that cell has ended and is measured alone.

_WRAP = ipywidgets.Layout(display="flex", flex_flow="row wrap", align_items="center", grid_gap="2px 8px")
_TOOLTIP = "Runs the code of the profiled cell many times, as it is and with this cure. What it changes is put back."


def first_by_lever(insights: Sequence[Insight]) -> dict[str, Insight]:
    """Each lever that some cure names, with the insight that has the most at stake of it."""
    found: dict[str, Insight] = {}
    for insight in insights:
        for lever in insight.levers if insight.body else ():
            found.setdefault(lever, insight)
    return found


class CureTrials(ipywidgets.VBox):
    """One button per lever.

    Args:
        insights: those of the profile, most at stake first.
        table: makes the widget in which a comparison is drawn.

    Attributes:
        buttons: by lever.
        comparison: of the last trial; None before the first.
        status: what is under way, or why a trial could not be made.
    """

    comparison = traitlets.Instance(Comparison, allow_none=True)

    def __init__(self, insights: Sequence[Insight], table: Callable[[], Any]) -> None:
        self._table, self._loop = table, _main_loop()
        self.status = ipywidgets.Label()
        self.buttons = {lever: self._button(lever, insight) for lever, insight in first_by_lever(insights).items()}
        question = ipywidgets.Label("Try a cure on this cell:")
        self._row = ipywidgets.Box([question, *self.buttons.values()], layout=_WRAP)
        self._row.add_class(CONTROLS)
        self._drawn: ipywidgets.Widget | None = None
        self._say("")
        super().__init__([self._row, self.status])

    def _button(self, lever: str, insight: Insight) -> ipywidgets.Button:
        made = ipywidgets.Button(description=lever, tooltip=_TOOLTIP, layout=ipywidgets.Layout(width="auto"))
        made.on_click(lambda _: self._asked(lever, insight))
        return made

    def _asked(self, lever: str, insight: Insight) -> None:
        """In whatever thread the click arrives."""
        if any(button.disabled for button in self.buttons.values()):
            return
        self._switch(off=True)
        self._say(f"Trying {lever}. A running cell ends first.")
        if self._loop is None or threading.current_thread() is threading.main_thread():
            self._try(lever, insight)
        else:
            self._loop.call_soon_threadsafe(self._try, lever, insight)

    def _try(self, lever: str, insight: Insight) -> None:
        """In the main thread: what the code prints was seen when it was profiled, and is not shown again."""
        said = ""
        made: object = None
        try:
            with interrupts_held(), dropped_output(CountingSink()), interrupts_let_through():
                made = insight.try_(lever)
        except Interrupted as stopped:
            said, made = f"{lever}: interrupted; this is what was measured until then.", stopped.partial
        except KeyboardInterrupt:
            said = f"{lever}: interrupted before anything was measured."
        except TorchBenchError as error:
            said = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the user's own, of whatever kind
            said = f"{lever}: the code raised {type(error).__name__}: {error}"
        finally:
            self._switch(off=False)
        self._say(clipped(printable(said), 300))
        if isinstance(made, Comparison):
            self._show(made)

    def _show(self, made: Comparison) -> None:
        drawn = self._table()
        drawn.spec = page_data.as_dict(timing_view.document(made))
        if self._drawn is not None:
            self._drawn.close()
        self._drawn = drawn
        self.children: tuple[ipywidgets.Widget, ...] = (self._row, self.status, drawn)
        self.comparison = made

    def _say(self, text: str) -> None:
        self.status.value, self.status.layout.display = text, None if text else "none"

    def _switch(self, *, off: bool) -> None:
        for button in self.buttons.values():
            button.disabled = off


def _main_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that the kernel's main thread comes back to after a cell; None where there is none."""
    if threading.current_thread() is not threading.main_thread():
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# ---- explorers -------------------------------------------------------------------------------------------------------
# The table is an anywidget that mounts ``static/table.js``, the module of the inline output. What is chosen there is
# readable in Python: ``w.selection`` (and ``w.rows``, the selected rows of the result's own table) can be observed.

MOST_ROWS = 5000  # of one table that travel to the browser
MOST_FRAMES = 50_000


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
        self.row_limit = ipywidgets.BoundedIntText(
            0, min=0, max=10**6, description="rows", layout=ipywidgets.Layout(width="150px")
        )
        self.row_limit.tooltip = "rows per table; 0: no limit"
        self.table = TableWidget(answers=True)
        self._refresh()
        for control in (*controls, self.row_limit):
            control.observe(self._refresh, "value")
        self.table.observe(self._choose, "state")
        super().__init__([ipywidgets.HBox([*controls, self.row_limit])])

    @property
    def rows(self) -> pd.DataFrame:
        """The selected rows of the result's own table."""
        raise NotImplementedError

    def _build(self) -> Document:
        return show(self.result, "document")

    def _draw(self) -> Document:
        document = self._build()
        tables = document.tables
        if self.row_limit.value:
            limit, where = self.row_limit.value, document.where
            tables = tuple(table if table.name in self._UNCUT else table.head(limit, where) for table in tables)
        return replace(document, tables=tables, drawn=())  # the widget has its own pictures

    def _refresh(self, _: Any = None) -> None:
        self.document = self._draw()
        self.table.spec = page_data.as_dict(self.document, MOST_ROWS)


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
        metrics = [(header, name) for name, header in timing_view.METRICS.items()]
        self.metric = ipywidgets.Dropdown(options=metrics, description="metric")
        super().__init__(comparison, [self.baseline, self.metric])

    @property
    def rows(self) -> pd.DataFrame:
        return self.result.frame.iloc[list(self.selection)]

    def _build(self) -> Document:
        if not self.baseline.disabled:
            self.result = self._given.rebase(self.baseline.value)
        return timing_view.document(self.result, metric=self.metric.value)

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
        drawn = profiling_view.document(
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
    """The lines and operations of two profiles; ``rows`` are those of ``.lines`` or ``.ops`` selected."""

    result: ProfileDiff

    @property
    def rows(self) -> pd.DataFrame:
        lines, ops = self.result.lines, self.result.ops
        chosen = [diff_view.place_in_other(self.result, row) in self.selection for row in frame_rows(lines)]
        return lines[chosen] if any(chosen) else ops[ops["op"].isin(self.selection)]


class DiagnosisExplorer(Explorer):
    """What the doctor found; ``rows`` are those of ``.frame`` selected."""

    result: Diagnosis

    @property
    def rows(self) -> pd.DataFrame:
        frame = self.result.frame
        return frame[frame["kind"].isin(self.selection)]

    def _build(self) -> Document:
        return whole(self.result)


class RankExplorer(Explorer):
    """Ranks and operations; ``rows`` are those of ``.ranks`` selected."""

    result: RankProfile

    @property
    def rows(self) -> pd.DataFrame:
        ranks = self.result.ranks
        return ranks[[f"rank {rank}" in self.selection for rank in ranks["rank"]]]


# ---- counts_explorer -------------------------------------------------------------------------------------------------
# The live form of a difference of counts: every change is a chip that can be taken back, and Python holds the state.
#
# What is chosen is in traits that can be observed: ``steps``, ``by``, ``inclusive``, ``pattern``, ``selection``. The
# controls only show them, so a program can set them too.

_STANDARD = Step("standardize")
_BY_WORDS = {"place": "file: function", "function": "function", "file": "file", "library": "library"}


class CountsExplorer(TableExplorer):
    """Controls and a table over one difference.

    Attributes:
        steps: what was done to the names and rows, in order; see `Step`.
        by: what rows are added up by: ``place`` (file and function), ``function``, ``file`` or ``library``.
        inclusive: count each function with those it calls.
        pattern: a regular expression; only functions it is found in are shown and added up.
        alternative: position among the differences that the comparison has.
        selection: whole names of the selected rows.
        result: the difference after all of that; document, table: as it is shown.
    """

    steps = traitlets.Tuple()
    by = traitlets.Enum(BY, default_value="place")
    inclusive = traitlets.Bool(False)
    pattern = traitlets.Unicode("")
    alternative = traitlets.Int(0)

    def __init__(self, diff: CountsDiff) -> None:
        self._given = diff
        # What was done to it outside cannot be done again to other counts.
        self._pairs = diff.pairs if not diff.applied and diff.keys in diff.pairs else ()
        self.table = TableWidget(answers=True)
        self._good: dict[str, Any] = {}
        self._make_controls()
        self.steps = (_STANDARD,) if not diff.applied else ()
        self.inclusive = diff.inclusive
        if self._pairs and diff.keys is not None:
            self.alternative = self._pairs.index(diff.keys)
        self._redo()
        self.observe(self._redo, ["steps", "by", "inclusive", "pattern", "alternative"])
        self.table.observe(self._choose, "state")
        self.observe(self._open, "selection")
        super().__init__([self._first, self._second, self._chips])

    # ---- what is there ----------------------------------------------------------------------------------------

    @property
    def rows(self) -> pd.DataFrame:
        frame = self.result.frame
        chosen = set(self.selection)
        return frame[[name in chosen for name in self.result.functions]]

    @property
    def total(self) -> Total:
        """Sums over what is shown now, instructions per call."""
        return self.result.total

    def callers(self) -> pd.DataFrame:
        """Callers of the selected function, as ``CountsDiff.callers``."""
        return self.result.callers(self._one_selected())

    def callees(self) -> pd.DataFrame:
        """What the selected function calls, as ``CountsDiff.callees``."""
        return self.result.callees(self._one_selected())

    def _one_selected(self) -> str:
        if len(self.selection) != 1:
            raise InputError("click a row to select a function")
        return str(self.selection[0])

    # ---- changes ----------------------------------------------------------------------------------------------

    def transform(self, pattern: str, to: str = "") -> None:
        """Replace what a regular expression matches in the names; rows that get one name are added up."""
        self.steps = (*self.steps, Step("transform", pattern, to))

    def keep(self, pattern: str) -> None:
        """Leave out the functions in whose names a regular expression is not found."""
        self.steps = (*self.steps, Step("filter", pattern))

    def undo(self, position: int = -1) -> None:
        """Take one step back, the last one or another."""
        left = list(self.steps)
        if left:
            del left[position]
            self.steps = tuple(left)

    def _take_back(self, step: Step) -> None:
        """This one step, wherever it stands by now; a second click on a chip that is about to go does nothing."""
        self.steps = tuple(one for one in self.steps if one is not step)

    def undo_all(self) -> None:
        """Take all steps back."""
        self.steps = ()

    def _base(self, alternative: int, inclusive: bool) -> CountsDiff:
        given = self._given
        if given.applied or given.sides is None:
            return given
        if not self._pairs or given.source is None:
            return difference(*given.sides, given.names, inclusive=inclusive, form=given.form)
        base, other = self._pairs[alternative]
        return diff_of(given.source, self._pairs, other, base, inclusive)

    def _redo(self, _: Any = None) -> None:
        """Do everything again; what cannot be done leaves the last view, and the message says why."""
        wanted = {name: getattr(self, name) for name in ("steps", "by", "inclusive", "pattern", "alternative")}
        if wanted == self._good:
            self.message.value = ""
            return
        try:
            result = after(self._base(self.alternative, self.inclusive), self.steps)
            if self.pattern:
                result = Step("filter", self.pattern).applied(result)
            result = result.group_by(self.by)
        except (InputError, IndexError) as error:
            with self.hold_trait_notifications():
                for name, value in self._good.items():
                    if name != "pattern":  # it is still being typed
                        setattr(self, name, value)
            self.message.value = str(error)
            return
        self._good, self.result = wanted, result
        self.message.value = ""
        kept = tuple(name for name in self.selection if name in set(result.functions))
        if kept != self.selection:
            self.selection = kept
        self._show()

    # ---- shown ------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        self.document = counting_view.document(self.result, rows=MOST_ROWS, least=1e-12, detail=self._detail)
        drawn = page_data.as_dict(self.document, MOST_ROWS)
        self.table.spec = drawn | {"opened": list(self.selection[-1:]), "unfiltered": True}  # Python has a filter
        frame, total = self.result.frame, self.result.total
        differ = int((frame["delta"].abs() >= 0.5).sum())
        count = units.number(total.delta, units.Scale(places=0), digits=None, signed=True)
        of = "" if self.result.inclusive else f"; their sum differs by {count}"
        functions = f"{units.count(len(frame)) if len(frame) else 'no'} function{'' if len(frame) == 1 else 's'}"
        self.status.value = f"{functions}, {differ} differ{'s' if differ == 1 else ''}{of}"
        for toggle, kind in ((self.standardize_box, "standardize"), (self.denoise_box, "denoise")):
            toggle.value = any(step.kind == kind for step in self.steps)
        self._draw_chips()

    def _detail(self, name: str) -> Table | None:
        if not self.result.has_calls or self.selection[-1:] != (name,):
            return None
        return counting_view.neighbours_table(self.result, name)

    def _open(self, _: Any) -> None:
        if self._good:
            self._show()

    def _make_controls(self) -> None:
        narrow, wide = ipywidgets.Layout(width="120px"), ipywidgets.Layout(width="170px")
        self.filter_text = ipywidgets.Text(placeholder="filter, regex", layout=wide)
        self.keep_button = _button("keep", lambda: self._from_text(self.keep, self.filter_text))
        self.find_text = ipywidgets.Text(placeholder="transform, regex", layout=wide)
        self.to_text = ipywidgets.Text(placeholder="replacement (empty: delete)", layout=narrow)
        self.add_button = _button("add", self._add)
        names = [printable(names_of_pair(pair)[1]) for pair in self._pairs] or [printable(self._given.names[1])]
        options = [
            (clipped(f"{at + 1}: {name}", 40) if names.count(name) > 1 else clipped(name, 40), at)
            for at, name in enumerate(names)
        ]
        self.alternative_list = ipywidgets.Dropdown(
            options=options, description="alternative", disabled=len(names) < 2, layout=ipywidgets.Layout(width="230px")
        )
        self.by_list = ipywidgets.Dropdown(
            options=[(word, by) for by, word in _BY_WORDS.items()],
            description="rows by",
            layout=ipywidgets.Layout(width="210px"),
        )
        self.standardize_box = _checkbox("standardize")
        self.denoise_box = _checkbox("denoise")
        self.inclusive_box = _checkbox("inclusive")
        self.inclusive_box.disabled = bool(self._given.applied)
        self.message, self.status = ipywidgets.Label(), ipywidgets.Label()
        traitlets.link((self, "pattern"), (self.filter_text, "value"))
        traitlets.link((self, "by"), (self.by_list, "value"))
        traitlets.link((self, "inclusive"), (self.inclusive_box, "value"))
        traitlets.link((self, "alternative"), (self.alternative_list, "value"))
        self.standardize_box.observe(lambda change: self._toggle("standardize", change["new"]), "value")
        self.denoise_box.observe(lambda change: self._toggle("denoise", change["new"]), "value")
        self.find_text.observe(self._preview, "value")
        for field in (self.find_text, self.to_text):
            field.on_msg(lambda _, content, __: self._add() if content.get("event") == "submit" else None)
        boxes = [self.standardize_box, self.denoise_box, self.inclusive_box]
        patterns = [self.filter_text, self.keep_button, self.find_text, self.to_text, self.add_button]
        self._first = ipywidgets.Box([self.alternative_list, self.by_list, *boxes], layout=_WRAP)
        self._second = ipywidgets.Box([*patterns, self.message], layout=_WRAP)
        self._chips = ipywidgets.Box(layout=_WRAP)
        self._own: list[tuple[Step, ipywidgets.Button]] = []
        self._undo_buttons = [_button("undo", self.undo), _button("undo all", self.undo_all)]

    def _from_text(self, change: Callable[[str], None], text: ipywidgets.Text) -> None:
        pattern = text.value
        if pattern:
            text.value = ""
            change(pattern)

    def _preview(self, change: Any) -> None:
        """While a transform is typed, how many names it would change."""
        self.message.value = ""
        if change["new"]:
            names = self.result.functions
            try:
                hit = sum(old != new for old, new in zip(names, replaced(change["new"], "\0", names), strict=True))
            except InputError as error:
                self.message.value = str(error)
            else:
                self.message.value = f"changes {hit} of {units.count(len(names)) if names else 'no'} names"

    def _add(self) -> None:
        if self.find_text.value:
            before = self.steps
            self.transform(self.find_text.value, self.to_text.value)
            if self.steps != before:
                self.find_text.value = self.to_text.value = ""

    def _toggle(self, kind: Any, on: bool) -> None:
        there = [step for step in self.steps if step.kind == kind]
        if on and not there:
            self.steps = (*self.steps, Step(kind))
        elif there and not on:
            self.steps = tuple(step for step in self.steps if step.kind != kind)

    def _draw_chips(self) -> None:
        fixed = [_chip(clipped(words, 40)) for words in self._given.applied]
        # One button for a step as long as it is there: who clicks while the row is drawn anew hits what he reads.
        had = {id(step): button for step, button in self._own}
        made = lambda step: _chip(f"{step.words}  ×", partial(self._take_back, step))
        self._own = [(step, had.get(id(step)) or made(step)) for step in self.steps]
        own = [button for _, button in self._own]
        undo = self._undo_buttons if self.steps else []
        applied = [ipywidgets.Label("applied")] if fixed or own else []
        self._chips.children = (*applied, *fixed, *own, *undo, self.status)

def _button(words: str, act: Callable[[], None]) -> ipywidgets.Button:
    made = ipywidgets.Button(description=words, layout=ipywidgets.Layout(width="auto"))
    made.on_click(lambda _: act())
    return made


def _chip(words: str, act: Callable[[], None] | None = None) -> ipywidgets.Button:
    layout = ipywidgets.Layout(width="auto", height="24px")
    made = ipywidgets.Button(description=printable(words), layout=layout, disabled=act is None)
    if act is not None:
        made.tooltip = "undo this"
        made.on_click(lambda _: act())
    return made


def _checkbox(words: str) -> ipywidgets.Checkbox:
    return ipywidgets.Checkbox(description=words, indent=False, layout=ipywidgets.Layout(width="auto"))


# ---- live ------------------------------------------------------------------------------------------------------------
# A measurement while it runs: the line with the time and Stop, and under it the table as far as it is known.
#
# It is a widget, for Stop must reach Python while the cell is busy. That works where the front end sends comm messages
# over a subshell of the kernel (JupyterLab 4.4 and ipykernel 7 do): there they are handled at once in another thread,
# elsewhere only when the cell has ended. The line in the browser says hello when it is drawn; an answer during the run
# shows that the way is open, and only then Stop is drawn.
#
# Its height is set when it appears and stays: a page that moves while one reads it is worse than some empty room.

_MOST_LIVE_ROWS = 200
_LINE, _ROW = 26, 22  # px: the bar, a row of the table
_AROUND_ROWS = 150  # px: sentence, controls, header, and the footer of the result that takes the place of the view
_MOST_SHOWN = 12  # rows in sight; of more, the others are scrolled to


class LiveBar(anywidget.AnyWidget):
    """The line drawn by ``static/live.js``.

    Attributes:
        what: what is under way.
        done, total: seconds; ``total`` None where it is not known.
        can_stop: the browser's messages are heard while the cell runs.
        stopping: Stop was asked for.
    """

    _esm = files("torchbench_magic.show").joinpath("static/live.js").read_text(encoding="utf-8")
    _css = WITHOUT_KERNEL
    what = traitlets.Unicode().tag(sync=True)
    done = traitlets.Float(0.0).tag(sync=True)
    total = traitlets.Float(None, allow_none=True).tag(sync=True)
    can_stop = traitlets.Bool(False).tag(sync=True)
    stopping = traitlets.Bool(False).tag(sync=True)

    def open(self) -> None:
        super().open()
        self._hear()

    def _send(self, msg: Any, buffers: Any = None) -> None:
        super()._send(msg, buffers)
        self._hear()

    def _hear(self) -> None:
        """Let answers come by the subshell that the front end sends them over.

        ipykernel 7.4 sends what answers a comm to the shell that wrote on it last, here the one that is busy.
        """
        getattr(self.comm, "__dict__", {}).pop("_reply_subshell_id", None)  # no comm: closed, or no kernel


class LiveView(ipywidgets.VBox):
    """The bar and the table. `tell` and `draw` are called by the thread that measures.

    Args:
        rows: those that the table will have; 0 where there will be none.

    Attributes:
        stop_asked: whether the reader pressed Stop. It is set in the thread of the subshell, and only read elsewhere.
    """

    def __init__(self, rows: int = 0) -> None:
        self.stop_asked = False
        self._heard = self._has_table = False
        self.bar = LiveBar()
        self.table = TableWidget()
        self.bar.on_msg(self._on_message)
        height = _LINE + (_AROUND_ROWS + _ROW * min(rows, _MOST_SHOWN) if rows else 0)
        super().__init__([self.bar], layout=ipywidgets.Layout(height=f"{height}px", overflow="hidden auto"))
        self.add_class(LIVE)

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        """In whatever thread the front end's message arrives: only notes it."""
        kind = content.get("type") if isinstance(content, dict) else None
        self._heard = True
        if kind == "stop":
            self.stop_asked = True

    def tell(self, done: float, total: float | None, what: str) -> None:
        """Say how far the run is; seconds."""
        with self.bar.hold_sync():
            self.bar.what, self.bar.done, self.bar.total = printable(what), done, total
            self.bar.can_stop, self.bar.stopping = self._heard, self.stop_asked

    def draw(self, partial: Comparison) -> None:
        """Show what is known; what the reader chose in the table stays."""
        whole_view = timing_view.document(partial)  # its doubts and pictures belong to a whole result
        known = replace(whole_view, doubts=(), footer=(), picture="", drawn=(), folded=False)
        drawn = page_data.as_dict(known, _MOST_LIVE_ROWS)
        self.table.spec = drawn | {"unfiltered": True}  # it is drawn again and again
        if not self._has_table:
            self.children, self._has_table = (self.bar, self.table), True

    def close(self) -> None:
        """Take the models away, so that none stays in a saved notebook."""
        for widget in (self.bar, self.table):
            widget.close()
        super().close()
