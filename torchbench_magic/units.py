"""Numbers as text: one unit per column, digits that follow the knowledge, no false zeros.

Values are SI (seconds, bytes, calls) until they get here. A column first gets a `Scale` (its unit and how many
decimals it may show), then every cell is written by `number` with that scale, so that no cell carries a unit of
its own. What is special has one sign each: ``·`` is zero, ``–`` was not measured, ``<0.1`` was there but is below
what the column shows. Thousands are parted by U+202F, the minus is U+2212.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ZERO = "·"
NOT_MEASURED = "–"
_MINUS = "\u2212"
_THIN = "\u202f"
_INFINITE = "∞"
_NUMBER = re.compile(f"{ZERO}|[<>]?[+{_MINUS}]?[<>]?[0-9{_THIN}]+(?:[.](?P<decimals>[0-9]+))?")

_ASCII = {
    "µ": "u",
    "×": "x",
    "…": "..",
    "·": ".",
    "–": "-",
    "±": "+/-",
    "∞": "inf",
    "“": '"',
    "”": '"',
    _MINUS: "-",
    _THIN: " ",
    "\u00a0": " ",
    "│": "|",
    "⅛": "1/8",
    "¼": "1/4",
    "½": "1/2",
}


@dataclass(frozen=True)
class Scale:
    """How a column is written.

    Attributes:
        unit: what the header says, e.g. ``µs``; empty for a plain number.
        size: one unit in SI (1e-6 for ``µs``).
        places: the most decimals a cell may show; None leaves it to the significant digits.
        whole: never round left of the point (bytes and counts are exact, 1 026 is not 1 030).
    """

    unit: str = ""
    size: float = 1.0
    places: int | None = None
    whole: bool = False


SECONDS = (Scale("ns", 1e-9), Scale("µs", 1e-6), Scale("ms", 1e-3), Scale("s", 1.0))
BYTES = (
    Scale("B", 1.0, 0, whole=True),
    Scale("KiB", 2.0**10, whole=True),
    Scale("MiB", 2.0**20, whole=True),
    Scale("GiB", 2.0**30, whole=True),
)


def smallest_scale(values: Iterable[float | None], units: tuple[Scale, ...] = SECONDS) -> Scale:
    """The unit in which the smallest value (zero and unknown left out) reads as 1 or more.

    For columns whose every value matters by itself, such as medians: nothing ends as ``<0.1``.
    """
    sizes = _magnitudes(values)
    if not sizes:
        return units[min(2, len(units) - 1)]
    return next((unit for unit in reversed(units) if min(sizes) >= 0.9995 * unit.size), units[0])


def spread_scale(values: Iterable[float | None]) -> Scale:
    """The time unit for a column that is read from its largest value down, such as the self times of lines.

    The largest reads as 10 to 10 000 and the column resolves about a thousandth of it; less is ``<0.1``.
    """
    sizes = _magnitudes(values)
    top = max(sizes, default=0.0)
    unit = next((unit for unit in reversed(SECONDS) if top >= 10 * unit.size), SECONDS[0])
    if unit.unit == "ns":
        return Scale(unit.unit, unit.size, 0)
    return Scale(unit.unit, unit.size, 1 if top >= 100 * unit.size else 2)


def bytes_scale(values: Iterable[float | None]) -> Scale:
    """MiB (2**20) for a column of bytes, unless all of it is smaller than one: then KiB or B."""
    top = max(_magnitudes(values), default=0.0)
    if top >= 2.0**20 or top == 0:
        return Scale("MiB", 2.0**20, 1, whole=True)
    return Scale("KiB", 2.0**10, 1, whole=True) if top >= 2.0**10 else BYTES[0]


def number(value: float | None, scale: Scale = Scale(), *, digits: int | None = 3, signed: bool = False) -> str:
    """One cell. ``value`` is SI; None and NaN are ``–``, exact zero is ``·``.

    ``digits`` is the number of significant digits (None: every digit that ``scale.places`` allows, for sums
    that must add up). ``signed`` writes a plus, for differences.
    """
    if value is None or math.isnan(value):
        return NOT_MEASURED
    if value == 0:
        return ZERO
    sign = _MINUS if value < 0 else "+" if signed else ""
    if math.isinf(value):
        return sign + _INFINITE
    size = abs(value) / scale.size
    places = _significant_places(size, digits) if digits is not None else (scale.places or 0)
    if scale.whole:
        places = max(places, 0)
    if scale.places is not None:
        places = min(places, scale.places)
        if float(f"{size:.{scale.places}f}") == 0:
            least = f"{10.0**-scale.places:.{scale.places}f}"
            return f"<{least}" if value > 0 else f">{_MINUS}{least}"
    return sign + _grouped(size, places)


def count(value: float | None) -> str:
    """An exact whole number, all digits: ``10 008``."""
    if value is None or math.isnan(value):
        return NOT_MEASURED
    return number(value, Scale(places=0), digits=None)


def counted(number: int, word: str) -> str:
    """``1 call``, ``2 000 calls``."""
    return f"{count(number)} {word}{'' if number == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


_NO_SHARE = 0.005


def percent(share: float | None, *, digits: int = 2) -> str:
    """A share of one as per cent without the sign: 0.016 -> ``1.6``; below 0.05 % ``<0.1``; from ten times on ``>999``,
    since more digits of a figure that is off by so much say nothing."""
    if share is not None and share >= 9.995:
        return ">999"
    return number(None if share is None else share * 100, Scale("%", 1.0, 1), digits=digits)


def percent_range(low: float, high: float) -> str:
    """``45 to 60``, ``45`` where both read so, and ``up to 60`` where the least is none in two digits; without the
    sign."""
    said = tuple(number(100 * share, Scale("%", 1.0, 0), digits=2) for share in (low, high))
    if said[0] == said[1]:
        return said[1]
    return f"{said[0]} to {said[1]}" if low >= _NO_SHARE else f"up to {said[1]}"


def decimals_apart(low: float, high: float) -> int:
    """The fewest decimals at which two ends lie three steps of the last digit apart.

    Beyond three decimals one step is enough; six is the most. 2 where an end is not finite.
    """
    width = abs(high - low)
    if not math.isfinite(width):
        return 2
    wide = next((places for places in range(4) if width * 10.0**places >= 3), None)
    return wide if wide is not None else next((places for places in range(3, 6) if width * 10.0**places >= 1), 6)


def ratio(
    value: float | None, low: float | None = None, high: float | None = None, *, digits: int | None = None
) -> str:
    """A ratio with the decimals that tell the ends of its interval apart, and at least two significant digits, which is
    also what it has without an interval. It reads as within the interval where it is.

    ``digits`` is the most significant digits, for a sentence; two at least.
    """
    if value is None or not math.isfinite(value):
        return number(value, digits=2)
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return number(value, digits=2)
    places = decimals_apart(low, high)
    if digits is not None:
        return _as_ratio(value, min(places, _significant_places(abs(value), digits)))
    shown, ends = _as_ratio(value, places), interval(low, high)
    if low <= value <= high and not reads_within(shown, ends):
        return _as_ratio(value, _apart_from_one(value, places))
    return shown


def interval(low: float | None, high: float | None) -> str:
    """``0.597 … 0.601``: the decimals that tell its two ends apart; of each at least two significant digits, and enough
    of them that it does not read as 1 if it is not."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return NOT_MEASURED
    places = decimals_apart(low, high)
    ends = [_as_ratio(end, _apart_from_one(end, places)) for end in (low, high)]
    if 0 < low < _LEAST_END <= high / 10:
        ends[0] = f"<{_LEAST_END}"
    return " … ".join(ends)


