"""What is said to hold the time of a line that calls much."""

from __future__ import annotations

from dataclasses import replace

from torchbench_magic.profiling import view
from torchbench_magic.profiling.lines_view import inside_line
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.schema import FRAME_COLUMNS, LINE_COLUMNS, OP_COLUMNS, frame_of
from torchbench_magic.show.document import plain


def profile_of(*frames: tuple[int, str, str, float], source: str = "trainer.train()") -> Profile:
    """Frames ``(parent, kind, name, self seconds)``, all on line 2 of one cell but the first, the thread."""
    whole = sum(seconds for *_, seconds in frames)
    columns = {
        "parent": [parent for parent, *_ in frames],
        "kind": [kind for _, kind, _, _ in frames],
        "name": [name for _, _, name, _ in frames],
        "self_time": [seconds for *_, seconds in frames],
        "line": [None, *[2] * (len(frames) - 1)],
        "source_id": [None, *["ab"] * (len(frames) - 1)],
        "thread": [0] * len(frames),
    }
    lines = {
        "cell": [3], "line": [2], "source": [source], "file": ["<cell>"], "source_id": ["ab"], "thread": [0],
        "calls": [1], "wall_time": [whole], "self_cpu_time": [whole], "cpu_time": [whole], "python_time": [0.0],
        "backward_cpu_time": [0.0],
    }  # fmt: skip
    return Profile(
        lines=frame_of(LINE_COLUMNS, lines),
        ops=frame_of(OP_COLUMNS, {}),
        frames=frame_of(FRAME_COLUMNS, columns),
        wall_time=whole,
        num_threads=1,
        source_id="ab",
    )


ENGINE = "autograd::engine::evaluate_function: "
TRAINING = (
    (-1, "thread", "MainThread", 0.0),
    (0, "line", "In[3]:2", 0.5),
    (1, "module", "model", 0.1),
    (2, "op", "aten::addmm", 1.9),
    (1, "op", f"{ENGINE}AddmmBackward0", 0.5),
    (4, "op", "aten::mm", 0.5),
    (1, "python", "Optimizer.step#SGD.step", 0.4),
)


def test_modules_backward_and_ranges_of_a_line_hold_its_time() -> None:
    found = inside_line(profile_of(*TRAINING), "ab", 2)
    assert [(name, round(seconds, 9)) for name, seconds in found] == [
        ("model", 2.0),
        ("backward", 1.0),
        ("Optimizer.step#SGD.step", 0.4),
    ]


def test_the_sentence_goes_one_level_deeper_and_names_the_option() -> None:
    sentence = plain(view.document(profile_of(*TRAINING)).sentence)
    assert "; inside it model 2.00 s, backward 1.00 s, Optimizer.step#SGD.step 400 ms" in sentence
    assert sentence.endswith("; more with --group-by module")


def test_of_code_that_is_compiled_as_one_piece_only_its_first_line_is_known() -> None:
    def said(compiled: float) -> str:
        frames = (
            (-1, "thread", "MainThread", 0.0),
            (0, "line", "In[3]:2", 1.0),
            (1, "op", "Torch-Compiled Region: 1/0", 0.0),
            (2, "function", "the rest of f", 0.0),
            (3, "line", "In[3]:2", compiled / 2),
            (4, "op", "aten::mm", compiled / 2),
        )
        return plain(view.document(profile_of(*frames)).sentence)

    assert said(1.1).startswith("In[3]:2, with the code compiled from there on, takes 100 % of the time")
    assert said(0.9).startswith("In[3]:2 takes 100 % of the time")


def test_where_one_module_holds_nearly_all_its_children_are_named() -> None:
    frames = (
        (-1, "thread", "MainThread", 0.0),
        (0, "line", "In[3]:2", 0.02),
        (1, "module", "net", 0.03),
        (2, "module", "net.0", 0.6),
        (2, "module", "net.2", 0.3),
    )
    assert [name for name, _ in inside_line(profile_of(*frames), "ab", 2)] == ["net.0", "net.2"]


def test_a_module_that_the_line_itself_names_is_not_repeated() -> None:
    frames = ((-1, "thread", "MainThread", 0.0), (0, "line", "In[3]:2", 0.02), (1, "module", "net", 0.9))
    assert "inside" not in plain(view.document(profile_of(*frames, source="y = net(x)")).sentence)


def test_a_line_without_named_frames_has_nothing_inside() -> None:
    assert inside_line(profile_of((-1, "thread", "MainThread", 0.0), (0, "line", "In[3]:2", 1.0)), "ab", 2) == []


def test_a_line_with_the_backward_pass_that_it_caused_names_modules_by_both() -> None:
    frames = (
        (-1, "thread", "MainThread", 0.0),
        (0, "line", "In[3]:2", 0.1),
        (1, "module", "net.0", 1.0),
        (2, "op", "aten::mm", 0.5),
        (1, "module", "net.1", 0.9),
    )
    profile = profile_of(*frames, source="y = step(x)")
    caused = profile.frames.assign(backward_cpu_time=[0.0, 0.0, 0.0, 0.2, 3.0])
    profile = replace(
        profile, frames=caused, lines=profile.lines.assign(backward_cpu_time=[3.2]), wall_time=profile.wall_time + 3.2
    )
    sentence = plain(view.document(profile).sentence)
    assert "takes 100 % of the time (5.70 of 5.70 s), forward and backward; inside it" in sentence
    assert "; inside it net.1 3.90 s, net.0 1.70 s" in sentence


def test_the_wait_for_workers_is_said_in_words() -> None:
    frames = (
        (-1, "thread", "MainThread", 0.0),
        (0, "line", "In[3]:2", 0.1),
        (1, "python", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0.9),
    )
    sentence = plain(view.document(profile_of(*frames)).sentence)
    assert "; inside it waiting for the DataLoader's workers 900 ms" in sentence
    assert "enumerate" not in sentence


def test_the_range_of_a_step_has_no_name_but_what_runs_in_it_has() -> None:
    frames = (
        (-1, "thread", "MainThread", 0.0),
        (0, "line", "In[3]:2", 0.1),
        (1, "python", "ProfilerStep*", 0.9),
        (2, "module", "net", 0.5),
    )
    assert inside_line(profile_of(*frames), "ab", 2) == [("net", 0.5)]
    assert "ProfilerStep" not in plain(view.document(profile_of(*frames)).sentence)


def test_where_no_line_is_known_the_range_of_a_step_is_not_what_takes_the_time() -> None:
    profile = profile_of((-1, "thread", "MainThread", 1.0))
    ops = frame_of(OP_COLUMNS, {"op": ["ProfilerStep*", "aten::mm"], "self_cpu_time": [0.9, 0.1], "thread": [0, 0]})
    sentence = plain(view.document(replace(profile, lines=frame_of(LINE_COLUMNS, {}), ops=ops)).sentence)
    assert sentence.startswith("aten::mm takes 10 % of")
