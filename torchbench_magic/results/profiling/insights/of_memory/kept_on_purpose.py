"""What the text of the code says of a container, or of a chain of objects: whether it is emptied too, and whether what
it holds is used later."""

from __future__ import annotations

import ast
from typing import TypeGuard

from ..source_trees import FUNCTIONS

__all__ = ["is_cut", "is_emptied", "is_made_in", "is_read_after_its_loop", "is_walked"]

_EMPTIES = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard"})


def is_emptied(tree: ast.Module, name: str) -> bool:
    """Whether items of ``name`` are taken out somewhere: `name.pop(0)`, `del name[0]`, `name = name[-10:]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _EMPTIES:
            if _is_name(node.func.value, name):
                return True
        elif isinstance(node, ast.Delete):
            if any(isinstance(each, ast.Subscript) and _is_name(each.value, name) for each in node.targets):
                return True
        elif (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript) and _is_name(node.value.value, name)
        ) and any(_is_name(each, name) for each in node.targets):
            return True
    return False


def is_made_in(tree: ast.Module, name: str) -> bool:
    """Whether this text makes ``name`` anew, outside of its loops: what it collects there is its result."""
    inside = {id(each) for loop in _loops(tree) for each in ast.walk(loop)}
    return any(
        isinstance(node, ast.Assign | ast.AnnAssign)
        and id(node) not in inside
        and any(_is_name(each, name) for each in (node.targets if isinstance(node, ast.Assign) else [node.target]))
        for node in ast.walk(tree)
    )


def is_read_after_its_loop(tree: ast.Module, name: str) -> bool:
    """Whether ``name`` is read below the last loop that it stands in."""
    loops = [loop for loop in _loops(tree) if any(_is_name(each, name) for each in ast.walk(loop))]
    ends = [loop.end_lineno or loop.lineno for loop in loops]
    return bool(ends) and any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > max(ends)
        for node in ast.walk(tree)
    )


def is_cut(tree: ast.Module, link: str) -> bool:
    """Whether the attribute ``link`` is taken away somewhere: `del t.prev`, `t.prev.prev = None` in a loop or function.
    What makes an object begins with None too."""
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name != "__init__"]
    later = {id(each) for place in (*_loops(tree), *functions) for each in ast.walk(place)}
    return any(
        isinstance(node, ast.Delete) or (id(node) in later and ast.unparse(node.value) == "None")
        for node in ast.walk(tree)
        if isinstance(node, ast.Delete | ast.Assign) and any(_is_link(each, link) for each in node.targets)
    )


def is_walked(tree: ast.Module, link: str) -> bool:
    """Whether code goes from an object to the one before: `t = t.prev`, `t.prev.prev`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.NamedExpr) and _is_link(node.value, link):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(ast.unparse(each) == ast.unparse(node.value.value) for each in targets):
                return True
        if isinstance(node, ast.Attribute) and _is_link(node, link) and _is_link(node.value, link):
            return True
    return False


def _is_link(node: ast.AST, link: str) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr == link


def _loops(tree: ast.Module) -> list[ast.For | ast.AsyncFor | ast.While]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.AsyncFor | ast.While)]


def _is_name(node: ast.AST, name: str) -> bool:
    """A variable; of an attribute (``log.steps``) any of that name, since a method calls its object ``self``."""
    if isinstance(node, ast.Attribute):
        return "." in name and node.attr == name.rpartition(".")[2]
    return isinstance(node, ast.Name) and node.id == name