_LEAST_END = 1e-3  # of an interval that ends far above it: less is as good as nothing


def _as_ratio(value: float, places: int) -> str:
    return _INFINITE if math.isinf(value) else _grouped(value, max(places, _significant_places(abs(value), 2)))


def _apart_from_one(value: float, places: int) -> int:
    """``places``, or as many more, up to four, as keep a value from reading as 1: what a verdict stands on."""
    while places < 4 and 0.5e-4 < abs(value - 1) < 0.5 and round(value - 1, places) == 0:
        places += 1
    return places


def range_text(low: float, high: float, scale: Scale) -> str:
    """``63.9 … 65.6`` in the unit of ``scale``: three digits, more where it takes more to tell the ends apart."""
    ends = [end / scale.size for end in (low, high)]
    places = _significant_places(max(map(abs, ends)), 3)
    while low != high and places < 6 and len({_grouped(end, places) for end in ends}) == 1:
        places += 1
    return " … ".join(_grouped(end, places) for end in ends)


def fixed(value: float, places: int) -> str:
    """A number with just so many decimals."""
    return _grouped(value, places)


def reads_within(figure: str, ends: str) -> bool:
    """Whether a written number lies within a written interval (``0.597 … 0.601``), as a reader sees it."""
    value, low, high = (
        float(text.lstrip("<").replace(_THIN, "").replace(_MINUS, "-").replace(_INFINITE, "inf"))
        for text in (figure, *ends.split(" … "))
    )
    return low <= value <= high


def seconds_text(value: float, *, digits: int = 3) -> str:
    """A duration inside a sentence: ``64.3 µs``, ``3.24 s``."""
    return _with_unit(value, SECONDS, digits)


def part_text(part: float, whole: float) -> str:
    """Two durations inside a sentence, in the unit of the whole: ``82.9 of 84.9 ms``."""
    unit = smallest_scale([whole], SECONDS)
    return f"{number(part, unit) if part else '0'} of {number(whole, unit) if whole else '0'} {unit.unit}"


def bytes_text(value: float, *, digits: int = 3) -> str:
    """An amount of memory inside a sentence: ``1.14 GiB``."""
    return _with_unit(value, BYTES, digits)


def decimals_of(text: str) -> int | None:
    """How many decimals a written number shows; None for ``–`` and everything else that is no number."""
    found = _NUMBER.fullmatch(text)
    return None if found is None else len(found["decimals"] or "")


def padding(text: str, places: int) -> str:
    """What must stand, unseen, after ``text`` to put its decimal point under one with ``places`` decimals."""
    shown = decimals_of(text)
    if shown is None or shown >= places:
        return ""
    return "0" * (places - shown) if shown else "." + "0" * places


def to_ascii(text: str) -> str:
    """``text`` for a terminal that has no more than ASCII; characters we do not use ourselves as escapes."""
    known = "".join(_ASCII.get(char, char) for char in text)
    return known.encode("ascii", "backslashreplace").decode("ascii")


def _magnitudes(values: Iterable[float | None]) -> list[float]:
    known = (abs(value) for value in values if value is not None)
    return [value for value in known if value > 0 and math.isfinite(value)]


def _significant_places(size: float, digits: int) -> int:
    """Decimals (negative: tens, hundreds) that show ``digits`` digits of ``size`` after rounding."""
    if size == 0:
        return 0
    return digits - 1 - int(f"{size:.{digits - 1}e}".partition("e")[2])


def _grouped(size: float, places: int) -> str:
    sign = _MINUS if size < 0 else ""
    size = round(abs(size), places)
    return sign + f"{size:,.{max(places, 0)}f}".replace(",", _THIN)


def _with_unit(value: float, units: tuple[Scale, ...], digits: int) -> str:
    unit = smallest_scale([value], units) if value else units[-1]
    return f"{number(value, unit, digits=digits) if value else '0'} {unit.unit}"
