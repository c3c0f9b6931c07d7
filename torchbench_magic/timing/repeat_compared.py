"""Do recorded calls have the same work? What the later ones lack of the first, and what each does more, in words.

Nothing here calls the code: what only tells that something may be so is put to the test by `repeat_probe.Probe`.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torchbench_magic.result_base import Doubt
from torchbench_magic.units import seconds_text

from .blocks import line_text
from .repeat_recording import WAITED, Work
from .repeat_state import GROWING, OF_PROCESS, Left, Place, Reached, Seen, extent, is_number, is_switch, named
from .repeat_warnings import RECORDED

LOST, MOST = 0.4, 0.5
"""Share of the first call's work that later calls lack: from here a doubt, from here void."""
STOPPED = 0.1
"""Share of the timed calls within which what grew may have reached its end."""
MORE, ONCE = 1.5, 2.0
"""Times as much work, or time, that is more; times as long from setup's state as from the present one, that the first
call did what later ones do not."""
NOISE, COLD = 2e-5, 5e-5
"""Seconds that are not told apart, since a single call finds its caches cold; that the Python of a cold operator counts
for at most."""
FAR = 20.0
"""Times as long, by the time alone, as is no chance."""
_LARGE = 1e15
"""A number that is not shown any more."""
PUT_BACK, GROWN, KEPT, ANEW = "put-back", "grown", "kept", "anew"
_DID_MORE = "The first call{} did more than later ones, or other work"


