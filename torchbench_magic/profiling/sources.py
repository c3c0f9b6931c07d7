"""Which text each code object of a run came from, what a line of it says, and the libraries that it calls."""

from __future__ import annotations

import ast
import functools
import importlib.machinery
import inspect
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from torchbench_magic import units
from torchbench_magic.cell_body import CellText
from torchbench_magic.process.dynamo import RESUMED, is_compiled
from torchbench_magic.process.machine import proc_text, stat_fields
from torchbench_magic.process.reach import dict_of
from torchbench_magic.results import Doubt

from .file_texts import Recompiled, Statements, read_statements, text_of
from .profile import Profile
from .trace import Source

# ---- source_trees ----------------------------------------------------------------------------------------------------
# What the text of a line says: its statement, the loop it stands in, the calls it makes and what those can be.

TORCH_ROOTS = frozenset({"torch", "F", "nn"})
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, eq=False)
class StatementPlace:
    """Where a line stands in its text.

    Attributes:
        statements: those that are on it, in the order of the text: of a compound one its head, and what follows on
            the same line.
        around: the loops and functions around the first of them, the innermost first.
        module: the whole text.
    """

    statements: tuple[ast.stmt, ...]
    around: tuple[ast.stmt, ...]
    module: ast.Module

    @property
    def head(self) -> list[ast.expr]:
        """The expressions that the statements run on their own lines: of a compound one, its head."""
        return [part for each in self.statements for part in _head(each)]

    @property
    def repeated_by(self) -> ast.stmt | None:
        """The innermost loop around it, or else function; None where it is in neither."""
        loops = [each for each in self.around if isinstance(each, _LOOPS)]
        return loops[0] if loops else self.around[0] if self.around else None


def place_in(source: Source | None, line: int) -> StatementPlace | None:
    """Where ``line`` of a source stands; None where the text is no Python, or has no statement there."""
    tree = parsed_text(source.text) if source is not None else None
    if source is None or tree is None:
        return None
    number = line - source.first_line + 1
    found = tuple(_on_line(tree.body, number, ()))
    if not found:
        return None
    return StatementPlace(tuple(each for each, _ in found), found[0][1], tree)


def _on_line(
    body: Iterable[ast.stmt], number: int, around: tuple[ast.stmt, ...]
) -> Iterator[tuple[ast.stmt, tuple[ast.stmt, ...]]]:
    """Statements that run something on line ``number``, each with the loops and functions around it."""
    for each in body:
        if not _first(each) <= number <= (each.end_lineno or each.lineno):
            continue
        inside = list(_blocks(each))
        has_head_there = any(part.lineno <= number <= (part.end_lineno or part.lineno) for part in _head(each))
        if not inside or has_head_there or number == each.lineno:
            yield each, around
        deeper = (each, *around) if isinstance(each, (*_LOOPS, *FUNCTIONS)) else around
        yield from _on_line(inside, number, deeper)


@lru_cache(maxsize=64)
def parsed_text(text: str) -> ast.Module | None:
    """The text as Python, with a leading cell magic and lines of magics as comments; lines stay where they are."""
    said = re.sub(r"^(\s*)(%%?[A-Za-z_]|!)", _as_pass, text, flags=re.MULTILINE)
    try:
        return ast.parse(said)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _as_pass(found: re.Match[str]) -> str:
    return f"{found[1]}pass  # " if not found[2].startswith("%%") else f"{found[1]}# "


def _first(node: ast.stmt) -> int:
    decorators: list[int] = [each.lineno for each in getattr(node, "decorator_list", [])]
    return min([*decorators, node.lineno])


def _blocks(node: ast.stmt) -> Iterator[ast.stmt]:
    """The statements directly within a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield from (each for each in getattr(node, name, []) if isinstance(each, ast.stmt))
    for name in ("handlers", "cases"):
        for part in getattr(node, name, []):
            yield from part.body


def _head(node: ast.stmt) -> Iterator[ast.expr]:
    inner = set(map(id, _blocks(node)))
    for child in ast.iter_child_nodes(node):
        if id(child) in inner or isinstance(child, ast.ExceptHandler | ast.match_case | ast.arguments):
            continue
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.withitem):
            yield child.context_expr


def bound_in(scope: ast.AST) -> Iterator[str]:
    """Names that running ``scope`` binds, its own parameters included; of a class or function also those in it."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)) and node is not scope:
            yield node.name


