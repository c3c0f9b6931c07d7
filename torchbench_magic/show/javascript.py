"""The modules of ``static/`` as text: shortened, bundled, and as an output brings them to its page."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import count, product
from typing import Protocol

__all__ = [
    "shortened",
    "renamed",
    "Page",
    "data_script",
    "es_module",
    "is_own_page",
    "own_page",
    "packed_text",
    "self_unpacking",
    "shown_on",
    "together",
    "versioned",
    "with_modules",
]

# ---- shortened_script ------------------------------------------------------------------------------------------------
# JavaScript of ours without what only people read: comments, indentation, spaces between signs. Names stay.
#
# For the modules of ``static/``, in whose style a comment after code has a space before and after ``//``, and every
# statement ends with ``;`` or ``}``. What is text (strings, templates, patterns) is left alone, but for the indentation
# and the comments of style sheets.

_COMMENT = re.compile(r"(^|\s+)//(\s.*)?$")
_SPACE = re.compile(r"\s+")
_PATTERN = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_BEFORE_PATTERNS = "=(,:!&|?[;{"  # elsewhere a slash divides
_EXPRESSION = re.compile(r"(?:\\.|\$(?!\{)|[^\\$])*\$\{", re.DOTALL)  # of a template, with what stands before it
_TOKEN = re.compile(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'|[\w$]+|.""", re.DOTALL)


def shortened(text: str) -> str:
    """The same script, shorter.

    Raises:
        ValueError: what looks like a comment may be a part of a text.
    """
    return _squeezed(_without_comments(text))


def _without_comments(text: str) -> str:
    kept = []
    for line in re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL).splitlines():
        code = _COMMENT.sub("", line)
        if code != line and any(code.count(quote) % 2 for quote in "\"'`"):
            raise ValueError(f"this may be no comment but text: {line.strip()}")
        if code.strip():
            kept.append(code.strip())
    return "\n".join(kept) + "\n"


def _squeezed(text: str) -> str:
    """Without spaces that part no words; a line that may end a statement stays one."""
    done, at = [";"], 0
    while at < len(text):
        last = done[-1][-1]
        if (space := _SPACE.match(text, at)) is not None:
            at = space.end()
            done.append(_least_space(last, text[at : at + 1], "\n" in space[0]))
            if not done[-1]:
                done.pop()
            continue
        end = _end_of_template(text, at) if text[at] == "`" else _end_of_token(text, at, last)
        if text[at] == "`":
            done.append(_template(text[at:end]))
        elif text[at] == "}" and last == ";":
            done[-1] = "}"
        else:
            done.append("let" if text[at:end] == "const" else text[at:end])  # the same to who does not assign
        at = end
    return "".join(done[1:]) + "\n"


def _least_space(last: str, following: str, is_line: bool) -> str:
    """What must stay of a space between two signs."""
    if is_line and last not in "{}([,;" and following not in ("", ")", "}", "]"):
        return "\n"
    return " " if (_is_word(last) and _is_word(following)) or (last == following and last in "+-") else ""


def _end_of_token(text: str, at: int, last: str) -> int:
    found = _PATTERN.match(text, at) if text[at] == "/" and last and last in _BEFORE_PATTERNS else None
    found = found or _TOKEN.match(text, at)
    assert found is not None  # it matches any sign
    return found.end()


def _is_word(sign: str) -> bool:
    return sign.isalnum() or sign in ("_", "$")


def _template(text: str) -> str:
    """A template with its expressions squeezed."""
    made, at = [], 0
    while (begun := _EXPRESSION.match(text, at)) is not None:
        end = _end_of_expression(text, begun.end())
        made += [begun[0], _squeezed(text[begun.end() : end - 1]).strip(), "}"]
        at = end
    return "".join(made) + text[at:]


def _end_of_template(text: str, at: int) -> int:
    """The place after the template that begins at ``at``; expressions in it may hold templates."""
    at += 1
    while text[at] != "`":
        if text.startswith("${", at):
            at = _end_of_expression(text, at + 2)
        else:
            at += 2 if text[at] == "\\" else 1
    return at + 1


def _end_of_expression(text: str, at: int) -> int:
    depth = 1
    while depth:
        if text[at] == "`":
            at = _end_of_template(text, at)
            continue
        if text[at] in "\"'":
            at = _end_of_token(text, at, "")
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at


