"""Texts of the user's code: which code gets lines of its own, which text a code object came from."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import linecache
import os
import re
import sys
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.cell_body import CellText
from torchbench_magic.errors import OptionError
from torchbench_magic.process.code import closed_over, codes_within
from torchbench_magic.process.frame_owner import is_library_file

# ---- variable_names --------------------------------------------------------------------------------------------------


def names_around(target: Callable[[], object]) -> dict[str, Any]:
    """The variables that a function can name: its module's, and those of the functions around it."""
    function = inspect.unwrap(target)
    around = closed_over(function) if isinstance(function, FunctionType) else {}
    return dict(getattr(function, "__globals__", {})) | around


# ---- scope -----------------------------------------------------------------------------------------------------------


class RecordedFiles:
    """Says of a code's file name whether its lines are recorded.

    In are: the files of ``always``, cells, files under ``extra``, and ``.py`` files under ``root`` but libraries'.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        cells: Callable[[str], CellText | None],
        extra: Sequence[str] = (),
        always: Collection[str] = (),
    ) -> None:
        self._root = os.path.realpath(root)
        self._cells = cells
        self._extra = tuple(extra)
        self._always = frozenset(always)

    def __call__(self, file: str) -> bool:
        if file in self._always or self._cells(file) is not None:
            return True
        if file.startswith("<") and file.endswith(">"):
            return False
        path = _real(file) if os.path.isabs(file) else os.path.realpath(file)
        if any(_under(path, prefix) for prefix in self._extra):
            return True
        return path.endswith(".py") and _under(path, self._root) and not is_library_file(file)


@lru_cache(maxsize=1 << 15)
def _real(file: str) -> str:
    """Remembered from run to run: some 30 us a file, which would be the time of the line that calls into it first."""
    return os.path.realpath(file)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix.rstrip(os.sep) + os.sep)


def resolve_lines_of(names: Sequence[str]) -> tuple[str, ...]:
    """Paths of the modules, files and folders named by ``--lines-of``.

    A name that is an existing path is that path; any other is a module (a package means all its files).
    Raises OptionError for a name that is neither.
    """
    return tuple(_resolved(name) for name in names)


def _resolved(name: str) -> str:
    path = Path(name).expanduser()
    if name and path.exists() and (path.suffix == ".py" or os.sep in name or path.is_dir()):
        return os.path.realpath(path)
    origin = getattr(sys.modules.get(name), "__file__", None)
    if origin is None and all(part.isidentifier() for part in name.split(".")):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        origin = spec.origin if spec is not None and spec.has_location else None
    if origin is None:
        raise OptionError(f"--lines-of {name}: no Python module and no path of that name")
    if not origin.endswith(".py"):
        raise OptionError(f"--lines-of {name}: {Path(origin).name} is compiled and has no Python lines")
    return os.path.realpath(Path(origin).parent if Path(origin).name == "__init__.py" else origin)


# ---- statement_lines -------------------------------------------------------------------------------------------------
# What the text of a source says about its lines: which lines are one statement, where a function is defined.
#
# A call written over several lines comes back to its first line, so that line gets two line events for one run.
# To count how often a line *ran*, the lines of one statement are taken together.


@dataclass(frozen=True)
class Statements:
    """Lines of one source.

    Attributes:
        first: line -> first line of its statement, for lines of statements that span several.
        definition: first line of a decorated function or class (its decorator) -> line of its ``def``.
        with_end: line of a ``with`` -> last line of its block; leaving the block comes back to the ``with``.
    """

    first: Mapping[int, int] = field(default_factory=dict)
    definition: Mapping[int, int] = field(default_factory=dict)
    with_end: Mapping[int, int] = field(default_factory=dict)


@lru_cache(maxsize=64)  # a profile reads each file that its code came from
def read_statements(*texts: str) -> Statements:
    """Read the first of ``texts`` that is Python (a cell's visible text need not be); empty if none is."""
    for text in texts:
        try:
            tree = ast.parse(re.sub(r"\A(\s*)%%", r"\1# ", text))  # a leading cell magic is a comment; lines stay
        except (SyntaxError, ValueError):
            continue
        return _statements_in(tree)
    return Statements()


def _statements_in(tree: ast.Module) -> Statements:
    first: dict[int, int] = {}
    definition: dict[int, int] = {}
    with_end: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            start, end = _span(node)
            if end > start:
                first.update(dict.fromkeys(range(start, end + 1), start))
            if start < node.lineno:
                definition[start] = node.lineno
            if isinstance(node, ast.With | ast.AsyncWith):
                with_end.update(dict.fromkeys(range(start, end + 1), node.end_lineno or end))
    return Statements(first, definition, with_end)


def _span(node: ast.stmt) -> tuple[int, int]:
    """First and last line of a simple statement, or of the head of a compound one, decorators included."""
    start = _start(node)
    inner = [part for name in ("body", "cases", "handlers") for part in getattr(node, name, [])]
    if not inner:
        return start, node.end_lineno or node.lineno
    return start, max(node.lineno, min(_start(part) for part in inner) - 1)


def _start(node: ast.AST) -> int:
    """Line on which ``node`` begins: its first decorator, or the pattern of a ``case``."""
    if isinstance(node, ast.match_case):
        return int(node.pattern.lineno)
    lines: list[int] = [decorator.lineno for decorator in getattr(node, "decorator_list", [])]
    return min([*lines, int(getattr(node, "lineno", 1))])


# ---- text_of ---------------------------------------------------------------------------------------------------------


def text_of(file: str) -> str:
    """What a file holds; of a name that is no file, what Python shows of it. Empty where there is neither."""
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
        return "".join(linecache.getlines(file))


# ---- recompiled ------------------------------------------------------------------------------------------------------
# Whether a code object came from a text: the text is compiled again, and the instructions are compared.
#
# A file can be edited after its import, reloaded while somebody keeps the old function, or patched by IPython's
# ``%autoreload 2``, which compiles a changed function on its own, from ``ast.unparse``, with line numbers that start at
# 1 (``IPython/extensions/deduperreload``), and leaves functions that only moved as they are. So the name and the first
# line of a code object prove nothing. Its instructions, names and constants do: where the text compiles to the same
# ones, each instruction's line in the text is the line that ran.

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_PATCHED = "__autoreload_class__."  # the class round a method that IPython compiles on its own
_KIND = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)  # flags that say what a function is; those of ``__future__`` differ in code that IPython patched


