"""Do later calls of code do the work of its first call? Calls are recorded, and compared.

Of an alternative its first call is recorded, two after it, and one after the samples: *what ran* (the user's lines
with counts and seconds, torch's operators with shapes and elements, calls into Python libraries) and *what was there*
before it (`work_state`; the recording itself is `recorded_call`). `Probe` compares the first with the later ones:

* void: most of the first call's work did not run again, or each call does more than the one before. What ran can void
  by itself; what was there cannot: it is put to the test, the state before the first call put back and the code called.
* doubt: a part did not run again, a switch was set and other code ran, or only time tells.
* neither: the same work. Values that differ are no sign: training, counters and random data change in each call.

Each recorded call draws the same random numbers. The recording exists only within it: the timed calls run as they would
without. What it cannot see is told in docs/method.md.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType, FunctionType
from typing import Any, cast

from torchbench_magic.process import dynamo
from torchbench_magic.process.code import names_used
from torchbench_magic.process.frame_owner import is_users_file
from torchbench_magic.results import Doubt
from torchbench_magic.units import seconds_text

from .recorded_call import VALUE, WAITED, Recorded, Work, recorded_call
from .timed_loop import FAILED, Block, BlockRequest, Steps, Timeable, line_text
from .used_up import RECORDED
from .work_state import (
    GROWING,
    OF_PROCESS,
    Kept,
    Left,
    Place,
    Reached,
    Seen,
    extent,
    generators_among,
    is_number,
    is_switch,
    named,
    reach,
    seen_of,
    share_of,
    state_of,
)

LOST, MOST, SOME = 0.4, 0.5, 0.05
"""Share of the first call's work that later calls lack: from here a doubt, from here void. Of that of calls that go on
from each other: from here it is said."""
MORE, ONCE = 1.5, 2.0
"""Times as much work, or time, that is more; times as long from setup's state as from the present one, that the first
call did what later ones do not."""
NOISE, COLD = 2e-5, 5e-5
"""Seconds that are not told apart, since a single call finds its caches cold; that the Python of a cold operator counts
for at most."""
SHORT, TURNS = 2e-6, 20
"""Seconds that are not told apart by the shortest of so many calls."""
LEAST, STEADY = 6, 0.85
"""Turns of calls that are far apart, however long they take; share of them in which the same one is slower."""
FAR = 20.0
"""Times as long, by the time alone, as is no chance."""
_LARGE = 1e15
"""A number that is not shown any more."""
PUT_BACK, GROWN = "put-back", "grown"
_FROM_STATES = "a call takes {} from the state that setup left, and {} from the present one"
_DID_MORE = "The first call{} did more than later ones, or other work"
LONG = 0.5
"""Seconds of a call from which on none is made only to look."""
AGAIN = 8
"""Calls in which work that seems lost may come again before it is said to be."""


# ---- the probe -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What is said of an alternative.

    Attributes:
        how: "less", later calls lack work; "more", each call does more; "other", calls do other work than from the
            state that setup left; "fed", calls lack what another alternative leaves; "lazy", calls return what works
            later; "part", "time", "waits": a doubt only; `PUT_BACK` and `GROWN`: no doubt of the times.
        evidence: a clause.
    """

    how: str
    evidence: str

    @property
    def voids(self) -> bool:
        return self.how in RECORDED

    def doubt(self, name: str, *, restore: bool = False) -> Doubt:
        """Of an alternative that keeps its verdict; ``restore``: that was given already."""
        of = f" of `{name}`" if name else ""
        if self.how in (PUT_BACK, GROWN):
            clause = f"{self.evidence}{f' (`{name}`)' if name else ''}"
            way = "To time calls that go on from each other, "
            way += "leave out `--restore`." if restore else "keep the value in an object: that is not put back."
            return Doubt(self.how, f"{clause}.", way if self.how == PUT_BACK else "", {"name": name, "clause": clause})
        what = "Later calls{} wait where the first one did not" if self.how == "waits" else _DID_MORE
        text = f"{what.format(of)}: {self.evidence}."
        way = "If the times are to include it, create or fill it in the code"
        way += "." if restore else ", or give `--restore`."
        return Doubt("other-work", text, way, {"name": name, "how": self.how, "evidence": self.evidence})


