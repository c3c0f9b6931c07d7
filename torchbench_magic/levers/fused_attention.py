"""The lever that rewrites attention written by hand to torch's fused one."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.process.code import copied_tree

from .kinds import Change, DoesNotApply, Site

__all__ = [
    "FusedAttention",
    "with_fused_attention",
]

# ---- attention -------------------------------------------------------------------------------------------------------
# Attention written by hand, recognised in the syntax of a piece of code: softmax(q @ k^T * scale + mask) @ v.
#
# It may stand in one expression, or in several assignments of one block whose names are read once each. What is
# recognised becomes one call of ``scaled_dot_product_attention``, of the same meaning.

_LAST_TWO = ({-1, -2}, {2, 3}, {1, 2})
"""Dimensions whose exchange transposes the last two, of tensors of any, of four and of three dimensions."""
_MODULES = {"torch", "F", "functional"}


@dataclass(frozen=True)
class _Scores:
    """What is known of the argument of a softmax: ``scale`` and ``mask`` as expressions."""

    query: ast.expr
    key: ast.expr
    scale: ast.expr | None = None
    mask: ast.expr | None = None
    taken: frozenset[int] = frozenset()


def with_fused_attention(tree: ast.Module) -> ast.Module | None:
    """The same code with each attention as one call; None where none is recognised. The tree given is changed."""
    found = False
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and all(isinstance(each, ast.stmt) for each in body):
            found |= _fuse(body, tree)
    return ast.fix_missing_locations(tree) if found else None


def _fuse(body: list[ast.stmt], tree: ast.Module) -> bool:
    found = False
    at = 0
    while at < len(body):
        block = _Block(body, at, tree)
        statement = body[at]
        rewriter = _Rewriter(block)
        if not isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)):
            made = rewriter.visit(statement)
            assert isinstance(made, ast.stmt)
            body[at] = made
        if rewriter.taken:
            found = True
            gone = rewriter.taken - {at}
            body[:] = [each for nth, each in enumerate(body) if nth not in gone]
            at -= len([nth for nth in gone if nth < at])
        at += 1
    return found


class _Rewriter(ast.NodeTransformer):
    def __init__(self, block: _Block) -> None:
        self._block = block
        self.taken: frozenset[int] = frozenset()

    def visit(self, node: ast.AST) -> ast.AST:
        made = self._block.attention(node) if isinstance(node, ast.expr) else None
        if made is None:
            return self.generic_visit(node)
        call, taken = made
        self.taken |= taken
        return ast.copy_location(call, node)


@dataclass
class _Block:
    """One statement of a block, with those before it that its names come from."""

    body: list[ast.stmt]
    at: int
    tree: ast.Module
    seen: set[int] = field(default_factory=set)

    def attention(self, node: ast.expr) -> tuple[ast.expr, frozenset[int]] | None:
        product = _product(node)
        if product is None:
            return None
        weights, taken = self._resolved(product[0], self.at, frozenset({self.at}))
        scores = _softmaxed(weights)
        if scores is None:
            return None
        found = self._scores(scores, min(taken), taken)
        if found is None or not self._are_still(found):
            return None
        words = [("attn_mask", found.mask), ("scale", found.scale or ast.Constant(1.0))]
        keywords = [ast.keyword(name, value) for name, value in words if value is not None]
        return ast.Call(_function(), [found.query, found.key, product[1]], keywords), found.taken

    def _scores(self, node: ast.expr, at: int, taken: frozenset[int]) -> _Scores | None:
        """What the scores are made of; ``at``: the statement that the expression stands in."""
        node, taken = self._resolved(node, at, taken)
        at = min(taken)
        product = _product(node)
        if product is not None:
            right, more = self._resolved(product[1], at, taken)
            key = _transposed(right)
            return None if key is None else _Scores(product[0], key, taken=more)
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node, at, taken)
        masked = _masked(node)
        if masked is None:
            return None
        inner = self._scores(masked[0], at, taken)
        keep = ast.Call(ast.Attribute(masked[1], "logical_not", ast.Load()), [], [])
        return replace(inner, mask=keep) if inner is not None and inner.mask is None else None

    def _arithmetic(self, node: ast.BinOp, at: int, taken: frozenset[int]) -> _Scores | None:
        sides = [(node.left, node.right)]
        if isinstance(node.op, (ast.Mult, ast.Add)):
            sides.append((node.right, node.left))
        for side, other in sides:
            inner = self._scores(side, at, taken)
            if inner is None:
                continue
            if isinstance(node.op, ast.Add):
                return replace(inner, mask=other) if inner.mask is None else None
            if not isinstance(node.op, (ast.Mult, ast.Div)) or inner.mask is not None:
                return None
            scale = other if isinstance(node.op, ast.Mult) else ast.BinOp(ast.Constant(1.0), ast.Div(), other)
            return replace(inner, scale=scale if inner.scale is None else ast.BinOp(inner.scale, ast.Mult(), scale))
        return None

    def _resolved(self, node: ast.expr, at: int, taken: frozenset[int]) -> tuple[ast.expr, frozenset[int]]:
        """What a name was assigned before statement ``at``, where nothing else reads that; else the name."""
        if not isinstance(node, ast.Name):
            return node, taken
        for nth in range(at - 1, -1, -1):
            if node.id not in _names_bound_by(self.body[nth]):
                continue
            made = self.body[nth]
            simple = isinstance(made, ast.Assign) and len(made.targets) == 1 and isinstance(made.targets[0], ast.Name)
            if simple and self._reads(node.id, nth) == 1:
                assert isinstance(made, ast.Assign)
                return made.value, taken | {nth}
            return node, taken
        return node, taken

    def _reads(self, name: str, after: int) -> int:
        """How often a name is read after a statement, until it is bound anew; many where it may be read elsewhere."""
        count = 0
        for statement in self.body[after + 1 :]:
            count += sum(1 for each in _names(statement) if each.id == name and isinstance(each.ctx, ast.Load))
            if name in _names_bound_by(statement):
                return count
        inside = sum(1 for each in ast.walk(self.tree) if isinstance(each, ast.Name) and each.id == name
                     and isinstance(each.ctx, ast.Load))  # fmt: skip
        here = sum(1 for one in self.body for each in _names(one) if each.id == name and isinstance(each.ctx, ast.Load))
        return count + (inside - here)

    def _are_still(self, found: _Scores) -> bool:
        """Whether what the statements that go away read is bound to the same at the statement that stays."""
        parts = [part for part in (found.query, found.key, found.scale, found.mask) if part is not None]
        read = {each.id for part in parts for each in _names(part)}
        between = [one for nth, one in enumerate(self.body) if min(found.taken) <= nth < self.at]
        return not any(read & _names_bound_by(one) for nth, one in enumerate(between))


# ---- what expressions are ---------------------------------------------------------------------------------------


def _product(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """``a @ b``, ``torch.matmul(a, b)``, ``torch.bmm(a, b)``, ``a.matmul(b)``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return node.left, node.right
    if not isinstance(node, ast.Call) or node.keywords or _name(node.func) not in ("matmul", "bmm"):
        return None
    given = _given(node)
    return (given[0], given[1]) if len(given) == 2 else None


