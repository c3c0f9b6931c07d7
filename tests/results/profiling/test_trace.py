"""The raw events of a profile: what the columns refuse, and the ranges of lines made from them."""

from __future__ import annotations

import numpy as np
import pytest

from torchbench_magic.profiling.trace import EVENT_COLUMNS, SEGMENT_COLUMNS, Trace, compact, line_ranges

from ..profiles import MS, trace_of_two_kernels


def changed(frame: str, column: str, row: int, value: int) -> Trace:
    trace = trace_of_two_kernels()
    table = getattr(trace, frame).copy()
    table.loc[row, column] = value
    return Trace(**{name: getattr(trace, name) for name in trace.__dataclass_fields__} | {frame: table})


def ranges_of(trace: Trace) -> list[tuple[int, int, int]]:
    """(node, start, end)."""
    found = line_ranges(trace)
    return list(zip(found.node.tolist(), found.start.tolist(), found.end.tolist(), strict=True))


@pytest.mark.parametrize(
    ("frame", "column", "row", "value"),
    [
        ("events", "name", 0, 5),
        ("events", "kind", 1, 6),
        ("events", "track", 0, 2),
        ("events", "parent", 2, 6),
        ("events", "launched_by", 4, -2),
        ("events", "node", 0, 4),
        ("nodes", "source", 1, 1),
        ("segments", "node", 0, 9),
    ],
)
def test_an_index_that_points_to_nothing_is_refused(frame: str, column: str, row: int, value: int) -> None:
    with pytest.raises(ValueError, match=f"{column} points to nothing"):
        changed(frame, column, row, value)


def test_a_line_that_calls_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="before the line that calls it"):
        changed("nodes", "parent", 1, 1)


def test_a_number_that_does_not_fit_is_refused() -> None:
    columns = {name: np.zeros(1) for name in EVENT_COLUMNS} | {"name": np.array([2**40])}
    with pytest.raises(ValueError, match="does not fit"):
        compact(EVENT_COLUMNS, columns)


def test_each_stay_on_a_line_is_one_range() -> None:
    assert ranges_of(trace_of_two_kernels()) == [(1, 0, 5 * MS), (2, 5 * MS, 7 * MS), (3, 7 * MS, 10 * MS)]


def test_ranges_of_a_call_lie_in_the_range_of_the_line_that_calls() -> None:
    """Line 2 (0 to 9) calls a function whose line 1 runs from 2 to 4 and from 6 to 8."""
    trace = trace_of_two_kernels()
    nodes = trace.nodes.copy()
    nodes.loc[2, "parent"] = 1
    starts, active = np.array([0, 2, 4, 6, 8, 9]), np.array([1, 2, 1, 2, 1, 0])
    segments = compact(SEGMENT_COLUMNS, {"thread": np.zeros(6), "start": starts, "node": active})
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    trace = Trace(**fields | {"nodes": nodes, "segments": segments})
    assert ranges_of(trace) == [(1, 0, 9), (2, 2, 4), (2, 6, 8)]


def test_the_columns_take_less_than_a_hundred_bytes_an_event() -> None:
    trace = trace_of_two_kernels()
    assert trace.events.memory_usage(index=False).sum() / len(trace) < 60
