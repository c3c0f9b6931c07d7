"""The line of a magic: leading options, then code, verbatim."""

from __future__ import annotations

from typing import Any

import pytest

from torchbench_magic.errors import OptionError
from torchbench_magic.notebook.option_parser import declared_options, describe, read_line, read_words
from torchbench_magic.notebook.options import CompareOptions, ProfilerOptions, TimerOptions


def timer(line: str) -> tuple[TimerOptions, str]:
    return read_line(TimerOptions, "%timer", line)


@pytest.mark.parametrize(
    "code",
    [
        "x + 1",
        "f('a b',  \"c\")",
        "x['k'] + 1",
        "d = {'it': \"s\"}",
        "a -n 3",
        "f(x)  # -t 2",
        "print('it''s')",
        "x; y",
    ],
)
def test_the_rest_of_the_line_is_verbatim(code: str) -> None:
    assert timer(f"-n 3 -q {code}")[1] == code
    assert timer(code) == (TimerOptions(), code)


def test_an_unclosed_quote_in_the_code_is_the_codes_own_affair() -> None:
    assert timer("-n 3 f('it)")[1] == "f('it)"


@pytest.mark.parametrize("line", ["-n100 x", "-n 100 x", "--number 100 x", "--number=100 x", "-qn100 x", "-qn 100 x"])
def test_a_value_may_be_attached_or_apart(line: str) -> None:
    options, rest = timer(line)
    assert (options.number, rest) == (100, "x")


def test_quotes_round_a_value_are_a_shells() -> None:
    options, rest = timer("""--label 'two words' --setup "y = 'a'" --sub-label=10\\ x x""")
    assert (options.label, options.setup, options.sub_label, rest) == ("two words", "y = 'a'", "10 x", "x")


@pytest.mark.parametrize(
    ("line", "number", "rest"),
    [
        ("--callgrind x * y", 100, "x * y"),
        ("--callgrind 20 x * y", 20, "x * y"),
        ("--callgrind=20 x", 20, "x"),
        ("--callgrind 20x", 100, "20x"),
        ("--callgrind -q x", 100, "x"),
        ("--callgrind -- 20 + x", 100, "20 + x"),
        ("--callgrind", 100, ""),
        ("x --callgrind", None, "x --callgrind"),
    ],
)
def test_the_number_of_callgrind_is_taken_only_if_it_is_all_digits(line: str, number: int | None, rest: str) -> None:
    options, left = timer(line)
    assert (options.callgrind, left) == (number, rest)


def test_two_dashes_end_the_options() -> None:
    assert timer("-q -- -x.sum()")[1] == "-x.sum()"
    assert timer("--  -n 3") == (TimerOptions(), "-n 3")


