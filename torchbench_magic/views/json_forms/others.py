"""What differences of counts, ranks of a job and a diagnosis add to the envelope."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torchbench_magic.results.counting.differences import CountsDiff
from torchbench_magic.results.machine.diagnosis import Diagnosis
from torchbench_magic.results.ranks.rank_profiles import RankProfile

from .plain_values import finite_number, plain_value, rows_of

__all__ = ["facts_of_counts", "facts_of_diagnosis", "facts_of_ranks"]

_MOST_ROWS = 20
_RANK = ("rank", "span", "compute", "communication", "overlap", "wait", "transfer", "other", "blame")
_FUNCTION = ("function", "file", "library", "baseline_count", "count", "delta", "noise", "group")


def facts_of_counts(diff: CountsDiff) -> dict[str, Any]:
    """Instructions per call, the empty loop taken out."""
    whole = diff.whole
    return {
        "names": [plain_value(name, 100) for name in diff.names],
        "calls": diff.number,
        "threads": diff.num_threads,
        "inclusive": diff.inclusive,
        "changes_made": [plain_value(each, 100) for each in diff.applied],
        "whole": None
        if whole is None
        else {name: finite_number(getattr(whole, name)) for name in ("baseline", "count", "delta", "noise")},
        "functions": rows_of(diff.frame, _FUNCTION, _MOST_ROWS),
        "repeat": None,
    }


def facts_of_ranks(profile: RankProfile) -> dict[str, Any]:
    late = profile.straggler
    files = ", ".join(repr(plain_value(each, 120)) for each in profile.files[:4])
    more = ", ..." if len(profile.files) > 4 else ""
    return {
        "span": finite_number(profile.span),
        "steps": profile.steps,
        "collectives": profile.collectives,
        "world_size": profile.world_size,
        "backend": plain_value(profile.backend),
        "straggler": None if late is None else {name: plain_value(value) for name, value in asdict(late).items()},
        "ranks": rows_of(profile.ranks, _RANK, len(profile.ranks)),
        "operations": rows_of(profile.ops, ("op", "device", "calls", "ratio"), _MOST_ROWS),
        "repeat": {"command": f"load_ranks([{files}{more}])"},
    }


def facts_of_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    tests = [{**asdict(one), "smallest_effect": one.smallest_effect} for one in diagnosis.self_test]
    return {
        "findings": [plain_value(asdict(one)) for one in diagnosis.findings],
        "self_test": [plain_value(test) for test in tests],
        "smallest_effect": finite_number(diagnosis.smallest_effect),
        "seconds": finite_number(diagnosis.seconds),
        "watched": finite_number(diagnosis.watched),
        "repeat": {"command": "%tdoctor --self-test" if diagnosis.self_test else "%tdoctor"},
    }
