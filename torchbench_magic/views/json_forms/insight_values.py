"""Insights as JSON has them, in a profile as in the difference of two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchbench_magic.results.insights import Insight

from ..document import clipped
from .plain_values import LONGEST_TEXT, finite_number, plain_value

__all__ = ["insights_as_json"]


def insights_as_json(insights: Iterable[Insight]) -> list[dict[str, Any]]:
    return [
        {
            "kind": each.kind,
            "text": clipped(each.text, LONGEST_TEXT),
            "seconds": finite_number(each.seconds),
            "share": finite_number(each.share),
            "bytes": each.nbytes,
            "places": [clipped(place.label, 80) for place in each.places],
            "evidence": plain_value(each.evidence, 80),
            "cures": [{"text": cure.text, "code": cure.code, "lever": cure.lever} for cure in each.cures],
        }
        for each in insights
    ]