def calls_in(expressions: list[ast.expr]) -> list[ast.Call]:
    """All calls, those in arguments too; what stands in a ``lambda`` as well."""
    return [node for each in expressions for node in ast.walk(each) if isinstance(node, ast.Call)]


def call_name(call: ast.Call) -> str:
    """``np.argwhere`` or ``x.numpy``; the last part alone where it is called on another expression; empty where there
    is no name."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return ".".join([node.id, *reversed(parts)])
    return f".{parts[0]}" if parts else ""


def is_torch_call(call: ast.Call) -> bool:
    """Whether it is written as a function of torch: ``torch.ones``, ``F.relu``, ``torch.nn.functional.pad``."""
    root, dot, _ = call_name(call).partition(".")
    return bool(dot) and root in TORCH_ROOTS


def leaves_for_numpy(call: ast.Call, module: ast.Module) -> bool:
    """Whether it is a function of numpy, or ``.numpy()``."""
    name = call_name(call)
    return name.endswith(".numpy") or ("." in name and name.partition(".")[0] in _numpy_names(module))


def _numpy_names(module: ast.Module) -> frozenset[str]:
    names = {"np", "numpy"}  # always: an earlier cell may import it
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names.update(a.asname or "numpy" for a in node.names if a.name.split(".")[0] == "numpy")
    return frozenset(names)


# ---- library_calls ---------------------------------------------------------------------------------------------------
# Which library a line calls, so that its lines can be opened: what the text names is looked up, nothing is run.

_MOST = 0.5  # of the wall time
_MISSING = object()
_NOT_OPENED = ("torch", "torchbench_magic")
"""What is to be seen of torch are operations and modules; this package's own lines are never recorded."""


def libraries_called(profile: Profile, namespace: Mapping[str, Any]) -> tuple[tuple[str, int, str], ...]:
    """(source_id, line, module) of the line that has most of the time, where it calls Python code of a library.

    The module is one for ``--lines-of``: its lines were not recorded. torch's own are none, nor are this package's.
    """
    columns = ("source_id", "line", "thread", "self_cpu_time", "python_time")
    found = []
    for source_id, line, thread, *own in zip(*(profile.lines[name].tolist() for name in columns), strict=True):
        if thread != 0 or source_id is None or not sum(own) > _MOST * profile.wall_time:
            continue
        module = _library_called(profile.sources[source_id], line, namespace, profile.sources.values())
        if module:
            found.append((source_id, line, module))
    return tuple(found)


def _library_called(source: Source, line: int, namespace: Mapping[str, Any], recorded: Iterable[Source]) -> str:
    files = {each.file for each in recorded}
    for call in _calls(source, line):
        function = _function(_value(call.func, namespace))
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        if function is None or module is None or not isinstance(file, str) or not file.endswith(".py"):
            continue
        if module.__name__.partition(".")[0] not in _NOT_OPENED and function.__code__.co_filename not in files:
            return module.__name__
    return ""


def _calls(source: Source, line: int) -> Iterator[ast.Call]:
    """The calls that begin on this line, the outermost first."""
    place = place_in(source, line)
    if place is not None:
        yield from (call for call in calls_in(place.head) if call.lineno + source.first_line - 1 == line)


def _value(node: ast.expr, namespace: Mapping[str, Any]) -> object:
    """What a name, or an attribute of one, stands for; no property is asked."""
    if isinstance(node, ast.Name):
        return namespace.get(node.id, _MISSING)
    if isinstance(node, ast.Attribute):
        value = _value(node.value, namespace)
        return _MISSING if value is _MISSING else inspect.getattr_static(value, node.attr, _MISSING)
    return _MISSING


def _function(value: object) -> FunctionType | None:
    """The Python function that a call of ``value`` runs."""
    if value is _MISSING or isinstance(value, ModuleType):
        return None
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if inspect.ismethod(value):
        value = value.__func__
    if isinstance(value, FunctionType):
        unwrapped = inspect.unwrap(value)
        return unwrapped if isinstance(unwrapped, FunctionType) else value
    kind, name = (value, "__init__") if isinstance(value, type) else (type(value), "__call__")
    found = inspect.getattr_static(kind, name, None)
    return found if isinstance(found, FunctionType) else None