class Probe:
    """Records calls of one alternative; made before its first call. `forget` lets go of what it holds.

    Args:
        block: calls the code, with its value bound to `VALUE`.
        code: the block itself, that it may be around.
        clock: of the run, nanoseconds.
        before: run before each call, `--restore`; the state before the first call is then that of each.
        is_alone: no other code runs between the recorded calls, and nothing is put back. Else a call that nobody
            records comes first: what is timed are calls in a row, and another alternative, or what is put back, may
            leave the work that a call after it does.

    Attributes:
        block: see above; whoever drops its output puts another there.
        calls: that were made of the code beside its first, and that nobody else counts.
        long: seconds of a call from which on none is made only to look. Set by whoever knows how long the run may be.
        finding: what they come to, as far as is known.
        failed: an error of the probe's own, after which it records nothing more; the code is timed all the same.
        clauses: what takes nothing from the times: names that are put back before each call, where a call that goes on
            takes another time; what holds more with every call.
    """

    def __init__(
        self,
        block: Timeable,
        code: Block,
        clock: Callable[[], int],
        before: Callable[[], None] | None = None,
        *,
        is_alone: bool = True,
    ) -> None:
        self.block, self._code, self._clock, self._before, self._is_alone = block, code, clock, before, is_alone
        self._namespace = code.replicas[0].__globals__
        self._works: list[Work] = []
        self._plain, self._timed = 0, 0.0
        self._early = "second"  # which call the first of the later recorded ones is
        self.calls = -1
        self.long = LONG
        self.finding: Finding | None = None
        self.failed: Exception | None = None
        self.clauses: list[Finding] = []
        self._share = 0
        self._kept, self._by_setup = Kept({}), dict[str, Seen]()
        self._random: list[tuple[Callable[[], Any], Callable[[Any], object], Any]] = []
        with self._giving_up():
            if self._compiles():
                dynamo.load()  # as the first call would: `uncompiled` must come before it
            reached = self._reach()
            self._share = share_of(reached)
            self._kept, self._by_setup = Kept(reached), state_of(reached, self._share)
            self._random = [(read, put, read()) for read, put in generators_among(reached)]

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        """What fails in here is the probe's: the code and its timing have no part in it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            self.failed = self.failed or error

    def _compiles(self) -> bool:
        called = (one.value for one in self._reach().values())
        codes = [self._code.replicas[0].__code__, *(v.__code__ for v in called if issubclass(type(v), FunctionType))]
        own = (code for code in codes if isinstance(code, CodeType) and is_users_file(code.co_filename))
        return any({"torch", "compile"} <= {*names_used(code)} for code in own)

    def _reach(self) -> dict[str, Reached]:
        return reach(self._namespace, self._code.names, [self._code.replicas[0].__code__])

    @property
    def is_compiled(self) -> bool:
        """Whether a plain call compiles, or runs what was compiled."""
        return any(work.is_compiled for work in self._works)

    def forget(self) -> None:
        """Let go of what is held of the code's."""
        self._kept, self._random, self._by_setup = Kept({}), [], {}
        for work in self._works:
            work.left = {}

    def recorded(self, *, is_tried: bool = False) -> Steps[tuple[int, int]]:
        """One recorded call; its reading without what the recording took."""
        if self._before is not None:
            self._before()
        work = Work()
        with self._giving_up():
            work.before = state_of(self._reach(), self._share)
        if not self._works:
            gc.collect(0)  # what preparing left is nothing that the code is to find
        call = self.block if self.failed is not None else Recorded(self.block, lambda: self._kept_apart(work))
        wall, cpu = reading = yield BlockRequest(call, 0, 1, is_tried=is_tried)
        self._works.append(work)
        self.failed = self.failed or work.failed
        self.calls += 1
        if reading == FAILED:
            return FAILED
        net = max(wall - round(work.overhead_ns), 0)
        work.wall, work.cpu = net / 1e9, max(cpu - work.overhead_ns, 0.0) / 1e9
        return net, cpu

    def recorded_again(self) -> Steps[float]:
        """The calls after the first, and what is known then; nanoseconds of the last of them."""
        yield from self._calls_in_front()
        self._early = "third" if self.calls else "second"
        for _ in range(2):
            if (self._works[-1].wall <= self.long and self.failed is None) or len(self._works) == 1:
                last, _ = yield from self.recorded()
        if self.failed is None:
            with self._giving_up():
                self.finding = yield from self._judged()
        return float(last)

    def _calls_in_front(self, calls: int = 1) -> Steps[None]:
        """Calls after which those that are recorded follow some of the same code, as most timed ones do."""
        wall = max(self._works[-1].wall, NOISE)
        if not self._is_alone and self._before is None and wall <= self.long:
            calls = max(1, min(calls, int(self.long / wall)))
            yield BlockRequest(self.block, 0, calls, is_tried=True)
            self.calls += calls

    def recorded_last(
        self,
        plain: int,
        in_a_row: int,
        usual: float = 0.0,
        without: Sequence[Any] = (),
        copied: Callable[[], Callable[[], object]] | None = None,
    ) -> Steps[None]:
        """The call after the samples, for which so many were made, and what is known then.

        Args:
            in_a_row: of those, before others were called.
            usual: seconds of one of them; 0 where that is not known.
            without: tensors that have no gradient here, and one after calls of another alternative.
            copied: copies the state of tensors and optimizers; gives what puts it back.
        """
        self._plain, self._timed = plain, usual
        is_open = self.finding is None or not self.finding.voids  # a doubt may become more
        if is_open and self.failed is None:
            yield from self._calls_in_front(in_a_row // 2)  # as a timed call has on average
            if self._works[-1].wall <= self.long and (yield from self.recorded(is_tried=True)) != FAILED:
                with self._giving_up():
                    yield from self._judged_last(without, copied)
        self.forget()

    def _judged_last(
        self, without: Sequence[Any], copied: Callable[[], Callable[[], object]] | None
    ) -> Steps[None]:
        if self.failed is None:
            found = (yield from self._judged()) or (yield from self._by_gradients(without, copied))
            self.finding = found or self.finding
            clauses = (yield from self._by_what_is_put_back(self._works[-1].left, copied)), self._grown()
            self.clauses = [one for one in clauses if one is not None]

    def _by_what_is_put_back(
        self, left: dict[str, Any], copied: Callable[[], Callable[[], object]] | None
    ) -> Steps[Finding | None]:
        """Whether calls that go on from each other would do other work, or take another time. What they did is put
        back: the last timed call left another state."""
        counts = self._counts_put_back()
        if not left:
            return counts
        put_back = copied() if copied is not None else lambda: None
        try:
            return (yield from self._by_names(left)) or (yield from self._by_going_on(left)) or counts
        finally:
            put_back()

    def _counts_put_back(self) -> Finding | None:
        """Of tensors and arrays of one element that the last call changed: what counts calls may decide what they do.
        (Calls that go on without `--restore` may wait for ever for what the first ones took.)"""
        if self._before is None:
            return None
        now, last = self._reach(), self._works[-1].before
        ones = [k for k, one in last.items() if isinstance(one.size, tuple) and math.prod(one.size[:-1]) == 1]
        own = [k for k in ones if k in now and now[k].is_own and not getattr(now[k].value, "requires_grad", False)]
        counts = list(dict.fromkeys(named(k) for k in own if seen_of(now[k].value) != last[k]))
        return Finding(PUT_BACK, f"{' and '.join(counts[:3])} put back before each call") if counts else None

    @contextlib.contextmanager
    def _kept_apart(self, work: Work) -> Iterator[None]:
        """A recording whose own errors do not reach the call within."""
        recording = recorded_call(
            work, self._code.replicas[0].__code__, self._clock, self._random, self._names, is_last=self._plain > 0
        )
        with self._giving_up():
            recording.__enter__()
        ended = recording.__exit__ if self.failed is None else lambda *_: None
        try:
            yield
        except BaseException as error:
            with self._giving_up():
                ended(type(error), error, error.__traceback__)
            raise
        with self._giving_up():
            ended(None, None, None)

    # ---- the comparison ----------------------------------------------------------------------------------------------

    def _judged(self) -> Steps[Finding | None]:
        """What the recorded calls come to; it may call the code some more times."""
        late = self._first.put_off if all(work.put_off for work in self._works) else ""
        if late and (late.startswith("returns") or len(self._works) > 3):  # a pool starts threads in its first calls
            return Finding("lazy", late)
        found, is_again = self._by_what_ran()
        if found is not None and (yield from self._happens_again(is_again)):
            found = None  # chance: the work of a call is not always the same
        if not (found and found.voids) and self._before is None and (len(self._works) < 4 or self._moving):
            found = (yield from self._by_test()) or found
        if not (found and found.voids) and self._before is None:
            found = (yield from self._by_values()) or found
        found = found or (yield from self._by_what_is_left())
        return found or self._by_time() or (yield from self._by_waiting())

    @property
    def _first(self) -> Work:
        return self._works[0]

    @property
    def _later(self) -> list[Work]:
        return self._works[1:]

    @property
    def _settled(self) -> list[str]:
        """Labels of what is not as setup left it, because of the first call or of another alternative's, and what no
        later call changed."""
        was, now = self._by_setup, self._later[0].before
        return [
            label
            for label in dict.fromkeys([*was, *now])
            if not (label.endswith("]") and (label in was) is not (label in now))  # what its list is, one more or less
            and was.get(label) != now.get(label) and all(w.before.get(label) == now.get(label) for w in self._later)
        ]

    @property
    def _moving(self) -> list[str]:
        """Labels of what grows, or shrinks, with every call, or with the first ones, numbers among them."""
        if len(self._later) < 3:
            return []
        seen = {k: [w.before[k] for w in self._later if k in w.before] for k in self._later[0].before}
        counted = {k: [n for n in map(extent, seen[k]) if n is not None] for k in seen}
        apart = {k: n for k, n in counted.items() if len(n) == len(self._later) and n[0] != n[1]}
        return [k for k, n in apart.items() if n in (sorted(n), sorted(n, reverse=True))]

    @property
    def _changed(self) -> list[str]:
        """Labels of tensors and arrays that hold other values than setup's before the last call, where an earlier call
        took another time: values that differ are no sign by themselves."""
        if len(self._later) < 3:
            return []
        was, last = self._by_setup, self._later[-1]
        late = [last.cpu, *([self._timed] if self._timed else [])]  # a single call may have been held up
        pairs = [sorted((work.cpu, each)) for work in self._works[:-1] for each in late]
        if not any(high > MORE * low and high - low > NOISE for low, high in pairs):
            return []
        arrays = {k: one for k, one in last.before.items() if isinstance(one.size, tuple) and k in was}
        changed = [k for k, one in arrays.items() if was[k].digest != one.digest]
        return sorted(changed, key=lambda k: math.prod(arrays[k].size[:-1]))  # what decides is small, most times

    def _turns(self, label: str, call: Work) -> bool:
        """Whether what moved from call to call moves the other way in another one, or is gone."""
        states = [work.before for work in (self._later[0], self._later[-1], call)]
        a, b, c = (extent(state[label]) if label in state else None for state in states)
        return a is None or b is None or c is None or (a < b > c) or (a > b < c)

    def _by_what_ran(self) -> tuple[Finding | None, Callable[[Work], bool]]:
        """And whether a further call does what seems lost, or less than each one seems to do."""
        first, later = self._first, self._later
        share, text = min(lacks(first, work) for work in later)
        lost = [lacks(first, work)[0] for work in later]
        varies = max((lacks(a, b)[0] for a in later for b in later), default=0.0)
        more, more_text = lacks(later[-1], first, ("the last call", "the first one"))
        apart = min(self._apart(work) for work in later)
        is_again = lambda extra: self._apart(extra) < apart / 2
        settled = self._settled
        switches = [k for k in settled if self._is_switched(k)]
        if (rising := self._rising()) is not None:
            return Finding("more", self._growth(rising)), (
                lambda extra: extra.amounts[rising] < 0.9 * later[-1].amounts[rising]
            )
        if len(later) > 2 and ((ends := _ends(lost)) or self._is_falling):
            early, name = (first, "first") if ends else (later[0], self._early)
            gone, what = lacks(early, later[-1], (f"the {name} call", "the last one"))
            if gone > 0:  # not of a call that was not recorded to its end
                return Finding("less", what), lambda extra: lacks(early, extra)[0] < gone / 2
        if share >= min(0.9, LOST + 2 * varies):
            return Finding("less" if share >= MOST else "part", text + self._cause(switches or settled)), is_again
        if switches and max(share, more) > 0.01:
            return Finding("part", (text if share > more else more_text) + self._cause(switches)), is_again
        return None, is_again

    def _is_switched(self, label: str) -> bool:
        was, now = self._first.before, self._later[0].before
        return label in was and label in now and is_switch(was[label], now[label])

    def _rising(self) -> int | None:
        """Which of `Work.amounts` rises from call to call, far beyond one step."""
        if len(self._later) < 3:
            return None
        far = min(5.0, self._plain / 2)
        columns = zip(*(work.amounts for work in self._later), strict=True)
        found = (i for i, (a, b, c) in enumerate(columns) if a < b < c and c >= MORE * a and c - a >= far * (b - a))
        return next(found, None)

    @property
    def _is_falling(self) -> bool:
        """Whether lines, and elements that operators touched, become fewer from call to call, as steps of what
        converges."""
        columns = [each for each in zip(*(work.amounts[:2] for work in self._later), strict=True) if each[0]]
        return any(columns) and all(a >= b >= c and a >= c / MOST for a, b, c in columns)

    def _growth(self, which: int) -> str:
        """How each call does more: by shapes, else sizes, else lines; never by two equal numbers."""
        early, late = self._later[0], self._later[-1]
        if which == 0 and (text := _shapes_apart(early, late, self._early)):
            return text
        for label in self._moving:
            sizes = [work.before[label].size for work in self._later]
            if not all(type(size) is int for size in sizes):  # arrays, and what is left of an iterator
                continue
            if sizes[0] < sizes[-1] and early.before[label].kind != OF_PROCESS:
                held = f"{named(label)} held {sizes[0]:,} item{'s' * (sizes[0] != 1)} in the {self._early} call"
                return f"{held} and {sizes[-1]:,} in the last"
        _, text = lacks(late, early, ("the last call", f"the {self._early} one"))
        if text:
            return text + self._cause(self._moving or self._settled)
        before, after = early.amounts[which], late.amounts[which]
        what = ("operators touched {:,} elements", "{:,} lines ran", "libraries' functions were called {:,} times")[
            which
        ]
        return f"{what.format(before)} in the {self._early} call and {after:,} in the last"

    def _apart(self, work: Work) -> float:
        """How far the work of a call is from that of the first: the larger share that either lacks of the other, the
        first call's own where that is most."""
        share = lacks(self._first, work)[0]
        return share if share >= LOST else max(share, lacks(work, self._first)[0])

    def _happens_again(self, is_again: Callable[[Work], bool]) -> Steps[bool]:
        """Whether it is so in one of some more calls; random generators run on meanwhile."""
        if self._works[-1].wall > self.long / 10:
            return False
        mark, (self._random, random) = len(self._works), ([], self._random)
        try:
            for _ in range(AGAIN):
                reading = yield from self.recorded(is_tried=True)
                extra = self._works.pop()
                if reading == FAILED:
                    return False
                if is_again(extra):
                    return True
        finally:
            self._random = random
            del self._works[mark:]
        return False

    def _by_test(self) -> Steps[Finding | None]:
        """What is not as setup left it, or moves, put to the test: does a call from setup's state take another time?"""
        settled, moving = self._settled, self._moving
        now = self._reach()
        homes = [k[: max(k.rfind("."), k.rfind("["), 0)] for k in (*settled, *moving)]
        labels = [*settled, *moving, *homes]
        labels += [f"{label}.__dict__" for label in labels]  # attributes, or the cell of a variable
        put_backs = self._kept.put_backs(labels, now) if settled or moving else None
        if put_backs is None or self._works[-1].wall > self.long:
            return None
        if (pair := (yield from self._timed_from(put_backs))) is None:
            return None
        before, present = pair
        first, later = self._first, self._later
        share, lost = min(lacks(first, work) for work in later)
        # what the first call left stays as it is: then later calls are alike, and none does more than the one before
        grows = not settled or later[-1].took > MORE * later[0].took
        rises = bool(moving) and present > before and grows
        last = later[-1].before
        counting = [k for k in moving if is_number(last[k]) and k in now and last[k] != seen_of(now[k].value)]
        if not settled and not rises and counting == moving:
            return None  # a counter that decides what is done now and then
        if max(pair) <= (MORE if rises else ONCE) * min(pair):
            return None
        steady, between = {*moving}, math.sqrt(before * present)

        def turns(call: Work) -> bool:
            steady.difference_update([k for k in steady if self._turns(k, call)])
            return not steady or (call.took < between if rises else call.took > between)

        if not settled and (yield from self._happens_again(turns)):
            return None  # as the places of a ring, or a counter that decides what is done now and then
        cause = f"; {lost}" if share > 0.05 else self._cause(moving or settled)
        how = "more" if rises else "less" if before > present else "other"
        return Finding(how, f"{_FROM_STATES.format(*map(seconds_text, pair))}{cause}")

    def _by_values(self) -> Steps[Finding | None]:
        """Whether the values of tensors and arrays decide how much is done: those of setup, and no other state of it,
        are put to the test."""
        changed = self._changed
        put_backs = self._kept.put_backs(changed, self._reach()) if changed else None
        if put_backs is None or self._works[-1].wall > self.long:
            return None
        if (pair := (yield from self._timed_from(put_backs))) is None or max(pair) <= ONCE * min(pair):
            return None
        before, present = pair
        between = math.sqrt(before * present)
        ran = [(work.lines, work.operators) for work in (self._first, self._later[-1])]

        def is_as_setup(call: Work) -> bool:
            if ran[0] != ran[1] == (call.lines, call.operators):
                return False  # however long it took
            return (call.took > between) is (before > present)

        if (yield from self._happens_again(is_as_setup)):
            return None  # chance, as of data that are drawn anew
        names = list(dict.fromkeys(map(named, changed)))
        those = f"{', '.join(names[:3])}{' and more' * (len(names) > 3)} changed"
        how = "less" if before > present else "other"
        return Finding(how, f"{_FROM_STATES.format(*map(seconds_text, pair))}; {those}")

    @property
    def _names(self) -> dict[str, Any]:
        """Names that are put back before each call and read by it, with what they are put back to."""
        return {name: self._code.kept[name] for name in self._code.inputs if name in self._code.kept}

    def _by_names(self, left: dict[str, Any]) -> Steps[Finding | None]:
        """Whether a call that went on from what the one before bound its names to would take another time."""
        if not left or self.is_compiled:  # which might compile again
            return None
        bind = cast(dict[str, Any], self._code.kept).update
        states = partial(bind, left), partial(bind, dict(self._names))
        names = f"{' and '.join(f'`{name}`' for name in sorted(left)[:3])} put back before each call"
        if pair := (yield from self._timed_from(states)):
            on, anew = pair
            if max(pair) > (MORE if on > anew else ONCE) * min(pair):
                times = f"{seconds_text(anew)} a call, and {seconds_text(on)} one that goes on from what it leaves"
                return Finding(PUT_BACK, f"{names}: {times}")
        return None

    def _by_going_on(self, left: dict[str, Any]) -> Steps[Finding | None]:
        """Whether one of some calls that go on from each other in names that are put back before each timed one does
        other work than these, as every fourth step of an optimizer that waits for gradients to accumulate."""
        timed, names = self._works[-1], dict(self._names)
        if timed.wall > self.long / 10:
            return None
        bind = cast(dict[str, Any], self._code.kept).update
        what = f"`{'` and `'.join(sorted(left)[:3])}`"
        try:
            for _ in range(AGAIN):
                bind(left)
                reading = yield from self.recorded(is_tried=True)
                call = self._works.pop()
                if reading == FAILED:
                    return None
                both, words = (_by_shapes(call), _by_shapes(timed)), ("a call that goes on from others", "timed ones")
                share, text = max(lacks(*both, words), lacks(*both[::-1], words[::-1]))
                if share >= SOME:
                    return Finding(PUT_BACK, f"{what} put back before each call: {text}")
                left = call.left
        finally:
            bind(names)
        return None

    def _by_gradients(
        self, without: Sequence[Any], copied: Callable[[], Callable[[], object]] | None
    ) -> Steps[Finding | None]:
        """Whether a call that makes no gradients itself would run other operators if it found those of another
        alternative, as an optimizer's step does. Zeros stand for them; what the call did is put back."""
        import torch

        if not without or copied is None:
            return None
        put_back = copied()
        made: list[Any] = []
        hooks = [tensor.register_post_accumulate_grad_hook(made.append) for tensor in without]
        for tensor in without:
            tensor.grad = torch.zeros_like(tensor)
        try:
            reading = yield from self.recorded(is_tried=True)
        finally:
            for tensor, hook in zip(without, hooks, strict=True):
                hook.remove()
                tensor.grad = None
            put_back()
        found, known = self._works.pop(), {key[0] for work in self._works for key in work.operators}
        keys = [key for key in found.operators if key[0] not in known]
        if reading == FAILED or made or not keys:
            return None
        most = max(keys, key=lambda key: found.elements[key] * found.operators[key])
        return Finding("fed", f"with those of another, {_operator_text(most)} runs {_times(found.operators[most])}")

    def _grown(self) -> Finding | None:
        """What holds most of all that grew with every call, as lists do that keep results, or tensors of a cache; else
        a number of the user's that each call moved on. Nothing that a library's object has for itself."""
        now, reached = [work.before for work in self._later], self._reach()
        moving = [k for k in self._moving if "._" not in k or (k in reached and reached[k].is_own)]
        own = [k for k in moving if now[0][k].kind in GROWING]
        grown = {k: n for k in own if type(n := now[-1][k].size) is int and n > now[0][k].size}
        if grown:
            most = max(grown, key=lambda k: grown[k])
            return Finding(GROWN, f"{named(most)} grew to {grown[most]:,} items")
        ends = now[0], now[-1]
        shaped = [k for k in moving if all(isinstance(one[k].size, tuple) and one[k].size[1:] for one in ends)]
        larger = {k: n for k in shaped if (n := extent(now[-1][k]) or 0) > (extent(now[0][k]) or 0)}
        if larger:
            most = max(larger, key=lambda k: larger[k])
            sizes = " to ".join(_shape(one[most].size) for one in (now[0], now[-1]))
            return Finding(GROWN, f"{named(most)} grew from {sizes}")
        was = self._first.before
        for k in moving:
            is_own = k in reached and reached[k].is_own
            if is_own and k in was and is_number(now[-1][k]) and abs(now[-1][k].digest) < _LARGE:
                began, ended = map(_number_text, (was[k], now[-1][k]))
                return Finding(GROWN, f"{named(k)} went from {began} to {ended}")
        return None

    def _timed_from(self, states: Sequence[Callable[[], None]]) -> Steps[tuple[float, float] | None]:
        """Seconds of a call from each of two states, in turns, the shortest of three; of more turns where they are
        short, or far apart: beside busy processes most calls of several threads wait for each other, and a few may all
        be such by chance. None where a call raised, or where the two are not told apart: that the same one is slower
        in as many turns is chance in one of 380 tests of `TURNS`, one of 32 of `LEAST`."""
        times: tuple[list[float], list[float]] = ([], [])
        few = 3 if self._first.cpu < self.long / 5 else 2
        spent = 0.0
        try:
            for turn in range(TURNS):
                if turn >= few:
                    low, high = sorted(map(min, times))
                    if not (SHORT < high - low <= NOISE or (high > MORE * low and (turn < LEAST or spent < self.long))):
                        break
                for put_back, into in zip(states, times, strict=True):
                    put_back()
                    wall, cpu = yield BlockRequest(self.block, 0, 1, is_tried=True)
                    self.calls += 1
                    if (wall, cpu) == FAILED:
                        return None
                    spent += wall / 1e9
                    # others have no part in processor time; of a call that waits it says nothing
                    into.append((cpu if cpu > wall / 10 else wall) / 1e9)
        finally:
            states[-1]()
        pair = min(times[0]), min(times[1])
        slower = [(a > b) is (pair[0] > pair[1]) for a, b in zip(*times, strict=True)]
        if sum(slower) < STEADY * len(slower):
            return None
        return pair if abs(pair[0] - pair[1]) > (SHORT if len(times[0]) == TURNS else NOISE) else None

    def _by_what_is_left(self) -> Steps[Finding | None]:
        """Whether what the first call gave is empty in later ones, or what calls take from has nothing left."""
        first, later = self._first, self._later
        ratio = first.cpu / max(sorted(work.cpu for work in later)[len(later) // 2], NOISE)
        is_short = later[-1].wall <= self.long / 10
        for name, made in first.gave.items():
            others = [work.gave.get(name) for work in later]
            empty, end = [one is not None and not _is_something(one) for one in others], others[-1]
            if not _is_something(made) or end is None or not empty[-1]:
                continue
            is_told = ratio > 5 if all(empty) else is_short and end.kind == "NoneType"
            if not (is_told or (isinstance(made.size, int) and (is_short or all(empty)))):
                continue
            again = lambda call, name=name: _is_something(call.gave.get(name))
            if not all(empty) and (yield from self._happens_again(again)):
                continue
            what, when = "the value" if name == VALUE else f"`{name}`", "later ones" if all(empty) else "the last one"
            return Finding("less", f"{what} was {_value_text(made)} in the first call and {_value_text(end)} in {when}")
        last = later[-1].before
        ended = [k for k, one in last.items() if self._has_ended(k, one.size)]
        now = state_of(self._reach(), self._share) if ended else {}
        k = next((k for k in ended if k in now and now[k].size == last[k].size), None)
        if k is None or (yield from self._happens_again(lambda call: call.before.get(k, now[k]).size != now[k].size)):
            return None
        if type(now[k].size) is Place:
            return Finding("less", f"the first calls moved on in {named(k)}, and the last one did not")
        return Finding("less", f"{named(k)} had items left before the first call and none in the end")

    def _has_ended(self, label: str, last: Any) -> bool:
        """Whether calls took from something until nothing was left: an iterator, a container, a cursor, a file in which
        they moved on."""
        sizes = [work.before[label].size for work in self._works if label in work.before]
        if not isinstance(last, int) or len(sizes) < len(self._works):
            return False
        if type(last) is Left:
            return bool(sizes[0]) and last == 0
        if len(sizes) < 4:  # what each call fills or opens itself has nothing left between them either
            return False
        if type(last) is Place:  # in the midst of its lines a file tells none
            return sizes[1:3] == [None, None] or sizes[0] != sizes[1] != sizes[2]
        return last == 0 and all(sizes[1:3])

    def _by_time(self) -> Finding | None:
        """What only counts of the process, values and times tell: no more than a doubt."""
        first, later, settled = self._first, self._later, self._settled
        was = first.before
        for k in self._moving:
            sizes = [work.before[k].size for work in later]
            if k in was and was[k].kind == OF_PROCESS and sizes[-1] > sizes[1]:
                return Finding("part", f"the number of {k} grows with every call, from {sizes[0]:,} to {sizes[-1]:,}")
        usual = self._usual
        if first.imported:
            return None
        ratio, fewer = first.took / max(usual, NOISE), max(work.library for work in later)
        if first.library > 1000 and first.library > 20 * fewer:
            times = f"{first.library:,} times in the first call and {fewer:,} in later ones"
            return Finding("time", f"functions of Python libraries were called {times}")
        values = any(
            k in was and was[k][:2] == later[0].before.get(k, (0, 0))[:2] and isinstance(was[k].size, tuple)
            for k in settled
        )
        later_took = seconds_text(usual) if usual > NOISE else f"less than {seconds_text(NOISE)}"
        told = f"the first call took {seconds_text(first.took)}, later ones {later_took}{self._cause(settled)}"
        if not first.operators and first.took > WAITED and ((ratio > FAR and settled) or (ratio > 4 and values)):
            return Finding("time", told)
        if first.wall > 1 and ratio > 1000:
            return Finding("time", f"{told}, and nothing seen explains it")
        return None

    @property
    def _usual(self) -> float:
        """Seconds of a later call, the median, at most."""
        return sorted(max(work.took + work.unclear, work.wall) for work in self._later)[len(self._later) // 2]

    def _by_waiting(self) -> Steps[Finding | None]:
        """Whether calls wait for what an early one still found, as those of a lock that nobody releases."""
        last, early = self._works[-1], min(self._works[:-1], key=lambda work: work.wall)
        walls, took = [last.wall], max(early.wall, NOISE)
        # the processor's part of an early one is that of a cold start
        least = max(FAR * max(early.wall - early.cpu, NOISE), ONCE * took, WAITED)
        if last.wall < least or last.cpu > last.wall / 10:
            return None
        for _ in range(4 if last.wall < self.long / 10 else 2):  # it may have been chance
            wall, cpu = yield BlockRequest(self.block, 0, 1, is_tried=True)
            self.calls += 1
            walls.append(wall / 1e9)
            if (wall, cpu) == FAILED or walls[-1] < least or cpu > wall / 10:
                return None
        first = seconds_text(took) if took > NOISE else f"less than {seconds_text(NOISE)}"
        cause = self._cause(self._moving or self._settled)
        return Finding("waits", f"an early one took {first}, later ones {seconds_text(min(walls))}{cause}")

    def _cause(self, labels: Sequence[str]) -> str:
        """The likely reason, of what the first call left changed: a switch, a size, a value."""
        was, now = self._first.before | self._by_setup, self._later[-1].before  # another alternative's first call too
        known = [
            k for k in labels if k in now and now[k].kind != OF_PROCESS and not k.endswith("'") and k.count("·") < 2
        ]
        known.sort(key=lambda k: (k.count("·"), k.count(".")))  # what has a name of its own first
        pairs = [(named(k), was.get(k), now[k]) for k in known]
        for name, then, here in pairs:
            if then is not None and is_switch(then, here):
                a, b = (
                    _shape(each.size) if isinstance(each.size, tuple) else repr(each.digest) for each in (then, here)
                )
                return f"; {name} was {a}, then {b}"
        for name, then, here in pairs:
            if then is not None and type(then.size) is type(here.size) is int and then.size != here.size:
                return f"; {name} held {then.size:,}, then {here.size:,} item{'s' * (here.size != 1)}"
        for name, then, here in pairs:
            if then is not None and is_number(then) and is_number(here) and abs(here.digest) < _LARGE:
                return f"; {name} was {_number_text(then)}, then {_number_text(here)}"
        return next((f"; {named(k)} was {'changed' if k in was else 'made'}" for k in known), "")


def _ends(lost: Sequence[float]) -> bool:
    """Whether the work of the first call ran on for some calls and is gone in the last."""
    share, last = min(lost), lost[-1]
    if last <= share + 0.2:
        return False
    return (list(lost) == sorted(lost) and last > 0.9) or (max(lost[:-1]) < 0.05 and last >= LOST)


def _by_shapes(work: Work) -> Work:
    """The same, its operators without what they were asked to keep of their inputs: gradients, a mode."""
    plain = lambda key: (key[0], tuple((*each[:-1], False) for each in key[1]), ())
    operators: Counter[Any] = Counter()
    for key, n in work.operators.items():
        operators[plain(key)] += n
    return replace(work, operators=operators, elements={plain(key): n for key, n in work.elements.items()})


def lacks(one: Work, other: Work, names: tuple[str, str] = ("the first call", "later ones")) -> tuple[float, str]:
    """Share of the work of ``one`` that ``other`` did not do; its largest part in words.

    Python's part of the time is shared out by the seconds of each line, that of the operators by their elements: a
    first operator is slow for reasons of its own (threads, allocators, kernels); its elements are what they are.
    """
    own = {
        at: min(s, COLD * one.of_line[at]) if at in one.cold else s for at, s in one.seconds.items() if one.lines[at]
    }
    seconds = {at: s * max(0.0, 1 - other.lines[at] / one.lines[at]) for at, s in own.items()}
    elements = {key: one.elements[key] * max(0, n - other.operators[key]) for key, n in one.operators.items()}
    # of a call that was not recorded to its end nobody knows what it lacks
    seconds, elements = {} if "lines" in other.cut else seconds, {} if "operators" in other.cut else elements
    each = one.in_operators / (one.amounts[0] or 1)
    by_line, by_operator = sum(seconds.values()), sum(elements.values()) * each
    if by_line + by_operator <= 0:
        return 0.0, ""
    if max(seconds.values(), default=0.0) >= max(elements.values(), default=0) * each:
        at = max(seconds, key=lambda k: seconds[k])
        what, ran, again = line_text(one.codes[at[0]], at[1]), one.lines[at], other.lines[at]
        at_least = "at least " if "lines" in one.cut and ran > 1 else ""
    else:
        key = max(elements, key=lambda k: elements[k])
        what, ran, again = _operator_text(key), one.operators[key], other.operators[key]
        at_least = "at least " if "operators" in one.cut and ran > 1 else ""
    text = f"{what} ran {at_least}{_times(ran)} in {names[0]} and {_times(again)} in {names[1]}"
    return (by_line + by_operator) / (sum(own.values()) + one.in_operators), text


def _shapes_apart(early: Work, late: Work, call: str) -> str:
    """An operator that touched more in the later call, with its shapes; empty where counts alone differ."""
    first: dict[Any, tuple[int, Any]] = {}
    most = (0, "")
    for work in (early, late):
        for key in work.operators:
            op, touched = key[0], work.elements[key]
            if work is early:
                first[op] = max(first.get(op, (0, ())), (touched, key), key=lambda each: each[0])
            elif op in first and touched - first[op][0] > most[0] and key[1] != first[op][1][1]:
                shapes = [_tensors_text(each[1], " and ") for each in (first[op][1], key)]
                text = f"`{op.overloadpacket}` worked on {shapes[0]} in the {call} call and on {shapes[1]} in the last"
                most = (touched - first[op][0], text)
    return most[1]


def _is_something(made: Seen | None) -> bool:
    if made is None:
        return False
    return bool(made.size) if isinstance(made.size, int) else made.size is not None or bool(made.digest)


def _value_text(made: Seen) -> str:
    if made.size is None:
        return repr(made.digest)
    return f"a {made.kind} of {made.size:,}" if isinstance(made.size, int) else f"a {made.kind}"


def _number_text(number: Seen) -> str:
    return f"{number.digest:,}" if type(number.digest) is int else f"{number.digest:,.6g}"


def _shape(size: tuple[Any, ...]) -> str:
    return f"{' × '.join(map(str, size[:-1])) or 'a scalar'} {str(size[-1]).removeprefix('torch.')}"


def _times(n: int) -> str:
    return "not" if n == 0 else "once" if n == 1 else f"{n:,} times"


def _operator_text(key: Any) -> str:
    op, tensors, _ = key
    if not tensors:
        return f"`{op.overloadpacket}`"
    return f"`{op.overloadpacket}` on {_tensors_text(tensors, ', ')}"


def _tensors_text(tensors: Sequence[Any], between: str) -> str:
    """The shapes of the first ones; of several alike in a row how many there are."""
    alike = [(shape, len(list(several))) for shape, several in itertools.groupby(_shape(t[:-1]) for t in tensors)]
    return between.join(shape if n < 3 else f"{n:,} tensors of {shape}" for shape, n in alike[:3])
