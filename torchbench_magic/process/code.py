"""Code of cells and scripts: how it is compiled, alone or in a loop, which names it reads and binds, what calling it
returns."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import dis
import functools
import gc
import inspect
import itertools
import numbers
import operator
import re
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from traceback import walk_tb
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeVar

from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import BodyError

# ---- body ------------------------------------------------------------------------------------------------------------
# From a piece of a cell's text to code that runs, with the cell's own file name and visible line numbers.
#
# A magic's body is compiled behind as many empty lines as stand above it in the cell, under the file name that
# the cell itself has. So tracebacks, syntax errors and line events name the line that the user sees. Nothing
# here knows IPython: compiler flags (a ``from __future__ import`` of an earlier cell) and AST transformers are
# given by the caller.

TransformAst = Callable[[ast.Module], ast.Module]
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True)
class CompiledBody:
    """Code of one body, its trailing expression split off as an interactive cell does.

    Attributes:
        code: the statements before the trailing expression.
        last: the trailing expression, or None.
        is_coroutine: the body awaits at its top level; ``run`` refuses it, ``run_async`` takes both kinds.
        body: what was compiled.
    """

    code: CodeType
    last: CodeType | None
    is_coroutine: bool
    body: Body

    def run(self, namespace: dict[str, Any]) -> Any:
        """Run in ``namespace``; the value of the trailing expression, or None without one."""
        __tracebackhide__ = True
        if self.is_coroutine:
            raise RuntimeError("a body with a top-level await needs run_async")
        exec(self.code, namespace)
        return None if self.last is None else eval(self.last, namespace)

    async def run_async(self, namespace: dict[str, Any]) -> Any:
        """As ``run``, within a running event loop."""
        __tracebackhide__ = True
        await _finish(self.code, eval(self.code, namespace))
        return None if self.last is None else await _finish(self.last, eval(self.last, namespace))


async def _finish(code: CodeType, value: Any) -> Any:
    __tracebackhide__ = True
    return await value if _awaits(code) else value


def _awaits(code: CodeType | None) -> bool:
    return code is not None and bool(code.co_flags & inspect.CO_COROUTINE)


def parse_body(body: Body, *, flags: int = 0, transform_ast: TransformAst | None = None) -> ast.Module:
    """Parse ``body`` with its visible line numbers, top-level await allowed.

    Args:
        flags: compiler flags (``__future__`` features) of the session.
        transform_ast: applied to the tree, as IPython's AST transformers are to a cell.

    Raises:
        SyntaxError: the user's, with the visible line and the cell's file.
    """
    __tracebackhide__ = True
    padded = "\n" * (body.first_line - 1) + body.source
    only_ast = flags | ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.Module = compile(padded, body.file, "exec", only_ast, dont_inherit=True)
    return tree if transform_ast is None else transform_ast(tree)


def compile_body(body: Body, *, flags: int = 0, transform_ast: TransformAst | None = None) -> CompiledBody:
    """Compile ``body`` to run once, as a cell does.

    Raises:
        SyntaxError: the user's, with the visible line and the cell's file.
    """
    __tracebackhide__ = True
    tree = parse_body(body, flags=flags, transform_ast=transform_ast)
    trailing: ast.Expression | None = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last_statement = tree.body.pop()
        assert isinstance(last_statement, ast.Expr)
        trailing = ast.Expression(last_statement.value)

    def compiled(node: ast.Module | ast.Expression, mode: str) -> CodeType:
        __tracebackhide__ = True
        await_allowed = flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code: CodeType = compile(node, body.file, mode, await_allowed, dont_inherit=True)
        return code

    code = compiled(tree, "exec")
    last = None if trailing is None else compiled(trailing, "eval")
    return CompiledBody(code, last, _awaits(code) or _awaits(last), body)


_TAKEN = "__tb_value"
_WORDS: tuple[tuple[type[ast.stmt] | tuple[type[ast.stmt], ...], str], ...] = (
    ((ast.With, ast.AsyncWith), "with"),
    ((ast.For, ast.AsyncFor), "for"),
    (ast.While, "while"),
    (ast.If, "if"),
    ((ast.Try, ast.TryStar), "try"),
    (ast.Match, "match"),
)


def with_value_taken(tree: ast.Module) -> ast.Module:
    """The module with the last expression of a trailing ``with`` block (or of one within it) as its own last one.

    Such a block always runs to its end, so there is no doubt which value is meant. Other blocks may run it never or
    many times: a module that ends with one stays as it is.
    """
    block = tree.body
    while block and isinstance(block[-1], (ast.With, ast.AsyncWith)):
        block = block[-1].body
    if block is tree.body or not isinstance(block[-1], ast.Expr):
        return tree
    last = block[-1]
    taken = ast.Assign([ast.Name(_TAKEN, ast.Store())], last.value)
    block[-1] = ast.copy_location(taken, last)
    empty = ast.Assign([ast.Name(_TAKEN, ast.Store())], ast.Constant(None))  # a block may swallow an exception
    value = ast.Expr(ast.Name(_TAKEN, ast.Load()))
    tree.body = [ast.copy_location(empty, tree.body[0]), *tree.body, ast.copy_location(value, last)]
    return ast.fix_missing_locations(tree)


def ending_block(tree: ast.Module) -> str:
    """The word that begins the block which the module ends with; empty where it ends with none."""
    last = tree.body[-1] if tree.body else None
    return next((word for kinds, word in _WORDS if isinstance(last, kinds)), "")


def copied_tree(tree: Node) -> Node:
    """A copy of a tree, of its own fields alone.

    Tracebacks of IPython give each node its parent, and all trees share the nodes of ``Load``, ``Add`` and the like:
    `copy.deepcopy` would copy the whole of another file's tree with it.
    """
    fields = {name: _copied(value) for name, value in ast.iter_fields(tree)}
    return ast.copy_location(type(tree)(**fields), tree)


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return copied_tree(value) if isinstance(value, ast.AST) else value


# ---- code_reads ------------------------------------------------------------------------------------------------------
# What code reads: the globals it names, what it closed over, and the functions of the notebook that it may call.

BY_TEXT = frozenset(
    ("eval", "exec", "globals", "locals", "vars", "get_ipython", "query", "__main__", "_getframe", "f_globals")
)
"""Names by which code finds variables that it does not name."""
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_WORD = re.compile(r"[^\W\d]\w*")


def notebook_functions(
    names: Iterable[str], namespace: Mapping[str, Any], home: Mapping[str, Any]
) -> list[FunctionType]:
    """Functions that code using ``names`` may call, written in the notebook (their globals are ``home``).

    Methods of notebook classes count, also through an instance. The search follows the names that those functions
    read, so that a function called by a function is found.
    """
    found: dict[int, FunctionType] = {}
    unwrapped: dict[int, Any] = {}
    todo = [namespace[n] for n in names if n in namespace]
    while todo:
        value = todo.pop()
        if (inner := wrapped_by(value)) is not None and id(inner) not in unwrapped:
            unwrapped[id(inner)] = inner
            todo.append(inner)
        for function in _functions_of(value):
            if function.__globals__ is home and id(function) not in found:
                found[id(function)] = function
                todo += [home[n] for n in globals_read(function.__code__) if n in home]
                todo += closed_over(function).values()
    return list(found.values())


def closed_over(function: FunctionType) -> dict[str, Any]:
    """Names of the enclosing functions that a function reads, with what they hold."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            found[name] = cell.cell_contents
    return found


