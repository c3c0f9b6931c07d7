"""Which names a cell binds at its own level, and which of them an iteration must put back.

A timed cell becomes the body of a loop in a function, so its names become locals. To mean the same in every
iteration, a name that may be read before the cell assigns it has to start each iteration as it was: with the value
of the namespace, or unbound. A name that is always assigned first needs nothing (and resetting it would free the
previous result early, which changes what the allocator does).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["BoundNames", "bound_names"]

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class BoundNames:
    """The names that a module body binds at its own level.

    Attributes:
        bound: every name bound (assigned, imported, defined, deleted, captured by ``except`` or ``match``).
        reset: those of ``bound`` that some path may read, or find unbound, before it binds them.
        shared: names that functions inside the body declare ``global`` and the body itself may use.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.shared = {n for f in ast.walk(tree) if isinstance(f, ast.Global) for n in f.names}
        self.bound = set(_binds(tree)) - self.shared
        self.reset = self.bound - _always_first(tree.body, self.bound)


def bound_names(tree: ast.Module) -> BoundNames:
    """Analyse a module body; a ``global`` at its own level is a no-op there and does not count."""
    return BoundNames(tree)


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
    """The parts of a function or class statement that run in the enclosing scope."""
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
