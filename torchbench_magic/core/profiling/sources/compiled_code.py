"""Code objects that torch.compile made."""

from __future__ import annotations

import sys
from types import CodeType

__all__ = ["is_compiled"]


def is_compiled(code: CodeType) -> bool:
    """Whether torch.compile made the code: it bears the function's name, and none of its lines.

    Assumed of torch: ``torch._dynamo.convert_frame.output_codes`` holds such code. Where it does not, none is known,
    and compiled code stands in the tables under its function's name.
    """
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return code in getattr(dynamo, "output_codes", ())
