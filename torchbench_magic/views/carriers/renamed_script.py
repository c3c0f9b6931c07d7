"""JavaScript of ours with short names for what is local to it: a tenth less of a compressed module.

For text that is `shortened`. ``let a=1;let b=2;`` becomes one statement too.

What a word stands for must be certain. A variable is what is no property (``.name``, ``{ name: ... }``), no name of a
method and no keyword; ``{ name }`` becomes ``{name:a}``. What the modules of ``static/`` do not use is refused: labels,
``switch``, ``var``, fields of classes.

Where a scope ends need not be certain, only that it ends within a region: a block, or a function with its parameters.
Of regions within each other that declare a name the outermost has it, for all that stands in it; so what shadowed
another does so still. A name that no region round it declares (``document``) stays. Two variables have the same short
name only where neither is used in the region of the other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, product

__all__ = ["renamed"]

_SIGNS = re.compile(
    r"""(?P<space>\s+)
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\d[\w.]*)
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<sign>=>|\.\.\.|\?\.(?!\d)|[!=]==?|[<>]=|\?\?=?|&&=?|\|\|=?|\+\+|--|[-+*/%]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_PATTERN = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
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
        elif sign == "/" and (pattern := _PATTERN.match(text, at)) and _may_begin_pattern(last):
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
