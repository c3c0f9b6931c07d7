"""``--sweep``, ``--fuzz`` and ``--seed`` of ``%%timer``, with the real core."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

Run = Callable[..., str]
QUICK = "-n 2 -r 3 -t 1"


@pytest.fixture
def timed(loaded: InteractiveShell) -> InteractiveShell:
    """A shell with the extension, torch, and a fuzzer of small tensors."""
    import torch

    from torchbench_magic.benchmark import FuzzedParameter, FuzzedTensor, Fuzzer

    mine = Fuzzer(
        [FuzzedParameter("k", minval=1, maxval=50, distribution="uniform")], [FuzzedTensor("v", size=("k",))], seed=1
    )
    loaded.user_ns.update(torch=torch, mine=mine)
    return loaded


def test_a_sweep_has_a_column_and_a_point_for_each_value(timed: Any, run: Run) -> None:
    run(timed, f'%%timer {QUICK} -q --sweep "n=[2**k for k in range(3)]"\n# --- setup\nx = torch.ones(n)\n'
        "# --- a\nx + 1\n# --- b\nx + n")  # fmt: skip
    frame = timed.user_ns["_timer"].frame
    assert frame["n"].tolist() == [1, 1, 2, 2, 4, 4]
    assert frame["description"].tolist() == ["a", "b"] * 3
    assert frame["sub_label"].unique().tolist() == ["n=1", "n=2", "n=4"]
    assert frame["verdict"].tolist()[::2] == ["baseline"] * 3


def test_setup_runs_once_for_each_point_and_all_alternatives_share_it(timed: Any, run: Run) -> None:
    timed.user_ns["log"] = []
    run(timed, f'%%timer {QUICK} -q --sweep "n=[3, 4]"\n# --- setup\nlog.append(n); own = object()\n'
        "# --- a\nlog.append(own)\n# --- b\nlog.append(own)")  # fmt: skip
    log = timed.user_ns["log"]
    assert log.count(3) == log.count(4) == 1
    first = log[1 : log.index(4)]
    assert len(set(first)) == 1
    assert set(first) != set(log[log.index(4) + 1 :])


def test_nothing_of_the_sweep_is_left_in_the_notebook(timed: Any, run: Run) -> None:
    timed.user_ns["n"] = "mine"
    run(timed, f'%timer {QUICK} -q --sweep "n=[3, 4]" --sweep "m=[1]" n + m')
    assert timed.user_ns["n"] == "mine"
    assert "m" not in timed.user_ns
    assert timed.user_ns["_timer"].frame[["n", "m"]].to_numpy().tolist() == [[3, 1], [4, 1]]


def test_a_fuzzer_of_torch_gives_its_tensors_by_name(timed: Any, run: Run) -> None:
    run(timed, f"%timer {QUICK} -q --fuzz unary:3 assert x.dtype == torch.float32")
    frame = timed.user_ns["_timer"].frame
    assert len(frame) == 3
    assert frame["sub_label"].nunique() == 3


def test_a_fuzzer_of_the_notebook_is_found_by_its_name(timed: Any, run: Run) -> None:
    timed.user_ns["sizes"] = []
    run(timed, f"%timer {QUICK} -q --fuzz mine:4 sizes.append((len(v), k))")
    frame = timed.user_ns["_timer"].frame
    sizes = list(dict.fromkeys(timed.user_ns["sizes"]))
    assert all(a == b for a, b in sizes)
    assert [label.partition(",")[0] for label in frame["sub_label"]] == [str(a) for a, _ in sizes]


def test_the_seed_is_the_fuzzers_and_the_orders(timed: Any, run: Run) -> None:
    def labels(seed: int) -> list[str]:
        run(timed, f"%timer {QUICK} -q --fuzz mine:4 --seed {seed} v + 1")
        assert timed.user_ns["_timer"].seed == seed
        return timed.user_ns["_timer"].frame["sub_label"].tolist()

    assert labels(3) == labels(3) != labels(4)


def test_a_sweep_and_a_fuzzer_meet_at_every_pair(timed: Any, run: Run) -> None:
    run(timed, f'%timer {QUICK} -q --fuzz mine:2 --sweep "n=[1, 2]" v + n')
    assert timed.user_ns["_timer"].frame["n"].tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('--sweep "n=["', "SyntaxError"),
        ('--sweep "median=[1]"', "a column of the result"),
        ('--sweep "n=nowhere"', "NameError"),
        ('--sweep "n=[1]" --sub-label S', "leave it out"),
        ("--fuzz torch:2", "torch is a module"),
        ("--fuzz unknown", "unknown is not defined"),
        ("--seed -1", "whole number from 0"),
    ],
)
def test_what_cannot_be_swept_is_one_line_and_runs_nothing(timed: Any, run: Run, options: str, message: str) -> None:
    timed.user_ns["log"] = []
    shown = run(timed, f"%timer {QUICK} {options} log.append(1)")
    (line,) = [part for part in shown.splitlines() if part.startswith("UsageError")]
    assert message in line
    assert timed.user_ns["log"] == []


def test_every_option_is_in_the_help_with_its_default(timed: Any) -> None:
    text = timed.find_line_magic("timer").__doc__
    assert '--sweep "NAME=EXPR"' in text
    assert "--fuzz KIND[:COUNT]" in text
    assert "--seed N" in text


@pytest.mark.parametrize("asked", ["--fuzz mine:1", "--fuzz mine:2", '--fuzz mine:2 --sweep "n=[1, 2]"'])
def test_no_cell_is_said_to_repeat_fuzzed_inputs(timed: Any, run: Run, asked: str) -> None:
    timed.user_ns["v"] = timed.user_ns["torch"].ones(2)
    run(timed, f"%timer {QUICK} -q v + 1")
    assert json.loads(timed.user_ns["_timer"].to_json())["repeat"]["cell"] is not None
    run(timed, f"%timer {QUICK} -q {asked} v + {'n' if 'sweep' in asked else 1}")
    assert json.loads(timed.user_ns["_timer"].to_json())["repeat"]["cell"] is None
