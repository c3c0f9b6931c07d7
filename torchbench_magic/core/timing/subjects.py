"""Makes the `Subject` of a measurement, one alternative at one point and thread count, when its run begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchbench_magic.results.timing.subject import Subject

from .points.sweep import Point
from .task import Task

__all__ = ["subject_of"]


def subject_of(task: Task, point: Point | None, name: str, known: Mapping[str, Any]) -> Subject:
    """The subject of an alternative, named as the plan and the point have it.

    Args:
        name: of the alternative; a description only where there are two or more.
        known: fields that the code's language gives, and what the run found out until now.
    """
    plan = task.plan
    return Subject(
        label=plan.label,
        sub_label=point.sub_label if point is not None and point.sub_label is not None else plan.sub_label,
        description=name if len(task.bodies) > 1 else plan.description,
        env=plan.env,
        axes=point.axes if point is not None else (),
        **known,
    )
