"""Why a graph broke, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchbench_magic.process.compile_watch import break_in_words

BUILTIN = """Failed to trace builtin operator
  Explanation: Dynamo does not know how to trace builtin operator `print` with argument types ['str'] (has_kwargs False)
  Hint: Avoid calling builtin `print`."""
C_FUNCTION = """Attempted to call function marked as skipped
  Explanation: Dynamo does not know how to trace the builtin `time.sleep.` This function is a Python builtin or not.
  Hint: If it is a Python builtin, file an issue."""
ITEM = """Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()` with config.capture_scalar_outputs=False.
  Hint: Set it."""
SHAPE = """Dynamic shape operator
  Explanation: Operator `aten.nonzero.default`'s output shape depends on input Tensor data.
  Hint: Enable it"""
METHOD = """Unsupported method call
  Explanation: Dynamo does not know how to trace method `close` of class `TextIOWrapper`
  Hint: Avoid it."""
NEW = """Something new
  Explanation: It is not known. At all.
  Hint: Do this. Or that."""
UNKNOWN = "a branch depends on a value that is not known while compiling"
TEXTS = (  # torch 2.13's own, shortened
    ("generic_jump TensorVariable()", "a branch depends on the values of a tensor", "torch.where"),
    ("generic_jump UserDefinedObject()", UNKNOWN, "torch.where"),
    (BUILTIN, "`print` cannot be compiled", "Move the `print` out of the compiled code"),
    (C_FUNCTION, "`time.sleep` is not Python and cannot be compiled", "Move it out"),
    (ITEM, "`.item()` reads a number from a tensor", "capture_scalar_outputs"),
    (
        SHAPE,
        "the shape of the result of `nonzero` depends on the values of a tensor",
        "capture_dynamic_output_shape_ops",
    ),
    (METHOD, "`TextIOWrapper.close` cannot be compiled", "Move it out"),
    (NEW, "It is not known", "Do this"),
    ("Something without more", "Something without more", ""),
)


@pytest.mark.parametrize(("text", "reason", "hint"), TEXTS)
def test_a_graph_break_has_a_reason_and_a_hint_in_a_sentence(text: str, reason: str, hint: str) -> None:
    said, helps = break_in_words(text)
    assert said == reason
    assert hint in helps
    assert bool(helps) == bool(hint)
    assert len(said) <= 160 >= len(helps)


def test_a_break_that_torch_itself_asks_for_is_no_call_of_the_users_to_remove() -> None:
    text = "Call to `graph_break()`\n  Explanation: User-inserted graph break. Message: None\n  Hint: Remove."
    assert break_in_words(text, "/tmp/cell.py", 3) == ("`torch._dynamo.graph_break()` is called", "Remove the call")
    import torch

    file = str(Path(torch.__file__).parent / "optim" / "optimizer.py")
    reason, hint = break_in_words(text, file, 79)
    assert reason == "torch's own code breaks it on purpose, in an optimizer's step (`optimizer.py:79`)"
    assert hint == ""
