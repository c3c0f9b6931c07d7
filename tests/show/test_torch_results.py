"""torch's own results in the language of ours: the same figures, in html beside torch's own text."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
import torch
from torch.profiler import profile
from torch.utils.benchmark import CallgrindStats, Compare, FunctionCounts, Measurement
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import FunctionCount

from torchbench_magic.show import torch_results


def words(html: str) -> str:
    """What a reader sees of the static part."""
    static = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", static)).split())


def measured(*times: float, number: int = 10, **names: Any) -> Measurement:
    return Measurement(number, [time * number for time in times], TaskSpec("f(x)", "pass", **names))


def counted(number: int = 100) -> CallgrindStats:
    def function_counts(*entries: tuple[int, str], inclusive: bool) -> FunctionCounts:
        return FunctionCounts(tuple(FunctionCount(n, f) for n, f in entries), inclusive)

    entries = ((7_000, "a.cpp:work"), (3_000, "b.cpp:<script>alert(1)</script>"))
    return CallgrindStats(
        task_spec=TaskSpec("f(x)", "pass"),
        number_per_run=number,
        built_with_debug_symbols=False,
        baseline_inclusive_stats=function_counts((500, "loop"), inclusive=True),
        baseline_exclusive_stats=function_counts((500, "loop"), inclusive=False),
        stmt_inclusive_stats=function_counts(*entries, inclusive=True),
        stmt_exclusive_stats=function_counts(*entries, inclusive=False),
        stmt_callgrind_out=None,
    )


def recorded() -> Any:
    x = torch.ones(32, 32)
    with profile(record_shapes=True, profile_memory=True) as prof:
        for _ in range(5):
            (x @ x).sum()
    return prof


def test_a_measurement_shows_its_median_and_spread() -> None:
    result = measured(1e-3, 1.1e-3, 1.2e-3, label="mine", num_threads=2)
    shown = torch_results.measurement(result)
    assert shown["text/plain"] == repr(result)
    seen = words(shown["text/html"])
    assert "1.10 ms" in seen
    assert "IQR 9.1 %" in seen
    assert "3 blocks of 10 calls, 2 threads" in seen
    assert "1.00 … 1.20 ms" in seen


def test_one_sample_and_none_say_so() -> None:
    assert "one sample: spread unknown" in words(torch_results.measurement(measured(1e-3))["text/html"])
    assert "no sample was taken" in words(torch_results.measurement(measured())["text/html"])


def test_a_noisy_measurement_is_not_to_be_read() -> None:
    noisy = measured(1e-3, 2e-3, 3e-3, 4e-3)
    assert noisy.has_warnings
    assert "This time is unreliable: IQR 60 %" in words(torch_results.measurement(noisy)["text/html"])


def test_a_plain_compare_shows_even_what_torch_cannot_print() -> None:
    table = Compare([measured(1e-3, env="a"), measured(2e-3)])
    with pytest.raises(TypeError):
        str(table)
    seen = words(torch_results.compare_table(table)["text/html"])
    assert "no env" in seen
    colored = Compare([measured(1.23456e-3, description="one")])
    colored.trim_significant_figures()
    assert torch_results.compare_table(colored)["text/plain"] == str(colored)


def test_counts_keep_torchs_totals_and_say_what_is_in_them() -> None:
    stats = counted()
    shown = torch_results.callgrind_stats(stats)
    seen = words(shown["text/html"])
    assert shown["text/plain"] == repr(stats)
    assert "10 000 instructions in 100 runs" in seen
    assert "own 500 are among them" in seen
    assert "without debug symbols" in seen
    assert "<script>alert" not in shown["text/html"]


def test_function_counts_of_a_difference_have_signs() -> None:
    delta = FunctionCounts((FunctionCount(-400, "less"), FunctionCount(900, "more")), inclusive=False)
    seen = words(torch_results.function_counts(delta)["text/html"])
    assert seen.index("+" if "+900" in seen else "900") < seen.index("\u2212400")
    assert "2 functions, exclusive: 500 instructions in all" in seen


def test_the_averages_of_a_profile_have_torchs_figures() -> None:
    prof = recorded()
    averages = prof.key_averages()
    shown = torch_results.event_list(averages)
    (mm,) = [event for event in averages if event.key == "aten::mm"]
    assert "aten::mm" in shown["text/plain"]
    assert mm.count == 5
    seen = words(shown["text/html"])
    assert re.search(r"aten::mm [\d.<]+ (\u2060 )?5 ", seen)
    top = max(averages, key=lambda event: event.self_cpu_time_total)
    assert seen.startswith(f"{top.key} has ")


def test_single_events_are_averaged_and_shapes_get_a_column() -> None:
    prof = recorded()
    assert re.search(r"aten::mm [\d.<]+ (\u2060 )?5 ", words(torch_results.event_list(prof.events())["text/html"]))
    by_shape = words(torch_results.event_list(prof.key_averages(group_by_input_shape=True))["text/html"])
    assert "[[32, 32], [32, 32]]" in by_shape


def test_a_profile_that_has_ended_shows_its_averages_and_where_lines_are_to_be_had() -> None:
    shown = torch_results.profiler_averages(recorded())
    assert shown is not None
    assert "Cell lines need %%tprofile" in words(shown["text/html"]).replace("%%tprofile ", "%%tprofile")
    assert torch_results.profiler_averages(profile()) is None


def test_an_empty_list_of_events_says_so() -> None:
    from torch.autograd.profiler_util import EventList

    shown = torch_results.event_list(EventList([]))
    assert shown["text/plain"] == "no event was recorded"
    assert "No event was recorded." in words(shown["text/html"])
