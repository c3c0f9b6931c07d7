"""Numbers as text."""

from __future__ import annotations

import math

import pytest

from torchbench_magic import units
from torchbench_magic.units import Scale

NARROW = "\u202f"
MINUS = "\u2212"
US = Scale("µs", 1e-6)
MS1 = Scale("ms", 1e-3, 1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (64.27e-6, "64.3"),
        (2.8e-6, "2.80"),
        (820.4e-6, "820"),
        (9.996e-6, "10.0"),
        (0.9996e-6, "1.00"),
        (41.0, f"41{NARROW}000{NARROW}000"),
        (1.2345e-3, f"1{NARROW}230"),
        (-3e-6, f"{MINUS}3.00"),
    ],
)
def test_a_time_has_three_significant_digits(seconds: float, text: str) -> None:
    assert units.number(seconds, US) == text


def test_a_contaminated_time_has_two_digits() -> None:
    assert [units.number(v, US, digits=2) for v in (64.3e-6, 4.62e-6, 826e-6)] == ["64", "4.6", "830"]


def test_zero_unknown_infinite_and_too_small_each_have_their_own_sign() -> None:
    assert units.number(0.0, MS1) == "·"
    assert units.number(None, MS1) == "–"
    assert units.number(math.nan, MS1) == "–"
    assert units.number(math.inf, MS1) == "∞"
    assert units.number(-math.inf, MS1) == f"{MINUS}∞"
    assert units.number(4e-5, MS1) == "<0.1"
    assert units.number(-4e-5, MS1) == f">{MINUS}0.1"
    assert units.number(6e-5, MS1) == "0.1"


def test_a_sum_keeps_every_digit_that_its_column_has_and_a_difference_carries_a_sign() -> None:
    assert units.number(2.5095, MS1, digits=None) == f"2{NARROW}509.5"
    assert units.number(5e-6, US, signed=True) == "+5.00"
    assert units.number(-5e-6, US, signed=True) == f"{MINUS}5.00"


def test_bytes_are_never_rounded_left_of_the_point() -> None:
    scale = units.bytes_scale([1026 * 2**20, 8 * 2**20])
    assert (scale.unit, units.number(1026.4 * 2**20, scale)) == ("MiB", f"1{NARROW}026")
    assert units.number(8 * 2**20, scale) == "8.0"
    assert units.number(300, scale) == "<0.1"


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([2.8e-6, 41.0], "µs"),
        ([0.5e-9], "ns"),
        ([0.0012, None, 0.0], "ms"),
        ([3.0, math.nan], "s"),
        ([0.9996e-3], "ms"),
    ],
)
def test_a_column_of_medians_takes_the_unit_of_its_smallest_value(values: list[float | None], unit: str) -> None:
    assert units.smallest_scale(values).unit == unit


@pytest.mark.parametrize(
    ("top", "unit", "places"),
    [(0.975, "ms", 1), (3.2, "ms", 1), (12.0, "s", 2), (0.012, "ms", 2), (5e-6, "ns", 0), (3e-8, "ns", 0)],
)
def test_a_column_of_self_times_takes_the_unit_of_its_largest(top: float, unit: str, places: int) -> None:
    scale = units.spread_scale([top, 1e-9, 0.0, None])
    assert (scale.unit, scale.places) == (unit, places)


def test_a_column_without_values_still_has_a_unit() -> None:
    assert units.smallest_scale([]).unit == "ms"
    assert units.spread_scale([None, math.nan]).unit == "ns"
    assert units.bytes_scale([]).unit == "MiB"


def test_bytes_below_a_mebibyte_are_kibibytes_and_below_that_bytes() -> None:
    assert units.bytes_scale([640 * 1024]).unit == "KiB"
    assert units.bytes_scale([12]).unit == "B"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.597, 0.601, "0.597 … 0.601"),
        (1.681, 1.697, "1.681 … 1.697"),
        (0.8, 1.6, "0.80 … 1.6"),
        (125.3, 131.2, "125 … 131"),
        (0.1453, 0.1471, "0.145 … 0.147"),
        (0.99991, 1.00008, "0.9999 … 1.0001"),
        (0.0, math.inf, "0.00 … ∞"),
        (math.nan, math.nan, "–"),
        (0.83, 0.996, "0.83 … 0.996"),  # an end reads as one only where it is
        (1.002, 1.103, "1.002 … 1.10"),
        (0.99996, 1.2, "1.00 … 1.20"),
        (1, 1.2, "1.00 … 1.20"),
        (0.04, 12.0, "0.040 … 12"),  # a small end is not rounded away
        (0.06, 0.5, "0.060 … 0.50"),
        (0.0013, 2.0, "0.0013 … 2.0"),
        (1e-9, 3, "<0.001 … 3.0"),
        (0.0004, 0.0006, "0.00040 … 0.00060"),
    ],
)
def test_an_interval_shows_its_ends_apart(low: float, high: float, text: str) -> None:
    assert units.interval(low, high) == text