@pytest.mark.parametrize(
    ("kind", "magic", "line", "message"),
    [
        (TimerOptions, "%%timer", "--memory", "%%timer has no option --memory: it is an option of %%tprofile"),
        (
            *(ProfilerOptions, "%%tprofile", "--callgrind"),
            "%%tprofile has no option --callgrind: it is an option of %%timer",
        ),
        (ProfilerOptions, "%tprofile", "--sweep n=[1]", "%tprofile has no option --sweep: it is an option of %timer"),
        (ProfilerOptions, "%tprofile", "--help", "%tprofile? shows the help, with every option"),
        (TimerOptions, "%%timer", "--last", "%%timer has no option --last: it is an option of %tcompare"),
        (
            *(ProfilerOptions, "%tprofile", "--baseline a"),
            "%tprofile has no option --baseline: it is an option of %timer and %tcompare",
        ),
        (
            *(TimerOptions, "%timer", "-s x"),
            "%timer has no option -s: it is an option of %tprofile; write -- before a statement that begins with -",
        ),
    ],
)
def test_an_option_of_another_magic_is_told_with_that_magic(kind: Any, magic: str, line: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_line(kind, magic, line)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-n 5 -n 6 x", "%timer: -n is given twice"),
        ("-n5 --number=6 x", "%timer: -n and --number are one option, given twice"),
        ("--callgrind --callgrind 5 x", "%timer: --callgrind is given twice"),
        ("--save a --save b x", "%timer: --save is given twice"),
    ],
)
def test_an_option_that_is_given_twice_is_one_line_and_no_riddle_which_one_counts(line: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_line(TimerOptions, "%timer", line, {"store": "kept.sqlite"})
    assert str(caught.value) == message


def test_options_that_collect_values_may_be_given_again_and_so_may_those_without_one() -> None:
    assert timer("--sweep a=[1] --sweep b=[2] x")[0].sweep == ("a=[1]", "b=[2]")
    assert timer("-q -q x")[0].quiet
    with pytest.raises(OptionError, match="--baseline is given twice"):
        read_words(CompareOptions, "%tcompare", "--baseline a name --baseline b")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-t 0 x", "thread counts from 1 to"),
        ("-t x", "thread counts from 1 to"),
        ("-t 9999999999999 x", "from 1 to 4096"),
        ("-n 99999999999999999999999 x", "give a whole number up to 1000000000000"),
        ("-t 1,,2 x", "thread counts from 1 to"),
        ("-t 2,2 x", "given twice"),
        ("-n 0 x", "whole number of at least 1"),
        ("-r 1.5 x", "whole number of at least 1"),
        ("--min-run-time 0 x", "seconds above 0"),
        ("--max-run-time inf x", "seconds above 0"),
        ("-o 1abc x", "name of a variable"),
        ("-o for x", "name of a variable"),
        ("-n", "-n needs a value: -n N"),
        ("-q=3 x", "no option -="),
        (f"--seed {'9' * 5000} x", "from 0 to 4294967295"),
        (f"-n {'9' * 5000} x", "whole number"),
        (f"--processes={'9' * 5000} x", "whole number"),
        ("--margin nan x", "percentage above 0"),
        ("--until inf x", "percentage above 0"),
        ("--adaptive nan x", "IQR / median"),
        ("--min-run-time -1 x", "seconds above 0"),
        ("--max-run-time nan x", "seconds above 0"),
        ("--callgrind 0 x", "whole number of at least 1"),
        ("--label '' x", "not empty"),
        ("--label 'a x", "unclosed quote"),
        ("--explore=yes x", "--explore takes no value"),
        ("--thread 1 x", "no option --thread; write --threads"),
        ("--min 1 x", "write --min-run-time"),
        ("--treads 1 x", r"no option --treads; write --threads \(options are not abbreviated\)$"),
        ("-z x", r"^%timer has no option -z; %timer\? lists them; write -- before"),
        ("-1 + x", "write -- before a statement"),
        ("-x.sum()", "write -- before a statement"),
    ],
)
def test_an_unknown_option_or_a_wrong_value_is_one_line_that_says_what_is_valid(line: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        timer(line)
    assert "\n" not in str(caught.value)


def test_thread_counts_are_a_list_for_timing_and_one_for_a_profile() -> None:
    assert timer("-t 1,2 x")[0].threads == (1, 2)
    assert read_line(ProfilerOptions, "%tprofile", "-t 2 x")[0].threads == 2
    with pytest.raises(OptionError, match="whole number"):
        read_line(ProfilerOptions, "%tprofile", "-t 1,2 x")


def test_a_repeatable_option_adds_up() -> None:
    options, _ = read_line(ProfilerOptions, "%tprofile", "--lines-of a --lines-of=b x")
    assert options.lines_of == ("a", "b")


def test_a_trait_gives_the_default_and_the_line_wins() -> None:
    defaults = {"min_run_time": 3.0}
    assert read_line(TimerOptions, "%timer", "x", defaults)[0].min_run_time == 3.0
    assert read_line(TimerOptions, "%timer", "--min-run-time 1 x", defaults)[0].min_run_time == 1.0


@pytest.mark.parametrize("kind", [TimerOptions, ProfilerOptions])
def test_the_help_prints_every_option_with_its_default(kind: type) -> None:
    text = " ".join(describe(kind).split())
    declared = declared_options(kind)
    assert text.count("(default: ") == len(declared)
    for option in declared.values():
        assert ", ".join(option.flags) in text


def test_the_help_says_where_a_default_is_set() -> None:
    assert "(default: 0.2; %config TorchBench.min_run_time)" in " ".join(describe(TimerOptions).split())
