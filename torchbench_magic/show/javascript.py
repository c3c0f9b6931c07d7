"""The modules of ``static/`` as text: bundled, and as an output brings them to its page."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Protocol

# An output of 5 KB must not carry 40 KB of the same script in each cell. So an output names the modules that draw it,
# by their version, and leaves its data in a list on the page; some outputs bring the modules too, in one compressed
# script, which draws what waits and what comes later (``static/page.js``). Where nothing is known of the page every
# output brings all that it needs. Where a notebook's page is known (`shown_on`) those that other cells hold are left
# out. An output whose modules are nowhere on its page is the static table, with a line that says so.
#
# A version is a part of the name: outputs of two releases can stand on one page.

_KINDS = ("table", "table_explorer", "flame", "flame_explorer", "timeline", "timeline_explorer", "memory")
"""Those with a ``mount(element, data)``."""
_ONLY_READ = re.compile(r"^[ \t]*(?://.*\n|\n)?", re.MULTILINE)
"""Whole lines of comment, empty lines and indentation: a seventh of a compressed module. In ``static/`` no line of a
template begins with ``//``, and none needs its indentation."""
_SLOW = 2_000_000  # characters from which more compression is not worth the seconds
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_NEEDS, _BRINGS = (re.compile(rf"<script data-{word}=([\w,-]+)>") for word in ("needs", "brings"))
_GONE = (
    "The script of this table is missing: the output that held it was deleted. Run the cell again to get"
    " it back; the numbers are here."
)
_PATIENCE = 4000  # ms after which an output says so
_MEANS, _SAYS = "$&<`{}", ",./:[]"  # what means something in HTML, JavaScript or a template, and what stands for it
_TO_STAND_INS = str.maketrans(_MEANS, _SAYS)


