"""What a profiled run is asked, from flat keywords: a test says only what it changes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.run import Asked

__all__ = ["asked"]

_RECORDING = {item.name for item in fields(ProfileOptions)}


def asked(**given: Any) -> Asked:
    options = {name: given.pop(name) for name in _RECORDING & given.keys()}
    return Asked(options=ProfileOptions(**options), **given)
