"""The live form of a difference of counts: every change is a chip that can be taken back, and Python holds the state.

What is chosen is in traits that can be observed: ``steps``, ``by``, ``inclusive``, ``pattern``, ``selection``. The
controls only show them, so a program can set them too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ipywidgets
import pandas as pd
import traitlets

from torchbench_magic import units
from torchbench_magic.errors import InputError
from torchbench_magic.results.counting.differences import BY, CountsDiff, Total, difference
from torchbench_magic.results.timing.counted_rows import diff_of, names_of_pair

from ..carriers import document_json
from ..counting import counts
from ..counting.callers_and_callees import neighbours_table
from ..counting.exploration import Step, after
from ..counting.patterns import replaced
from ..document import clipped, printable
from ..table import Table
from .explorers import MOST_ROWS, TableExplorer, TableWidget

__all__ = ["CountsExplorer"]

_STANDARD = Step("standardize")
_BY_WORDS = {"place": "file: function", "function": "function", "file": "file", "library": "library"}
_WRAP = ipywidgets.Layout(display="flex", flex_flow="row wrap", align_items="center", grid_gap="2px 8px")


class CountsExplorer(TableExplorer):
    """Controls and a table over one difference.

    Attributes:
        steps: what was done to the names and rows, in order; see `exploration.Step`.
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
        """The selected rows of ``result.frame``."""
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
        self.document = counts.document(self.result, rows=MOST_ROWS, least=1e-12, detail=self._detail)
        self.table.spec = document_json.as_dict(self.document, MOST_ROWS) | {"opened": list(self.selection[-1:])}
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
        return neighbours_table(self.result, name)

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
        self._own = [(step, had.get(id(step)) or self._chip_of(step)) for step in self.steps]
        own = [button for _, button in self._own]
        undo = self._undo_buttons if self.steps else []
        applied = [ipywidgets.Label("applied")] if fixed or own else []
        self._chips.children = (*applied, *fixed, *own, *undo, self.status)

    def _chip_of(self, step: Step) -> ipywidgets.Button:
        return _chip(f"{step.words}  ×", partial(self._take_back, step))


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
