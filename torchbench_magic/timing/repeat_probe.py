"""Do later calls of code do the work of its first call? Calls are recorded, and compared.

Of an alternative its first call is recorded, two after it, and one after the samples: *what ran* (the user's lines
with counts and seconds, torch's operators with shapes and elements, calls into Python libraries) and *what was there*
before it (`repeat_state`; the recording itself is `repeat_recording`). `Probe` compares the first with the later ones:

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
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType
from typing import Any, cast

from torchbench_magic.process import dynamo_internals
from torchbench_magic.process.code import names_used
from torchbench_magic.process.frame_owner import is_users_file
from torchbench_magic.units import seconds_text

from .blocks import FAILED, Block, BlockRequest, Steps, Timeable
from .repeat_compared import (
    ANEW,
    FAR,
    KEPT,
    LOST,
    MORE,
    NOISE,
    ONCE,
    PUT_BACK,
    Finding,
    RecordedCalls,
    by_shapes,
    is_something,
    lacks,
    operator_text,
    times_text,
    value_text,
)
from .repeat_recording import VALUE, WAITED, Recorded, Waiting, Work, recorded_call
from .repeat_state import (
    Kept,
    Place,
    Reached,
    generators_among,
    is_number,
    named,
    reach,
    seen_of,
    share_of,
    state_of,
    stays,
)

SOME = 0.05
"""Share of the work of calls that go on from each other that timed ones lack, from which it is said."""
SHORT, TURNS = 2e-6, 20
"""Seconds that are not told apart by the shortest of so many calls."""
LEAST, STEADY = 6, 0.85
"""Turns of calls that are far apart, however long they take; share of them in which the same one is slower."""
LATE = 8.0
"""Times as long as the shortest early call from which on calls do more, where each of three in a row is."""
BEFORE_LATE = 6.0
"""Times as long as the median of the timed calls that late ones take at most, where calls grow: 2 where they do evenly,
4 where they walk again and again through what does."""
_FROM_STATES = "a call takes {} from the state that setup left, and {} from the present one"
LONG = 0.5
"""Seconds of a call from which on none is made only to look."""
AGAIN, OFTEN = 8, 64
"""Calls in which work that seems lost may come again before it is said to be; the same of short calls."""


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
        counts: the code counts its calls, in a name that goes on or in what the first ones change: some may do other
            work than most.
        finding: what they come to, as far as is known.
        failed: an error of the probe's own, after which it records nothing more; the code is timed all the same.
        clauses: what takes nothing from the times: with `--restore` names that are put back before each call, where a
            call that goes on takes another time; what holds more with every call.
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
        self._seen = RecordedCalls()
        self.calls = -1
        self.long = LONG
        self.counts = False
        self.finding: Finding | None = None
        self.failed: Exception | None = None
        self.clauses: list[Finding] = []
        self._share = 0
        self._kept = Kept({})
        self._random: list[tuple[Callable[[], Any], Callable[[Any], object], Any]] = []
        with self._giving_up():
            if self._compiles():
                dynamo_internals.load()  # as the first call would: `uncompiled` must come before it
            reached = self._reach()
            self._share = share_of(reached)
            self._kept, self._seen.by_setup = Kept(reached), state_of(reached, self._share)
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
        kept, on = cast(dict[str, Any], self._code.kept), self._code.going_on
        homes = {name: kept if name in on else self._namespace for name in self._code.names}
        return reach(homes, [self._code.replicas[0].__code__])

    @property
    def is_compiled(self) -> bool:
        """Whether a plain call compiles, or runs what was compiled."""
        return any(work.is_compiled for work in self._seen.works)

    def _has_counted(self) -> bool:
        if self._code.going_on or not (moved := self._seen.moved_first):
            return bool(self._code.going_on)
        now = self._reach()
        return any(label in now and now[label].is_own for label in moved)

    def forget(self) -> None:
        """Let go of what is held of the code's."""
        self._kept, self._random, self._seen.by_setup = Kept({}), [], {}
        for work in self._seen.works:
            work.left, work.bound = {}, []

    def recorded(self, *, is_tried: bool = False) -> Steps[tuple[int, int]]:
        """One recorded call; its reading without what the recording took."""
        if self._before is not None:
            self._before()
        work = Work()
        with self._giving_up():
            work.before = state_of(self._reach(), self._share)
        if not self._seen.works:
            gc.collect(0)  # what preparing left is nothing that the code is to find
        call = self.block if self.failed is not None else Recorded(self.block, lambda: self._kept_apart(work))
        wall, cpu = reading = yield BlockRequest(call, 0, 1, is_tried=is_tried)
        self._seen.works.append(work)
        self.failed = self.failed or work.failed
        self.calls += 1
        if reading == FAILED:
            return FAILED
        net = max(wall - round(work.overhead_ns), 0)
        work.wall, work.cpu, work.spent = net / 1e9, max(cpu - work.overhead_ns, 0.0) / 1e9, cpu / 1e9
        return net, cpu

    def recorded_again(self) -> Steps[float]:
        """The calls after the first, and what is known then; nanoseconds of the last of them."""
        yield from self._calls_in_front()
        self._seen.early = "third" if self.calls else "second"
        for _ in range(2):
            if (self._seen.last.wall <= self.long and self.failed is None) or len(self._seen.works) == 1:
                last, _ = yield from self.recorded()
        if self.failed is None:
            with self._giving_up():
                self.counts = self._has_counted()
                self.finding = yield from self._judged()
        return float(last)

    def _calls_in_front(self, calls: int = 1) -> Steps[None]:
        """Calls after which those that are recorded follow some of the same code, as most timed ones do."""
        wall = max(self._seen.last.wall, NOISE)
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
        self._seen.plain, self._seen.timed = plain, usual
        is_open = self.finding is None or not self.finding.voids  # a doubt may become more
        if is_open and self.failed is None:
            yield from self._calls_in_front(in_a_row // 2)  # as a timed call has on average
            if self._seen.last.wall <= self.long and (yield from self.recorded(is_tried=True)) != FAILED:
                with self._giving_up():
                    yield from self._judged_last(without, copied)
        self.forget()

    def _judged_last(self, without: Sequence[Any], copied: Callable[[], Callable[[], object]] | None) -> Steps[None]:
        if self.failed is None:
            found = (yield from self._judged()) or (yield from self._by_gradients(without, copied))
            early = self.finding if self.finding is not None and self.finding.how != "time" else None  # see `timed`
            self.finding = found or (yield from self._by_what_lives()) or early
            names = yield from self._by_what_is_put_back(self._seen.last.left, copied)
            if names is not None and names.how != PUT_BACK:
                self.finding, names = self.finding or names, None
            # of what goes on a count is told by the code itself
            own = {k: one for k, one in self._reach().items() if k not in self._code.going_on}
            self.clauses = [one for one in (names, self._seen.grown(own)) if one is not None]

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
            found = (yield from self._by_names(left)) or (yield from self._by_going_on(left))
        finally:
            put_back()
        if self._before is None:
            return replace(found, how=KEPT) if found is not None and found.how == PUT_BACK else found
        return found if found is not None and found.how == PUT_BACK else counts

    def _counts_put_back(self) -> Finding | None:
        """Of tensors and arrays of one element that the last call changed: what counts calls may decide what they do.
        (Calls that go on without `--restore` may wait for ever for what the first ones took.)"""
        if self._before is None:
            return None
        now, last = self._reach(), self._seen.last.before
        ones = [k for k, one in last.items() if isinstance(one.size, tuple) and math.prod(one.size[:-1]) == 1]
        own = [k for k in ones if k in now and now[k].is_own and not getattr(now[k].value, "requires_grad", False)]
        counts = list(dict.fromkeys(named(k) for k in own if seen_of(now[k].value) != last[k]))
        return Finding(PUT_BACK, f"{' and '.join(counts[:3])} put back before each call") if counts else None

    @contextlib.contextmanager
    def _kept_apart(self, work: Work) -> Iterator[Waiting]:
        """A recording whose own errors do not reach the call within."""
        waiting: Waiting = lambda sync: sync
        recording = recorded_call(
            work, self._code.replicas[0].__code__, self._clock, self._random, self._names, is_last=self._seen.plain > 0
        )
        with self._giving_up():
            waiting = recording.__enter__()
        ended = recording.__exit__ if self.failed is None else lambda *_: None
        try:
            yield waiting
        except BaseException as error:
            with self._giving_up():
                ended(type(error), error, error.__traceback__)
            raise
        with self._giving_up():
            ended(None, None, None)

    # ---- the comparison ----------------------------------------------------------------------------------------------

    def _judged(self) -> Steps[Finding | None]:
        """What the recorded calls come to; it may call the code some more times."""
        late = self._seen.first.put_off if all(work.put_off for work in self._seen.works) else ""
        if late and (
            late.startswith("returns") or len(self._seen.works) > 3
        ):  # a pool starts threads in its first calls
            return Finding("lazy", late)
        found, is_again = self._seen.by_what_ran()
        if found is not None and (yield from self._happens_again(is_again)):
            found = None  # chance: the work of a call is not always the same
        if not (found and found.voids) and self._before is None and (len(self._seen.works) < 4 or self._seen.moving):
            found = (yield from self._by_test()) or found
        if not (found and found.voids) and self._before is None:
            found = (yield from self._by_values()) or found
        found = found or (yield from self._by_what_is_left())
        found = found or self._seen.by_time() or (yield from self._by_waiting())
        return found or (yield from self._by_late_time())

    def _happens_again(self, is_again: Callable[[Work], bool]) -> Steps[bool]:
        """Whether it is so in one of some more calls; random generators run on meanwhile."""
        if self._seen.last.wall > self.long / 10:
            return False
        most = max(AGAIN, min(OFTEN, int(self.long / max(self._seen.last.spent, NOISE))))
        mark, (self._random, random) = len(self._seen.works), ([], self._random)
        try:
            for _ in range(most):
                reading = yield from self.recorded(is_tried=True)
                extra = self._seen.works.pop()
                if reading == FAILED:
                    return False
                if is_again(extra):
                    return True
        finally:
            self._random = random
            del self._seen.works[mark:]
        return False

    def _by_test(self, moving: Collection[str] | None = None) -> Steps[Finding | None]:
        """What is not as setup left it, or moves, put to the test: does a call from setup's state take another time?

        Args:
            moving: labels of what moves; None is all.
        """
        moving, now = self._seen.moving if moving is None else list(moving), self._reach()
        items = tuple(f"{k}·" for k in self._seen.moving)
        settled = [k for k in self._seen.settled if not k.startswith(items)]
        homes = [k[: max(k.rfind("."), k.rfind("["), 0)] for k in (*settled, *moving)]
        labels = [*settled, *moving, *homes]
        labels += [f"{label}.__dict__" for label in labels]  # attributes, or the cell of a variable
        put_backs = self._kept.put_backs(labels, now) if settled or moving else None
        if put_backs is None or self._seen.last.wall > self.long:
            return None
        if (pair := (yield from self._timed_from(put_backs))) is None:
            return None
        before, present = pair
        first, later = self._seen.first, self._seen.later
        share, lost = min(lacks(first, work) for work in later)
        # what the first call left stays as it is: then later calls are alike, and none does more than the one before
        grows = not settled or later[-1].took > MORE * later[0].took
        # nor where timed calls took as long in the median: what grows evenly had half of it then
        grows = grows and not 0 < present < MORE * self._seen.timed
        rises = bool(moving) and present > before and grows
        last = later[-1].before
        counting = [k for k in moving if is_number(last[k]) and k in now and last[k] != seen_of(now[k].value)]
        falls = before > MORE * present and all(work.took > before / 2 for work in self._seen.works[:-1])
        if not settled and not rises and not falls and counting == moving:
            return None  # a counter that decides what is done now and then
        if max(pair) <= (MORE if rises else ONCE) * min(pair):
            return None
        steady, filled, between = {*moving}, set[str](), before / 2 if falls else math.sqrt(before * present)

        def turns(call: Work) -> bool:
            filled.update(self._seen.filled(call))
            steady.difference_update([k for k in steady if k in filled or self._seen.turns(k, call)])
            return not steady or (call.took < between if present > before else call.took > between)

        if not settled and (yield from self._happens_again(turns)):
            return None  # as the places of a ring, or a counter that decides what is done now and then
        if rises and filled.intersection(moving):
            return (yield from self._by_test([k for k in moving if k not in filled]))
        cause = f"; {lost}" if share > 0.05 else self._seen.cause(moving or settled)
        how = "more" if rises else "less" if before > present else "other"
        return Finding(how, f"{_FROM_STATES.format(*map(seconds_text, pair))}{cause}")

    def _by_values(self) -> Steps[Finding | None]:
        """Whether the values of tensors and arrays decide how much is done: those of setup, and no other state of it,
        are put to the test."""
        changed = self._seen.changed
        put_backs = self._kept.put_backs(changed, self._reach()) if changed else None
        if put_backs is None or self._seen.last.wall > self.long:
            return None
        if (pair := (yield from self._timed_from(put_backs))) is None or max(pair) <= ONCE * min(pair):
            return None
        before, present = pair
        between = math.sqrt(before * present)
        ran = [(work.lines, work.operators) for work in (self._seen.first, self._seen.later[-1])]

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
        kept = self._code.kept
        return {name: kept[name] for name in self._code.inputs - self._code.going_on if name in kept}

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
                return Finding(PUT_BACK, f"{names}, {times}")
        return None

    def _by_going_on(self, left: dict[str, Any]) -> Steps[Finding | None]:
        """Whether one of some calls that go on from each other in names that are put back before each timed one does
        other work than these, as every fourth step of an optimizer that waits for gradients to accumulate; else which
        of these names holds another value from call to call in the end, which may decide what further calls do."""
        timed, names = self._seen.last, dict(self._names)
        bind = cast(dict[str, Any], self._code.kept).update
        what = f"`{'` and `'.join(sorted(left)[:3])}`"
        before, now, words = names, left, ("a call that goes on from others", "timed ones")

        def unlike(call: Work) -> tuple[float, str]:
            both = by_shapes(call), by_shapes(timed)
            return max(lacks(*both, words), lacks(*both[::-1], words[::-1]))

        try:
            for _ in range(AGAIN if timed.wall <= self.long / 10 else 0):
                bind(now)
                reading = yield from self.recorded(is_tried=True)
                call = self._seen.works.pop()
                if reading == FAILED:
                    break
                share, text = unlike(call)
                if share >= SOME:
                    bind(names)
                    if (yield from self._happens_again(lambda extra: unlike(extra)[0] >= SOME)):
                        return None  # whatever goes on is no name: the end of an epoch, say
                    return Finding(PUT_BACK, f"{what} put back before each call, {text}")
                before, now = before | now, call.left
        finally:
            bind(names)
        other = [name for name in sorted(now) if name in self._code.read_first and not stays(before[name], now[name])]
        return Finding(ANEW, " and ".join(f"`{name}`" for name in other[:3])) if other else None

    def _by_late_time(self) -> Steps[Finding | None]:
        """Whether calls take far more of the processor than early ones, each of some in a row: something grows that no
        garbage collector knows of (a table, a text). With what recording takes: else nothing would be left of a short
        call. Not where operators ran, which tell of growth, nor where timed calls took no longer in the median."""
        last, took = self._seen.last, max(min(work.spent for work in self._seen.works[:-1]), NOISE)
        is_late = LATE * took <= last.spent and last.wall <= self.long and not self.counts  # a count goes up and down
        if len(self._seen.works) < 4 or last.operators or not is_late:
            return None
        times, plain = [last.spent], [last.cpu]
        for _ in range(2):
            reading = yield from self.recorded(is_tried=True)
            call = self._seen.works.pop()
            times.append(call.spent)
            plain.append(call.cpu)
            if reading == FAILED or times[-1] < LATE * took or self._seen.filled(call):
                return None
        if 0 < self._seen.timed < min(plain) / BEFORE_LATE:
            return None
        cause = self._seen.cause(self._seen.moving or self._seen.settled)
        return Finding("more", f"the last ones took {min(times) / took:.0f} times as long as an early one{cause}")

    def _by_what_lives(self) -> Steps[Finding | None]:
        """Whether calls do other work while what the one before them bound its names to is alive, as what weak
        references find again: in a loop of the user's it is, here only within a block."""
        last, early = self._seen.last, self._seen.later[:-1]
        if not last.bound or last.wall > self.long / 10 or any(lacks(last, work)[0] > SOME for work in early):
            return None
        held, text = last.bound, ""
        for _ in range(2):
            reading = yield from self.recorded(is_tried=True)
            call = self._seen.works.pop()
            share, text = lacks(last, call, ("a call", "one right after another"))
            if reading == FAILED or share < LOST:
                return None
            held = call.bound
        del held
        return Finding("alive", text)

    def _by_gradients(
        self, without: Sequence[Any], copied: Callable[[], Callable[[], object]] | None
    ) -> Steps[Finding | None]:
        """Whether a call that makes no gradients itself would run other operators if it found those of another
        alternative, as an optimizer's step does. Zeros stand for them; what the call did is put back."""
        import torch

        without = [tensor for tensor in without if tensor.requires_grad]  # else it was frozen meanwhile
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
        found, known = self._seen.works.pop(), {key[0] for work in self._seen.works for key in work.operators}
        keys = [key for key in found.operators if key[0] not in known]
        if reading == FAILED or made or not keys:
            return None
        most = max(keys, key=lambda key: found.elements[key] * found.operators[key])
        return Finding("fed", f"with those of another, {operator_text(most)} runs {times_text(found.operators[most])}")

    def _timed_from(self, states: Sequence[Callable[[], None]]) -> Steps[tuple[float, float] | None]:
        """Seconds of a call from each of two states, in turns, the shortest of three; of more turns where they are
        short, or far apart: beside busy processes most calls of several threads wait for each other, and a few may all
        be such by chance. None where a call raised, or where the two are not told apart: that the same one is slower
        in as many turns is chance in one of 380 tests of `TURNS`, one of 32 of `LEAST`."""
        times: tuple[list[float], list[float]] = ([], [])
        few = 3 if self._seen.first.cpu < self.long / 5 else 2
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
        first, later = self._seen.first, self._seen.later
        ratio = first.cpu / max(sorted(work.cpu for work in later)[len(later) // 2], NOISE)
        is_short = later[-1].wall <= self.long / 10
        for name, made in first.gave.items():
            others = [work.gave.get(name) for work in later]
            empty, end = [one is not None and not is_something(one) for one in others], others[-1]
            if not is_something(made) or end is None or not empty[-1]:
                continue
            is_told = ratio > 5 if all(empty) else is_short and end.kind == "NoneType"
            if not (is_told or (isinstance(made.size, int) and (is_short or all(empty)))):
                continue
            again = lambda call, name=name: is_something(call.gave.get(name))
            if not all(empty) and (yield from self._happens_again(again)):
                continue
            what, when = "the value" if name == VALUE else f"`{name}`", "later ones" if all(empty) else "the last one"
            return Finding("less", f"{what} was {value_text(made)} in the first call and {value_text(end)} in {when}")
        last = later[-1].before
        ended = [k for k, one in last.items() if self._seen.has_ended(k, one.size)]
        now = state_of(self._reach(), self._share) if ended else {}
        k = next((k for k in ended if k in now and now[k].size == last[k].size), None)
        if k is None or (yield from self._happens_again(lambda call: call.before.get(k, now[k]).size != now[k].size)):
            return None
        if type(now[k].size) is Place:
            return Finding("less", f"the first calls moved on in {named(k)}, and the last one did not")
        return Finding("less", f"{named(k)} had items left before the first call and none in the end")

    def _by_waiting(self) -> Steps[Finding | None]:
        """Whether calls wait for what an early one still found, as those of a lock that nobody releases."""
        last, early = self._seen.last, min(self._seen.works[:-1], key=lambda work: work.wall)
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
        cause = self._seen.cause(self._seen.moving or self._seen.settled)
        return Finding("waits", f"an early one took {first}, later ones {seconds_text(min(walls))}{cause}")
