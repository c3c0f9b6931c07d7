"""The steps of a training loop, drawn: a strip a step, its phases on top of each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from torchbench_magic import units
from torchbench_magic.results.profiling.loops.phases import PHASES
from torchbench_magic.results.profiling.profile import Profile

from ...drawing.scales import round_ticks
from ...drawing.svg import figure, svg_text, tenths

__all__ = ["step_strips"]

_WIDTH, _HEIGHT = 640, 96  # px
_MOST = 160  # strips: of more steps, neighbours share one
_THINNEST = 0.2  # px: what is thinner is not drawn
_TALLEST = 3.0  # times the median: what goes beyond is cut, and said to be
_HUES = {
    "input": "#d28a1a",
    "transfer": "#2ca184",
    "forward": "#2468b0",
    "loss": "#7a5fb5",
    "backward": "#5b9bd5",
    "optimizer": "#a4527e",
    "zero_grad": "#c9a9bb",
    "other": "#9aa0a6",
}
_STYLE = (  # the colours are those of the live tables round it; elsewhere text is of the colour around it
    "<style>.tb-steps{margin:8px 0;overflow-x:auto}"
    ".tb-steps text{fill:var(--ink2);font:11px var(--ui,sans-serif);font-variant-numeric:tabular-nums}"
    ".tb-steps .ax{stroke:var(--rule1,#7b8087)}.tb-steps .cut{fill:var(--ink0)}"
    ".tb-steps [color]{fill:color-mix(in srgb,currentColor 84%,var(--ink0))}</style>"
)


def step_strips(profile: Profile) -> str:
    """The picture as markup; empty with fewer than two steps."""
    phases = profile.phases
    if phases["step"].nunique() < 2:
        return ""
    table = phases.pivot(index="step", columns="phase", values="seconds")[list(PHASES)]
    shared = -(-len(table) // _MOST)
    if shared > 1:
        table = table.groupby(np.arange(len(table)) // shared).mean()
    whole = table.sum(axis=1)
    top = min(float(whole.max()), _TALLEST * float(whole.median())) or 1.0
    of = f", {shared} a strip (their mean)" if shared > 1 else ""
    cut = "; ▲ goes beyond" if float(whole.max()) > top else ""
    used = [name for name in PHASES if table[name].sum() > 0]
    parts = [
        *_bars(table, top, used),
        *_axes(table, top, phases),
        svg_text(0, -8, f"time of each step{of}{cut}", "start"),
        *_legend(used),
    ]
    said = "The phases of each step, stacked; the table of phases has the numbers."
    drawn = figure((_WIDTH, _HEIGHT), (56, 24, 16, 46), said, parts)
    return f'{_STYLE}<div class="tb-steps">{drawn}</div>'


def _bars(table: pd.DataFrame, top: float, used: list[str]) -> Iterator[str]:
    """One path a phase, its box in the legend included: a mark of its own for each would be most of an output."""
    boxes = dict(_legend_boxes(used))
    wide = _WIDTH / len(table)
    bar = wide - min(1.0, wide * 0.15)
    above = np.minimum(np.cumsum(table.to_numpy(np.float64), axis=1) / top, 1.0) * _HEIGHT
    below = np.hstack([np.zeros((len(table), 1)), above[:, :-1]])
    for column, name in enumerate(table.columns):
        moves = [
            f"M{tenths(at * wide)} {tenths(_HEIGHT - high)}h{tenths(bar)}v{tenths(high - low)}h{tenths(-bar)}"
            for at, (low, high) in enumerate(zip(below[:, column].tolist(), above[:, column].tolist(), strict=True))
            if high - low >= _THINNEST
        ]
        if name in boxes:
            box = f"M{boxes[name]} {_HEIGHT + 25}h10V{_HEIGHT + 35}h-10"
            yield f'<path color="{_HUES[name]}" d="{"".join(moves)}{box}"/>'
    for at in np.nonzero(table.sum(axis=1).to_numpy() > top * 1.0001)[0].tolist():
        yield f'<path class="cut" d="M{tenths(at * wide + bar / 2 - 4)} -1h8l-4 -5z"/>'


def _axes(table: pd.DataFrame, top: float, phases: pd.DataFrame) -> Iterator[str]:
    scale = units.smallest_scale([top])
    ticks = round_ticks(0.0, top / scale.size)
    ticks = ticks[:: 1 + len(ticks) // 5]
    heights = [_HEIGHT * (1 - tick * scale.size / top) for tick in ticks]
    marks = "".join(f"M-4 {tenths(y)}h4" for y in heights)
    yield f'<path class="ax" fill="none" stroke="#7b8087" d="M0 {_HEIGHT}h{_WIDTH}{marks}"/>'
    for at, (tick, y) in enumerate(zip(ticks, heights, strict=True)):
        unit = f" {scale.unit}" if at == len(ticks) - 1 else ""
        yield svg_text(-8, y + 4, f"{tick:g}{unit}", "end")
    first, last = int(phases["step"].min()), int(phases["step"].max())
    yield svg_text(0, _HEIGHT + 14, f"step {first}", "start")
    yield svg_text(_WIDTH, _HEIGHT + 14, f"step {last}", "end")


def _legend_boxes(used: list[str]) -> Iterator[tuple[str, int]]:
    """(phase, px from the left)."""
    x = 0
    for name in used:
        yield name, x
        x += 30 + 6 * len(name)


def _legend(used: list[str]) -> Iterator[str]:
    for name, x in _legend_boxes(used):
        yield svg_text(x + 14, _HEIGHT + 34, name, "start")