class Page(Protocol):
    """What is known of the page that an output comes to stand on."""

    def missing(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the modules that an output which needs all of them is to bring; from then on it holds these."""


_own_page: ContextVar[bool] = ContextVar("what is drawn is a page of its own", default=False)
_page: ContextVar[Page | None] = ContextVar("page that outputs come to stand on", default=None)


@contextmanager
def shown_on(page: Page | None) -> Iterator[None]:
    """What is with_modules in here comes to stand on ``page``; None: nothing is known of where it goes."""
    token = _page.set(page)
    try:
        yield
    finally:
        _page.reset(token)


@contextmanager
def own_page() -> Iterator[None]:
    """What is drawn in here becomes a page of its own, a file: it may be larger than an output, and do more."""
    token = _own_page.set(True)
    try:
        yield
    finally:
        _own_page.reset(token)


def is_own_page() -> bool:
    """Whether what is drawn becomes a page of its own."""
    return _own_page.get()


@dataclass(frozen=True, slots=True)
class _Module:
    """A file of ``static/``: its text without imports, and what it imports and exports."""

    text: str
    imports: tuple[tuple[str, str], ...]  # (names, module)
    exports: tuple[str, ...]


@cache
def _module(name: str) -> _Module:
    text = files("torchbench_magic.show").joinpath(f"static/{name}.js").read_text(encoding="utf-8")
    imports = tuple((names, module) for names, module in _IMPORT.findall(text))
    text = _IMPORT.sub("", text)
    return _Module(text, imports, tuple(_EXPORT.findall(text)))


@cache
def _ordered(names: tuple[str, ...]) -> tuple[str, ...]:
    """Modules with all that they import, each after what it imports."""
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys((*_ordered(tuple(module for _, module in _module(name).imports)), name))
    return tuple(found)


@cache
def versioned(name: str) -> str:
    """``table-3f2a9c1d``: the name of a module on a page. Another text of it, or of what it imports, is another one."""
    text = "".join(_module(each).text for each in _ordered(("unpacked", "page", name)))
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@cache
def _text_to_bring(names: tuple[str, ...]) -> str:
    """A classic script that makes the modules known to the page, and all that they import."""
    made = [_EXPORT.sub("", _module(name).text) for name in _ordered(("page",))]
    made += [f'bring("{versioned(name)}",(page)=>{{\n{_body(name)}}});\n' for name in _ordered(names)]
    return _ONLY_READ.sub("", f'(()=>{{"use strict";\n{"".join(made)}}})();\n')


def _body(name: str) -> str:
    """The text of a module, which takes what it imports from the page."""
    module = _module(name)
    imports = "".join(f'const {{ {names} }} = page["{versioned(of)}"];\n' for names, of in module.imports)
    return f"{imports}{_EXPORT.sub('', module.text)}return {{ {', '.join(module.exports)} }};\n"


def packed_text(text: str) -> str:
    """The text as a zlib stream, four bytes as five signs: what ``static/unpacked.js`` reads.

    A twentieth shorter than base64. The signs are those of Python's base85 (RFC 1924) but for six: with the rest no
    quote, element, entity, TeX formula or ``{{`` can come about.
    """
    stream = zlib.compressobj(9 if len(text) < _SLOW else 6, memLevel=7)  # blocks that fit the turns of a script better
    made = stream.compress(text.encode("utf-8", "replace")) + stream.flush()
    return base64.b85encode(made).decode("ascii").translate(_TO_STAND_INS)


@cache
def _brought(names: tuple[str, ...]) -> str:
    text = packed_text(_text_to_bring(names))
    return f"<script data-brings={','.join(map(versioned, names))}>{_unpacking().replace('PACKED', text)}</script>"


@cache
def _unpacking() -> str:
    """The script that runs a ``PACKED`` one, and gives it what it has been unpacked by."""
    text = _EXPORT.sub("", _module("unpacked").text) + (
        "const made = document.createElement('script');\n"
        "made.unpacked = unpacked;\n"
        "made.textContent = await unpacked('PACKED');\n"
        "document.head.append(made);\n"
        "made.remove();\n"
    )
    return _ONLY_READ.sub("", f"(async()=>{{\n{text}}})()").replace('"', "'")


def data_script(module: str, element: str, data: str) -> str:
    """The script that leaves packed ``data`` for a module, which draws it in the element of that id."""
    name = versioned(module)
    push = f"((self.torchbench_magic??={{}})['{name}']??=[]).push(['{element}','{data}'])"
    return f"<script data-needs={name}>{push}</script>"


def with_modules(fragment: str) -> str:
    """A fragment with the modules that its data scripts need, as far as they are neither in it nor on its page."""
    names = {versioned(kind): kind for kind in _KINDS}
    there = {name for listed in _BRINGS.findall(fragment) for name in listed.split(",")}
    needs = set(_NEEDS.findall(fragment))
    needed = [name for name in names if name in needs and name not in there]
    if not needed:
        return fragment
    page = _page.get()
    due = needed if page is None else page.missing(needed)
    brought = _brought(tuple(names[name] for name in due)) if due else ""
    return fragment + brought + _told_where_gone([name for name in needed if name not in due], fragment)


def _told_where_gone(left_out: Sequence[str], fragment: str) -> str:
    """The script that says so, in the output, where a module that was left out is not on the page after all."""
    if not left_out:
        return ""
    found = re.search(rf"<script data-needs={left_out[0]}>[^<]*?\.push\(\['([\w-]+)'", fragment)
    element = found[1] if found is not None else ""
    said = f"<p role=note><small>{_GONE}</small></p>"
    return (
        f"<script>setTimeout(()=>{{if(Array.isArray(self.torchbench_magic['{left_out[0]}']))"
        f"document.getElementById('{element}')?.insertAdjacentHTML('beforeend','{said}')}},{_PATIENCE})</script>"
    )


@cache
def es_module(*names: str) -> str:
    """These modules, and all that they import, as the text of one."""
    return "".join(_module(name).text for name in _ordered(names))


def self_unpacking(text: str) -> str:
    """An ES module for anywidget with the default export of ``text``, a third as long: a front end that saves the state
    of widgets keeps the text with each of them."""
    return (
        f"{_ONLY_READ.sub('', _module('unpacked').text)}"
        f'const text = await unpacked("{packed_text(_ONLY_READ.sub("", text))}");\n'
        'const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));\n'
        "export default (await import(address)).default;\n"
    )
