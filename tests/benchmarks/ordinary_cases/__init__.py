"""Planted cases of ordinary notebook life, by what they are about; `CASES` has them all."""

from __future__ import annotations

import importlib
import pkgutil

from .case import Case

__all__ = ["CASES", "Case"]

CASES: list[Case] = [
    case
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name != "case")
    for case in importlib.import_module(f"{__name__}.{module}").CASES
]
