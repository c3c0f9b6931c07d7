"""The tree of Python functions: what is said of it, what is shown, and what is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
import pytest

from torchbench_magic.profiling.call_tree_tables import inclusive
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.python.view import python_clause, python_footer, python_table
from torchbench_magic.profiling.schema import LINE_COLUMNS, OP_COLUMNS, PYTHON_COLUMNS, frame_of
from torchbench_magic.profiling.view import document
from torchbench_magic.show import html, markdown, text
from torchbench_magic.show.document import plain

Called = tuple[int, str, str, float, float]
"""Place of the caller in the list, function, module, seconds of its own in Python, and in torch."""

MODULE = "torch.nn.modules.module"
GENERATE: tuple[Called, ...] = (
    (-1, "In[4]", "", 0.0, 0.0),
    (0, "main", "__main__", 0.001, 0.0),
    (1, "context_decorator.decorate_context", "torch.utils._contextlib", 0.0, 0.0),
    (2, "GenerationMixin.generate", "transformers.generation.utils", 0.01, 0.0),
    (3, "GenerationMixin._sample", "transformers.generation.utils", 0.01, 0.0),
    (4, "Module._wrapped_call_impl", MODULE, 0.0, 0.0),
    (5, "Module._call_impl", MODULE, 0.001, 0.0),
    (6, "LlamaForCausalLM.forward", "transformers.models.llama.modeling_llama", 0.0, 0.0),
    (7, "LlamaAttention.forward", "transformers.models.llama.modeling_llama", 0.2, 0.0),
    (8, "linear", "torch._C._nn", 0.1, 0.5),
    (4, "LogitsProcessor.__call__", "transformers.generation.logits_process", 0.17, 0.0),
    (4, "tiny", "transformers.generation.utils", 0.008, 0.0),
)


def tree_of(*called: Called, waits: Mapping[int, float] = MappingProxyType({})) -> pd.DataFrame:
    """``waits``: of a row, seconds of its own outside torch that are waiting."""
    parents = [parent for parent, *_ in called]
    own = [python + torch for *_, python, torch in called]
    in_torch = [torch for *_, torch in called]
    idle = [waits.get(at, 0.0) for at in range(len(called))]
    total, torch_total, waiting = (inclusive(each, parents) for each in (own, in_torch, idle))
    return frame_of(
        PYTHON_COLUMNS,
        {
            "parent": parents,
            "function": [name for _, name, *_ in called],
            "module": [module for _, _, module, *_ in called],
            "library": [m.partition(".")[0] if m != "__main__" else "" for _, _, m, *_ in called],
            "file": [f"/lib/{m.replace('.', '/')}.py" if m and "_C" not in m else None for _, _, m, *_ in called],
            "line": [_line(called, at) if m and "_C" not in m else pd.NA for at, (_, _, m, *_) in enumerate(called)],
            "samples": [round(each * 1000) for each in total],
            "total_time": total,
            "self_time": own,
            "torch_time": torch_total,
            "python_time": [t - torch - idle for t, torch, idle in zip(total, torch_total, waiting, strict=True)],
            "waiting_time": waiting,
            "self_torch_time": in_torch,
            "self_waiting_time": idle,
        },
    )


def _line(called: tuple[Called, ...], at: int) -> int:
    """A function has one line, however often it stands in the tree."""
    return 10 * next(first for first, each in enumerate(called) if each[1:3] == called[at][1:3])


def profile_of(*called: Called, **fields: Any) -> Profile:
    tree = tree_of(*called)
    known = {"wall_time": float(tree["total_time"].iloc[0]), "num_threads": 1, "python": tree} | fields
    return Profile(lines=frame_of(LINE_COLUMNS, {}), ops=frame_of(OP_COLUMNS, {}), **known)


def shown(profile: Profile) -> list[str]:
    table = python_table(profile)
    assert table is not None
    return [row.cells[0].text.replace("\u00a0", ".") for row in table.rows()]


def test_functions_that_only_hand_on_are_left_out_and_the_entrance_of_a_library_stays() -> None:
    assert shown(profile_of(*GENERATE)) == [
        "In[4]",
        ".main",
        "..GenerationMixin.generate",
        "...GenerationMixin._sample",
        "....LlamaAttention.forward",
        ".....linear",
        "....LogitsProcessor.__call__",
    ]


def test_a_function_with_time_of_its_own_is_never_left_out() -> None:
    called = [*GENERATE]
    called[6] = (5, "Module._call_impl", MODULE, 0.05, 0.0)
    called[7] = (6, "LlamaForCausalLM.forward", "transformers.models.llama.modeling_llama", 0.1, 0.0)
    names = {name.lstrip(".") for name in shown(profile_of(*called))}
    assert {"Module._call_impl", "LlamaForCausalLM.forward"} <= names


def test_the_figures_of_a_row() -> None:
    table = python_table(profile_of(*GENERATE))
    assert table is not None
    (row,) = (row for row in table.rows() if row.key == "LlamaAttention.forward")
    cells = dict(zip([column.name for column in table.columns], row.cells, strict=True))
    assert [round(cells[name].value or 0, 6) for name in ("total", "torch", "python", "self", "share")] == [
        0.8, 0.5, 0.3, 0.2, 0.8,
    ]  # fmt: skip
    parts: Any = cells["bar"].picture[0]
    assert [(hue, round(share, 9)) for hue, share in parts] == [("torch", 0.5), ("python", 0.3)]
    assert cells["place"].text == "modeling_llama.py:80"
    assert "7 of 12 places" in table.hidden


def test_the_sentence_names_the_function_that_the_time_goes_through_and_whose_python_it_is() -> None:
    said = plain(python_clause(profile_of(*GENERATE)))
    assert said == (
        "; GenerationMixin.generate spends 50 % of its time in torch operations and 50 % outside them"
        " (transformers 40 %, torch 10 %)"
    )


def test_the_sentence_of_code_without_a_library_is_of_the_code() -> None:
    called: tuple[Called, ...] = ((-1, "In[4]", "", 0.5, 0.0), (0, "f", "__main__", 0.5, 0.0))
    said = plain(python_clause(profile_of(*called)))
    assert said.startswith("; In[4] spends none of its time in torch operations and 100 % outside them (the")


def test_where_torchs_time_is_not_known_no_share_is_said() -> None:
    tree = tree_of(*GENERATE)
    tree[["torch_time", "python_time", "self_torch_time"]] = float("nan")
    profile = profile_of(*GENERATE, python=tree)
    assert plain(python_clause(profile)) == ""
    assert "GenerationMixin.generate" in text.render(document(profile))


def test_a_call_of_itself_is_left_out_and_what_it_calls_stands_in_its_place() -> None:
    calls: tuple[Called, ...] = (
        (-1, "In[4]", "", 0.0, 0.0),
        (0, "visit", "__main__", 0.1, 0.0),
        (1, "visit", "__main__", 0.01, 0.0),
        (2, "add", "torch", 0.0, 0.39),
        (2, "visit", "__main__", 0.2, 0.0),  # with time of its own
        (4, "add", "torch", 0.0, 0.3),
    )
    assert shown(profile_of(*calls)) == ["In[4]", ".visit", "..visit", "...add", "..add"]


def test_waiting_has_a_column_and_its_part_in_the_sentence() -> None:
    waits = tree_of(*GENERATE, waits={3: 0.009, 10: 0.15})
    profile = profile_of(*GENERATE, python=waits)
    table = python_table(profile)
    assert table is not None
    column = [each.name for each in table.columns].index("waiting")
    values = {str(row.key): row.cells[column].value for row in table.rows()}
    assert values["LogitsProcessor.__call__"] == pytest.approx(0.15)
    assert values["GenerationMixin.generate"] == pytest.approx(0.159)
    assert values["LlamaAttention.forward"] == 0
    assert plain(python_clause(profile)).endswith(
        "spends 50 % of its time in torch operations, 16 % waiting and 34 % in other code"
        " (transformers 24 %, torch 10 %)"
    )
    assert "needs no CPU" in python_footer(profile)


@pytest.mark.parametrize("waiting", [0.0, float("nan")])
def test_without_waiting_or_where_it_is_not_known_there_is_no_column(waiting: float) -> None:
    tree = tree_of(*GENERATE).assign(waiting_time=waiting, self_waiting_time=waiting)
    profile = profile_of(*GENERATE, python=tree)
    table = python_table(profile)
    assert table is not None
    assert "waiting" not in [each.name for each in table.columns]
    assert plain(python_clause(profile)) == plain(python_clause(profile_of(*GENERATE)))
    assert "including waiting" in python_footer(profile)


def test_it_is_in_every_carrier() -> None:
    made = document(profile_of(*GENERATE))
    for drawn in (text.render(made), markdown.render(made), html.render(made)):
        assert "LlamaAttention.forward" in drawn
        assert "where Python time goes" in drawn
    lines = text.render(made).splitlines()
    assert [re.match(r" *", line)[0] for line in lines if "LlamaAttention" in line] == ["    "]  # type: ignore[index]


def test_without_the_option_and_without_a_sample_there_is_no_table() -> None:
    nothing = frame_of(PYTHON_COLUMNS, {})
    for tree in (None, nothing):
        profile = profile_of(*GENERATE, python=tree)
        assert python_table(profile) is None
        assert "where Python time goes" not in text.render(document(profile))


@pytest.mark.slow
def test_a_tree_of_thousands_of_levels_is_drawn() -> None:
    deep = [(-1, "In[4]", "", 0.0, 0.0), *((at, f"deep_{at}", "__main__", 0.0, 0.0) for at in range(3000))]
    profile = profile_of(*deep, (3000, "end", "__main__", 1.0, 0.0))  # type: ignore[arg-type]
    assert len(shown(profile)) == 40
