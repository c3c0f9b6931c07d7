"""``Language.CPP`` timers of the drop-in: torch's template and refusals, another compiler's cache."""

from __future__ import annotations

import shutil
import timeit

import pytest

from torchbench_magic.benchmark import Compare, Language, Timer
from torchbench_magic.counting.client import close_server

pytestmark = [
    pytest.mark.slow,  # the first compile of a machine takes half a minute
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]
SETUP = "torch::Tensor x = torch::ones({1});"


def test_setup_global_setup_and_statement_stand_where_torchs_template_puts_them() -> None:
    timer = Timer(
        """
            #ifndef SEEN
            static_assert(false);
            #endif
            torch::Tensor y = x + ONE;
        """,
        setup=SETUP,
        global_setup="#define SEEN\nconst int ONE = 1;",
        timer=timeit.default_timer,
        language=Language.CPP,
        label="add",
    )
    measured = timer.timeit(10)
    assert 0 < measured.median < 1e-2
    assert measured.task_spec.global_setup == "#define SEEN\nconst int ONE = 1;"
    assert measured.task_spec.stmt.startswith("#ifndef SEEN")
    again = timer.blocked_autorange(min_run_time=0.01)
    assert "add" in str(Compare([again]))


def test_setup_runs_before_each_block_and_the_statement_once_untimed() -> None:
    timer = Timer('++calls; if (calls > 4) throw std::runtime_error("too many");', "int calls = 0;", language="c++")
    assert timer._timer.timeit(3) >= 0
    assert timer._timer.timeit(3) >= 0
    with pytest.raises(ValueError, match="too many"):
        timer._timer.timeit(4)


@pytest.mark.parametrize("language", ["c++", "cpp", Language.CPP])
def test_what_does_not_compile_is_told_with_its_line(language: Language | str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        Timer("int a = 1;\nint b = ;", language=language).timeit(1)


@pytest.mark.valgrind
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_counts_of_cpp_are_the_same_each_time_and_denoising_changes_nothing() -> None:
    timer = Timer("x += 1;", setup=SETUP, timer=timeit.default_timer, language="c++")
    try:
        stats = [timer.collect_callgrind() for _ in range(3)]
        repeated = timer.collect_callgrind(number=1000, repeats=2)
    finally:
        close_server()
    assert len({one.counts() for one in stats}) == 1
    assert all(one.counts(denoise=True) == one.counts() > 0 for one in stats)
    assert all(len(one.baseline_exclusive_stats) == 0 for one in stats)
    assert type(repeated) is tuple
    assert repeated[0].counts() == pytest.approx(10 * stats[0].counts(), rel=0.1)
    assert any("add_" in name for _, name in stats[0].stats())
