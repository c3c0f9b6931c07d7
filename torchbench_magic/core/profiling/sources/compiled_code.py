"""Code objects that torch.compile made."""

from __future__ import annotations

import sys
from types import CodeType

__all__ = ["is_compiled"]


def is_compiled(code: CodeType) -> bool:
    """Whether torch.compile made the code: it bears the function's name, and none of its lines."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return dynamo is not None and code in dynamo.output_codes
