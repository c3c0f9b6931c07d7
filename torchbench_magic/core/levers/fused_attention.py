"""The lever that computes attention written by hand in one operation."""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from torchbench_magic.core.code.body import copied_tree

from .attention import with_fused_attention
from .lever import Change, DoesNotApply, Site

__all__ = ["FusedAttention"]


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
