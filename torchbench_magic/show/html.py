"""A document as text/html: static tables that carry every number, and a page of its own."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from weakref import WeakKeyDictionary

from torchbench_magic import units
from torchbench_magic.printable import printable

from . import page_data
from .document import Document, StyledText, Unfolding, clipped
from .javascript import es_module, is_own_page, own_page, with_modules
from .page_data import attribute, mounted, stored
from .palette import ALARM, GREY, HUES
from .table import Cell, Column, Row, Table

# text/html: a static table that carries every number, and beside it the module that makes it live.
#
# Where scripts run (a trusted notebook, a page exported by nbconvert) ``static/table.js`` draws the same document in a
# shadow root and the static part disappears behind it; where they do not (GitHub, an untrusted notebook) the static
# part is what is read. Nothing is fetched: `show.javascript` says how an output comes by the module.

MOST_BYTES = 960_000  # of text/html as a notebook stores it; with text/plain an output stays below 1 MB
_MODULES = 40_000  # of these, what is left for the modules
_STATIC_ROWS = 200
_STATIC_TEXT = 120
_FIGURE, _POINT = "\u2007", "\u2008\u2060"  # spaces as wide as a digit and as a point, where no line may break

_AS_HIGH = (
    "const e=this.contentDocument.documentElement;"
    "new ResizeObserver(()=>{this.style.height=e.offsetHeight+32+'px'}).observe(e)"
)

_ENDS = re.compile(r"</(?:td|th|tr|tbody)>|</thead>(?=<tbody)")
_QUOTED = re.compile(r'="([\w.#%:(),+-]+)"(?=[ >])')  # needless quotes, which take four bytes of a notebook
_BOX = "display:inline-block;height:8px;width"
_RIGHT, _LEFT = " align=right", " style=text-align:left"  # notebooks align all to the right, pages to the left
_THINNEST = 2  # px of a bar: a thinner one is not seen, and its number stands beside it
_DOUBT = f"border-left:3px solid {ALARM};padding-left:9px"


def render(document: Document, *, most_bytes: int = MOST_BYTES) -> str:
    """The static part, and the document as packed JSON: `with_modules` adds the modules that draw it. At most about
    ``most_bytes`` when stored, with these."""
    scripts = "".join(drawn.scripts for drawn in document.drawn)
    element, script = mounted(
        "torchbench",
        document.kind,
        static(document),
        "table_explorer" if is_own_page() or not document.drawn else "table",  # beside pictures there is no room
        lambda room: page_data.as_json(_without_what_stands_below(document), room),
        most_bytes=most_bytes - stored(scripts) - _MODULES,
    )
    return element + script + scripts


def page(document: Document) -> str:
    """A whole page around the fragment, for a file that opens from disk without network."""
    with own_page():
        return around(render(document), document.kind)


def around(fragment: str, title: str) -> str:
    """The page around any of our fragments, with all that draws it. Its heading is for those who hear the page: who
    sees it reads the sentence first."""
    said = f"torchbench_magic: {escape(title)}"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{said}</title>"
        "<style>:root{color-scheme:light dark}body{margin:16px 20px;font:13px/20px sans-serif}"
        "table{border-collapse:collapse;font-size:12.5px}th{font-weight:400;vertical-align:bottom;line-height:15px}"
        f"td,th{{padding:0 8px 0 0}}tbody tr:first-child>*{{border-top:1px solid {GREY}}}"
        "@media (prefers-color-scheme:dark){body{background:#111;color:#dfe1e4}}"
        "h1{position:absolute;width:1px;height:1px;margin:0;overflow:hidden;clip-path:inset(50%)}</style>"
        f"<body><main><h1>{said}</h1>{with_modules(fragment)}</main></body></html>"
    )


def in_frame(fragment: str, title: str) -> str:
    """The page in a frame, for marimo, which runs no script outside of one and takes away the room between the columns
    of a table. It is as high as what is in it."""
    page = escape(around(fragment, title))
    return f'<iframe srcdoc="{page}" title="{escape(title)}" width="100%" height="300" onload="{_AS_HIGH}"></iframe>'


def static(document: Document) -> str:
    """The document without script: plain elements, numbers as text, no style that it could not be read without."""
    foot = " slot=foot" if _is_taken(document, document.footer) else ""
    doubt = " slot=doubt" if _is_taken(document, document.first_doubts) else ""
    document = document.still
    sentence = _line(document.sentence)
    insights = "".join(map(_unfolding, document.insights))
    # without the end tags that HTML does without: a cell ends where the next one begins; a tenth shorter
    tables = _ENDS.sub("", "".join(map(_table, document.tables)))
    if document.picture:
        drawing = f'<div slot="picture">{document.picture}</div>'  # shown in the live drawing too
        tables = drawing + tables if document.picture_first else tables + drawing
    tables += "".join(drawn.element for drawn in document.drawn)
    footer = f"<p{foot}><small>{' '.join(map(_line, document.footer))}</small></p>" if document.footer else ""
    doubts = "".join(_doubt(each, doubt) for each in document.first_doubts) + _more_doubts(document.folded_doubts)
    if document.folded:
        made = f"<details><summary>{sentence}</summary>{insights}{tables}{footer}</details>{doubts}"
    else:
        made = f"<p>{sentence}</p>{insights}{tables}{doubts}{footer}"
    return _QUOTED.sub(r"=\1", made)


def _is_taken(document: Document, lines: Sequence[StyledText]) -> bool:
    """Whether what is drawn takes these lines from the static part, which has them anyway: they are text, which no
    formula that a notebook typesets has changed."""
    runs = [run for line in lines for run in line]
    is_text = not any(run.style or set("$\\") & set(run.text) for run in runs)
    return is_text and not document.folded and document.still is document


def _without_what_stands_below(document: Document) -> Document:
    if _is_taken(document, document.footer):
        document = replace(document, footer=())
    if _is_taken(document, document.first_doubts):
        document = replace(document, doubts=document.folded_doubts, doubts_shown=0)
    return document


def _doubt(line: StyledText, slot: str = "") -> str:
    return f'<p style="{_DOUBT}"{slot}>{_line(line)}</p>'


def _more_doubts(doubts: tuple[StyledText, ...]) -> str:
    if not doubts:
        return ""
    words = f"{len(doubts)} more warning{'s' if len(doubts) > 1 else ''}"
    return f"<details><summary>{words}</summary>{''.join(map(_doubt, doubts))}</details>"


def _unfolding(insight: Unfolding) -> str:
    return f"<details><summary>{_line(insight.line)}</summary>{'<br>'.join(map(_line, insight.under))}</details>"


def module() -> str:
    """The module that draws a document, for a widget."""
    return es_module("table_explorer")


def _table(table: Table) -> str:
    table = table.head(_STATIC_ROWS, "")
    drawn = ("bar", "change", "dots")
    shown = [(at, column) for at, column in enumerate(table.columns) if not column.drawn or column.kind in drawn]
    places = [table.places(at) for at, _ in shown]
    head = "".join(_head(column) for _, column in shown)
    rows = []
    for nth, group in enumerate(table.groups):
        line = f' style="border-top:1px solid {GREY}66"' if nth else ""
        if group.title and group.sums:
            words = " ".join(_text(part) for part in (group.title, group.note) if part)
            sums = list(zip(shown, places, strict=True))[1:]
            cells = "".join(_cell(group.sums[at], column, place) for (at, column), place in sums)
            rows.append(f"<tr{line}><th scope=rowgroup{_LEFT}>{words}</th>{cells}</tr>")
        elif group.title:
            words = " · ".join(_text(part) for part in (group.title, group.note) if part)
            rows.append(f"<tr><th colspan={len(shown)} scope=rowgroup{_LEFT}>{words}</th></tr>")
        for first, row in enumerate(group.rows):
            cells = "".join(
                "<td></td>" if first and column.leading else _cell(row.cells[at], column, place)
                for (at, column), place in zip(shown, places, strict=True)
            )
            rows.append(f"<tr{line if not first and not group.title else ''}>{cells}</tr>")
    foot = "".join(_total(row, shown, places) for row in table.totals)
    top = "" if table.headless else f"<thead{_RIGHT}><tr>{head}</tr></thead>"
    return (
        f"<table>{top}<tbody{_RIGHT}>{''.join(rows)}</tbody>"
        f"{f'<tfoot{_RIGHT}>{foot}</tfoot>' if foot else ''}</table>"
        + (f"<p><small>{_text(table.hidden)}</small></p>" if table.hidden else "")
    )


def _total(row: Row, shown: list[tuple[int, Column]], places: list[int]) -> str:
    cells = (_cell(row.cells[at], column, place) for (at, column), place in zip(shown, places, strict=True))
    return f'<tr style="border-top:1px solid {GREY}">{"".join(cells)}</tr>'


def _head(column: Column) -> str:
    unit = f"<br>{_text(column.unit)}" if column.unit else ""
    if not column.label and not unit:
        return "<td></td>"  # a header without words is none
    return f"<th scope=col{'' if column.right else _LEFT}>{_text(column.label)}{unit}</th>"


def _cell(cell: Cell, column: Column, places: int) -> str:
    if column.kind == "bar":
        return f"<td>{_bar(cell)}</td>"
    if column.kind == "change":
        return f"<td style=text-align:left;white-space:nowrap>{_change(cell)}</td>"
    if column.kind == "dots":
        return f"<td style=text-align:left;white-space:nowrap>{_dots(cell)}</td>"
    text = printable(cell.text)
    if column.kind == "number":
        unseen = units.padding(text, places).replace(".", _POINT).replace("0", _FIGURE)
        return f"<td>{escape(text)}{unseen}</td>"
    inner = escape(clipped(text, _STATIC_TEXT))
    title = f' title="{attribute(clipped(text, page_data.LONGEST_TEXT))}"' if len(text) > _STATIC_TEXT else ""
    if column.kind in ("code", "source") and text:
        inner = f"<code{' style=white-space:pre' if ' ' in inner else ''}>{inner}</code>"
    if cell.note:
        inner += f" <small>{_text(cell.note)}</small>"
    return f"<td{'' if column.right or not inner else _LEFT}{title}>{inner}</td>"


def _bar(cell: Cell) -> str:
    if not cell.picture:
        return ""
    bars = [(meaning, round(share * 82)) for parts in cell.picture for meaning, share in parts]  # type: ignore[attr-defined]
    return "".join(
        f"<span style=float:left;height:8px;width:{width}px;background-color:{HUES[meaning]}></span>"
        for meaning, width in bars
        if width >= _THINNEST
    )


def _change(cell: Cell) -> str:
    """A bar from the middle: to the right is more."""
    if not cell.picture:
        return ""
    share = float(cell.picture[0])  # type: ignore[arg-type]
    width = max(1, round(abs(share) * 60))
    before = 60 if share > 0 else 60 - width
    hue = HUES["slower" if share > 0 else "faster"]
    return f"<span style={_BOX}:{before}px></span><span style={_BOX}:{width}px;background-color:{hue}></span>"


def _dots(cell: Cell) -> str:
    """A dot for each value on one line, and a thin line at 1."""
    if not cell.picture:
        return ""
    places, one = cell.picture
    marks = [(round(share * 82), 3, HUES["torch"]) for share in places]  # type: ignore[attr-defined]
    marks += [] if one is None else [(round(one * 82), 1, HUES["other"])]  # type: ignore[operator]
    spans, until = [], 0
    for start, width, hue in sorted(marks):
        if start >= until:  # what lies on another one is drawn by it
            spans.append(f"<span style={_BOX}:{start - until}px></span>" if start > until else "")
            spans.append(f"<span style={_BOX}:{width}px;background-color:{hue}></span>")
            until = start + width
    return "".join(spans)


def _line(line: StyledText) -> str:
    tags = {"code": "code", "subject": "code", "figure": "strong", "strong": "strong"}
    out = []
    for run in line:
        tag = tags.get(run.style)
        space = " " if run.style == "figure" else ""
        out.append(f"{space}<{tag}>{_text(run.text)}</{tag}>{space}" if tag else _text(run.text))
    return "".join(out)


def _text(text: str) -> str:
    return escape(printable(clipped(text, page_data.LONGEST_TEXT)))


# ---- result_boxes ----------------------------------------------------------------------------------------------------
# The box around all views of one result on a page: what is chosen in one of them is shown by the others.

_names: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def box_class(result: object) -> str:
    """A class of elements for this result alone, as long as it is there: ``torchbench-of-3f2a9c1d44aa``."""
    if result not in _names:
        _names[result] = f"torchbench-of-{uuid.uuid4().hex[:12]}"
    return _names[result]


def boxed(fragment: str, result: object | None) -> str:
    """The fragment as views of ``result``; as it is for None."""
    return fragment if result is None else f"<div class={box_class(result)}>{fragment}</div>"