def wrapped_by(value: Any) -> Any:
    """The function that a decorator such as ``torch.compile`` or ``torch.no_grad()`` made another one of, as
    ``functools.wraps`` notes it, or the module that ``torch.compile`` did; None where there is none."""
    if type(value) is FunctionType:
        return vars(value).get("__wrapped__")
    if type(value).__name__ == "OptimizedModule":
        return (vars(value).get("_modules") or {}).get("_orig_mod")
    return None


def _functions_of(value: Any) -> Iterator[FunctionType]:
    if issubclass(type(value), MethodType):  # `isinstance` would ask the object for its class
        value = value.__func__
    while issubclass(type(value), functools.partial):
        value = value.func
    if issubclass(type(value), FunctionType):
        yield value
        return
    kind = value if issubclass(type(value), type) else type(value)
    for base in kind.__mro__:
        if base.__module__ == "__main__":
            yield from (f for f in vars(base).values() if issubclass(type(f), FunctionType))


def variables_read(
    names: Iterable[str], namespace: Mapping[str, Any], functions: Iterable[FunctionType] = ()
) -> dict[str, Any]:
    """The variables that code finds: those of ``names`` in ``namespace``, and what the functions that it may call read
    besides, in their own globals and in the functions around them."""
    read = {name: namespace[name] for name in names if name in namespace}
    for function in functions:
        home = function.__globals__
        read |= {n: home[n] for n in globals_read(function.__code__) if n in home and n not in read}
        read |= {n: value for n, value in closed_over(function).items() if n not in read}
    return read


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """Code, and all code defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)


def names_used(code: CodeType) -> Iterator[str]:
    """Names that code, or code inside it, looks up by their text: globals, attributes, imports."""
    return (name for part in codes_within(code) for name in part.co_names)


def names_by(code: CodeType, *operations: str) -> set[str]:
    """What these instructions of code, or of code defined in it, name."""
    return {name for operation, name in _named(code) if operation in operations}


@functools.lru_cache(maxsize=1 << 12)
def _named(code: CodeType) -> tuple[tuple[str, Any], ...]:
    """(instruction, what it names) of code, and of code defined in it."""
    every = (each for part in codes_within(code) for each in dis.get_instructions(part))
    return tuple((each.opname, each.argval) for each in every if each.arg is not None)


def globals_read(code: CodeType) -> set[str]:
    """Names of globals that code, or code defined in it, reads."""
    return names_by(code, *_LOADS)


def names_looked_up(code: CodeType) -> set[str]:
    """Names that code, or code defined in it, may look for among the globals.

    The name of an attribute is none of them (``x.mean()`` uses no variable ``mean``), unless the code can find globals
    by their text, as by ``eval``: then every name and every word of a text in it may be one.
    """
    used = set(names_used(code))
    if used.isdisjoint(BY_TEXT):
        return names_by(code, *_LOADS, "DELETE_GLOBAL", "DELETE_NAME")
    texts = (text for part in codes_within(code) for text in part.co_consts if isinstance(text, str))
    return used | {word for text in texts for word in _WORD.findall(text)}


def globals_assigned(code: CodeType) -> set[str]:
    """Names of globals that code, or code defined in it, assigns."""
    return names_by(code, "STORE_GLOBAL", "STORE_NAME")


# ---- bound_names -----------------------------------------------------------------------------------------------------
# Which names a cell binds at its own level, and which of them an iteration must put back.
#
# A timed cell becomes the body of a loop in a function, so its names become locals. To mean the same in every
# iteration, a name that may be read before the cell assigns it has to start each iteration as it was: with the value
# of the namespace, or unbound. A name that is always assigned first needs nothing (and resetting it would free the
# previous result early, which changes what the allocator does).

_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class BoundNames:
    """The names that a module body binds at its own level; a ``global`` there is a no-op and does not count.

    Attributes:
        bound: every name bound (assigned, imported, defined, deleted, captured by ``except`` or ``match``).
        reset: those of ``bound`` that some path may read, or find unbound, before it binds them.
        shared: names that functions inside the body declare ``global`` and the body itself may use.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.shared = {n for f in ast.walk(tree) if isinstance(f, ast.Global) for n in f.names}
        self.bound = set(_binds(tree)) - self.shared
        self.reset = self.bound - _always_first(tree.body, self.bound)