# ---- renamed_script --------------------------------------------------------------------------------------------------
# JavaScript of ours with short names for what is local to it: a tenth less of a compressed module.
#
# For text that is `shortened`. ``let a=1;let b=2;`` becomes one statement too.
#
# What a word stands for must be certain. A variable is what is no property (``.name``, ``{ name: ... }``), no name of a
# method and no keyword; ``{ name }`` becomes ``{name:a}``. What the modules of ``static/`` do not use is refused:
# labels, ``switch``, ``var``, fields of classes.
#
# Where a scope ends need not be certain, only that it ends within a region: a block, or a function with its parameters.
# Of regions within each other that declare a name the outermost has it, for all that stands in it; so what shadowed
# another does so still. A name that no region round it declares (``document``) stays. Two variables have the same short
# name only where neither is used in the region of the other.

_SIGNS = re.compile(
    r"""(?P<space>\s+)
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\d[\w.]*)
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<sign>=>|\.\.\.|\?\.(?!\d)|[!=]==?|[<>]=|\?\?=?|&&=?|\|\|=?|\+\+|--|[-+*/%]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_REGULAR_EXPRESSION = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_CHUNK = re.compile(r"(?:\\.|\$(?!\{)|[^`\\$])*(?:`|\$\{)", re.DOTALL)  # of a template, to its end or an expression
_REFUSED = frozenset(("switch", "case", "with", "var", "eval", "arguments", "import", "export"))
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "async await break catch class const continue delete do else extends false finally for function get if in"
        " instanceof let new null of return set static super this throw true try typeof undefined void while yield",
    )
)
_BLOCKS = frozenset(("", ";", "{", "}", ")", "=>", "else", "do", "try", "finally", "catch"))  # before one
_AGAIN = "\0;"  # what ends a `let` that another follows
_LET_AGAIN = re.compile(rf"{_AGAIN}\s*let\b ?")
_CONDITIONS = frozenset(("if", "for", "while"))
_LETTERS = "etnrisouaflchpdvmgybwESxTNCkLAOM_DPHBjFIqRUzWXV$JKQGYZ"  # those first that a script has most of anyway


@dataclass(slots=True)
class _Token:
    kind: str  # space, text, word, sign
    text: str
    region: int = -1  # of a variable
    is_short_form: bool = False  # {name}, which is {name: name}


@dataclass(slots=True)
class _Bracket:
    """What is open: a block, an object (or a pattern of one), a class, ``(``, ``[`` or an expression of a template."""

    kind: str
    outer: int = 0  # the region that it stands in
    is_key: bool = False  # in an object: what comes is a name of it
    declares: str = ""  # "target": the next name is declared; "value": what it is given; "done": between the two
    is_pattern: bool = False
    is_list: bool = False  # of parameters
    arrows: list[int] = field(default_factory=list)  # regions round functions without a block that began in it


def renamed(text: str) -> str:
    """The same script: statements of a module, or of a function's body.

    Raises:
        ValueError: it holds what is not certain to be read right.
    """
    reader = _Reader(_tokens(text))
    variables = [(token, reader.declared_in(token)) for token in reader.tokens if token.region >= 0]
    uses: defaultdict[int, Counter[str]] = defaultdict(Counter)  # of a region, what it declares
    others: defaultdict[int, set[tuple[int, str]]] = defaultdict(set)  # of a region, what is used in it and not its own
    for token, owner in variables:
        if owner >= 0:
            uses[owner][token.text] += 1
        for region in reader.around(token.region):
            if region == owner:
                break
            others[region].add((owner, token.text))
    short: dict[tuple[int, str], str] = {}
    for region in sorted(uses):  # each after those round it
        taken = {short.get(other, other[1]) for other in others[region]}
        short |= {(region, name): new for name, new in _short_names(uses[region], taken)}
    for token, owner in variables:
        name = short.get((owner, token.text), token.text)
        token.text = f"{token.text}:{name}" if token.is_short_form and name != token.text else name
    return _LET_AGAIN.sub(",", "".join(token.text for token in reader.tokens))


def _short_names(names: Counter[str], taken: set[str]) -> Iterator[tuple[str, str]]:
    """For each one that is not taken, in the order of first use: so functions that are alike come to look alike."""
    free = ("".join(made) for size in count(1) for made in product(_LETTERS, repeat=size))
    fit = (name for name in free if name not in taken and name not in _WORDS)
    return zip(names, fit, strict=False)


def _tokens(text: str) -> list[_Token]:
    """The text in parts: of a template what stands between its expressions, with their braces."""
    made: list[_Token] = []
    depths, at, last = [0], 0, ""
    while at < len(text):
        sign = text[at]
        if sign == "`" or (sign == "}" and depths[-1] == 0 and len(depths) > 1):
            found, kind = _CHUNK.match(text, at + 1), "text"
            if sign == "}":
                depths.pop()
            if found is not None and found[0].endswith("{"):
                depths.append(0)
        elif sign == "/" and (pattern := _REGULAR_EXPRESSION.match(text, at)) and _may_begin_pattern(last):
            found, kind = pattern, "text"
        else:
            found = _SIGNS.match(text, at)
            kind = found.lastgroup or "" if found is not None else ""
            depths[-1] += {"{": 1, "}": -1}.get(sign, 0)
        if found is None:
            raise ValueError(f"a template without an end: {text[at : at + 60]}")
        made.append(_Token(kind, text[at : found.end()]))
        at = found.end()
        if kind != "space":
            last = made[-1].text
    return made


def _may_begin_pattern(last: str) -> bool:
    """Whether a slash after this begins one; elsewhere it divides."""
    return last in ("", "return", "typeof") or not (last[-1].isalnum() or last[-1] in "_$)]}\"'`")


class _Reader:
    """Reads which words stand for variables, and which of those are declared, where."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self._seen = [token for token in tokens if token.kind != "space"]
        self._open: list[_Bracket] = [_Bracket("block")]
        self._outer = [-1]  # of each region the one that it stands in; the first is the script
        self._declared: list[set[str]] = [set()]
        self._region = 0
        self._round_body = -1  # what the region is in whose parameters have been read
        self._awaits_class = False
        self._partner = dict(self._pairs())
        for at, token in enumerate(self._seen):
            if token.kind == "word":
                self._word(at)
            elif token.kind == "sign":
                self._sign(at)
            elif token.text.startswith("}"):
                self._close()
            if token.kind == "text" and token.text.startswith(("`", "}")) and token.text.endswith("${"):
                self._open.append(_Bracket("${", self._region))
        if len(self._open) > 1:
            raise ValueError("a bracket is not closed")

    def around(self, region: int) -> Iterator[int]:
        """The region and those that it stands in, the innermost first."""
        while region >= 0:
            yield region
            region = self._outer[region]

    def declared_in(self, token: _Token) -> int:
        """The outermost region that declares it; -1 for none."""
        return min((one for one in self.around(token.region) if token.text in self._declared[one]), default=-1)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Of each opening parenthesis the place of its closing one."""
        begun: list[int] = []
        for at, token in enumerate(self._seen):
            if token.kind == "sign" and token.text == "(":
                begun.append(at)
            elif token.kind == "sign" and token.text == ")":
                yield begun.pop(), at

    def _text(self, at: int) -> str:
        return self._seen[at].text if 0 <= at < len(self._seen) else ""

    def _is_sign(self, at: int, *signs: str) -> bool:
        return 0 <= at < len(self._seen) and self._seen[at].kind == "sign" and self._text(at) in signs

    def _begin_region(self) -> int:
        """A region within the one at hand, which is returned."""
        before, self._region = self._region, len(self._outer)
        self._outer.append(before)
        self._declared.append(set())
        return before

    # ---- words

    def _word(self, at: int) -> None:
        token, top = self._seen[at], self._open[-1]
        if self._is_sign(at - 1, ".", "?.", "#") or top.kind == "class" or self._is_key(at):
            return
        if token.text in _REFUSED or (token.text in ("break", "continue") and not self._is_sign(at + 1, ";", "}")):
            raise ValueError(f"this may not be read right: {token.text} {self._text(at + 1)}")
        if token.text in _WORDS:
            self._keyword(token.text)
            return
        is_parameter = self._is_sign(at + 1, "=>")
        if is_parameter:
            self._round_body = self._begin_region()
        token.region = self._region
        token.is_short_form = top.kind == "object" and top.is_key
        if (
            is_parameter
            or top.declares == "target"
            or (top.is_pattern and top.is_key)
            or self._text(at - 1) in ("function", "class")
        ):
            self._declared[self._region].add(token.text)
        if top.declares == "target":
            top.declares = "done"

    def _is_key(self, at: int) -> bool:
        """Whether a word is the name of a property in an object, and no variable too."""
        top = self._open[-1]
        return top.kind == "object" and top.is_key and not self._is_sign(at + 1, ",", "}", "=")

    def _keyword(self, word: str) -> None:
        top = self._open[-1]
        if word in ("let", "const"):
            top.declares = "target"
        elif word == "class":
            self._awaits_class = True
        elif top.declares == "target":  # `of`, which stays
            top.declares = "done"
        elif word in ("of", "in") and top.declares == "done":
            top.declares = ""

    # ---- brackets, and what parts

    def _sign(self, at: int) -> None:
        sign, top = self._text(at), self._open[-1]
        if top.kind == "class" and sign not in ("(", "{", "}", "[", "*"):
            raise ValueError(f"a field of a class may not be read right: {self._text(at - 1)} {sign}")
        if sign in ("(", "[", "{"):
            self._open.append(self._opened(at))
            if top.declares == "target":
                top.declares = "done"
        elif sign in (")", "]", "}"):
            self._close()
        elif sign == "=>" and not self._is_sign(at + 1, "{"):
            top.arrows.append(self._round_body)
            self._round_body = -1
        elif sign in (",", ";"):
            self._part(top, at)
        elif sign == ":" and top.kind == "object" and top.is_key:
            top.is_key = False
            top.declares = "target" if top.is_pattern else ""
        elif sign == "=" and (top.declares or top.is_key):
            top.is_key = False
            top.declares = "value"
        elif sign == "..." and top.kind == "object":
            top.is_key = False
            top.declares = "target" if top.is_pattern else ""

    def _part(self, top: _Bracket, at: int) -> None:
        sign = self._text(at)
        if sign == ";" and top.declares and self._text(at + 1) == "let":
            self._seen[at].text = _AGAIN  # which nobody looks back at: a keyword follows
        if top.arrows:
            self._region = top.arrows[0]
            top.arrows.clear()
        top.is_key = top.kind == "object"
        if top.declares:
            top.declares = "target" if sign == "," and top.kind != "object" else ""

    def _close(self) -> None:
        closed = self._open.pop()
        if not self._open:
            raise ValueError("a bracket is closed that was not opened")
        if closed.is_list:
            self._region = closed.arrows[0] if closed.arrows else self._region
            self._round_body = closed.outer
        else:
            self._region = closed.outer

    def _opened(self, at: int) -> _Bracket:
        sign, is_pattern = self._text(at), self._open[-1].declares == "target"
        before, kind = self._text(at - 1), self._seen[at - 1].kind if at else "sign"
        if sign == "[":
            return _Bracket("[", self._region, declares="target" if is_pattern else "")
        if sign == "(":
            after = self._partner[at] + 1
            is_list = self._is_sign(after, "=>") or (self._is_sign(after, "{") and before not in _CONDITIONS)
            if is_list:
                return _Bracket("(", self._begin_region(), declares="target", is_list=True)
            return _Bracket("(", self._region)
        if self._awaits_class:
            self._awaits_class = False
            return _Bracket("class", self._region)
        if self._round_body >= 0 and before in (")", "=>"):
            outer, self._round_body = self._round_body, -1
            return _Bracket("block", outer)
        if before in _BLOCKS:
            return _Bracket("block", self._begin_region())
        if (kind == "text" and not before.endswith("${")) or (kind == "word" and before not in _WORDS):
            raise ValueError(f"this may not be read right: {before} {{")
        return _Bracket("object", self._region, is_key=True, is_pattern=is_pattern)


# ---- page_modules ----------------------------------------------------------------------------------------------------
# The modules of ``static/`` as text: as an output brings them to its page, and as a widget has them.
#
# An output of 5 KB must not carry 40 KB of the same script in each cell. So an output names the modules that draw it,
# by their version, and leaves its data in a list on the page; some outputs bring the modules too, in one compressed
# script, which draws what waits and what comes later (``static/page.js``). Where nothing is known of the page every
# output brings all that it needs. Where a notebook's page is known (`shown_on`) those that other cells hold are left
# out. An output whose modules are nowhere on its page is the static table, with a line that says so.
#
# A version is a part of the name: outputs of two releases can stand on one page.

_KINDS = ("table", "table_explorer", "flame", "flame_explorer", "timeline", "timeline_explorer", "memory")
"""Those with a ``mount(element, data)``."""
_NEAR = (
    *("table_style", "chosen", "makers", "canvas", "timeline_graph", "table_cells", "table_document", "pattern"),
    *("plain_numbers", "flame_graph", "row_filter", "table_view"),
)
"""An order that compresses well, by a hundredth: what is alike must be less than 32 KB apart."""
_SLOW = 2_000_000  # characters from which more compression is not worth the seconds
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_NEEDS, _BRINGS = (re.compile(rf"<script data-{word}=([\w,-]+)>") for word in ("needs", "brings"))
_DATA = re.compile(r"<script data-needs=([\w-]+)>[^<']*'[^']*'[^<']*'([^']*)','([^']*)'[^<']*</script>")
_TOGETHER = 20_000  # characters of data that are compressed together: what is further away cannot be referred to
_GONE = (
    "The script of this table is missing: the output that held it was deleted. Run the cell again to get"
    " it back; the numbers are here."
)
_PATIENCE = 4000  # ms after which an output says so
_MEANS, _SAYS = "$&<`{}", ",./:[]"  # what means something in HTML, JavaScript or a template, and what stands for it
_TO_SIGNS, _SIGNS_BACK = str.maketrans(_MEANS, _SAYS), str.maketrans(_SAYS, _MEANS)


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
    made = [shortened(_EXPORT.sub("", _module(name).text)) for name in _ordered(("page",))]
    needed = _ordered(names)
    shared = (name for name in _ordered((*_NEAR, *names)) if name in needed and name in _shared())
    made += [f'bring("{versioned(name)}",(page)=>{{{renamed(shortened(_body(name)))}}});\n' for name in shared]
    return f'(()=>{{"use strict";{"".join(made)}}})();\n'


@cache
def _shared() -> frozenset[str]:
    """The modules that a page knows by name: those that an output needs, and what several of them import. What only one
    of them imports is a part of it."""
    users = Counter(name for kind in _KINDS for name in _ordered((kind,)))
    return frozenset(_KINDS) | {name for name, count in users.items() if count > 1}


def _body(name: str) -> str:
    """The text of a module with its parts, which takes what it imports from the page."""
    parts = [part for part in _ordered((name,)) if part == name or part not in _shared()]
    taken: dict[str, dict[str, None]] = {}
    for part in parts:
        for names, of in _module(part).imports:
            if of in _shared():
                taken.setdefault(of, {}).update(dict.fromkeys(names.split(", ")))
    imports = "".join(f'const {{ {", ".join(names)} }} = page["{versioned(of)}"];\n' for of, names in taken.items())
    text = "".join(_EXPORT.sub("", _module(part).text) for part in parts)
    return f"{imports}{text}return {{ {', '.join(_module(name).exports)} }};\n"


def packed_text(text: str) -> str:
    """The text as a zlib stream, four bytes as five signs: what ``static/unpacked.js`` reads.

    A twentieth shorter than base64. The signs are those of Python's base85 (RFC 1924) but for six: with the rest no
    quote, element, entity, TeX formula or ``{{`` can come about.
    """
    stream = zlib.compressobj(9 if len(text) < _SLOW else 6, memLevel=7)  # blocks that fit the turns of a script better
    made = stream.compress(text.encode("utf-8", "replace")) + stream.flush()
    return base64.b85encode(made).decode("ascii").translate(_TO_SIGNS)


def _unpacked_text(packed: str) -> str:
    """What `packed_text` made this of."""
    return zlib.decompress(base64.b85decode(packed.translate(_SIGNS_BACK))).decode("utf-8")


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
    return f"(async()=>{{{renamed(shortened(text)).strip()}}})()".replace('"', "'")


def data_script(module: str, element: str, data: str) -> str:
    """The script that leaves packed ``data`` for a module, which draws it in the element of that id."""
    name = versioned(module)
    push = f"((self.torchbench_magic??={{}})['{name}']??=[]).push(['{element}','{data}'])"
    return f"<script data-needs={name}>{push}</script>"


def together(scripts: str) -> str:
    """One script for several data scripts: what their data have in common is there once. Large ones stay."""
    found = _DATA.findall(scripts)
    if len(found) < 2 or len(scripts) > _TOGETHER or _DATA.sub("", scripts):
        return scripts
    data = packed_text(f"[{','.join(_unpacked_text(data) for _, _, data in found)}]")
    each = ",".join(f"['{name}','{element}']" for name, element, _ in found)
    return (
        f"<script data-needs={','.join(name for name, _, _ in found)}>[{each}].forEach(([name,id],at)=>"
        f"((self.torchbench_magic??={{}})[name]??=[]).push([id,'{data}',at]))</script>"
    )


def with_modules(fragment: str) -> str:
    """A fragment with the modules that its data scripts need, as far as they are neither in it nor on its page."""
    names = {versioned(kind): kind for kind in _KINDS}
    there = {name for listed in _BRINGS.findall(fragment) for name in listed.split(",")}
    needs = {name for listed in _NEEDS.findall(fragment) for name in listed.split(",")}
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
    found = re.search(rf"<script data-needs=[^<]*\['{left_out[0]}'(?:\]\?\?=\[\]\)\.push\(\[|,)'([\w-]+)'", fragment)
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
        f"{shortened(_module('unpacked').text)}"
        f'const text = await unpacked("{packed_text(shortened(text))}");\n'
        'const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));\n'
        "export default (await import(address)).default;\n"
    )
