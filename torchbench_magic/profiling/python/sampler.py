"""Samples of the Python stack of the thread that runs the cell, by pyinstrument's statistical profiler.

pyinstrument's C function sits on Python's profile hook: it looks at the clock at each call and return, of Python and of
C functions, and once `LOOK` has passed it hands over the frame that ran until then. Most of these looks are only noted.
A sample is taken where nothing was called and nothing returned for `LONG`: all of that time is the sample's own (a C
function, as a rule). The time between such stretches has a clock of its own, which stands still in them: by it a sample
is due after each `INTERVAL`, more or less, and stands for the time since the one before. So work that takes less than
an interval before each long call is sampled as often as it should be, and is no part of the call. The hook is another
one than those that lines come from (`sys.settrace`, ``sys.monitoring``), which do not see it.

Of pyinstrument only that function is taken (``low_level.stat_profile.setstatprofile``). What its ``Profiler`` does
with a frame would not do here: it reads ``f_locals`` for the name of a class, which before Python 3.13 keeps the
variables of every frame of the stack alive until the frame ends (tensors too: freed bytes would be wrong), and it keeps
a text for each frame of each sample, 10 MB a second. The name of the class that defines a method is in
``co_qualname``, and stacks are numbered as they come: a sample is 24 bytes.

Beside the wall clock a sample has what the thread wanted of the processors (`WantedClock`): what the wall clock moved
and that did not, the thread waited for something else.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, cast

from torchbench_magic.errors import MissingTool
from torchbench_magic.process.contention import WantedClock

INTERVAL = 0.001
"""Seconds: a sample takes 10 to 40 us, by the depth of the stack. What is dear are the calls, not the samples: the hook
looks at the clock at each one."""
LOOK = 0.0001
"""Seconds: so much of what lies before a long call may count as the call's. A look takes half a microsecond."""
LONG = 0.00025
"""Seconds: a stretch of this length is a sample of its own, of which there are at most 4,000 a second."""
_GOLDEN = (5**0.5 - 1) / 2

_READINGS = 1000
"""Of the thread's processor clock, within which it moves: one that does not (15.6 ms a step on Windows, 10 ms on some
virtual machines) says nothing of a millisecond."""

_LONG_NS = round(LONG * 1e9)

SetHook = Callable[..., None]


@dataclass(frozen=True)
class SampledPlace:
    """A function as the stacks name it.

    Attributes:
        name: qualified, with the class that defines a method.
        module: Python module; empty where not known.
        code: None for a C function.
    """

    name: str
    module: str
    code: CodeType | None = None


@dataclass(frozen=True)
class SampleRecord:
    """What was sampled between start and stop.

    Attributes:
        began: Unix ns of the start.
        interval: ns.
        moments, stacks: of each sample its Unix ns, and the number of the stack that ran until then.
        begins: of each sample that is a stretch of its own the Unix ns at which that began; 0 for the others.
        dues: of each of the others the Unix ns at which it was due; 0 for a stretch.
        parents, functions: of each stack the one below it (-1: none), and the number of its innermost place.
        places: by number.
        holder: who held the profile hook, so that nothing was sampled; empty where nobody did.
        complete: the hook stayed until the end.
        wanted: ns that the thread had run or waited for a core at the start and at each sample; empty where its clock
            is too coarse.
    """

    began: int = 0
    interval: int = round(INTERVAL * 1e9)
    moments: Sequence[int] = ()
    stacks: Sequence[int] = ()
    begins: Sequence[int] = ()
    dues: Sequence[int] = ()
    parents: tuple[int, ...] = ()
    functions: tuple[int, ...] = ()
    places: tuple[SampledPlace, ...] = ()
    holder: str = ""
    complete: bool = True
    wanted: Sequence[int] = ()


def check_sampling() -> SetHook:
    """pyinstrument's function that sets the hook.

    Raises:
        MissingTool: pyinstrument is not installed, or has the function no more.
    """
    try:
        from pyinstrument.low_level.stat_profile import setstatprofile
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "pyinstrument"
        why = "needs pyinstrument" if missing else f"cannot use this pyinstrument ({error})"
        raise MissingTool(f"--python {why}: python -m pip install 'torchbench_magic[python]'") from None
    return cast(SetHook, setstatprofile)


def check_sampler(*, wanted: bool) -> None:
    """As `check_sampling`, where that is ``wanted``: asked before anything runs."""
    if wanted:
        check_sampling()


def _moves(clock: WantedClock) -> bool:
    """Whether a clock of the processor is fine enough for samples: it moves while it is read."""
    first = clock()
    return any(clock() != first for _ in range(_READINGS))


