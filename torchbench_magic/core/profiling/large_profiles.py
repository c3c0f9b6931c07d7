"""Large profiles in a long session: what making one has freed goes back to the system, and so does what it held."""

from __future__ import annotations

from torchbench_magic.core.process.freed_memory import LARGE, give_back, give_back_if_due, give_back_with
from torchbench_magic.results.profiling.profile import Profile

__all__ = ["settled"]


def settled(profile: Profile) -> Profile:
    """``profile``, of which all that it was made from is gone now."""
    if profile.trace is not None and profile.n_events + profile.n_line_events >= LARGE:
        give_back_with(profile.trace)  # of all that is derived from the profile the trace is kept
        give_back()
    else:
        give_back_if_due()  # in a script nobody else asks
    return profile
