"""The colours of all that is drawn here, by their meaning; those of pages and widgets are in ``static/``.

In pictures of static SVG they stand twice: in a style element, which follows the theme of the front end, and as
attributes (``fill``, ``stroke``) that are read where style is not let through: without them all is black, on night too.
Text is of the colour around it there.
"""

from __future__ import annotations

HUES: dict[str, str] = {
    "torch": "#2468b0",
    "python": "#d28a1a",
    "backward": "#c583c4",
    "memory": "#2ca184",
    "other": "#7b8087",
    "faster": "#2468b0",
    "slower": "#cf4f2c",
}
"""Meaning -> its colour on white, where no theme is known."""
CURVE_HUES = tuple(HUES[of] for of in ("other", "torch", "python", "memory", "backward", "slower"))
GREY, ALARM = HUES["other"], HUES["slower"]
_COLOURS = {  # variables of the front ends, the first that is known; and what stands in for them on white and on black
    "bg": ("--jp-layout-color0,var(--vscode-editor-background,", "#fff", "#111"),
    "bg2": ("--jp-layout-color2,", "#eef0f2", "#2a2c2f"),
    "ink0": ("--jp-ui-font-color0,var(--vscode-foreground,", "#000", "#fff"),
    "ink1": ("--jp-ui-font-color1,var(--vscode-foreground,", "#212428", "#dfe1e4"),
    "ink2": ("--jp-ui-font-color2,var(--vscode-descriptionForeground,", "#666b72", "#9da2a9"),
    "rule1": ("--jp-border-color1,var(--vscode-panel-border,", "#bfc3c8", "#4d5157"),
    "rule2": ("--jp-border-color2,var(--vscode-panel-border,", "#e3e5e8", "#2b2e32"),
}
UI_FONT = "var(--jp-ui-font-family,var(--vscode-font-family,sans-serif))"
CODE_FONT = "var(--jp-code-font-family,var(--vscode-editor-font-family,monospace))"


def theme(box: str, names: tuple[str, ...], own: str) -> str:
    """Rules that give ``box`` the colours of these names as variables, light and dark, and its ``own`` declarations."""
    light, dark = (";".join(f"--_{name}:{_COLOURS[name][at]}" for name in names) for at in (1, 2))
    known = ";".join(
        f"--{name}:var({first}var(--_{name}){')' * (1 + first.count('('))}"
        for name, (first, _, _) in _COLOURS.items()
        if name in names
    )
    return f"{box}{{{light};{known};{own}}}@media(prefers-color-scheme:dark){{{box}{{{dark}}}}}"


def mixed(hue: str, share: int = 84, ground: str = "ink0") -> str:
    """A colour that is a little darker by day, and lighter by night."""
    return f"color-mix(in srgb,{hue} {share}%,var(--{ground}))"


def letters(box: str, strong: str = "i1") -> str:
    """Rules for the text of a picture: small and quiet, that of one class less so."""
    return (
        f"{box} text{{fill:var(--ink2);font:11px {UI_FONT};"
        f"font-variant-numeric:tabular-nums}}{box} {strong}{{fill:var(--ink1)}}"
    )