def _softmaxed(node: ast.expr) -> ast.expr | None:
    """What ``torch.softmax(x, dim=-1)`` or ``x.softmax(-1)`` is of; of the last dimension, in its own dtype."""
    if not isinstance(node, ast.Call) or _name(node.func) != "softmax":
        return None
    given = _given(node)
    words = {word.arg: word.value for word in node.keywords}
    dim = given[1] if len(given) == 2 else words.pop("dim", None)
    if not given or len(given) > 2 or words or dim is None or _integer(dim) != -1:
        return None
    return given[0]


def _transposed(node: ast.expr) -> ast.expr | None:
    """What ``k.transpose(-2, -1)`` or ``k.mT`` is of."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    if not isinstance(node, ast.Call) or node.keywords or _name(node.func) != "transpose":
        return None
    given = _given(node)
    if len(given) != 3 or {_integer(given[1]), _integer(given[2])} not in _LAST_TWO:
        return None
    return given[0]


def _masked(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """(scores, condition) of ``scores.masked_fill(condition, float("-inf"))``."""
    if not isinstance(node, ast.Call) or _name(node.func) != "masked_fill" or len(node.args) != 2 or node.keywords:
        return None
    if not isinstance(node.func, ast.Attribute) or not _is_least(node.args[1]):
        return None
    return node.func.value, node.args[0]


def _given(call: ast.Call) -> list[ast.expr]:
    """The arguments, the object of a method as the first."""
    if isinstance(call.func, ast.Attribute) and not _is_module(call.func.value):
        return [call.func.value, *call.args]
    return list(call.args)


def _is_module(node: ast.expr) -> bool:
    return _name(node) in _MODULES


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _integer(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _integer(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _is_least(node: ast.expr) -> bool:
    """``float("-inf")``, ``-torch.inf``, ``-1e9``: what a softmax gives no weight."""
    text = ast.unparse(node).replace(" ", "").replace("'", '"')
    if text in ('float("-inf")', "-math.inf", "-torch.inf", "-inf", '-float("inf")', "-np.inf"):
        return True
    try:
        return float(text) <= -1e9
    except ValueError:
        return False


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))


def _names_bound_by(statement: ast.stmt) -> set[str]:
    """Names that a statement binds or deletes, whatever is in it."""
    return {each.id for each in _names(statement) if not isinstance(each.ctx, ast.Load)}


def _function() -> ast.expr:
    """The function, where the code may know torch by another name, or not at all."""
    imported = ast.Call(ast.Name("__import__", ast.Load()), [ast.Constant("torch")], [])
    functional = ast.Attribute(ast.Attribute(imported, "nn", ast.Load()), "functional", ast.Load())
    return ast.Attribute(functional, "scaled_dot_product_attention", ast.Load())


# ---- fused_attention -------------------------------------------------------------------------------------------------
# The lever that computes attention written by hand in one operation.


@dataclass(frozen=True)
class FusedAttention:
    """``scaled_dot_product_attention`` in place of attention that is written out in the body, in a function of the
    notebook or in the ``forward`` of a module's class. Sums are taken in another order; a row of which everything is
    masked may be something else.

    The functions and classes are copies of their own, and modules share their parameters with the originals.
    """

    name: str = "sdpa"

    def change(self, site: Site) -> Change:
        import torch

        body = with_fused_attention(copied_tree(site.tree))
        names: dict[str, Any] = {}
        where = ["the body"] if body is not None else []
        for name, value in site.names.items():
            if type(value) is FunctionType and value in site.functions and (made := _fused(value)) is not None:
                names[name] = made
                where.append(f"`{name}`")
        for name, model in site.of_kind(torch.nn.Module).items():
            kinds = {kind: _fused_class(kind) for kind in {type(part) for part in model.modules()}}
            fused = {kind: anew for kind, anew in kinds.items() if anew is not None}
            if fused:
                names[name] = _of_classes(model, fused)
                where += [f"`{kind.__name__}`" for kind in fused]
        if not where:
            raise DoesNotApply("no hand-written attention was recognised in the cell, its functions and modules")
        drops = _bound(site.tree) - _bound(body) if body is not None else frozenset[str]()
        changed = f"in {', '.join(where)}"
        if drops:
            changed += f"; the body no longer makes {', '.join(f'`{name}`' for name in sorted(drops))}"
        how = "F.scaled_dot_product_attention(q, k, v)"
        return Change(names=names, body=body, drops=drops, how=how, changed=changed)


def _bound(tree: ast.Module) -> frozenset[str]:
    return frozenset(
        each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )


def _fused(function: FunctionType) -> FunctionType | None:
    """A copy of the function with its attention as one call; None where none is recognised."""
    code = function.__code__
    if code.co_freevars:
        return None
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return None
    definition = tree.body[0] if tree.body else None
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return None
    fused = with_fused_attention(tree)
    if fused is None:
        return None
    ast.increment_lineno(fused, code.co_firstlineno - 1)
    module = compile(fused, code.co_filename, "exec", dont_inherit=True)
    inner = next(each for each in module.co_consts if isinstance(each, CodeType) and each.co_name == code.co_name)
    made = FunctionType(inner, function.__globals__, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _fused_class(kind: type) -> type | None:
    forward = kind.__dict__.get("forward")
    if type(forward) is not FunctionType or kind.__module__.startswith("torch."):
        return None
    made = _fused(forward)
    return None if made is None else type(kind.__name__, (kind,), {"forward": made, "__module__": kind.__module__})


def _of_classes(model: Any, classes: dict[type, type]) -> Any:
    """A copy of the module that shares its parameters and buffers, with other classes for some of its parts."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    made = copy.deepcopy(model, shared)
    for part in made.modules():
        if type(part) in classes:
            part.__class__ = classes[type(part)]
    return made
