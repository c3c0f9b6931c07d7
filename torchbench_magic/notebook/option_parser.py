"""How a magic's line is read: leading options as a shell reads them, then the rest, verbatim; their values."""

from __future__ import annotations

import io
import keyword
import math
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from torchbench_magic.errors import OptionError
from torchbench_magic.timing.plan import MOST, MOST_PROCESSES, MOST_THREADS, tolerances_asked

if TYPE_CHECKING:
    from torchbench_magic.profiling.options import Schedule

# ---- option_values ---------------------------------------------------------------------------------------------------
# From the text of an option to its value. Each raises ValueError with what is valid.

_MOST_DIGITS = 20
"""Python reads no number of thousands of digits, and says so in other words."""


def read_count(text: str, most: int = MOST) -> int:
    try:
        value = int(text)
    except ValueError:  # of thousands of digits too
        value = 0
    if value < 1:
        raise ValueError("give a whole number of at least 1")
    if value > most:
        raise ValueError(f"give a whole number up to {most}")
    return value


def read_levers(text: str) -> tuple[str, ...]:
    from torchbench_magic.levers.trial import check_levers

    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError("give lever names, such as compile,bf16, or none for all that apply")
    try:
        check_levers(names)
    except OptionError as error:
        raise ValueError(str(error).removeprefix("--try: ").removeprefix("--try ")) from None
    return names


def lever_names() -> tuple[str, ...]:
    from torchbench_magic.levers.kinds import LEVERS

    return tuple(LEVERS)


_LEVERS = re.compile(r"[a-z][a-z0-9_-]*(:[\w.+-]*)?(,[a-z][a-z0-9_-]*(:[\w.+-]*)?)*", re.IGNORECASE)
_NEAR = 0.75


def looks_like_levers(text: str) -> bool:
    """Whether a word is a list of levers, rather than the code after them: one of its names is a lever's, nearly."""
    import difflib

    from torchbench_magic.levers.kinds import ADVICE, LEVERS

    if _LEVERS.fullmatch(text) is None:
        return False
    names = [part.partition(":")[0] for part in text.split(",")]
    return any(difflib.get_close_matches(name, [*LEVERS, *ADVICE], n=1, cutoff=_NEAR) for name in names)


def read_processes(text: str) -> int:
    if not _is_whole(text) or int(text) < 2:
        raise ValueError("give a whole number of at least 2; without --processes, this session measures")
    return read_count(text, MOST_PROCESSES)


def read_thread_counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(read_count(part, MOST_THREADS) for part in text.split(","))
    except ValueError:
        raise ValueError(f"give thread counts from 1 to {MOST_THREADS}, such as 1 or 1,2") from None
    if len(set(counts)) != len(counts):
        raise ValueError("a thread count is given twice")
    return counts


def read_per_cent(text: str) -> float:
    """A share, written in per cent."""
    return _between(text.removesuffix("%"), 0, 1000, "give a percentage above 0, such as 1 or 0.5") / 100


def read_tolerances(text: str) -> str:
    try:
        tolerances_asked(text)
    except OptionError as error:
        raise ValueError(str(error).removeprefix("check: ")) from None
    return text


def looks_like_tolerances(text: str) -> bool:
    return re.match(r"[\"']?[ra]tol\b", text) is not None


def _between(text: str, low: float, high: float, valid: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low < value < high:
        raise ValueError(valid)
    return value


read_threads = partial(read_count, most=MOST_THREADS)
read_seconds = partial(_between, low=0, high=math.inf, valid="give seconds above 0")
read_threshold = partial(_between, low=0, high=10, valid="give IQR / median to reach, such as 0.1")


def among(*names: str) -> dict[str, Any]:
    """``parse`` and ``values`` of an option that takes one of some words."""

    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"give {', '.join(names[:-1])} or {names[-1]}")
        return text

    return {"parse": read, "values": lambda: names}


def read_seed(text: str) -> int:
    if not (_is_whole(text) and int(text) < 2**32):
        raise ValueError("give a whole number from 0 to 4294967295")
    return int(text)


def read_schedule(text: str) -> Schedule:
    from torchbench_magic.profiling.options import Schedule

    try:
        return Schedule.of(text)
    except OptionError as error:
        raise ValueError(str(error).removeprefix("schedule: ")) from None


def read_from_zero(text: str) -> int:
    if not _is_whole(text):
        raise ValueError("give a whole number of at least 0")
    return read_count(text) if int(text) else 0


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def read_rows(text: str) -> int:
    if text == "-1":  # torch's way to say: all of them
        return -1
    try:
        return read_count(text)
    except ValueError:
        raise ValueError("give a whole number of at least 1, or -1 for all rows") from None


def read_variable(text: str) -> str:
    if not text.isidentifier() or keyword.iskeyword(text):
        raise ValueError("give the name of a variable, such as -o result")
    return text


def read_not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("give a value that is not empty")
    return text


