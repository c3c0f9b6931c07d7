"""No text of others steers a terminal or turns a line: one list of texts, every carrier."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.benchmark import CallgrindStats, FunctionCounts, Measurement
from torch.utils.benchmark import Compare as TorchCompare
from torch.utils.benchmark.utils.common import TaskSpec
from torch.utils.benchmark.utils.compare import Colorize
from torch.utils.benchmark.utils.valgrind_wrapper.timer_interface import FunctionCount

import torchbench_magic
from tests.counting.test_view import compared, counted
from tests.profiling.profiles import profile_of_two_kernels
from tests.show.builders import LINES, OPS, comparison_of, profile_of
from torchbench_magic import errors
from torchbench_magic.benchmark import Compare
from torchbench_magic.notebook.display import Output
from torchbench_magic.notebook.widgets import LiveView
from torchbench_magic.printable import escaped, printable, printable_lines
from torchbench_magic.profiling.trace import Source
from torchbench_magic.result_base import Doubt
from torchbench_magic.show import torch_results

TEXTS = (
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "a\rb\x08\x7f",
    "\u202egnp.exe",
    "\u2066a\u2069 \u2067b\u2069 \u2068c\u2069 \u202ad\u202c \u202be\u202c \u202df\u202c",
    "\u200el \u200fr \u061ca",
    "\u2028line\u2029",
)
ALL = "".join(TEXTS)
LOST = f"{ALL}\udc80"
"""With half of a surrogate pair, as a file name of other bytes has it."""
HIDDEN = frozenset(char for char in LOST if escaped(char) != char) | {"\x1b", "\x07"}


def strings(value: Any) -> Iterator[str]:
    """All texts in what JSON holds."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from strings(key)
            yield from strings(part)
    elif isinstance(value, Sequence):
        for part in value:
            yield from strings(part)


def check(*shown: str) -> None:
    for text in shown:
        found = sorted(HIDDEN.intersection(text))
        assert not found, [text[max(text.index(char) - 30, 0) : text.index(char) + 30] for char in found]
    assert any("x1b" in text for text in shown), "the name is not shown at all"


def comparison() -> Any:
    made = comparison_of(
        [(LOST, 1, (4e-6, 2e-6)), (LOST, 2, (4e-6, 2e-6))],
        (f"one {LOST}", f"two {LOST}"),
        stmt=LOST,
        axes=(((f"n{LOST}", 1),), ((f"n{LOST}", 2),)),
        warnings=[Doubt("any", f"It raised {LOST}.", f"Mend `{LOST}`.")],
    )
    subjects = tuple(replace(subject, label=LOST, env=LOST) for subject in made.subjects)
    return replace(made, subjects=subjects)


def profile() -> Any:
    ops = [(LOST if nth < 2 else op, *rest) for nth, (op, *rest) in enumerate(OPS)]
    made = profile_of(
        ops=ops,  # type: ignore[arg-type]
        lines=LINES,
        cell_text="\n".join([LOST] * 8),
        module_text="\n".join([f"x = '{LOST}'"] * 10),
        warnings=[Doubt("any", LOST, LOST)],
        ranges=(LOST,),
    )
    module = Source("module", f"/tmp/{LOST}.py", made.sources["module"].text, cell=None)
    return replace(made, sources={**made.sources, "module": module})


def counts_diff() -> Any:
    sides = {"one": counted(hostile=100), "two": counted(hostile=300, other=5)}
    return compared((LOST,), **{f"{name} {LOST}": side for name, side in sides.items()}).diff()


RESULTS: dict[str, Callable[[], Any]] = {"comparison": comparison, "profile": profile, "counts": counts_diff}


@pytest.mark.parametrize("text", [*TEXTS, LOST])
def test_a_hidden_character_is_written_as_its_escape(text: str) -> None:
    for shown in (printable(text), printable_lines(text), escaped(text)):
        assert not HIDDEN.intersection(shown)
    assert printable("a\tb\nc\r") == "a b c "
    assert printable_lines("a\nb\u202e") == "a\nb\\u202e"
    assert escaped("a\nb\\") == "a\\nb\\"


@pytest.mark.parametrize("text", ["ü µ … − × 矩陣 🔥 \u200d\u200c", "שלום", "e\u0301\u202f1"])
def test_what_is_read_as_it_stands_stays(text: str) -> None:
    assert printable(text) == escaped(text) == text


@pytest.mark.parametrize("kind", RESULTS)
def test_text_html_and_markdown(kind: str) -> None:
    made = RESULTS[kind]()
    check(str(made))
    check(*made._repr_mimebundle_().values())
    check(made.to_markdown())