# ---- code_sources ----------------------------------------------------------------------------------------------------
# Which text each code object of a run came from: a cell, a file, or none that is known.

Cells = Callable[[str], CellText | None]
_SLACK = 2.0  # s: /proc/stat gives the start of the machine in whole seconds
_UNKNOWN = "\0"  # ends the file name that stands for a text that is not known


@dataclass(frozen=True)
class ProfiledBody:
    """The code that is profiled.

    Attributes:
        own: its code objects, the first of which names the source profiled; none for a callable that is not Python's.
        cells: file name -> the cell's text.
        suspends: it awaits at its top level.
    """

    own: tuple[CodeType, ...]
    cells: Cells
    suspends: bool = False


@dataclass(frozen=True)
class CodeSources:
    """The codes of a run with their texts.

    Attributes:
        codes, own: as they were given, but each under a file name that stands for its text: one file can have several.
        of: that file name -> the source.
        statements: that file name -> what its text says of its lines.
        moved: number of a code -> line that it counts -> line of its text, where the two differ.
        doubts: what is to be said of files that have changed.
    """

    codes: tuple[CodeType, ...]
    own: tuple[CodeType, ...]
    of: Mapping[str, Source]
    statements: Mapping[str, Statements]
    moved: Mapping[int, Mapping[int, int]]
    doubts: tuple[Doubt, ...]


def sources_of(codes: Sequence[CodeType], own: Sequence[CodeType], cells: Cells) -> CodeSources:
    """Find the text of each code: by its file name for a cell, by its instructions for a file."""
    every = (*codes, *own)
    named = list(every)
    found: list[Source] = []
    statements: dict[str, Statements] = {}
    moved: dict[int, Mapping[int, int]] = {}
    doubts: list[Doubt] = []
    for file in dict.fromkeys(code.co_filename for code in every):
        cell = cells(file)
        if cell is not None:
            found.append(Source(cell.source_id, file, cell.text, cell.number))
            statements[file] = read_statements("".join(linecache.getlines(file)), cell.text)
            continue
        of_file = _FileCodes.placed(file, [code for code in every if code.co_filename == file])
        for number, code in enumerate(every):
            if code.co_filename == file:
                named[number], lines = of_file.named(code)
                if lines and number < len(codes):
                    moved[number] = lines
        for name, source in of_file.sources().items():
            found.append(replace(source, file=name))
            statements[name] = read_statements(source.text)
        doubts += of_file.doubts()
    of = {name: replace(each, file=name.removesuffix(_UNKNOWN)) for name, each in _merged(found).items()}
    return CodeSources(tuple(named[: len(codes)]), tuple(named[len(codes) :]), of, statements, moved, tuple(doubts))


@dataclass(frozen=True)
class _FileCodes:
    """The codes of one file, each with its lines in the text of the file.

    Attributes:
        text: empty where there is none.
        place: id of a code -> line that it counts -> line of the text; no entry for a code that the text does not
            compile to.
        unknown: these codes.
    """

    file: str
    text: str
    place: Mapping[int, Mapping[int, int]]
    unknown: tuple[CodeType, ...]

    @classmethod
    def placed(cls, file: str, codes: Sequence[CodeType]) -> _FileCodes:
        text = text_of(file)
        sure = _is_compiled_plainly(file) and _may_have_changed(file)
        found = {id(code): _lines_in(text, code, file, sure=sure) for code in codes}
        place = {code: lines for code, lines in found.items() if lines is not None}
        return cls(file, text, place, tuple(dict.fromkeys(code for code in codes if id(code) not in place)))

    def named(self, code: CodeType) -> tuple[CodeType, Mapping[int, int]]:
        """The code under the name of its text, and its lines where they are others in that text."""
        lines = self.place.get(id(code))
        if lines is None:
            return code.replace(co_filename=f"{self.file}{_UNKNOWN}"), {}
        moved = {old: new for old, new in lines.items() if old != new}
        first = lines.get(code.co_firstlineno, code.co_firstlineno)
        return (code.replace(co_firstlineno=first) if moved else code), moved

    def sources(self) -> dict[str, Source]:
        """File name that stands for a text -> the source."""
        found = {}
        if self.place:
            found[self.file] = Source(CellText.of(self.text, self.file).source_id, self.file, self.text)
        if self.unknown:
            text = _without_text(self.unknown)
            source_id = CellText.of(text, self.file).source_id
            found[f"{self.file}{_UNKNOWN}"] = Source(source_id, self.file, text, version="text not known")
        return found

    def doubts(self) -> list[Doubt]:
        if not self.unknown:
            return []
        label, names = Path(self.file).name, _names(self.unknown)
        text = (
            f"{label} has changed since it was imported: lines of {names} are shown without source, by their old "
            "numbers. Their times are valid."
            if self.text
            else f"{label} cannot be read: lines of {names} are shown without source. Their times are valid."
        )
        action = "Reload the module, or restart the kernel, and run this again."
        return [Doubt("text-unknown", text, action, {"file": self.file, "unknown": len(self.unknown)})]


