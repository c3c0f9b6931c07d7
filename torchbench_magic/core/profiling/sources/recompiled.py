"""Whether a code object came from a text: the text is compiled again, and the instructions are compared.

A file can be edited after its import, reloaded while somebody keeps the old function, or patched by IPython's
``%autoreload 2``, which compiles a changed function on its own, from ``ast.unparse``, with line numbers that start at 1
(``IPython/extensions/deduperreload``), and leaves functions that only moved as they are. So the name and the first line
of a code object prove nothing. Its instructions, names and constants do: where the text compiles to the same ones, each
instruction's line in the text is the line that ran.
"""

from __future__ import annotations

import ast
import gc
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.core.code.code_reads import codes_within

__all__ = ["Recompiled"]

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

        None too where several functions of that name do, and nothing tells which of them it is.
        """
        alike: list[tuple[str, Mapping[int, int]]] = [
            (code.co_qualname, moved) for code in self._named(ran) if (moved := _lines_between(ran, code))
        ]
        if not ran.co_qualname.startswith(_PATCHED):
            for _, lines in alike:
                if all(old == new for old, new in lines.items()):
                    return lines
        alike = alike or list(self._patched(ran))
        if len(alike) > 1:
            owners = _owners(ran)
            alike = [(name, lines) for name, lines in alike if name in owners]
        return alike[0][1] if len(alike) == 1 else None

    def has_one_there(self, ran: CodeType) -> bool:
        """Whether a function of that name stands where ``ran`` says that it does."""
        return any(code.co_firstlineno == ran.co_firstlineno for code in self._named(ran))

    def _named(self, ran: CodeType) -> Iterator[CodeType]:
        name = ran.co_qualname
        if not name.startswith(_PATCHED):
            yield from self.codes.get(name, ())
            return
        name = name.removeprefix(_PATCHED)
        for other, codes in self.codes.items():
            if other == name or other.endswith(f".{name}"):
                yield from codes

    def _patched(self, ran: CodeType) -> Iterator[tuple[str, Mapping[int, int]]]:
        """(qualified name, lines) of each function that IPython would have compiled to ``ran``.

        A statement that it puts on one line can have other instructions than one over several: CPython calls a method
        in another way there. So the function is compiled as ``deduperreload`` does, and its tree gives the lines.
        """
        is_method = ran.co_qualname.startswith(_PATCHED)
        name, _, nested = ran.co_qualname.removeprefix(_PATCHED).partition(".")
        for outer, function in _functions(self.tree, name):
            if bool(outer) != is_method:
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
                    yield f"{outer}{name}" + (f".{nested}" if nested else ""), lines
                    break


def _functions(node: ast.AST, name: str, outer: str = "") -> Iterator[tuple[str, _Function]]:
    """(classes around it, with a dot behind each, function) of every function of that name in no other function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, name, f"{outer}{child.name}.")
        elif isinstance(child, _Function):
            if child.name == name:
                yield outer, child
        elif isinstance(child, ast.stmt):
            yield from _functions(child, name, outer)


def _lines_of_statements(patch: ast.AST, function: ast.AST) -> dict[int, int]:
    """Line of a patch -> line of the text, by the statements (and what else has a line) of two trees that are alike."""
    found: dict[int, int] = {}
    for new, old in zip(ast.walk(patch), ast.walk(function), strict=True):
        line, of_text = getattr(new, "lineno", None), getattr(old, "lineno", None)
        if line is not None and of_text is not None:
            found[line] = min(of_text, found.get(line, of_text))
    return found


def _owners(code: CodeType) -> frozenset[str]:
    """Qualified names of the functions that have this code; IPython's patches keep the function's own."""
    holders = (each for each in gc.get_referrers(code) if isinstance(each, FunctionType))
    return frozenset(function.__qualname__ for function in holders if function.__code__ is code)


def _lines_between(ran: CodeType, code: CodeType) -> dict[int, int] | None:
    """Lines of ``ran`` -> the first line of ``code`` with the same instructions; None where the two differ."""
    if not _is_same(ran, code):
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


def _is_same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects are the same but for their lines, and those nested in them too."""
    if one.co_name != other.co_name and not one.co_qualname.startswith(_PATCHED):
        return False
    return (
        one.co_code == other.co_code
        and one.co_names == other.co_names
        and one.co_varnames == other.co_varnames
        and one.co_freevars == other.co_freevars
        and one.co_cellvars == other.co_cellvars
        and (one.co_argcount, one.co_posonlyargcount, one.co_kwonlyargcount)
        == (other.co_argcount, other.co_posonlyargcount, other.co_kwonlyargcount)
        and one.co_flags & _KIND == other.co_flags & _KIND
        and one.co_exceptiontable == other.co_exceptiontable
        and len(one.co_consts) == len(other.co_consts)
        and all(map(_is_same_constant, one.co_consts, other.co_consts))
    )


def _is_same_constant(one: object, other: object) -> bool:
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return _is_same(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, str) and isinstance(other, str) and "\n" in one:
        return one.split() == other.split()  # IPython indents what it compiles, long strings included
    if isinstance(one, frozenset):
        return one == other
    return repr(one) == repr(other)  # tells 1 from True and 0.0 from -0.0, also within a tuple
