"""When nothing may be said about the code: what spoils the figures of a profile spoils what is built on them."""

from __future__ import annotations

from ..profile import Profile

__all__ = ["VOIDING", "silenced_by"]

VOIDING = frozenset(
    {
        "partial",  # shares are of what ran until then
        "not-run",
        "no-steps",
        "events-lost",
        "events-dropped",
        "no-lines",
        "lines-lost",
        "lines-cut",
        "lines-of-functions",  # a trace of torch's own: functions, and no lines
        "clock-set",
        "clock-offset",
        "busy",  # a line is as long as others let it be
        "oversubscribed",
        "steal",
        "throttled",
        "host-memory",  # Python's times are too long
        "trace-mended",
    }
)
"""Kinds of doubts about a profile's own figures."""


def silenced_by(profile: Profile) -> str:
    """The kind of what keeps this profile from any insight; empty where nothing does.

    Besides doubts: work on a device (``device``): the host runs ahead of it, and what it saves need not be saved.
    Recording that took most of the time is a matter of each kind, see `found.STANDS_WITH_COST`.
    """
    for doubt in profile.warnings:
        if doubt.kind in VOIDING:
            return doubt.kind
    if profile.partial:
        return "partial"
    if profile.lines.empty or profile.frames.empty or not profile.wall_time > 0:
        return "no-lines"
    if float(profile.ops["self_device_time"].fillna(0).sum()) > 0:
        return "device"
    return ""