# ---- option_line -----------------------------------------------------------------------------------------------------
# An option is declared where its value lives, as a field of a frozen dataclass (see `notebook.options`). Reading stops
# at the first token that is no option, or at ``--``; what follows is code and reaches the magic untouched, quotes and
# all. Names are never abbreviated: a line means the same after a new option arrives.

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


_MAGICS: dict[str, type] = {}
"""Name of a magic -> its options."""
_NUMBER = re.compile(r"[-+]?[0-9][0-9._]*(?:[eE][-+]?[0-9]+)?(?=\s|$)")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Option:
    """One option of a magic.

    Attributes:
        flags: as written, the long one last: ``("-t", "--threads")``.
        metavar: how the value is named in the help; empty for an option that takes none.
        parse: text to value; raises ValueError with what is valid. Without it any text that is not empty is one.
        help: one sentence.
        shown_default: the default in words, where the value itself would not tell.
        trait: name of the `TorchBench` trait that gives the default.
        repeatable: every use adds a value to a tuple.
        bare: the value where none is given; then only a token that looks like a number is one, and before a cell a lone
            word, which would do nothing as its setup.
        values: what can be written as its value, where that can be listed; asked for when they are to be shown.
        is_value: with ``bare``, tells other tokens that are its value.
    """

    flags: tuple[str, ...]
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = read_not_empty
    shown_default: str = ""
    trait: str = ""
    repeatable: bool = False
    bare: Any = None
    values: Callable[[], Iterable[str]] = tuple
    is_value: Callable[[str], bool] | None = None

    @property
    def name(self) -> str:
        return "/".join(self.flags)


def option(*flags: str, default: Any = None, **declared: Any) -> Any:
    """A dataclass field that is an option of the magic; ``declared`` are the other attributes of `Option`."""
    return field(default=default, metadata={"option": Option(flags, **declared)})


def inherited(*flags: str, **declared: Any) -> Any:
    """The option of a field that a base class declares, with its type and default; the class names no type again."""
    return Option(flags, **declared)


def of_magic(name: str) -> Callable[[type[T]], type[T]]:
    """These are the options of the magic of that name (``timer``), which a mistaken option of another one may be of."""

    def note(kind: type[T]) -> type[T]:
        _MAGICS[name] = kind
        return kind

    return note


def declared_options(kind: type) -> dict[str, Option]:
    """Field name -> option, in the order of declaration."""
    found = {}
    of_fields = {item.name: item.metadata["option"] for item in fields(kind) if "option" in item.metadata}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():  # a field's default stands where the field was declared
            if isinstance(value, Option):
                found[name] = value
            elif name in of_fields:
                found[name] = of_fields[name]
    return found


def read_line(kind: type[T], magic: str, line: str, defaults: Mapping[str, Any] | None = None) -> tuple[T, str]:
    """The leading options of ``line``, and its rest, verbatim.

    Args:
        kind: the dataclass of options.
        magic: as the user wrote it (``%timer``), for messages.
        defaults: values of the traits, by trait name.

    Raises:
        OptionError: in one line, with what is valid.
    """
    values = _defaults(kind, defaults)
    position, _ = _read_options(kind, magic, line, 0, values, {})
    return kind(**values), line[position:]


def read_words(kind: type[T], magic: str, line: str, defaults: Mapping[str, Any] | None = None) -> tuple[T, list[str]]:
    """Read a line of words, with options anywhere between them; after ``--`` everything is a word.

    Raises:
        OptionError: in one line, with what is valid.
    """
    values, words, position, only_words = _defaults(kind, defaults), list[str](), 0, False
    given: dict[str, str] = {}
    while True:
        if not only_words:
            position, only_words = _read_options(kind, magic, line, position, values, given)
        if position >= len(line):
            return kind(**values), words
        word, position = _token(line, position, magic)
        words.append(word)