def _lines_in(text: str, code: CodeType, file: str, *, sure: bool) -> Mapping[int, int] | None:
    """Line that a code counts -> line of the text, where they differ; None where the text is not the code's.

    Args:
        sure: a text that does not compile to the code is not its text. Else (an import hook changed the code, and
            pytest's does; the file is older than the process) the lines are those of the text all the same.
    """
    if not text:
        return None
    if is_compiled(code) or code.co_name.startswith(RESUMED):
        return {}
    lines = _recompiled(text, file).lines_of(code)
    return {} if lines is None and not sure else lines


@functools.lru_cache(maxsize=256)
def _recompiled(text: str, file: str) -> Recompiled:
    return Recompiled.of(text, file)


def _is_compiled_plainly(file: str) -> bool:
    """Whether Python's own loader compiled the file: what it makes is what the text compiles to."""
    for module in list(sys.modules.values()):
        names = dict_of(module)
        if type(names) is dict and names.get("__file__") == file:
            return type(names.get("__loader__")) is importlib.machinery.SourceFileLoader
    return True


def _may_have_changed(file: str) -> bool:
    """Whether the file may have been written since this process started: by its change time, which no tool sets."""
    try:
        changed = os.stat(file).st_ctime
    except OSError:
        return True
    return changed > _process_start() - _SLACK


@functools.cache
def _process_start() -> float:
    """Unix seconds at which this process started; 0 where the system does not tell."""
    stat = proc_text("/proc/stat").partition("\nbtime ")[2].split()
    started = stat_fields("self")[19:20]
    return int(stat[0]) + int(started[0]) / os.sysconf("SC_CLK_TCK") if stat and started else 0.0


def _names(codes: Sequence[CodeType]) -> str:
    """``f`` or ``f and g`` or ``f, g and 3 more``."""
    names = list(dict.fromkeys(code.co_qualname.removeprefix("__autoreload_class__.") for code in codes))
    shown = [f"`{name}`" for name in names[:3]]
    shown += [f"{len(names) - 3} more"] if len(names) > 3 else []
    return units.listed(shown)


def _without_text(codes: Sequence[CodeType]) -> str:
    """A text of as many lines as the codes have: it names them, and says no more."""
    last = max(line or 0 for code in codes for _, _, line in code.co_lines())
    lines = [""] * max(last, *(code.co_firstlineno for code in codes))
    for code in codes:
        lines[code.co_firstlineno - 1] = f"# {code.co_qualname}: its text is not known"
    return "\n".join(lines) + "\n"


def _merged(found: Iterable[Source]) -> dict[str, Source]:
    """By file name; files with the same text are one source, the cell that ran last gives the label.

    A cell and the same cell under a magic line have one source_id but other line numbers: then the older one gets
    an id of its own.
    """
    by_file: dict[str, Source] = {}
    merged: dict[str, Source] = {}
    for source in sorted(found, key=lambda each: (-(each.cell or 0), each.file)):
        same = merged.setdefault(source.source_id, source)
        if _lines_above(same.text) != _lines_above(source.text):
            own_id = f"{source.source_id}+{_lines_above(source.text)}"
            same = merged.setdefault(own_id, replace(source, source_id=own_id))
        by_file[source.file] = same
    return by_file


def _lines_above(text: str) -> int:
    """Lines before the first that counts for the source_id: blank ones and a magic line."""
    lines = text.splitlines()
    return next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("%%")), 0)
