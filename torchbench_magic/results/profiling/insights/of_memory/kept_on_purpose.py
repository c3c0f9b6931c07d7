"""What the text of the code says of a container: whether it is emptied too, and whether its items are used later."""

from __future__ import annotations

import ast

__all__ = ["is_emptied", "is_read_after_its_loop"]

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


def is_read_after_its_loop(tree: ast.Module, name: str) -> bool:
    """Whether ``name`` is read below the last loop that it stands in."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.AsyncFor | ast.While)]
    ends = [node.end_lineno or node.lineno for node in loops if any(_is_name(each, name) for each in ast.walk(node))]
    return bool(ends) and any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > max(ends)
        for node in ast.walk(tree)
    )


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