def _binds(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield child.name
            for outer in _evaluated_outside(child):
                yield from _bind_one(outer)
                yield from _binds(outer)
            continue
        if isinstance(child, ast.Lambda):
            for outer in _evaluated_outside(child):
                yield from _bind_one(outer)
                yield from _binds(outer)
            continue
        if isinstance(child, _COMPREHENSIONS):  # targets are its own; only := reaches out
            for inner in ast.walk(child):
                if isinstance(inner, ast.NamedExpr):
                    yield inner.target.id
            continue
        yield from _bind_one(child)
        yield from _binds(child)


def _bind_one(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Import() | ast.ImportFrom():
            for alias in node.names:
                yield (alias.asname or alias.name).split(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
        case ast.MatchMapping(rest=str(name)):
            yield name


def _evaluated_outside(node: ast.AST) -> list[ast.AST]:
    """The parts of a function, a class statement or a generator that run in the enclosing scope, at once."""
    if isinstance(node, ast.GeneratorExp):
        return [node.generators[0].iter]
    outside: list[ast.AST] = list(getattr(node, "decorator_list", []))
    if isinstance(node, ast.ClassDef):
        return [*outside, *node.bases, *(k.value for k in node.keywords)]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        outside += [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
    return outside


def _always_first(body: list[ast.stmt], bound: set[str]) -> set[str]:
    """Names whose first use, in the order of the top-level statements, is an unconditional plain binding.

    Only simple statements are trusted; any mention inside a compound statement, a nested scope or an augmented
    assignment counts as a read. That errs on the side of resetting a name, which is always right.
    """
    first: set[str] = set()
    seen: set[str] = set()
    for statement in _unconditional(body):
        stored = _plain_targets(statement)
        read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} | set(_binds_of(statement))
        values = _reads_before_binding(statement)
        for name in stored:
            if name not in seen and name not in values:
                first.add(name)
        seen |= read
    return first & bound


def _unconditional(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements in order, with the bodies of ``with`` blocks in line: they run whenever the block does."""
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            for item in statement.items:
                yield ast.Expr(item.context_expr)
                if item.optional_vars is not None:
                    yield ast.Assign([item.optional_vars], ast.Constant(None))
            yield from _unconditional(statement.body)
        else:
            yield statement


def _binds_of(statement: ast.stmt) -> Iterator[str]:
    yield from _bind_one(statement)
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    yield from _binds(statement)


def _plain_targets(statement: ast.stmt) -> set[str]:
    """Names that this statement binds on every path."""
    match statement:
        case ast.Assign(targets=targets):
            return {n.id for t in targets for n in _flat(t)}
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            return {name}
        case ast.Import() | ast.ImportFrom():
            return set(_bind_one(statement))
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    return set()


def _flat(target: ast.expr) -> Iterator[ast.Name]:
    match target:
        case ast.Name():
            yield target
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _flat(part)
        case ast.Starred(value=value):
            yield from _flat(value)


def _reads_before_binding(statement: ast.stmt) -> set[str]:
    """Names that a simple binding statement may read (nested scopes included) before its targets are bound."""
    parts: list[ast.AST]
    match statement:
        case ast.Assign(targets=targets, value=value):
            parts = [value, *targets]
        case ast.AnnAssign(value=value, annotation=annotation) if value is not None:
            parts = [value, annotation]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            parts = [statement]
        case _:
            parts = []
    return {n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)}


# ---- counters --------------------------------------------------------------------------------------------------------
# Code that counts (`step += 1; if step % 16 == 0: opt.step()`), or puts something else in the place of what it has used
# (`buf.append(x); if len(buf) == 8: buf = []`), is the body of a loop: its names go on from one timed call to the next
# as they would there. Put back, each call would take the same branch, and what the object holds would not be put back.

_FILLED = (list, dict, set, deque, bytearray)
"""Of what goes on, each alternative fills its own: two that fill one until it holds 64 items meet that once."""
_STORES = ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME")
_GROW, _BOUND = (ast.Mult, ast.Pow, ast.LShift), (ast.Mod, ast.BitAnd, ast.FloorDiv, ast.RShift, ast.Call, ast.IfExp)


def counts(tree: ast.Module, names: Iterable[str], namespace: Mapping[str, Any]) -> bool:
    """Whether one of these ``names``, which code reads before it binds them anew, holds a number, or is bound to what
    is not made of it.

    Not whole numbers that it multiplies without a bound, which are soon too long to compute with.
    """
    nodes = [*ast.walk(tree)]
    multiplied = {name for node in nodes for name in _multiplied(node)}
    bound = [(_plain_targets(node), _reads_before_binding(node)) for node in nodes if isinstance(node, ast.stmt)]
    anew, itself = ({n for targets, read in bound for n in targets if (n in read) is own} for own in (False, True))

    def goes_on(name: str, kind: type) -> bool:
        if issubclass(kind, numbers.Integral):
            return name not in multiplied
        return issubclass(kind, numbers.Real) or name in anew - itself

    return any(goes_on(name, type(namespace[name])) for name in names if name in namespace)


def read_first(code: CodeType) -> set[str]:
    """Names that the code of a module reads before it binds them, where all of it runs."""
    first: dict[str, str] = {}
    for one in dis.get_instructions(code):
        if one.opname in _LOADS or one.opname in _STORES:
            first.setdefault(one.argval, one.opname)
    return {name for name, operation in first.items() if operation in _LOADS}


def _multiplied(node: ast.AST) -> set[str]:
    """Names that a statement binds to what it multiplies them by, without a bound."""
    parts = [*ast.walk(node)] if isinstance(node, (ast.Assign, ast.AugAssign)) else []
    operations = [part.op if isinstance(part, (ast.BinOp, ast.AugAssign)) else part for part in parts]
    if any(isinstance(each, _BOUND) for each in operations) or not any(isinstance(each, _GROW) for each in operations):
        return set()
    return {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


# ---- loop ------------------------------------------------------------------------------------------------------------
# A cell's text as the body of a timed loop.
#
# The text becomes the body of ``for _ in it:`` inside a function over the caller's namespace, so that a call costs
# about 4 ns instead of the 18 ns of a function call or the 61 ns of ``exec``, and nothing is written to the
# namespace. Line numbers and the file name stay those of the cell.


@dataclass(frozen=True)
class Loop:
    """A cell's text as the body of a loop between two readings of the clocks.

    Attributes:
        replicas: functions of one meaning; ``replicas[i](it, wall, cpu, sync, names)`` returns the nanoseconds
            (wall, cpu) of one pass over ``it``, or a coroutine that does when ``is_async``.
        empty: the same loop without the body, resets of names included: what a call costs besides the body.
        is_async: the body awaits.
        names: names that the body reads from the namespace, with those of functions and lambdas inside it.
        inputs: those of them whose value of the namespace an iteration may read: the body does not always bind them
            first.
        kept: values that names of the namespace have at the start of every iteration; of those that go on, of the next
            block.
        going_on: names that go on from iteration to iteration, since the body `counts`.
        read_first: names that the body reads before it binds them.
        source: the text that was compiled.
    """

    replicas: tuple[FunctionType, ...]
    empty: FunctionType
    is_async: bool
    names: frozenset[str]
    kept: Mapping[str, Any]
    source: str
    inputs: frozenset[str] = frozenset()
    going_on: frozenset[str] = frozenset()
    read_first: frozenset[str] = frozenset()


_SHELL = """\
def __tb_block(__tb_it, __tb_wall, __tb_cpu, __tb_sync, __tb_names):
{before}
    __tb_sync()
    __tb_c0 = __tb_cpu()
    __tb_t0 = __tb_wall()
    for __tb_i in __tb_it:
{resets}
        pass
    __tb_sync()
{dropped}
    __tb_t1 = __tb_wall()
    __tb_c1 = __tb_cpu()
    return __tb_t1 - __tb_t0, __tb_c1 - __tb_c0
"""


def compile_loop(
    body: Body,
    namespace: dict[str, Any],
    *,
    flags: int = 0,
    transform_ast: TransformAst | None = None,
    replicas: int = 1,
    goes_on: bool = True,
) -> Loop:
    """Compile a cell's text over a namespace (the functions' globals; it is not copied).

    Args:
        replicas: how many functions of one meaning.
        goes_on: the names of code that `counts` go on, but for those that it deletes; else all are put back.

    Raises:
        SyntaxError: as the cell itself would raise it, with its own line.
        BodyError: an empty text, or code that cannot stand in a loop (``import *``, ``from __future__``).
    """
    namespace.setdefault("__builtins__", builtins)  # as `exec` does: a warning that C code raises imports by it
    tree = _parsed(body, flags, transform_ast)
    # compiled as it stands first: that refuses return, yield and break outside their places
    module = compile(tree, body.file, "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    is_async = bool(module.co_flags & inspect.CO_COROUTINE)
    used = frozenset(names_used(module))
    names = BoundNames(tree)
    first = read_first(module)
    goes_on = goes_on and counts(tree, names.reset & first, namespace)
    kept_on = names.reset - names.shared - names_by(module, "DELETE_NAME")
    going_on = kept_on & namespace.keys() if goes_on else set()
    line = tree.body[0].lineno
    tree = _GlobalsDropped().visit(tree)
    code, bare = (
        _code_of(compile(shell, body.file, "exec", flags, dont_inherit=True))
        for shell in _shells(names, going_on, namespace, is_async, tree.body, line)
    )
    copies = tuple(FunctionType(code.replace(), namespace, "<module>") for _ in range(replicas))
    empty = FunctionType(bare, namespace, "<module>")
    kept = {n: namespace[n] for n in names.reset | names.shared if n in namespace}
    kept |= {n: copy.copy(kept[n]) for n in going_on if type(kept[n]) in _FILLED}
    inputs = frozenset(globals_read(module) - (names.bound - names.reset))
    return Loop(copies, empty, is_async, used, kept, body.source, inputs, frozenset(going_on), frozenset(first))


def _parsed(body: Body, flags: int, transform_ast: TransformAst | None) -> ast.Module:
    """Parse with the visible line numbers; say in one line what cannot be timed."""
    tree = parse_body(body, flags=flags, transform_ast=transform_ast)
    if not tree.body:
        raise BodyError("nothing to time: the body is empty")
    if all(isinstance(each, ast.Expr) and _is_text(each.value) for each in tree.body):
        raise BodyError("nothing to time: the statement is a text, which runs nothing. Leave out the quotes")
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.module == "__future__" or any(a.name == "*" for a in node.names):
            what = f"from {node.module} import {', '.join(a.name for a in node.names)}"
            raise BodyError(f"line {node.lineno}: `{what}` cannot be timed: write it in the setup section")
    return tree


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class _GlobalsDropped(ast.NodeTransformer):
    """Drop ``global`` statements of the body's own level: they mean nothing at the level of a module."""

    def visit_Global(self, node: ast.Global) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)

    def _keep(self, node: ast.AST) -> ast.AST:
        return node

    # names that ast.NodeVisitor asks for
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _keep  # noqa: N815


def _shells(
    names: BoundNames,
    going_on: set[str],
    namespace: dict[str, Any],
    is_async: bool,
    body: list[ast.stmt],
    first: int,
) -> Iterator[ast.Module]:
    """The function around the loop, its own lines placed on the first line of the cell; and one around an empty loop,
    which awaits nothing. They share their nodes."""
    before = [f"global {', '.join(sorted(names.shared))}"] if names.shared else []
    put_back = (names.reset | names.shared) - going_on
    before += [f"__tb_kept_{n} = __tb_names[{n!r}]" for n in sorted(put_back) if n in namespace]
    before += [f"{n} = __tb_names[{n!r}]" for n in sorted(going_on)]
    resets = {  # a name that was unbound is so again, whatever the last iteration left: bind, then delete
        n: f"{n} = __tb_kept_{n}" if n in namespace else f"{n} = None; del {n}" for n in put_back
    }
    # let go of while the clock runs, as between iterations; what a function may look for later, a block later
    inner = (each for one in body for each in ast.walk(one) if isinstance(each, _LATER))
    parts = (n for one in inner for n in {*ast.walk(one)}.difference(*map(ast.walk, _evaluated_outside(one))))
    looked_up = {n.id for n in parts if isinstance(n, ast.Name)}
    plain = names.bound - names.reset
    nodes = [n for one in body for n in ast.walk(one) if isinstance(n, ast.Name)]
    held = (plain & looked_up) - {n.id for n in nodes if isinstance(n.ctx, ast.Del)}
    before += [f"{n} = None" for n in sorted(held)]
    dropped = [f"__tb_names['__tb_{n}'] = {n}" if n in held else f"{n} = None" for n in sorted(plain)]
    dropped += [resets[n] for n in sorted(put_back)]  # of shared ones the other alternatives read these too
    dropped += [f"__tb_names[{n!r}] = {n}" for n in sorted(going_on)]
    text = _SHELL.format(
        before=_indented(before, 4),
        resets=_indented([resets[n] for n in sorted(resets)], 8),
        dropped=_indented(dropped, 4),
    )
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.expr, ast.arg)):
            node.lineno = node.end_lineno = first
            node.col_offset = node.end_col_offset = 0
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    function.lineno = 1  # as a module's: traceback printers number the cell's lines from where its code begins
    loop = next(s for s in function.body if isinstance(s, ast.For))
    empty = loop.body[-1:]
    loop.body[-1:] = body
    yield ast.Module([ast.AsyncFunctionDef(**vars(function))], []) if is_async else tree
    loop.body[-len(body) :] = empty
    yield tree


