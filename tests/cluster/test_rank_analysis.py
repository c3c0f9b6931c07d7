"""Traces of ranks: who is named, clocks, merging, files that are not as they should be, insights."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from torchbench_magic import load, load_ranks, load_trace
from torchbench_magic.cluster.job_profile import RankProfile, common, joined_stretches, nanoseconds, within, without
from torchbench_magic.errors import TraceError

from .planted import BASE, MS, arrivals, document, event, of_rank, write

# ==== load ranks ======================================================================================================


TRACES = Path(__file__).parent / "traces"


def kinds(profile: RankProfile) -> set[str]:
    return {doubt.kind for doubt in profile.warnings}


def job(folder: Path, late: float = 15 * MS, ranks: int = 2, **options: Any) -> Path:
    """A folder of planted traces in which rank 1 is late."""
    made = arrivals(late, ranks)
    for rank in range(ranks):
        write(folder / f"rank{rank}.json", document(rank, of_rank(rank, made, **options), ranks))
    return folder


# ---- recorded traces ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rank"), [("sleep_1_of_3", 1), ("batch_0_of_2", 0), ("none_of_2", None)])
def test_of_recorded_jobs_the_straggler_is_named_and_none_where_none_was_planted(name: str, rank: int | None) -> None:
    profile = load_ranks(TRACES / name)
    found = profile.straggler
    assert (None if found is None else found.rank) == rank
    assert not profile.warnings
    assert profile.threshold == pytest.approx(0.05 * profile.span)
    if found is not None:
        assert found.late == profile.ranks["blame"].max() > profile.threshold
        insights = {each.kind: each for each in profile.insights}
        assert insights["straggler"].seconds == found.late
        assert insights.keys() <= {"straggler", "waiting-for"}


@pytest.mark.parametrize("name", ["sleep_1_of_3", "none_of_2"])
def test_a_job_is_stored_and_read_back_as_it_is(name: str, tmp_path: Path) -> None:
    made = load_ranks(TRACES / name)
    made.save(tmp_path / "runs.sqlite")
    made.save(tmp_path / "runs.sqlite")
    (back,) = load(tmp_path / "runs.sqlite")
    assert isinstance(back, RankProfile)
    assert str(back) == str(made)
    assert (back.straggler, back.hosts, back.files) == (made.straggler, made.hosts, made.files)
    for table in ("ranks", "ops", "clock_error", "timeline", "waits"):
        pd.testing.assert_frame_equal(getattr(back, table), getattr(made, table), check_dtype=False)
    assert [each.as_dict() for each in back.insights] == [each.as_dict() for each in made.insights]
    assert back.saved


def test_what_the_straggler_did_is_said_with_its_line() -> None:
    slept = load_ranks(str(TRACES / "sleep_1_of_3" / "*.json.gz")).straggler
    assert slept is not None
    source = (TRACES.parent / "job.py").read_text().splitlines()
    assert (slept.place, slept.file, slept.cell) == (f"job.py:{slept.line} augment", "job.py", None)
    assert slept.line is not None
    assert "def augment" in source[slept.line - 1]
    assert 0.2 < slept.excess < 0.4, "12 sleeps of 20 ms, and what they take longer"
    assert slept.place in slept.text
    computed = load_ranks(TRACES / "batch_0_of_2").straggler
    assert computed is not None
    assert (computed.place, computed.line) == ("", None)
    assert computed.computing > 0.1 > computed.outside
    assert "computes" in str(computed)


@pytest.mark.parametrize("name", ["sleep_1_of_3", "batch_0_of_2", "none_of_2"])
def test_the_parts_of_a_rank_add_up(name: str) -> None:
    profile = load_ranks(TRACES / name)
    ranks = profile.ranks
    assert list(ranks) == [
        "rank", "span", "compute", "communication", "overlap", "wait", "transfer", "unsplit", "other", "blame"
    ]  # fmt: skip
    total = ranks["compute"] + ranks["communication"] - ranks["overlap"] + ranks["other"]
    assert np.allclose(total, ranks["span"])
    assert np.allclose(ranks["wait"] + ranks["transfer"] + ranks["unsplit"], ranks["communication"])
    assert (ranks.to_numpy() >= 0).all()
    assert (ranks["span"] <= profile.span + 1e-9).all()
    line = profile.timeline
    assert ((line["end"] - line["begin"]).groupby(line["rank"]).sum() <= profile.span * 1.01).all()
    assert set(line["what"]) <= {"compute", "wait", "transfer", "unsplit", "other"}


def test_operations_have_a_column_for_each_rank_and_their_ratio() -> None:
    ops = load_ranks(TRACES / "batch_0_of_2").ops
    assert list(ops) == ["op", "device", "calls", "rank_0", "rank_1", "ratio"]
    product = ops[ops["op"] == "aten::addmm"].iloc[0]
    assert product["ratio"] == pytest.approx(product["rank_0"] / product["rank_1"])
    assert product["ratio"] > 1.5, "three times as many samples"
    assert product["calls"] == 2 * 12 * 3
    of_one = load_trace(TRACES / "batch_0_of_2" / "rank0.json.gz").ops
    assert product["rank_0"] == pytest.approx(of_one[of_one["op"] == "aten::addmm"]["self_cpu_time"].sum(), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "at", "skew"),
    [
        *(("sleep_1_of_3", 0, 3.7), ("sleep_1_of_3", 1, -3.7), ("sleep_1_of_3", 2, 30.0), ("batch_0_of_2", 1, -30.0)),
        *(("none_of_2", 0, -3.7), ("none_of_2", 0, 30.0), ("none_of_2", 1, 3.7), ("none_of_2", 1, -30.0)),
    ],
)
def test_a_planted_skew_lies_within_the_stated_bounds(tmp_path: Path, name: str, at: int, skew: float) -> None:
    for file in (TRACES / name).iterdir():
        made = json.loads(gzip.decompress(file.read_bytes()))
        rank = made["distributedInfo"]["rank"]
        made["host_name"] = f"host-{rank}"
        for each in made["traceEvents"]:
            each["ts"] += skew * MS if rank == at else 0
        write(tmp_path / file.name, made)
    profile = load_ranks(tmp_path)
    for rank, low, high in profile.clock_error.itertuples(index=False):
        true = ((rank == at) - (at == 0)) * skew / 1e3
        assert low <= true <= high, f"rank {rank}"
        assert high - low < 0.2
    assert profile.straggler is None or not name.startswith("none")


# ---- planted traces -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_planted_waits_are_found_to_the_microsecond(tmp_path: Path, backend: str) -> None:
    profile = load_ranks(job(tmp_path, backend=backend))
    first, second = profile.ranks.to_dict("records")
    assert second["blame"] == pytest.approx(9 * (15e-3 - 20e-6), abs=1e-6), "less what the clocks may differ by"
    assert first["blame"] == 0
    begins = 60e-6 if backend == "gloo" else 0
    assert first["wait"] == pytest.approx(10 * (15e-3 - begins), abs=1e-6)
    assert second["wait"] == 0
    assert second["transfer"] == pytest.approx(10 * (300e-6 - begins), abs=1e-6)
    assert profile.straggler is not None
    assert (profile.straggler.rank, profile.straggler.last, profile.straggler.of) == (1, 9, 9)
    devices = {"cpu"} if backend == "gloo" else {"cpu", "device"}
    assert set(profile.ops["device"]) == devices


def test_host_time_under_a_collective_is_not_computing(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = of_rank(rank, arrivals(15 * MS))
        wrapped = [event("cpu_op", "SyncBatchNormBackward", e["ts"] - 1, e["ts"] + 20 * MS) for e in events[1::3]]
        write(tmp_path / f"rank{rank}.json", document(rank, [*events, *wrapped]))
    compute = load_ranks(tmp_path).ranks["compute"]
    assert compute.tolist() == pytest.approx([10 * 9.9e-3] * 2, abs=1e-6)


def test_collectives_of_a_part_of_the_ranks_are_not_matched(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = of_rank(rank, arrivals(15 * MS), backend="nccl")
        for each in events:
            each["args"] |= {"Group size": 1, "Process Group Name": "tp"} if "nccl" in each["name"] else {}
        write(tmp_path / f"rank{rank}.json", document(rank, events))
    profile = load_ranks(tmp_path)
    assert "no-collectives" in kinds(profile)
    assert profile.straggler is None
    assert (profile.ranks["communication"] > 0).all()


def test_where_there_are_several_groups_gloo_does_not_say_whose_a_collective_is(tmp_path: Path) -> None:
    groups = [{"pg_name": "0", "pg_size": 4}, {"pg_name": "1", "pg_size": 2}]
    for rank in range(4):
        made = document(rank, of_rank(rank, arrivals(15 * MS, 4)), 4)
        made["distributedInfo"]["pg_config"] = groups
        write(tmp_path / f"rank{rank}.json", made)
    profile = load_ranks(tmp_path)
    assert kinds(profile) == {"several-groups", "no-collectives"}
    assert profile.straggler is None


def test_a_rank_that_is_late_with_nothing_that_it_does_longer_is_not_named(tmp_path: Path) -> None:
    """The other one has the better core in this run: it computes a seventh longer, and is last in every collective."""
    made = arrivals(3 * MS, count=60)
    for rank in (0, 1):
        events = []
        for each in of_rank(rank, made):
            if each["name"] == "aten::mm":  # ends at the collective
                more = (20 if rank == 0 else 23) * MS - each["dur"]
                each["ts"], each["dur"] = each["ts"] - more, each["dur"] + more
            events.append(each)
        write(tmp_path / f"rank{rank}.json", document(rank, events))
    profile = load_ranks(tmp_path)
    assert profile.ranks["blame"][1] > profile.threshold
    assert (profile.straggler, profile.unnamed) == (None, "no cause")
    assert profile.insights == ()
    said = " ".join(repr(profile).split())
    assert "No rank clearly delays the others: rank 1 delays them most, by" in said
    assert "nothing it does takes longer than cores alone can differ" in said


def test_what_comes_before_the_first_collective_makes_nobody_late(tmp_path: Path) -> None:
    """Rank 1 starts 400 ms earlier and prepares; afterwards it is late with nothing that is seen."""
    made = arrivals(3 * MS, count=60) + 500 * MS
    for rank in (0, 1):
        events = []
        for each in of_rank(rank, made):
            events.append(each)
            if each["name"] == "aten::mm":
                more = 13 * MS if rank else 10 * MS
                each["ts"], each["dur"] = each["ts"] - more, each["dur"] + more
        prepares = event("python_function", "job.py(3): prepare", (20 if rank else 510) * MS, 515 * MS)
        write(tmp_path / f"rank{rank}.json", document(rank, [*events, prepares]))
    profile = load_ranks(tmp_path)
    assert profile.ranks["other"][1] - profile.ranks["other"][0] > 0.4
    assert (profile.straggler, profile.unnamed) == (None, "no cause")


def broadcasts(folder: Path, late: float, *, ranks: int = 3, count: int = 20) -> RankProfile:
    """The root, rank 0, comes ``late`` us after the others to each broadcast; all come to all-reduces together."""
    for rank in range(ranks):
        events = of_rank(rank, arrivals(0.0, ranks, count))
        for at in range(1, count + 1):
            begin = at * 50 * MS + 5 * MS + (late if rank == 0 else 0)
            end = at * 50 * MS + 5 * MS + late + 200
            shape = {"Input Dims": [[[10]], []]}
            events.append(event("cpu_op", "c10d::broadcast_", begin, begin + 20, **shape))
            events.append(event("user_annotation", "gloo:broadcast", begin + 30, end, 2, **{"Input Dims": [[10]]}))
        write(folder / f"rank{rank}.json", document(rank, events, ranks))
    return load_ranks(folder)


def test_time_in_a_broadcast_is_not_called_transfer_and_nobody_is_cleared(tmp_path: Path) -> None:
    profile = broadcasts(tmp_path / "late", 20 * MS)
    victim = profile.ranks.iloc[1]
    assert victim["unsplit"] == pytest.approx(20 * 20.17e-3, abs=1e-4)
    assert victim["transfer"] < 0.01
    assert profile.straggler is None
    assert kinds(profile) == {"wait-or-transfer"}
    doubt = profile.warnings[0]
    assert doubt.facts["rank"] in (1, 2)
    assert doubt.facts["seconds"] == pytest.approx(20 * 20.17e-3, rel=0.06)
    said = " ".join(repr(profile).split())
    assert re.search(r"Which rank delays the others is unknown: rank [12] spends", said)
    assert "where waiting and transfer cannot be separated" in said
    assert "No rank" not in said
    assert "unsplit" in set(profile.timeline["what"])
    assert all(each.kind != "waiting-for" for each in profile.insights), "it is not known to be data on their way"
    assert kinds(broadcasts(tmp_path / "quick", 0.0)) == set()


def test_a_rank_that_ends_while_others_wait_for_it_is_said(tmp_path: Path) -> None:
    made = arrivals(0.0, ranks=3, count=12)
    for rank in range(3):
        events = of_rank(rank, made)
        head: dict[str, Any] = {}
        if rank == 1:
            events = [each for each in events if each["ts"] < 520 * MS]
            told = {"rank": 1, "world_size": 3, "backend": "gloo"}
            when = BASE + 510_000_000
            head = {"torchbench_magic_rank": told | {"ended": "ValueError", "ended_ns": when}}
        else:
            events = [each for each in events if each["ts"] < 540 * MS]
            events.append(event("cpu_op", "c10d::allreduce_", 550 * MS, 550 * MS + 50, **{"Input Dims": [[[10]], []]}))
            events.append(event("user_annotation", "gloo:all_reduce", 550 * MS + 60, 3600 * MS, 2,
                                **{"Input Dims": [[10]]}))  # fmt: skip
        write(tmp_path / f"rank{rank}.json", document(rank, events, 3, **head))
    profile = load_ranks(tmp_path)
    assert profile.ended.startswith("Rank 1 ended early, at ")
    assert profile.ended.endswith(", with ValueError")
    assert profile.partial
    assert repr(profile).startswith("Rank 1 ended early")
    assert (profile.ranks["transfer"] < 0.1).all()
    made_told = json.loads((tmp_path / "rank1.json").read_text())
    del made_told["torchbench_magic_rank"]
    write(tmp_path / "rank1.json", made_told)
    untold = load_ranks(tmp_path)
    assert (untold.ended, "wait-or-transfer" in kinds(untold)) == ("", True)
    assert repr(untold).startswith("Which rank delays the others is unknown: rank ")


def test_a_rank_that_is_late_in_its_group_is_named(tmp_path: Path) -> None:
    made = arrivals(15 * MS, ranks=3)
    for rank in range(3):
        events = of_rank(rank, arrivals(0.0, ranks=3) + 30 * MS, backend="nccl")
        if rank < 2:
            inner = of_rank(rank, made[:2], backend="nccl")
            for each in inner:
                if "ncclDev" in each["name"]:
                    each["args"] |= {"Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 1]"}
            events += inner
        else:  # works meanwhile
            kind = ("kernel", "ampere_sgemm")
            events += [event(*kind, at * 50 * MS - 10 * MS, at * 50 * MS + 14 * MS, 7) for at in range(1, 11)]
        write(tmp_path / f"rank{rank}.json", document(rank, events, 3))
    profile = load_ranks(tmp_path)
    assert profile.straggler is not None
    assert profile.straggler.rank == 1
    assert profile.collectives == 20
    assert "unmatched-collectives" not in kinds(profile)


def test_lines_of_our_own_traces_are_named_with_their_cell(tmp_path: Path) -> None:
    for rank in (0, 1):
        lines = [event("cell_line", "In[3]:4 x = augment(x)", 50 * MS * k, 50 * MS * k + (15 if rank else 1) * MS, 9)
                 for k in range(10)]  # fmt: skip
        write(tmp_path / f"rank{rank}.json", document(rank, [*of_rank(rank, arrivals(15 * MS)), *lines]))
    found = load_ranks(tmp_path).straggler
    assert found is not None
    assert (found.cell, found.line) == (3, 4)


def test_the_merged_trace_has_ranks_as_processes_on_one_clock(tmp_path: Path) -> None:
    job(tmp_path / "a", late=0.0)
    made = json.loads((tmp_path / "a" / "rank1.json").read_text()) | {"host_name": "other"}
    flow = {"ph": "s", "id": 5, "pid": 7, "tid": 1, "ts": 1.0, "cat": "fwdbwd", "name": "f"}
    label = {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}}
    made["traceEvents"] = [label, *made["traceEvents"], flow, {**flow, "pid": "Spans"}]
    for each in made["traceEvents"]:
        if "ts" in each:
            each["ts"] += 30 * MS
    write(tmp_path / "a" / "rank1.json", made)
    profile = load_ranks(tmp_path / "a")
    for name in ("m.json", "m.json.gz"):
        profile.merged_trace(tmp_path / name)
        data = (tmp_path / name).read_bytes()
        merged = json.loads(gzip.decompress(data) if name.endswith("gz") else data)
        events = merged["traceEvents"]
        assert {e["pid"] for e in events} == {0, 1, "1 Spans"}
        assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["rank 0 (h)", "rank 1 (other)"]
        assert {e["id"] for e in events if "id" in e} == {"1:5"}
        ends = {e["pid"]: e["ts"] + e["dur"] for e in events if e["name"] == "gloo:all_reduce"}
        width = (profile.clock_error["high"] - profile.clock_error["low"])[1]
        assert ends[0] == pytest.approx(ends[1], abs=width * 1e6), "us"
        assert merged["baseTimeNanoseconds"] == made["baseTimeNanoseconds"]
    assert load_trace(tmp_path / "m.json").ops["calls"].sum() > 0
    with pytest.raises(TraceError, match="is a merged trace of several ranks"):
        load_ranks(tmp_path / "m.json")
    with pytest.raises(TraceError, match="is the trace of one of the ranks"):
        profile.merged_trace(tmp_path / "a" / "rank0.json")
    (tmp_path / "a" / "rank1.json").unlink()
    with pytest.raises(TraceError, match="no such file"):
        profile.merged_trace(tmp_path / "n.json")
    assert not (tmp_path / "n.json").exists()


# ---- files that are not as they should be ---------------------------------------------------------------------------


def test_the_rank_is_read_from_the_file_then_the_name_then_the_order(tmp_path: Path) -> None:
    made = arrivals(15 * MS)
    job(tmp_path / "told")
    (tmp_path / "told" / "rank0.json").rename(tmp_path / "told" / "x.json")
    assert load_ranks(tmp_path / "told").straggler.rank == 1  # type: ignore[union-attr]
    for name in ("run-rank-0.json", "run-rank-1.json.gz"):
        rank = int(name.split("-")[2][0])
        write(tmp_path / "named" / name, document(None, of_rank(rank, made)))
    named = load_ranks(tmp_path / "named")
    assert named.straggler is not None
    assert (named.straggler.rank, kinds(named)) == (1, set())
    for rank, name in enumerate(("profile_0.json", "profile_1.json")):
        write(tmp_path / "accelerate" / name, document(None, of_rank(rank, made)))
    assert kinds(load_ranks(tmp_path / "accelerate")) == set()
    for rank, name in enumerate(("node-9.json", "node-10.json")):
        write(tmp_path / "ordered" / name, document(None, of_rank(rank, made)))
    ordered = load_ranks(tmp_path / "ordered")
    assert [Path(file).name for file in ordered.files] == ["node-9.json", "node-10.json"]
    assert kinds(ordered) == {"ranks-by-order"}


def test_two_files_of_one_rank_are_refused_and_both_named(tmp_path: Path) -> None:
    job(tmp_path)
    shutil.copy(tmp_path / "rank1.json", tmp_path / "rank1-again.json")
    with pytest.raises(TraceError, match=r"^rank1\S* and rank1\S* are both of rank 1; give one file for each rank$"):
        load_ranks(tmp_path)


def test_a_truncated_trace_is_left_out_with_a_warning_and_alone_is_an_error(tmp_path: Path) -> None:
    job(tmp_path, ranks=3)
    file = tmp_path / "rank2.json"
    file.write_text(file.read_text()[:-900])
    profile = load_ranks(tmp_path)
    assert profile.ranks["rank"].tolist() == [0, 1]
    assert kinds(profile) == {"file-left-out", "missing-ranks"}
    assert "rank2.json is left out: is cut off" in "".join(map(str, profile.warnings))
    with pytest.raises(TraceError, match=r"rank2\.json: is cut off"):
        load_ranks(file)
    (tmp_path / "rank1.json").write_text("{")
    with pytest.raises(TraceError, match="none of 2 files can be read"):
        load_ranks([tmp_path / "rank1.json", file])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"distributedInfo": {"rank": 1, "world_size": 4}}, "2 and 4 ranks"),
        ({"distributedInfo": {"rank": 1, "world_size": 2, "backend": "nccl"}}, "gloo and nccl as backend"),
        ({"baseTimeNanoseconds": 1_790_000_500_000_000_000}, "one ends .* s before the other begins"),
        ({"baseTimeNanoseconds": 1_790_000_500_000_000_000, "host_name": "k"}, "one ends .* s before the other begins"),
        ({"distributedInfo": {"rank": 5, "world_size": 2}}, "is named rank 5 of a job of 2"),
    ],
)
def test_traces_of_different_jobs_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    job(tmp_path)
    made = json.loads((tmp_path / "rank1.json").read_text()) | change
    write(tmp_path / "rank1.json", made)
    with pytest.raises(TraceError, match=said) as error:
        load_ranks(tmp_path)
    assert "\n" not in str(error.value)


def test_without_a_collective_times_hold_and_nobody_is_named(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [e for e in of_rank(rank, arrivals(15 * MS)) if e["name"] == "aten::mm"]
        write(tmp_path / f"rank{rank}.json", document(rank, events))
    profile = load_ranks(tmp_path)
    assert kinds(profile) == {"no-collectives"}
    assert profile.straggler is None
    assert (profile.ranks["compute"] > 0).all()
    assert "Which rank delays the others is unknown: no collectives were recorded" in repr(profile)


def test_of_different_hosts_without_collectives_the_clocks_are_not_known(tmp_path: Path) -> None:
    for rank in (0, 1):
        events = [e for e in of_rank(rank, arrivals(15 * MS)) if e["name"] == "aten::mm"]
        write(tmp_path / f"rank{rank}.json", document(rank, events, host_name=f"h{rank}"))
    row = load_ranks(tmp_path).clock_error.iloc[1]
    assert (row["low"], row["high"]) == (-np.inf, np.inf)


def test_one_file_gives_its_times_with_a_warning(tmp_path: Path) -> None:
    job(tmp_path)
    profile = load_ranks(tmp_path / "rank0.json")
    assert kinds(profile) == {"one-rank"}
    assert "Rank 0 alone" in repr(profile)
    assert profile.insights == ()
    profile.merged_trace(tmp_path / "m.json")


@pytest.mark.parametrize("given", ["none/*.json", "nothing.json", "~/no such folder/*.json"])
def test_a_pattern_that_matches_nothing_is_one_line(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TraceError, match="no file matches") as error:
        load_ranks(given)
    assert "\n" not in str(error.value)
    with pytest.raises(TraceError, match="no files were given"):
        load_ranks([])
    with pytest.raises(TraceError, match="no file in this folder"):
        load_ranks(tmp_path)


def test_a_file_that_is_no_trace_of_torch_is_left_out(tmp_path: Path) -> None:
    job(tmp_path)
    write(tmp_path / "settings.json", {"traceEvents": []})
    assert kinds(load_ranks(tmp_path)) == {"file-left-out"}


def test_missing_ranks_are_said(tmp_path: Path) -> None:
    job(tmp_path, ranks=3)
    (tmp_path / "rank2.json").unlink()
    profile = load_ranks(tmp_path)
    assert kinds(profile) == {"missing-ranks"}
    assert profile.warnings[0].facts["missing"] == (2,)


def test_hostile_heads_are_read_as_nothing(tmp_path: Path) -> None:
    made = document(0, of_rank(0, arrivals(15 * MS)))
    heads = ({"distributedInfo": "x"}, {"distributedInfo": {"rank": "x", "world_size": -1}},
             {"torchbench_magic_rank": {"clock": {"offset_ns": 1 << 80, "error_ns": -1}}},
             {"torchbench_magic_rank": {"ended": ["x"], "ended_ns": "y"}})  # fmt: skip
    for head in heads:
        write(tmp_path / "rank0.json", made | head)
        assert load_ranks(tmp_path).ranks["rank"].tolist() == [0]


def test_a_sure_clock_of_two_hosts_names_what_bounds_alone_cannot(tmp_path: Path) -> None:
    """Where one rank is late each time, collectives leave the clocks known to its lateness only; a measured one does
    not."""
    for rank in (0, 1):
        clock = {"clock": {"offset_ns": 0, "error_ns": 100_000}}
        told = {"rank": rank, "world_size": 2, "backend": "gloo"}
        events = of_rank(rank, arrivals(15 * MS))
        write(tmp_path / "b" / f"rank{rank}.json", document(rank, events, host_name=f"h{rank}"))
        write(tmp_path / "m" / f"rank{rank}.json",
              document(rank, events, host_name=f"h{rank}", torchbench_magic_rank=told | clock))  # fmt: skip
    unsure, sure = load_ranks(tmp_path / "b"), load_ranks(tmp_path / "m")
    assert unsure.straggler is None
    width = unsure.clock_error["high"] - unsure.clock_error["low"]
    assert width[1] == pytest.approx(15.6e-3, abs=1e-4)
    assert sure.straggler is not None
    assert (sure.straggler.rank, kinds(sure)) == (1, set())


# ==== rank insights ===================================================================================================
# `waiting-for` on jobs that are known: where it speaks, and where it must stay silent.


def profiled_job(folder: Path, arrival: np.ndarray, transfer: float = 0.3, *, hidden: bool = False) -> RankProfile:
    """``transfer`` ms from the last arrival to the end of each all-reduce; ``hidden``: ranks compute meanwhile."""
    for rank in range(len(arrival)):
        made: list[dict[str, Any]] = []
        for each in of_rank(rank, arrival):
            made.append(each)
            if each["name"] == "gloo:all_reduce":
                each["dur"] += (transfer - 0.3) * MS
                if hidden:
                    made.append(event("cpu_op", "aten::mm", each["ts"], each["ts"] + each["dur"], 3))
        write(folder / f"rank{rank}.json", document(rank, made, len(arrival)))
    return load_ranks(folder)


def by_turns(late: float) -> np.ndarray:
    """us; now the one and now the other comes ``late`` us after the other."""
    made = arrivals(0.0, count=12)
    for at in range(12):
        made[at % 2, at] += late
    return made


def test_data_on_their_way_are_waited_for(tmp_path: Path) -> None:
    profile = profiled_job(tmp_path, arrivals(0.0), transfer=8.0)
    (only,) = profile.insights
    assert only.kind == "waiting-for"
    assert 0.078 < only.seconds < 0.082
    assert only.share == only.seconds / profile.span
    assert only.text.startswith("The ranks wait for data in transfer, 79.")
    assert any("async_op" in cure.text for cure in only.cures)
    assert not any("no_sync" in (cure.code or "") for cure in only.cures), "nothing of DistributedDataParallel is here"


def test_ranks_that_wait_for_each_other_by_turns_are_told_so(tmp_path: Path) -> None:
    profile = profiled_job(tmp_path, by_turns(20 * MS))
    assert profile.straggler is None
    (only,) = profile.insights
    assert only.kind == "waiting-for"
    assert "for each other in turn" in only.text
    assert 0.1 < only.seconds < 0.125, "six times 20 ms on the one that waits most, the first one aside"


def test_a_healthy_job_has_no_insight(tmp_path: Path) -> None:
    assert profiled_job(tmp_path / "a", arrivals(0.0)).insights == ()
    assert profiled_job(tmp_path / "b", by_turns(5 * MS)).insights == (), (
        "a tenth of the time is lost by turns with no fault"
    )


def test_what_is_hidden_behind_computation_is_not_waited_for(tmp_path: Path) -> None:
    assert profiled_job(tmp_path, arrivals(0.0), transfer=8.0, hidden=True).insights == ()


def test_with_a_straggler_only_what_is_not_its_fault_is_told(tmp_path: Path) -> None:
    assert [each.kind for each in profiled_job(tmp_path / "a", arrivals(20 * MS)).insights] == ["straggler"]
    both = profiled_job(tmp_path / "b", arrivals(20 * MS), transfer=6.0).insights
    assert [each.kind for each in both] == ["straggler", "waiting-for"]
    assert 0.05 < both[1].seconds < 0.065


def test_where_clocks_are_not_known_well_enough_it_is_silent(tmp_path: Path) -> None:
    profile = profiled_job(tmp_path, by_turns(20 * MS))
    assert replace(profile, threshold=0.1 * profile.span).insights == ()
    assert replace(profile, ended="Rank 1 failed first").insights == (), "it waited for a rank that had failed"


def test_one_rank_alone_waits_for_nobody(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", document(0, of_rank(0, arrivals(0.0))))
    assert load_ranks(tmp_path).insights == ()


# ==== stretches =======================================================================================================
# Sets of moments, against sets of numbers.


def random_pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(seed)
    begin = numbers.integers(0, 60, numbers.integers(0, 12))
    return begin, begin + numbers.integers(0, 9, len(begin))


def moments(stretches: np.ndarray) -> set[int]:
    return {n for begin, end in stretches.tolist() for n in range(begin, end)}


@pytest.mark.parametrize("seed", range(60))
def test_sets_of_moments_are_those_of_their_members(seed: int) -> None:
    one, other = joined_stretches(*random_pairs(seed)), joined_stretches(*random_pairs(seed + 1000))
    assert moments(one) == {n for b, e in zip(*random_pairs(seed), strict=True) for n in range(b, e)}
    assert moments(common(one, other)) == moments(one) & moments(other)
    assert moments(without(one, other)) == moments(one) - moments(other)
    assert moments(within(one, 10, 30)) == moments(one) & set(range(10, 30))
    assert nanoseconds(one) == len(moments(one))
    for made in (one, common(one, other), without(one, other)):
        assert (made[1:, 0] > made[:-1, 1]).all(), "sorted and apart"