def test_a_ratio_has_the_decimals_of_its_interval() -> None:
    assert units.ratio(0.5991, 0.597, 0.601) == "0.599"
    assert units.ratio(1.2, 0.8, 1.6) == "1.2"
    assert units.ratio(0.5991) == "0.60"
    assert units.ratio(math.nan, 0.5, 0.6) == "–"
    assert units.ratio(1.6401, 1.636, 1.644, digits=3) == "1.64"


def test_a_range_is_written_with_its_own_digits() -> None:
    assert units.range_text(63.9e-6, 65.6e-6, US) == "63.9 … 65.6"
    assert units.range_text(64.21e-6, 64.24e-6, US) == "64.21 … 64.24"
    assert units.range_text(64.2e-6, 64.2e-6, US) == "64.2 … 64.2"


def test_amounts_in_sentences_carry_their_unit() -> None:
    assert units.seconds_text(64.3e-6) == "64.3 µs"
    assert units.seconds_text(41.0, digits=2) == "41 s"
    assert units.seconds_text(0.0) == "0 s"
    assert units.bytes_text(1.14 * 2**30) == "1.14 GiB"
    assert units.bytes_text(0) == "0 GiB"
    assert units.bytes_text(100) == "100 B"


def test_shares_are_written_without_false_zeros_and_counts_are_exact() -> None:
    assert [units.percent(s) for s in (0.016, 0.45, 0.0001, 0.0, None)] == ["1.6", "45", "<0.1", "·", "–"]
    assert units.count(10008) == f"10{NARROW}008"
    assert units.count(0) == "·"
    assert units.count(math.nan) == "–"


def test_padding_puts_decimal_points_under_each_other_where_a_text_has_decimals() -> None:
    column = ["121", "14.2", "<0.1", "·", "–", "", f"1{NARROW}040", f"{MINUS}3.00"]
    padded = [text + units.padding(text, 2) for text in column]
    assert padded == ["121.00", "14.20", "<0.10", "·.00", "–", "", f"1{NARROW}040.00", f"{MINUS}3.00"]
    assert units.decimals_of("0.597 … 0.601") is None
    assert units.padding("new", 2) == ""


def test_ascii_takes_the_place_of_every_sign_of_ours() -> None:
    text = f"≥ µs × … · – ± “x” {MINUS}1{NARROW}000 ∞ ½"
    assert units.to_ascii(text) == '\\u2265 us x .. . - +/- "x" -1 000 inf 1/2'


def test_per_cents_of_ten_times_and_more_are_one_word() -> None:
    assert units.percent(9.9) == "990"
    assert units.percent(270.32) == ">999"
    assert units.decimals_of(">999") == 0


SIZES = [base * 10.0**power for power in range(-3, 4) for base in (1.0, 1.04, 1.96, 3.3, 5.0, 9.49, 9.96)]
WIDTHS = [1.0005, 1.003, 1.02, 1.3, 2.0, 7.0, 60.0]  # high over low of an interval


def significant(text: str) -> int:
    """Digits of a written number, without the zeros that only say how large it is."""
    digits = text.replace(NARROW, "").replace(MINUS, "").replace(".", "")
    return len(digits.lstrip("0")) or len(digits)


def read(text: str) -> float:
    return float(text.replace(NARROW, "").lstrip("<"))


@pytest.mark.parametrize("factor", WIDTHS)
def test_ratios_of_any_size_and_width_have_two_digits_and_none_that_the_interval_does_not_bear(factor: float) -> None:
    for size in SIZES:
        for share in (0.0, 0.3, 0.5, 1.0):  # where in its interval the ratio stands
            low, high = size / factor**share, size * factor ** (1 - share)
            shown, ends = units.ratio(size, low, high), units.interval(low, high)
            assert units.reads_within(shown, ends), (shown, ends)
            assert abs(read(shown) - size) <= 0.05 * size, (shown, size)
            for text in (shown, units.ratio(size, low, high, digits=3), *ends.split(" … ")):
                assert significant(text) >= 2, (text, low, high)
            known = max(0, math.ceil(math.log10(3 / (high - low))))  # decimals that the interval bears
            two_digits = 1 - int(f"{size:.1e}".partition("e")[2])
            is_end = shown in ends.split(" … ")  # which does not read as 1 if it is not
            assert (units.decimals_of(shown) or 0) <= max(known, two_digits) or is_end, (shown, low, high)
            low_end, high_end = map(read, ends.split(" … "))
            assert low_end < high_end or factor < 1.001, ends
            assert abs(high_end - high) <= 0.05 * high


def test_a_ratio_without_an_interval_has_two_digits() -> None:
    for size in SIZES:
        assert significant(units.ratio(size)) >= 2
        assert abs(read(units.ratio(size)) - size) <= 0.05 * size