def _indented(lines: list[str], by: int) -> str:
    return "\n".join(" " * by + line for line in lines)


def _code_of(module: CodeType) -> CodeType:
    """The function's code, named as the level of a cell is, so that a traceback reads like the cell's own."""
    code = next(c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == "__tb_block")
    return code.replace(co_name="<module>", co_qualname="<module>")


def calls_left(error: BaseException) -> int | None:
    """How many calls the loop of `compile_loop` had not begun when an exception left it; None: it left none."""
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    loop = next((frame for frame in frames if "__tb_it" in frame.f_code.co_varnames), None)
    return None if loop is None else operator.length_hint(loop.f_locals["__tb_it"])


# ---- callables -------------------------------------------------------------------------------------------------------
# Callables that scripts hand in: whether calling one does its work, and what a call returned without running it.
#
# Calling a generator function or a coroutine function runs none of its code: it makes an object that runs later or
# never.


def check_callable(function: Callable[..., object], name: str) -> None:
    """Refuse what cannot be called as it is, or whose call runs nothing.

    Args:
        name: what the message calls it.

    Raises:
        BodyError: it needs arguments; it is a generator function, a coroutine function or an async generator function.
    """
    kind = kind_of_function(function)
    if kind is not None:
        way = "`lambda: list(f())`" if kind == "generator" else "`lambda: asyncio.run(f())`, or await it in a cell"
        if kind == "async generator":
            way = "a function that runs `async for` over it, such as `lambda: asyncio.run(main())`"
        article = "an" if kind.startswith("a") else "a"
        raise BodyError(f"{name} is {article} {kind} function, and calling it runs none of its code: give {way}")
    needed = _needed(function)
    if needed:
        what = f"{name} needs {'arguments' if len(needed) > 1 else 'an argument'} ({', '.join(needed)})"
        raise BodyError(f"{what}: callables are called without any; give `lambda: ...` with the call, or text")