def _defaults(kind: type, defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """Field name -> value of its trait, for the options that have one."""
    declared = declared_options(kind).items()
    return {name: defaults[item.trait] for name, item in declared if defaults and item.trait in defaults}


def _read_options(
    kind: type, magic: str, line: str, position: int, values: dict[str, Any], given: dict[str, str]
) -> tuple[int, bool]:
    """Read options from ``position`` on into ``values``; where they end, and whether ``--`` ended them.

    Args:
        given: name of each option that was read until now, with its flag as it was written.
    """
    by_flag = {flag: (name, item) for name, item in declared_options(kind).items() for flag in item.flags}
    position = _skip_blanks(line, position)
    while line.startswith("-", position):
        token, position = _token(line, position, magic)
        if token == "--":
            return position, True
        for flag, attached in _split(token, by_flag):
            if flag not in by_flag:
                raise OptionError(_unknown(magic, flag, by_flag))
            name, item = by_flag[flag]
            if not item.metavar:
                if attached is not None:
                    raise OptionError(f"{magic}: {flag} takes no value")
                values[name] = True
                continue
            if name in given and not item.repeatable:
                both = flag if given[name] == flag else f"{given[name]} and {flag}"
                raise OptionError(f"{magic}: {both} {'is' if both == flag else 'are one option,'} given twice")
            given[name] = flag
            text = attached
            if text is None and item.bare is not None and not _is_value(item, line, position, magic):
                values[name] = item.bare
                continue
            if text is None:
                if position >= len(line):
                    raise OptionError(f"{magic}: {flag} needs a value: {flag} {item.metavar}")
                text, position = _token(line, position, magic)
            try:
                value = item.parse(text)
            except ValueError as error:
                raise OptionError(f"{magic}: {flag} {text!r}: {error}") from None
            values[name] = (*values.get(name, ()), value) if item.repeatable else value
    return position, False


def _is_value(item: Option, line: str, position: int, magic: str) -> bool:
    """Whether the value of an option that may stand alone follows."""
    word = _WORD.match(line, position)
    if item.is_value is not None and word is not None and item.is_value(word[0]):
        return True
    return _NUMBER.match(line, position) is not None or (magic[:2] == "%%" and line[position:].strip().isidentifier())


def _skip_blanks(line: str, position: int) -> int:
    while position < len(line) and line[position].isspace():
        position += 1
    return position


def _token(line: str, position: int, magic: str) -> tuple[str, int]:
    """The shell token at ``position``, and where the next one begins."""
    stream = io.StringIO(line[position:])
    lexer = shlex.shlex(stream, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        token = lexer.get_token()
    except ValueError:
        raise OptionError(f"{magic}: unclosed quote in {line[position:].strip()}") from None
    # The lexer has read the token and the one blank that ended it.
    return token or "", _skip_blanks(line, position + stream.tell())


def _split(token: str, by_flag: Mapping[str, tuple[str, Option]]) -> list[tuple[str, str | None]]:
    """``--opt=value``, ``-n100`` and ``-qw`` taken apart."""
    if token.startswith("--"):
        flag, equals, value = token.partition("=")
        return [(flag, value if equals else None)]
    parts: list[tuple[str, str | None]] = []
    letters = token[1:]
    while letters:
        flag, letters = f"-{letters[0]}", letters[1:]
        if flag not in by_flag:
            # Said as it was written: `-1` or `-x.sum()` is more likely a statement than two options.
            return [(token if not parts else flag, None)]
        if by_flag[flag][1].metavar:
            return [*parts, (flag, letters or None)]
        parts.append((flag, None))
    return parts or [(token, None)]


def _unknown(magic: str, flag: str, by_flag: Mapping[str, tuple[str, Option]]) -> str:
    import difflib  # here, not above: loading is to be quick

    if flag in ("--help", "-h"):
        return f"{magic}? shows the help, with every option"
    sign = "%%" if magic.startswith("%%") else "%"
    others = [_written(sign, name) for name, kind in _MAGICS.items() if flag in _flags(kind)]
    if others:
        code = "" if flag.startswith("--") else "; write -- before a statement that begins with -"
        return f"{magic} has no option {flag}: it is an option of {' and '.join(others)}{code}"
    longer = [known for known in by_flag if flag.startswith("--") and known.startswith(flag)]
    close = longer[:3] or difflib.get_close_matches(flag, list(by_flag), n=1, cutoff=0.6)
    if close:
        return f"{magic} has no option {flag}; write {' or '.join(close)} (options are not abbreviated)"
    return f"{magic} has no option {flag}; {magic}? lists them; write -- before a statement that begins with -"


def _flags(kind: type) -> set[str]:
    return {flag for item in declared_options(kind).values() for flag in item.flags}


def _written(sign: str, name: str) -> str:
    """A magic as the user would write it; one that is of a line only has one sign."""
    return f"%{name}" if name in ("tcompare", "tdoctor") else f"{sign}{name}"


def option_rows(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Every option as (how it is written, what it does, its default, its setting or nothing)."""
    defaults = {item.name: item.default for item in fields(kind)}
    for name, item in declared_options(kind).items():
        head = ", ".join(item.flags) + (f" {item.metavar}" if item.metavar else "")
        default = item.shown_default or ("off" if not item.metavar else _shown(defaults[name]))
        yield head, item.help + (" Repeatable." if item.repeatable else ""), default, item.trait


def describe(kind: type) -> str:
    """Every option with its value and default, for ``%%timer?``."""
    lines = []
    for head, said, default, trait in option_rows(kind):
        source = f"; %config TorchBench.{trait}" if trait else ""
        text = f"{said} (default: {default}{source})"
        lines.append(f"  {head}")
        lines.extend(textwrap.wrap(text, 92, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False))
    return "\n".join(lines)


def documented(text: str) -> Callable[[F], F]:
    """Give a magic the text that ``%magic?`` prints."""

    def decorate(function: F) -> F:
        function.__doc__ = text
        return function

    return decorate


def _shown(value: object) -> str:
    return "none" if value in (None, (), "") else str(value)
