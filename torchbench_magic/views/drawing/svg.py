"""What pictures in static SVG share: the colours of both themes, and text.

Colours stand twice: in a style element, which follows the theme, and as attributes (``fill``, ``stroke``) that are
read where style is not let through: without them all is black, on night too. Text is of the colour around it there.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..carriers.mounting import attribute

__all__ = ["figure", "svg_text", "tenths", "theme"]

_COLOURS = {  # variables of the front ends, the first that is known; and what stands in for them on white and on black
    "bg": ("--jp-layout-color0,var(--vscode-editor-background,", "#fff", "#111"),
    "bg2": ("--jp-layout-color2,", "#eef0f2", "#2a2c2f"),
    "ink0": ("--jp-ui-font-color0,var(--vscode-foreground,", "#000", "#fff"),
    "ink1": ("--jp-ui-font-color1,var(--vscode-foreground,", "#212428", "#dfe1e4"),
    "ink2": ("--jp-ui-font-color2,var(--vscode-descriptionForeground,", "#666b72", "#9da2a9"),
    "rule1": ("--jp-border-color1,var(--vscode-panel-border,", "#bfc3c8", "#4d5157"),
    "rule2": ("--jp-border-color2,var(--vscode-panel-border,", "#e3e5e8", "#2b2e32"),
}
_LEAST = 520  # px: narrower, the letters of the widest picture can hardly be read


def theme(box: str, names: tuple[str, ...], own: str) -> str:
    """Rules that give ``box`` the colours of these names as variables, light and dark, and its ``own`` declarations."""
    light, dark = (";".join(f"--_{name}:{_COLOURS[name][at]}" for name in names) for at in (1, 2))
    known = ";".join(
        f"--{name}:var({first}var(--_{name}){')' * (1 + first.count('('))}"
        for name, (first, _, _) in _COLOURS.items()
        if name in names
    )
    return f"{box}{{{light};{known};{own}}}@media(prefers-color-scheme:dark){{{box}{{{dark}}}}}"


def tenths(pixels: float) -> str:
    """To a tenth of a pixel; a whole number without its point."""
    return f"{pixels:.1f}".removesuffix(".0")


def svg_text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    """User text at a place; ``anchor`` is ``start``, ``middle`` or ``end``, ``kind`` a class."""
    named = f' class="{kind}"' if kind else ""
    anchored = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{tenths(x)}" y="{tenths(y)}"{anchored}{named}>{attribute(words)}</text>'


def figure(
    ground: tuple[int, int], around: tuple[int, int, int, int], said: str, parts: Iterable[str], more: str = ""
) -> str:
    """``parts`` on a plotted ground. What is drawn has its ``fill`` and ``stroke`` as attributes too. A front end that
    takes the svg away and leaves its words (JupyterLab, of a notebook that is not trusted) shows them in size 0. In a
    narrow place all of it is drawn smaller; below `_LEAST` it is scrolled.

    Args:
        ground: its width and height, px.
        around: px left of it, above, right and below.
        said: what assistive technology reads.
        more: other attributes of the element.
    """
    left, top, right, bottom = around
    width, height = left + ground[0] + right, top + ground[1] + bottom
    return (
        f'<span style=font-size:0><svg width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' style="max-width:100%;min-width:{min(width, _LEAST)}px;height:auto"'
        f' role="img"{more} fill="currentColor" font-family="sans-serif" font-size="11" '
        f'aria-label="{attribute(said)}"><g transform="translate({left},{top})">{"".join(parts)}</g></svg></span>'
    )