@pytest.mark.parametrize("kind", RESULTS)
def test_pages(kind: str, tmp_path: Path) -> None:
    RESULTS[kind]().to_html(tmp_path / "page.html")
    check((tmp_path / "page.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", RESULTS)
def test_widgets_with_their_controls(kind: str) -> None:
    widget = RESULTS[kind]().explore()
    states, todo = [], [widget]
    while todo:
        one = todo.pop()
        states.append({name: value for name, value in one.get_state().items() if name != "_esm"})
        todo += getattr(one, "children", ())
    check(*strings(states))


def test_pictures_over_time_and_flame_graphs() -> None:
    named = profile_of_two_kernels(LOST)
    check(*named.timeline()._repr_mimebundle_().values())
    check(named.table())


@pytest.mark.slow
def test_plots() -> None:
    from matplotlib import pyplot
    from matplotlib.text import Text

    check(*(found.get_text() for found in comparison().plot().figure.findobj(Text)))
    pyplot.close("all")


def test_stored_results_hold_the_names_and_show_escapes(tmp_path: Path) -> None:
    made = comparison()
    made.save(tmp_path / "runs.sqlite")
    (loaded,) = torchbench_magic.load(tmp_path / "runs.sqlite")
    assert loaded.subjects[0].sub_label == LOST
    check(str(loaded))


def test_warnings_of_a_store_name_its_path_with_escapes(tmp_path: Path) -> None:
    path = tmp_path / f"{ALL}.sqlite"
    comparison().save(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET header = 3")
    connection.close()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torchbench_magic.load(path)
    check(*(str(one.message) for one in told))


def test_a_trace_shows_escapes_and_keeps_the_names(tmp_path: Path) -> None:
    profile_of_two_kernels(LOST).export_trace(tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_bytes().decode("ascii"))
    del written["torchbench_magic"]
    check(*strings(written))
    assert LOST in set(torchbench_magic.load_trace(tmp_path / "trace.json").ops["op"])


def test_files_of_stacks(tmp_path: Path) -> None:
    x = torch.ones(2)

    def work() -> object:
        with torch.profiler.record_function(ALL):
            return x + x

    torchbench_magic.profile(work).export_stacks(tmp_path / "stacks.txt")
    check((tmp_path / "stacks.txt").read_text(encoding="utf-8").replace("\n", " "))


def test_progress() -> None:
    published: list[Any] = []
    shell = SimpleNamespace(
        kernel=SimpleNamespace(_allow_stdin=False),
        display_pub=SimpleNamespace(publish=lambda **kept: published.append(kept["data"])),
    )
    Output(shell, delay=0, live=False).update(0.5, None, LOST)
    view = LiveView()
    view.tell(0.5, None, LOST)
    check(*strings(published), view.bar.what)
    view.close()


@pytest.mark.parametrize(
    "name", [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
)
def test_errors_are_one_line(name: str) -> None:
    said = str(getattr(errors, name)(f"no {LOST}"))
    check(said)
    assert len(said.splitlines()) == 1


def test_errors_of_the_compiler_keep_their_lines() -> None:
    assert str(errors.SnippetError("a\nb\x1b")) == "a\nb\\x1b"


def test_what_an_interrupt_says() -> None:
    check(str(errors.Interrupted(None, LOST)))


# ---- torch's own objects ------------------------------------------------------------------------------------------


def measured(name: str = ALL) -> Measurement:
    return Measurement(1, [1e-3, 1.1e-3], TaskSpec(ALL, ALL, label=name, sub_label=name, description=name, env=name))


def stats() -> CallgrindStats:
    counts = FunctionCounts((FunctionCount(100, f"a.cpp:{ALL}"), FunctionCount(7, "b.cpp:f")), inclusive=False)
    return CallgrindStats(TaskSpec(ALL, "pass", label=ALL), 10, False, counts, counts, counts, counts, None)


def events() -> Any:
    with torch.profiler.profile(with_stack=True) as recorded, torch.profiler.record_function(ALL):
        torch.ones(2) + 1
    return recorded


TORCHS: dict[str, Callable[[], dict[str, str] | None]] = {
    "Measurement": lambda: torch_results.measurement(measured()),
    "CallgrindStats": lambda: torch_results.callgrind_stats(stats()),
    "FunctionCounts": lambda: torch_results.function_counts(stats().stats()),
    "EventList": lambda: torch_results.event_list(events().key_averages(group_by_stack_n=3)),
    "events": lambda: torch_results.event_list(events().events()),
    "profile": lambda: torch_results.profiler_averages(events()),
    "torch's Compare": lambda: torch_results.compare_table(TorchCompare([measured(), measured(f"{ALL} 2")])),
    "Compare": lambda: Compare([measured(), measured(f"{ALL} 2")])._repr_mimebundle_(),
}


@pytest.mark.parametrize("kind", TORCHS)
def test_what_torch_made_is_shown_with_escapes(kind: str) -> None:
    shown = TORCHS[kind]()
    assert shown is not None
    for text in shown.values():
        check(text)


def test_a_compare_keeps_its_own_colours() -> None:
    table = Compare([measured(), measured(f"{ALL} 2")])
    table.colorize(rowwise=True)
    assert table._colorize is Colorize.ROWWISE
    plain = str(table).replace("\x1b[92m", "").replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[0m", "")
    check(plain.replace("\x1b[31m", "").replace("\x1b[2m", ""))


def test_showing_events_leaves_them_as_they_are() -> None:
    averages = events().key_averages()
    torch_results.event_list(averages)
    assert any(event.key == ALL for event in averages)