def kind_of_function(function: object) -> str | None:
    """``generator``, ``coroutine`` or ``async generator`` where calling the function makes one; else None.

    A wrapper is not looked through: it may well run what it wraps.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    call = None if inspect.isroutine(inner) or inspect.isclass(inner) else getattr(type(inner), "__call__", None)  # noqa: B004
    for asked in (inner, call):
        if inspect.iscoroutinefunction(asked):
            return "coroutine"
        if inspect.isasyncgenfunction(asked):
            return "async generator"
        if inspect.isgeneratorfunction(asked):
            return "generator"
    return None


def not_run(value: object) -> str | None:
    """``generator``, ``coroutine`` or ``async generator`` for one of which nothing has run yet; else None."""
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        return "coroutine"
    if inspect.isgenerator(value) and inspect.getgeneratorstate(value) == inspect.GEN_CREATED:
        return "generator"
    if inspect.isasyncgen(value) and value.ag_frame and not getattr(value, "ag_suspended", value.ag_running):
        return "async generator"
    return None


_CALLING = (map, filter, itertools.starmap)
_MOST_HELD = 100
"""Items of a container that are looked at."""


def put_off(value: object, depth: int = 2) -> str:
    """What a value does later or elsewhere, while the code seems to have done it, with its article; empty for others.

    That is a generator or a coroutine that has not begun, an iterator that calls a function for each item, a future of
    asyncio or of concurrent.futures that is not done; or one of these that an iterator takes from or a container holds,
    ``depth`` within each other. No code of the user's is run to find out.
    """
    kind = type(value)
    if (made := not_run(value)) is not None:
        return f"{'an' if made.startswith('a') else 'a'} {made} that has not begun"
    if kind in _CALLING:
        return f"a {kind.__name__} whose function has not been called"
    futures = (getattr(sys.modules.get(module), "Future", None) for module in ("asyncio", "concurrent.futures"))
    future = next((of for of in futures if of is not None and issubclass(kind, of)), None)
    if future is not None:
        return "" if future.done(value) else f"a {kind.__name__} that is not done"
    is_iterator = kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")
    if not depth or inspect.isgenerator(value) or not (is_iterator or kind in (list, tuple, dict)):
        return ""
    return next(filter(None, (put_off(each, depth - 1) for each in gc.get_referents(value)[:_MOST_HELD])), "")


def _needed(function: Callable[..., object]) -> list[str]:
    """Names of the parameters without which it cannot be called; none where its signature is not known."""
    inner = function
    if hasattr(function, "forward") and hasattr(function, "named_parameters"):  # nn.Module.__call__ takes anything
        inner = function.forward
    try:
        parameters = inspect.signature(inner).parameters.values()
    except (TypeError, ValueError):  # builtins may not say
        return []
    open_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in open_kinds]


# ---- coroutines ------------------------------------------------------------------------------------------------------
# Running a coroutine where no event loop runs, so that code which may await is written once.

T = TypeVar("T")


def completed(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends.

    A StopIteration that passes through a coroutine becomes a RuntimeError (PEP 479): code of the user's is run in there
    only where what it raises is kept as a value.
    """
    __tracebackhide__ = True
    try:
        steps.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    steps.close()
    raise RuntimeError("the body awaits, and no event loop runs here")


