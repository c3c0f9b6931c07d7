"""Doubts that travel with a DataFrame: plain values, of each frame its own."""

from __future__ import annotations

import json
import pickle

import pandas as pd

from torchbench_magic.result_base import Doubt, with_doubts

SAID = {"doubts": [{"kind": "busy", "text": "Other load."}]}


def frame() -> pd.DataFrame:
    return with_doubts(pd.DataFrame({"a": [1, 2]}), [Doubt("busy", "Other load.")])


def test_what_is_taken_of_a_frame_has_doubts_of_its_own() -> None:
    whole = frame()
    part = whole[["a"]].copy()
    assert part.attrs == whole.attrs == SAID
    part.attrs["doubts"][0]["text"] = "changed"
    assert whole.attrs == SAID


def test_they_are_plain_values_in_files_and_are_kept_where_frames_are_joined() -> None:
    assert pd.concat([frame(), frame()]).attrs == SAID
    assert json.loads(json.dumps(frame().attrs)) == SAID
    assert type(pickle.loads(pickle.dumps(frame())).attrs["doubts"]) is list
