"""``--check``: do the alternatives return the same?"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np

from torchbench_magic.core.code.body import CompiledBody, compile_body, ending_block, parse_body, with_value_taken
from torchbench_magic.core.process.held_interrupts import interrupts_let_through
from torchbench_magic.errors import BodyError, CheckFailed, OptionError
from torchbench_magic.results.cell_text import Body

from ..timing_task import Task
from .in_place import TensorVersions
from .watched_inputs import InputCopies

__all__ = ["agree", "check_equal_results"]

_DEEPEST = 20
_NUMBERS = (bool, int, float, complex)


def check_equal_results(
    task: Task, names: Mapping[str, Any], versions: TensorVersions, put_back: Callable[[], object] = lambda: None
) -> None:
    """Run each alternative once, on the same inputs and with the same random numbers, and compare what they return.

    Args:
        put_back: has the settings of the process as they were, random generators included; called before each.

    Raises:
        OptionError: there is one alternative only.
        BodyError: an alternative has no value to compare.
        CheckFailed: one returns something else than the baseline does.
    """
    if len(task.bodies) == 1:
        raise OptionError("--check compares alternatives, and here is only one: add a section or leave it out")
    values, inputs = {}, InputCopies(versions.held)
    for name, body in task.bodies.items():
        compiled = _compiled(task, body)
        if compiled.last is None:
            raise BodyError(f"--check: {_without_value(task, name, body)}: end it with the expression to compare")
        if compiled.is_coroutine:
            raise BodyError("--check cannot compare code that awaits")
        put_back()
        try:
            with interrupts_let_through():
                value = compiled.run(dict(names))
            values[name] = _detached(value)
        finally:
            inputs.restore_all()
    put_back()
    if all(value is None for value in values.values()):
        names_said = " and ".join(f"`{name}`" for name in values)
        raise BodyError(f"--check: {names_said} return None, so nothing is compared: end each with what to compare")
    agree(values, task.plan.baseline or next(iter(values)))


def _compiled(task: Task, body: Body) -> CompiledBody:
    def transform(tree: ast.Module) -> ast.Module:
        return with_value_taken(tree if task.transform_ast is None else task.transform_ast(tree))

    return compile_body(body, flags=task.flags, transform_ast=transform)


def _without_value(task: Task, name: str, body: Body) -> str:
    """Why an alternative has no value, in words."""
    block = ending_block(parse_body(body, flags=task.flags, transform_ast=task.transform_ast))
    return f"`{name}` ends with a `{block}` block, which has no value" if block else f"`{name}` returns nothing"


def _detached(value: Any, depth: int = 0) -> Any:
    """A value apart from what the alternatives after it change: tensors, arrays and containers copied, each within the
    other too, so that a result that is filled anew is not compared with itself."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {key: _detached(item, depth + 1) for key, item in value.items()}
    if depth < _DEEPEST and isinstance(value, list | tuple | deque):
        items = [_detached(item, depth + 1) for item in value]
        return tuple(items) if isinstance(value, tuple) else items if isinstance(value, list) else deque(items)
    return copy(value) if isinstance(value, set | bytearray) else value


def agree(values: Mapping[str, Any], baseline: str) -> None:
    """Raise unless every value is close to the baseline's, by ``torch.testing.assert_close``.

    Raises:
        CheckFailed: one line that names the alternative and how far it is off.
    """
    import torch

    expected = values[baseline]
    for name, value in values.items():
        if name == baseline:
            continue
        try:
            torch.testing.assert_close(value, expected, check_stride=False)
        except AssertionError as error:
            words = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
            raise CheckFailed(f"--check: `{name}` and `{baseline}` return different values: {words}") from None
        except (TypeError, RuntimeError):  # not a kind of value that assert_close knows, or a bool beside a number
            if not _equal(value, expected):
                raise CheckFailed(
                    f"--check: `{name}` returns {type(value).__name__}, `{baseline}` returns"
                    f" {type(expected).__name__}, and they are not equal"
                ) from None


def _equal(value: Any, expected: Any) -> bool:
    """Whether two values are, item by item where they hold others."""
    import torch

    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        return value.keys() == expected.keys() and all(_equal(value[key], expected[key]) for key in value)
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(map(_equal, value, expected))
    try:
        torch.testing.assert_close(value, expected, check_stride=False)
    except AssertionError:
        return False
    except (TypeError, RuntimeError):
        if isinstance(value, _NUMBERS) and isinstance(expected, _NUMBERS):
            return False  # a bool and a number, as 1 and 1.0 are not the same
        try:
            return bool(value == expected)
        except (TypeError, ValueError, RuntimeError) as error:
            raise BodyError(f"--check: values of {type(value).__name__} cannot be compared: {error}") from None
    return True
