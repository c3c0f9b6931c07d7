"""What each rank did over time, drawn: a strip a rank, and below them who was waited for."""

from __future__ import annotations

from collections.abc import Iterator

from torchbench_magic import units
from torchbench_magic.results.ranks.rank_profiles import RankProfile

from ..carriers.mounting import attribute, drawing_id
from ..drawing.scales import round_ticks
from ..drawing.svg import figure, svg_text, theme

__all__ = ["strips"]

_WIDTH, _ROW, _BAR = 690, 26, 16  # px
_LEFT, _TOP, _RIGHT = 66, 8, 20
_MOST_RANKS = 16
_MOST_WAITS = 12
_APART = 46  # px between two names of ranks that were waited for
_WORDS = (
    ("other", "Python, data"), ("compute", "compute"), ("wait", "wait for the last rank"), ("transfer", "transfer"),
    ("unsplit", "wait or transfer"),
)  # fmt: skip
_HUES = {"other": "#d28a1a", "compute": "#2468b0", "transfer": "#2ca184", "unsplit": "#c583c4"}

_STYLE = (
    "<style>"
    + theme(
        ".tb-ranks",
        ("bg", "ink0", "ink1", "ink2", "rule1"),
        ";".join(f"--{name}:{hue}" for name, hue in _HUES.items())
        + ";--hatch:#7b8087;--more:#cf4f2c;margin:8px 0;overflow-x:auto",
    )
    + "@supports(color:color-mix(in srgb,red,blue)){.tb-ranks{"
    + ";".join(f"--{name}:color-mix(in srgb,{hue} 84%,var(--ink0))" for name, hue in _HUES.items())
    + ";--hatch:color-mix(in srgb,#7b8087 84%,var(--bg));--more:color-mix(in srgb,#cf4f2c 84%,var(--ink0))}}"
    ".tb-ranks svg{display:block}"
    ".tb-ranks text{fill:var(--ink2);font:11px var(--jp-ui-font-family,var(--vscode-font-family,sans-serif));"
    "font-variant-numeric:tabular-nums}.tb-ranks text.i1{fill:var(--ink1)}"
    ".tb-ranks text.w5{fill:var(--ink1);font-weight:600}"
    + "".join(f".tb-ranks .{name}{{fill:var(--{name})}}" for name in _HUES)
    + ".tb-ranks .hl{stroke:var(--hatch);stroke-width:1.4}.tb-ranks .ax{stroke:var(--rule1)}"
    ".tb-ranks .br{fill:none;stroke:var(--more);stroke-width:1.2}</style>"
)


def strips(profile: RankProfile) -> str:
    """The picture as markup; of many ranks the ones with the most blame, and the straggler among them."""
    ranks = profile.ranks.sort_values("blame", ascending=False, kind="stable")["rank"].tolist()[:_MOST_RANKS]
    ranks.sort()
    hatch = f"{drawing_id()}-h"
    height = _ROW * len(ranks) + 44
    parts = [
        _hatching(hatch),
        *_rows(profile, ranks, hatch),
        *_brackets(profile, _ROW * len(ranks) + 2),
        *_axis(profile.span, height - 18),
        *_legend(profile, hatch, height + 20),
    ]
    said = "what each rank did over time; the table below has the numbers"
    drawn = figure((_WIDTH, height), (_LEFT, _TOP, _RIGHT, 32), said, parts)
    return f'{_STYLE}<div class="tb-ranks">{drawn}</div>'


def _hatching(name: str) -> str:
    return (
        f'<defs><pattern id="{attribute(name)}" width="5" height="5" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><line x1="0" x2="0" y1="0" y2="5" class="hl" stroke="#7b8087"/></pattern></defs>'
    )


def _x(seconds: float, span: float) -> float:
    return _WIDTH * seconds / span if span > 0 else 0.0


def _rows(profile: RankProfile, ranks: list[int], hatch: str) -> Iterator[str]:
    late = profile.straggler.rank if profile.straggler is not None else None
    for at, rank in enumerate(ranks):
        top = at * _ROW
        yield svg_text(-10, top + 13, f"rank {rank}", "end", "w5" if rank == late else "i1")
        mine = profile.timeline[profile.timeline["rank"] == rank]
        for _, begin, end, what in mine.itertuples(index=False):
            left, width = _x(begin, profile.span), _x(end - begin, profile.span)
            drawn = f'fill="url(#{attribute(hatch)})"' if what == "wait" else f'class="{what}" fill="{_HUES[what]}"'
            yield f'<rect {drawn} x="{left:.1f}" y="{top + 1}" width="{width:.1f}" height="{_BAR}"/>'


def _brackets(profile: RankProfile, top: int) -> Iterator[str]:
    """The longest waits, each with the rank that came last."""
    yield svg_text(-10, top + 9, "waited for", "end")
    longest = profile.waits.nlargest(_MOST_WAITS, "seconds").sort_values("begin")
    until = -float(_APART)
    for begin, end, rank, _ in longest.itertuples(index=False):
        left, right = _x(begin, profile.span), max(_x(end, profile.span), _x(begin, profile.span) + 1)
        yield f'<path class="br" fill="none" stroke="#cf4f2c" d="M{left:.1f} {top}v5H{right:.1f}v-5"/>'
        middle = (left + right) / 2
        if middle - until >= _APART:
            yield svg_text(middle, top + 17, f"rank {rank}", "middle")
            until = middle


def _axis(span: float, top: int) -> Iterator[str]:
    yield f'<line class="ax" stroke="#7b8087" x1="0" x2="{_WIDTH}" y1="{top}" y2="{top}"/>'
    scale = units.smallest_scale([span])
    ticks = round_ticks(0.0, span / scale.size) if span > 0 else ()
    for at, tick in enumerate(ticks):
        x = _x(tick * scale.size, span)
        unit = f" {scale.unit}" if at == len(ticks) - 1 else ""
        yield f'<line class="ax" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + 4}"/>'
        yield svg_text(x, top + 15, f"{tick:g}{unit}", "middle")


def _legend(profile: RankProfile, hatch: str, top: int) -> Iterator[str]:
    x = 0
    for name, words in _WORDS:
        if name == "unsplit" and not profile.ranks[name].any():
            continue
        drawn = f'fill="url(#{attribute(hatch)})"' if name == "wait" else f'class="{name}" fill="{_HUES[name]}"'
        yield f'<rect {drawn} x="{x}" y="{top - 9}" width="10" height="10"/>'
        yield svg_text(x + 15, top, words, "start")
        x += 40 + 6 * len(words)
