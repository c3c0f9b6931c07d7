"""What each line did is read from a profile once, however many kinds of insights ask."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

from torchbench_magic.insights.evidence import recorded_lines

from .built import Did, Op, built_profile


def test_of_one_profile_it_is_read_once_and_of_another_anew() -> None:
    profile = built_profile("%%tprofile\ny = x + 1", {2: Did(1, 1e-3, [Op("aten::add", 1, 1e-3)])})
    found = recorded_lines(profile)
    assert recorded_lines(profile) is found
    again = recorded_lines(replace(profile))
    assert again is not found
    assert again == found
    other = recorded_lines(replace(profile, wall_time=2 * profile.wall_time))
    assert other.wall > found.wall
    assert recorded_lines(profile) == found


def test_a_profile_is_not_kept_for_it() -> None:
    profile = built_profile("%%tprofile\ny = x + 1", {2: Did(1, 1e-3)})
    recorded_lines(profile)
    seen = weakref.ref(profile)
    del profile
    gc.collect()
    assert seen() is None
