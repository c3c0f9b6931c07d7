"""``torch.utils.benchmark.utils.timer`` with a `Timer` that counts in a second."""

from __future__ import annotations

import timeit
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.utils.benchmark.utils import timer as torch_timer
from torch.utils.benchmark.utils.timer import Language, timer

from torchbench_magic.benchmark import timer_parts
from torchbench_magic.benchmark.timer_parts import CPPTimer, check_calls, check_threads
from torchbench_magic.counting import client_requests
from torchbench_magic.counting.count import Job, LibraryJob

if TYPE_CHECKING:
    pass

__all__ = ["Timer", "timer", "Language"]


def __getattr__(name: str) -> Any:
    """What torch's module has besides."""
    return getattr(torch_timer, name)


class Timer(torch_timer.Timer):
    """torch's ``Timer``: the same arguments, defaults, methods and results; what it does more is marked below.

    Measures the time that a statement takes, with replicates, at a chosen number of threads (one, unless told
    otherwise), and counts its instructions under Callgrind. Nothing is subtracted from the times.

    Args:
        stmt: the statement, run in a loop.
        setup: runs before every block of calls. Names that it binds go on from call to call within a block.
        global_setup: C++ only: code at the top of the file.
        timer: a function that returns seconds, or the name of a clock: ``"wall"`` (the default: accelerators are
            waited for), ``"cpu"`` (processor time of the process, all its threads), ``"device"`` (time between two
            events on the accelerator). The names are ours.
        globals: names for the statement; ``torch`` is there in any case. The dict is copied.
        label, sub_label, description, env: names for `Compare` and for the printed result.
        num_threads: of torch, while the statement runs.
        language: ``"python"`` or ``"c++"``, or a `Language`.

    Raises:
        OptionError: ``num_threads`` is no whole number from 1 on; of ``timer``, no clock of that name.
        ValueError: what torch does not take either (a stmt that is no str, globals for C++, ...).
        SyntaxError: code that does not compile.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] | str = timer,
        globals: dict[str, Any] | None = None,  # noqa: A002  (torch's name for it)
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        check_threads(num_threads)
        names = (label, sub_label, description, env)
        super().__init__(stmt, setup, global_setup, timer_parts.clock_of(timer), globals, *names, num_threads, language)
        if self._language is Language.CPP:
            spec = self._task_spec
            self._timer = CPPTimer(spec.stmt, spec.setup, spec.global_setup, timeit.default_timer, {})
            self._timer.clock = "cpu" if timer == "cpu" else "wall"

    def collect_callgrind(
        self,
        number: int = 100,
        *,
        repeats: int | None = None,
        collect_baseline: bool = True,
        retain_out_file: bool = False,
    ) -> Any:
        """Count the instructions of the statement under Callgrind, in about a second after the first count.

        ``globals`` may hold anything that can be pickled by cloudpickle, and tensors; `CopyIfCallgrind` is taken but
        not needed. The process that counts is started once for all sessions (10 to 30 seconds) and forks for each
        count, so that two counts of one statement are the same number.

        Args:
            number: calls of the statement that are counted.
            repeats: count that often, and return a tuple.
            collect_baseline: count the empty loop too (of Python).
            retain_out_file: keep callgrind's file, as text, in ``stmt_callgrind_out``.

        Returns:
            A ``CallgrindStats``, or a tuple of them with ``repeats``. Totals over ``number`` calls, as in torch.

        Raises:
            OptionError: ``number`` is no whole number from 1 on.
            ValueError: ``repeats`` below 1, or ``torch`` replaced in ``globals``.
            CollectionFailed: (an OSError) no valgrind, a variable that cannot be sent, code that fails there.
            Exception: what the statement itself raises, before anything is counted.
        """
        check_calls(number)
        if repeats is not None and repeats < 1:
            raise ValueError("If specified, `repeats` must be >= 1")
        if not client_requests.is_supported():
            warnings.warn(
                "Instructions are counted by torch's own collector, which takes almost a minute and needs globals"
                " wrapped in CopyIfCallgrind: the faster way works only on Linux on x86_64 processors.",
                stacklevel=2,
            )
            return super().collect_callgrind(
                number, repeats=repeats, collect_baseline=collect_baseline, retain_out_file=retain_out_file
            )
        self._timeit(1)  # a faulty statement is told here, not by the counting process
        threads, is_cpp = self._task_spec.num_threads, self._language is Language.CPP
        job: Job | LibraryJob
        if isinstance(self._timer, CPPTimer):
            job = LibraryJob(str(self._timer.compiled().library), number, threads)
        else:
            job = timer_parts.python_job(self._task_spec, self._globals, number)
        found = timer_parts.collect_callgrind(
            self._task_spec,
            job,
            repeats=repeats or 1,
            collect_baseline=collect_baseline and not is_cpp,  # torch counts no empty loop of C++
            retain_out_file=retain_out_file,
        )
        return found[0] if repeats is None else found