@dataclass(frozen=True)
class Recompiled:
    """The code objects that a text compiles to.

    Attributes:
        tree: of the text; empty where the text is no Python.
        file: what it is compiled as.
        codes: qualified name -> the code objects of that name, in the order of the text.
    """

    tree: ast.Module
    file: str
    codes: Mapping[str, tuple[CodeType, ...]]

    @classmethod
    def of(cls, text: str, file: str) -> Recompiled:
        """Of the text of a module; without any code where the text is no Python."""
        try:
            tree = ast.parse(text)
            module = compile(text, file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return cls(ast.Module([], []), file, {})
        found: defaultdict[str, list[CodeType]] = defaultdict(list)
        for code in codes_within(module):
            found[code.co_qualname].append(code)
        return cls(tree, file, {name: tuple(codes) for name, codes in found.items()})

    def lines_of(self, ran: CodeType) -> Mapping[int, int] | None:
        """Line that ``ran`` counts -> line of the text, where the text compiles to its instructions; else None.

        None too where several functions of that name do: nothing tells which of them it is.
        """
        alike: list[Mapping[int, int]] = [moved for code in self._named(ran) if (moved := _lines_between(ran, code))]
        if not ran.co_qualname.startswith(_PATCHED):
            for lines in alike:
                if all(old == new for old, new in lines.items()):
                    return lines
        alike = alike or list(self._patched(ran))
        return alike[0] if len(alike) == 1 else None

    def _named(self, ran: CodeType) -> Iterator[CodeType]:
        name = ran.co_qualname
        if not name.startswith(_PATCHED):
            yield from self.codes.get(name, ())
            return
        name = name.removeprefix(_PATCHED)
        for other, codes in self.codes.items():
            if other == name or other.endswith(f".{name}"):
                yield from codes

    def _patched(self, ran: CodeType) -> Iterator[Mapping[int, int]]:
        """The lines of each function that IPython would have compiled to ``ran``.

        A statement that it puts on one line can have other instructions than one over several: CPython calls a method
        in another way there. So the function is compiled as ``deduperreload`` does, and its tree gives the lines.
        """
        is_method = ran.co_qualname.startswith(_PATCHED)
        name = ran.co_qualname.removeprefix(_PATCHED).partition(".")[0]
        for in_class, function in _functions(self.tree, name):
            if in_class != is_method:
                continue
            text = textwrap.dedent(ast.unparse(function))
            if is_method:
                text = f"class {_PATCHED[:-1]}:\n" + textwrap.indent(text, "    ")
            for decorated in (True, False):
                module = ast.parse(text)
                patch: Any = module.body[0] if not is_method else module.body[0].body[0]  # type: ignore[attr-defined]
                lines = _lines_of_statements(patch, function)
                if not decorated:
                    patch.decorator_list = []
                codes = codes_within(compile(module, self.file, "exec", dont_inherit=True))
                of_name = (code for code in codes if code.co_qualname == ran.co_qualname)
                found = [_lines_between(ran, code) for code in of_name]
                if any(each and all(old == new for old, new in each.items()) for each in found):
                    lines[ran.co_firstlineno] = lines.get(ran.co_firstlineno, function.lineno)
                    yield lines
                    break


def _functions(node: ast.AST, name: str, *, in_class: bool = False) -> Iterator[tuple[bool, _Function]]:
    """(whether it is in a class, function) of every function of that name in no other function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            if child.name == name:
                yield in_class, child
        elif isinstance(child, ast.stmt):
            yield from _functions(child, name, in_class=in_class or isinstance(child, ast.ClassDef))


def _lines_of_statements(patch: ast.AST, function: ast.AST) -> dict[int, int]:
    """Line of a patch -> line of the text, by the statements (and what else has a line) of two trees that are alike."""
    found: dict[int, int] = {}
    for new, old in zip(ast.walk(patch), ast.walk(function), strict=True):
        line, of_text = getattr(new, "lineno", None), getattr(old, "lineno", None)
        if line is not None and of_text is not None:
            found[line] = min(of_text, found.get(line, of_text))
    return found


def _lines_between(ran: CodeType, code: CodeType) -> dict[int, int] | None:
    """Lines of ``ran`` -> the first line of ``code`` with the same instructions; None where the two differ."""
    if _bare(ran) != _bare(code):
        return None
    found = {ran.co_firstlineno: code.co_firstlineno}
    for old, new in zip(_line_by_instruction(ran), _line_by_instruction(code), strict=True):
        if old is not None and new is not None and old != ran.co_firstlineno:
            found[old] = min(new, found.get(old, new))
    return found


def _line_by_instruction(code: CodeType) -> list[int | None]:
    lines: list[int | None] = []
    for start, end, line in code.co_lines():
        lines += [line] * ((end - start) // 2)
    return lines


def _bare(code: CodeType) -> CodeType:
    """The code without what says where it stands, and so what is nested in it: two are equal where they do the same."""
    return code.replace(
        co_filename="",
        co_qualname="",
        co_firstlineno=1,
        co_linetable=b"",
        co_flags=code.co_flags & _KIND,
        co_consts=tuple(map(_bare_constant, code.co_consts)),
    )


def _bare_constant(value: object) -> object:
    if isinstance(value, CodeType):
        return _bare(value)
    if isinstance(value, str) and "\n" in value:
        return " ".join(value.split())  # IPython indents what it compiles, long strings included
    return value