@dataclass(frozen=True)
class Finding:
    """What is said of an alternative.

    Attributes:
        how: "less", later calls lack work; "more", each call does more; "other", calls do other work than from the
            state that setup left; "fed", calls lack what another alternative leaves; "lazy", calls return what works
            later; "alive", a call lacks work while what the one before it bound is alive; "part", "time", "waits": a
            doubt only; `PUT_BACK` and `GROWN`: no doubt of the times.
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
            way = "To time calls that go on from each other, leave out `--restore`."
            return Doubt(self.how, f"{clause}.", way if self.how == PUT_BACK else "", {"name": name, "clause": clause})
        if self.how == ANEW:
            text = f"Each call{of} finds {self.evidence} as before the first, where a loop would go on."
            way = "To time calls that go on, keep the value in an object, which is not put back; `--restore` says that"
            return Doubt("anew", text, f"{way} each is to start anew.", {"name": name, "evidence": self.evidence})
        what = "Later calls{} wait where the first one did not" if self.how == "waits" else _DID_MORE
        text = f"{what.format(of)}: {self.evidence}."
        way = "If the times are to include it, create or fill it in the code"
        way += "." if restore else ", or give `--restore`."
        return Doubt("other-work", text, way, {"name": name, "how": self.how, "evidence": self.evidence})


@dataclass
class RecordedCalls:
    """The recorded calls of one alternative, in order, and what is known of those between them.

    Attributes:
        works: the first call, and later ones: two after it, and one after the samples.
        by_setup: what was there before the first.
        early: which call the first of the later ones is, as a word.
        plain: calls that were timed before the last.
        timed: seconds of one of them; 0 where that is not known.
    """

    works: list[Work] = field(default_factory=list)
    by_setup: dict[str, Seen] = field(default_factory=dict)
    early: str = "second"
    plain: int = 0
    timed: float = 0.0

    @property
    def last(self) -> Work:
        return self.works[-1]

    @property
    def first(self) -> Work:
        return self.works[0]

    @property
    def later(self) -> list[Work]:
        return self.works[1:]

    @property
    def settled(self) -> list[str]:
        """Labels of what is not as setup left it, because of the first call or of another alternative's, and what no
        later call changed."""
        was, now = self.by_setup, self.later[0].before
        return [
            label
            for label in dict.fromkeys([*was, *now])
            if not (label.endswith("]") and (label in was) is not (label in now))  # what its list is, one more or less
            and was.get(label) != now.get(label)
            and all(w.before.get(label) == now.get(label) for w in self.later)
        ]

    @property
    def moving(self) -> list[str]:
        """Labels of what grows, or shrinks, with every call, or with the first ones, numbers among them."""
        if len(self.later) < 3:
            return []
        seen = {k: [w.before[k] for w in self.later if k in w.before] for k in self.later[0].before}
        counted = {k: [n for n in map(extent, seen[k]) if n is not None] for k in seen}
        apart = {k: n for k, n in counted.items() if len(n) == len(self.later) and n[0] != n[1]}
        return [k for k, n in apart.items() if n in (sorted(n), sorted(n, reverse=True))]

    @property
    def moved_first(self) -> list[str]:
        """Labels of numbers, and of how much something holds, that go one way with the first calls."""
        states = [self.by_setup, *(work.before for work in self.later)]
        seen = {k: [extent(state[k]) for state in states if k in state] for k in self.by_setup}
        moved = {k: [n for n in each if n is not None] for k, each in seen.items() if len(each) == len(states) > 2}
        return [k for k, n in moved.items() if len({*n}) == len(states) and n in (sorted(n), sorted(n)[::-1])]

    @property
    def changed(self) -> list[str]:
        """Labels of tensors and arrays that hold other values than setup's before the last call, where an earlier call
        took another time: values that differ are no sign by themselves."""
        if len(self.later) < 3:
            return []
        was, last = self.by_setup, self.later[-1]
        late = [last.cpu, *([self.timed] if self.timed else [])]  # a single call may have been held up
        pairs = [sorted((work.cpu, each)) for work in self.works[:-1] for each in late]
        if not any(high > MORE * low and high - low > NOISE for low, high in pairs):
            return []
        arrays = {k: one for k, one in last.before.items() if isinstance(one.size, tuple) and k in was}
        changed = [k for k, one in arrays.items() if was[k].digest != one.digest]
        return sorted(changed, key=lambda k: math.prod(arrays[k].size[:-1]))  # what decides is small, most times

    def turns(self, label: str, call: Work) -> bool:
        """Whether what moved from call to call moves the other way in another one, or is gone."""
        states = [work.before for work in (self.later[0], self.later[-1], call)]
        a, b, c = (extent(state[label]) if label in state else None for state in states)
        return a is None or b is None or c is None or (a < b > c) or (a > b < c)

    def filled(self, call: Work) -> set[str]:
        """Labels of what early calls filled, as a ring: how many items it has is said, and what few calls did with less
        of them is no other work. (What shrinks leaves nearly all calls less to do than the first one.)"""
        found = set()
        for label in self.moving:
            seen = [work.before[label] for work in (*self.later[:2], self.last, call) if label in work.before]
            sizes = [one.size for one in seen if isinstance(one.size, int) and not is_number(one)]
            if len(sizes) == 4 and sizes[0] < sizes[2] and self._has_stopped(*sizes):
                found.add(label)
        return found

    def _has_stopped(self, early: float, after_it: float, last: float, further: float) -> bool:
        """Whether what moved from call to call no longer does, and at its first pace ended within few of the timed
        calls: nearly all of them did the same."""
        return last == further and abs(last - early) <= STOPPED * self.plain * abs(after_it - early)

    def by_what_ran(self) -> tuple[Finding | None, Callable[[Work], bool]]:
        """And whether a further call does what seems lost, or less than each one seems to do."""
        first, later = self.first, self.later
        share, text = min(lacks(first, work) for work in later)
        lost = [lacks(first, work)[0] for work in later]
        varies = max((lacks(a, b)[0] for a in later for b in later), default=0.0)
        more, more_text = lacks(later[-1], first, ("the last call", "the first one"))
        apart = min(self.apart(work) for work in later)
        is_again = lambda extra: self.apart(extra) < apart / 2
        settled = self.settled
        switches = [k for k in settled if self._is_switched(k)]
        if (rising := self._rising()) is not None:
            a, b, c = (work.amounts[rising] for work in later)
            return Finding("more", self._growth(rising)), (
                lambda extra: extra.amounts[rising] < 0.9 * c or self._has_stopped(a, b, c, extra.amounts[rising])
            )
        if len(later) > 2 and ((ends := _ends(lost)) or self._is_falling):
            early, name = (first, "first") if ends else (later[0], self.early)
            gone, what = lacks(early, later[-1], (f"the {name} call", "the last one"))
            if gone > 0:  # not of a call that was not recorded to its end
                return Finding("less", what), lambda extra: lacks(early, extra)[0] < gone / 2
        if share >= min(0.9, LOST + 2 * varies):
            return Finding("less" if share >= MOST else "part", text + self.cause(switches or settled)), is_again
        if switches and max(share, more) > 0.01:
            return Finding("part", (text if share > more else more_text) + self.cause(switches)), is_again
        return None, is_again

    def _is_switched(self, label: str) -> bool:
        was, now = self.first.before, self.later[0].before
        return label in was and label in now and is_switch(was[label], now[label])

    def _rising(self) -> int | None:
        """Which of `Work.amounts` rises from call to call, far beyond one step."""
        if len(self.later) < 3:
            return None
        far = min(5.0, self.plain / 2)
        columns = zip(*(work.amounts for work in self.later), strict=True)
        found = (i for i, (a, b, c) in enumerate(columns) if a < b < c and c >= MORE * a and c - a >= far * (b - a))
        return next(found, None)

    @property
    def _is_falling(self) -> bool:
        """Whether lines, or elements that operators touched, become fewer from call to call and none more, as in what
        converges or shrinks."""
        columns = [each for each in zip(*(work.amounts[:2] for work in self.later), strict=True) if each[0]]
        return all(a >= b >= c for a, b, c in columns) and any(a >= c / MOST for a, _, c in columns)

    def _growth(self, which: int) -> str:
        """How each call does more: by shapes, else sizes, else lines; never by two equal numbers."""
        early, late = self.later[0], self.later[-1]
        if which == 0 and (text := _shapes_apart(early, late, self.early)):
            return text
        for label in self.moving:
            sizes = [work.before[label].size for work in self.later]
            if not all(type(size) is int for size in sizes):  # arrays, and what is left of an iterator
                continue
            if sizes[0] < sizes[-1] and early.before[label].kind != OF_PROCESS:
                held = f"{named(label)} held {sizes[0]:,} item{'s' * (sizes[0] != 1)} in the {self.early} call"
                return f"{held} and {sizes[-1]:,} in the last"
        _, text = lacks(late, early, ("the last call", f"the {self.early} one"))
        if text:
            return text + self.cause(self.moving or self.settled)
        before, after = early.amounts[which], late.amounts[which]
        what = ("operators touched {:,} elements", "{:,} lines ran", "libraries' functions were called {:,} times")[
            which
        ]
        return f"{what.format(before)} in the {self.early} call and {after:,} in the last"

    def apart(self, work: Work) -> float:
        """How far the work of a call is from that of the first: the larger share that either lacks of the other, the
        first call's own where that is most."""
        share = lacks(self.first, work)[0]
        return share if share >= LOST else max(share, lacks(work, self.first)[0])

    def has_ended(self, label: str, last: Any) -> bool:
        """Whether calls took from something until nothing was left: an iterator, a container, a cursor, a file in which
        they moved on."""
        sizes = [work.before[label].size for work in self.works if label in work.before]
        if not isinstance(last, int) or len(sizes) < len(self.works):
            return False
        if type(last) is Left:
            return bool(sizes[0]) and last == 0
        if len(sizes) < 4:  # what each call fills or opens itself has nothing left between them either
            return False
        if type(last) is Place:  # in the midst of its lines a file tells none
            return sizes[1:3] == [None, None] or sizes[0] != sizes[1] != sizes[2]
        return last == 0 and all(sizes[1:3])

    def by_time(self) -> Finding | None:
        """What only counts of the process, values and times tell: no more than a doubt."""
        first, later, settled = self.first, self.later, self.settled
        was = first.before
        for k in self.moving:
            sizes = [work.before[k].size for work in later]
            if k in was and was[k].kind == OF_PROCESS and sizes[-1] > sizes[1]:
                return Finding("part", f"the number of {k} grows with every call, from {sizes[0]:,} to {sizes[-1]:,}")
        usual = max(self.usual, self.timed)  # of a short call nothing is left without what the recording took
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
        told = f"the first call took {seconds_text(first.took)}, later ones {later_took}{self.cause(settled)}"
        if not first.operators and first.took > WAITED and ((ratio > FAR and settled) or (ratio > 4 and values)):
            return Finding("time", told)
        if first.wall > 1 and ratio > 1000:
            return Finding("time", f"{told}, and nothing seen explains it")
        return None

    @property
    def usual(self) -> float:
        """Seconds of a later call, the median, at most."""
        return sorted(max(work.took + work.unclear, work.wall) for work in self.later)[len(self.later) // 2]

    def cause(self, labels: Sequence[str]) -> str:
        """The likely reason, of what the first call left changed: a switch, a size, a value."""
        was, now = self.first.before | self.by_setup, self.later[-1].before  # another alternative's first call too
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

    def grown(self, reached: Mapping[str, Reached]) -> Finding | None:
        """What holds most of all that grew with every call, as lists do that keep results, or tensors of a cache; else
        a number of the user's that each call moved on. Nothing that a library's object has for itself."""
        now = [work.before for work in self.later]
        moving = [k for k in self.moving if "._" not in k or (k in reached and reached[k].is_own)]
        is_library = lambda k: "·" in k and not (k in reached and reached[k].is_own)
        own = [k for k in moving if now[0][k].kind in GROWING and not is_library(k)]
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
        was = self.first.before
        for k in moving:
            is_own = k in reached and reached[k].is_own
            if is_own and k in was and is_number(now[-1][k]) and abs(now[-1][k].digest) < _LARGE:
                began, ended = map(_number_text, (was[k], now[-1][k]))
                return Finding(GROWN, f"{named(k)} went from {began} to {ended}")
        return None


def _ends(lost: Sequence[float]) -> bool:
    """Whether the work of the first call ran on for some calls and is gone in the last."""
    share, last = min(lost), lost[-1]
    if last <= share + 0.2:
        return False
    return (list(lost) == sorted(lost) and last > 0.9) or (max(lost[:-1]) < 0.05 and last >= LOST)


def by_shapes(work: Work) -> Work:
    """The same, its operators without what they were asked to keep of their inputs: gradients, a mode."""
    plain = lambda key: (key[0], tuple((*each[:-1], False) for each in key[1]), ())
    operators: Counter[Any] = Counter()
    for key, n in work.operators.items():
        operators[plain(key)] += n
    return replace(work, operators=operators, elements={plain(key): n for key, n in work.elements.items()})


def lacks(one: Work, other: Work, names: tuple[str, str] = ("the first call", "later ones")) -> tuple[float, str]:
    """Share of the work of ``one`` that ``other`` did not do; its largest part in words.

    Python's part of the time is shared out by the seconds of each line, that of the operators by their elements: a
    first operator is slow for reasons of its own (threads, allocators, kernels); its elements are what they are. An
    operator that ran on as many elements of other shapes, as where sizes take turns, did the same work.
    """
    own = {
        at: min(s, COLD * one.of_line[at]) if at in one.cold else s for at, s in one.seconds.items() if one.lines[at]
    }
    seconds = {at: s * max(0.0, 1 - other.lines[at] / one.lines[at]) for at, s in own.items()}
    elements: dict[Any, float]
    elements = {key: one.elements[key] * max(0, n - other.operators[key]) for key, n in one.operators.items()}
    of_one, of_other = ({key: each.elements[key] * n for key, n in each.operators.items()} for each in (one, other))
    fewer, gone = _by_kind(of_one) - _by_kind(of_other), _by_kind(elements)
    elements = {key: each * fewer[_kind_of(key)] / gone[_kind_of(key)] for key, each in elements.items() if each}
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
        what, ran, again = operator_text(key), one.operators[key], other.operators[key]
        at_least = "at least " if "operators" in one.cut and ran > 1 else ""
    text = f"{what} ran {at_least}{times_text(ran)} in {names[0]} and {times_text(again)} in {names[1]}"
    return (by_line + by_operator) / (sum(own.values()) + one.in_operators), text


def _kind_of(key: Any) -> Any:
    """An operator whatever the shapes of its inputs: with what it was asked to keep of them."""
    return key[0], tuple(each[-1] for each in key[1]), key[2]


def _by_kind(elements: Mapping[Any, float]) -> Counter[Any]:
    touched: Counter[Any] = Counter()
    for key, each in elements.items():
        touched[_kind_of(key)] += each  # type: ignore[assignment]  # a Counter may have parts
    return touched


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


def is_something(made: Seen | None) -> bool:
    if made is None:
        return False
    return bool(made.size) if isinstance(made.size, int) else made.size is not None or bool(made.digest)


def value_text(made: Seen) -> str:
    if made.size is None:
        return repr(made.digest)
    return f"a {made.kind} of {made.size:,}" if isinstance(made.size, int) else f"a {made.kind}"


def _number_text(number: Seen) -> str:
    return f"{number.digest:,}" if type(number.digest) is int else f"{number.digest:,.6g}"


def _shape(size: tuple[Any, ...]) -> str:
    return f"{' × '.join(map(str, size[:-1])) or 'a scalar'} {str(size[-1]).removeprefix('torch.')}"


def times_text(n: int) -> str:
    return "not" if n == 0 else "once" if n == 1 else f"{n:,} times"


def operator_text(key: Any) -> str:
    op, tensors, _ = key
    if not tensors:
        return f"`{op.overloadpacket}`"
    return f"`{op.overloadpacket}` on {_tensors_text(tensors, ', ')}"


def _tensors_text(tensors: Sequence[Any], between: str) -> str:
    """The shapes of the first ones; of several alike in a row how many there are."""
    alike = [(shape, len(list(several))) for shape, several in itertools.groupby(_shape(t[:-1]) for t in tensors)]
    return between.join(shape if n < 3 else f"{n:,} tensors of {shape}" for shape, n in alike[:3])