class PythonSampler:
    """Samples between ``start`` and ``stop``, both called on the thread that runs the cell: that one alone.

    Raises MissingTool as `check_sampling` does.

    Args:
        clock: makes, at the start, the clock of what the thread wanted.
    """

    def __init__(self, clock: Callable[[], WantedClock] = WantedClock) -> None:
        self._set_hook = check_sampling()
        self._make_clock = clock
        self._clock: WantedClock | None = None
        self._hook: Any = None
        self._holder = ""
        self._began = 0
        self._below: frozenset[int] = frozenset()
        self._process = os.getpid()
        self._numbers: dict[int | str, int] = {}  # id of a code, or name of a C function -> number of its place
        self._places: list[SampledPlace] = []
        self._index: dict[tuple[int, int], int] = {}
        self._parents: list[int] = []
        self._functions: list[int] = []
        self._moments, self._stacks = array("q"), array("q")
        self._begins, self._dues = array("q"), array("q")
        self._wanted = array("q")
        self._looked = self._due = 0
        self._turn = 0.0

    def start(self, below: Iterable[FrameType]) -> None:
        """Sample from now on what runs above the frames ``below``, which their owner holds until `stop`.

        A hook that is there already stays, and nothing is sampled.
        """
        hook = sys.getprofile()
        if hook is not None:
            kind = type(hook)
            self._holder = getattr(hook, "__module__", None) or kind.__module__
            return
        self._below = frozenset(map(id, below))
        clock = self._make_clock()
        if _moves(clock):
            self._clock = clock
        else:
            clock.close()
        self._began = self._looked = self._due = time.time_ns()
        self._next_due()
        if self._clock is not None:
            self._wanted.append(self._clock())
        # the coarse clock that pyinstrument would take on some systems moves in steps of the interval
        self._set_hook(target=self._look, interval=LOOK, timer_type="walltime")
        self._hook = sys.getprofile()

    def stop(self) -> SampleRecord:
        """Take the hook away; one that the measured code has set stays."""
        complete = sys.getprofile() is self._hook
        if self._hook is not None and complete:
            self._set_hook(None)
        self._hook = None
        if self._clock is not None:
            self._clock.close()
        return SampleRecord(
            self._began,
            moments=self._moments,
            stacks=self._stacks,
            begins=self._begins,
            dues=self._dues,
            parents=tuple(self._parents),
            functions=tuple(self._functions),
            places=tuple(self._places),
            holder=self._holder,
            complete=complete,
            wanted=self._wanted,
        )

    def _look(self, frame: FrameType | None, event: str, arg: Any) -> None:
        now = time.time_ns()
        before, self._looked = self._looked, now
        lasted = now - before
        if lasted < _LONG_NS and now < self._due:
            return
        wanted = self._clock() if self._clock is not None else None
        if os.getpid() != self._process:  # a fork, as a DataLoader's worker is: it has the hook of its parent
            sys.setprofile(None)
            return
        if lasted < _LONG_NS:
            self._begins.append(0)
            self._dues.append(self._due)
            self._next_due()
        else:
            self._begins.append(before)
            self._dues.append(0)
            self._due += lasted
        self._sample(now, wanted, frame, event, arg)

    def _next_due(self) -> None:
        """After half an interval to one and a half, 1 on average, in an order that no loop of the code follows."""
        self._turn = (self._turn + _GOLDEN) % 1.0
        self._due += int((0.5 + self._turn) * INTERVAL * 1e9)

    def _sample(self, now: int, wanted: int | None, frame: FrameType | None, event: str, arg: Any) -> None:
        path = []
        if event == "c_return" or event == "c_exception":
            path.append(self._c_function(arg))
        elif event == "call" and frame is not None:
            frame = frame.f_back  # until now its caller ran
        numbers, below = self._numbers, self._below
        while frame is not None and id(frame) not in below:
            code = frame.f_code
            number = numbers.get(id(code))
            path.append(self._python_function(frame) if number is None else number)
            frame = frame.f_back
        stack, index = -1, self._index
        for number in reversed(path):
            found = index.get((stack, number))
            if found is None:
                found = index[stack, number] = len(self._parents)
                self._parents.append(stack)
                self._functions.append(number)
            stack = found
        self._moments.append(now)
        if wanted is not None:
            self._wanted.append(wanted)
        self._stacks.append(stack)

    def _python_function(self, frame: FrameType) -> int:
        code = frame.f_code
        module = frame.f_globals.get("__name__")
        name = code.co_qualname.replace("<locals>.", "")
        return self._add(id(code), SampledPlace(name, module if isinstance(module, str) else "", code))

    def _c_function(self, function: Any) -> int:
        """Of a C function, which has no code: ``__self__`` may be the user's object, of which nothing is asked."""
        name = getattr(function, "__qualname__", None) or getattr(function, "__name__", "")
        module = getattr(function, "__module__", None)
        if not isinstance(module, str):
            owner = getattr(function, "__self__", None)
            module = owner.__name__ if isinstance(owner, type(sys)) else type(owner).__module__
        key = f"{module}\0{name}"
        number = self._numbers.get(key)
        return self._add(key, SampledPlace(str(name), str(module))) if number is None else number

    def _add(self, key: int | str, place: SampledPlace) -> int:
        number = self._numbers[key] = len(self._places)
        self._places.append(place)  # it holds the code, whose id is not used again then
        return number