# ---- notebook_cells --------------------------------------------------------------------------------------------------
# The cells and names of the notebook that the extension is loaded in, for functions that scripts and cells call alike.
#
# Who has a book of cells enters it here; in a script there is none.


@dataclass(frozen=True)
class Notebook:
    """What code of a notebook finds and how it is compiled, asked for when it is needed; nothing of it is kept.

    Attributes:
        names: its variables, now.
        compiling: how its cells are compiled: ``flags`` and ``transform_ast`` of a `Task`.
        plain: a cell's text -> Python, its IPython syntax translated.
    """

    names: Mapping[str, Any]
    compiling: Mapping[str, Any]
    plain: Callable[[str], str]


_books: list[Callable[[str], CellText | None]] = []
_notebooks: dict[int, Callable[[], Notebook]] = {}  # by the id of the book


def open_book(book: Callable[[str], CellText | None], notebook: Callable[[], Notebook] | None = None) -> None:
    """``book``: file name of code -> its cell, None for what is no cell; ``notebook``: what its cells find."""
    _books.append(book)
    if notebook is not None:
        _notebooks[id(_books[-1])] = notebook


def close_book(book: Callable[[str], CellText | None]) -> None:
    if book in _books:
        _notebooks.pop(id(_books.pop(_books.index(book))), None)


def cell_of(file: str) -> CellText | None:
    """The cell that the code of ``file`` is of; None for what is no cell."""
    found = (book(file) for book in reversed(_books))
    return next((cell for cell in found if cell is not None), None)


def notebook_now() -> Notebook | None:
    """What cells find that run now; None where no notebook is known."""
    notebooks = (_notebooks.get(id(book)) for book in reversed(_books))
    return next((notebook() for notebook in notebooks if notebook is not None), None)
