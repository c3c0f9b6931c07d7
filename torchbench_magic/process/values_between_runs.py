"""What code read besides tensors, as a result has it: how two runs differ in it, and what nobody can tell.

A `Value` is (how the code says it, what it held, what of it is not known). Numbers are kept as they are, texts and
containers as a digest of what they hold: enough to tell two apart, and nothing of the user's data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Value = tuple[str, str, str]
"""(label such as ``cfg['size']`` or ``Cfg.n``, what it held, what is not known of it: empty where all is)."""

CONTENTS, TEXT, CODE = "contents ", "text ", "code "
"""Begin what is kept of a container, a text, and code whose source is not kept; a digest follows."""
SETTING = "setting "
"""Begins the label of a setting of the process that is not as a process begins with; its name follows."""
CHANGES = "the code changes it"
"""What is said of a value that was not the same at the end of the run: it is no input, so it is not compared."""


def variable_of(label: str) -> str:
    """The part of a label that changes together: ``cfg`` of ``cfg['size']``, ``net.cfg`` of ``net.cfg['size']``."""
    return label.partition("[")[0]


def changing_variables(values: Iterable[Value]) -> dict[str, str]:
    """Variable -> in words that the code changes it, of those that are read by a plain name."""
    return {label: why for label, _, why in values if why == CHANGES and label.isidentifier()}


def same_values(then: Sequence[Value] | None, now: Sequence[Value]) -> bool:
    """Whether one code found the same values both times, as far as both were recorded."""
    if then is None:
        return True
    changing = _changing(then)
    before, here = ({v[0]: v[1] for v in one if variable_of(v[0]) not in changing} for one in (then, now))
    return before == here


def changes_of(then: Sequence[Value] | None, now: Sequence[Value] | None, said: Iterable[str] = ()) -> Iterator[str]:
    """In words, each value that both runs recorded and that is not what it was.

    Args:
        said: variables of which a difference is told already.
    """
    left_out = {*_changing(then or ()), *_changing(now or ())}
    before, here = ({value[0]: value[1] for value in one or ()} for one in (then, now))
    told = set(said)
    for label in sorted(before.keys() ^ here.keys()):  # a setting that is not recorded is the default
        if label.startswith(SETTING) and then is not None and now is not None:
            yield _of_setting(label, before.get(label), here.get(label))
    for label in sorted(before.keys() & here.keys()):
        if label.startswith(SETTING):
            if before[label] != here[label]:
                yield _of_setting(label, before[label], here[label])
            continue
        root = variable_of(label)
        if before[label] == here[label] or root in left_out or root.partition(".")[0] in told or root in told:
            continue
        yield _change(label, before[label], here[label])


def uncompared(then: Sequence[Value] | None, now: Sequence[Value] | None) -> dict[str, str]:
    """Label -> why it was not, or not wholly, compared with what was recorded then, of what the code reads now.

    Args:
        then: None, of a run that recorded no values.
        now: None, of a run that recorded none and tells nothing of what it read.
    """
    if now is None:
        return {}
    if then is None:
        return {label: "not recorded then" for label, _, _ in now}
    changing = _changing(then)
    found = {variable_of(label): CHANGES for label, _, _ in now if variable_of(label) in changing}
    return found | {label: why for label, _, why in now if why and variable_of(label) not in changing}


def words_for(found: dict[str, str]) -> str:
    """``Not compared: `f` (TextIOWrapper), `log` (the code changes it)``; at most six are named."""
    shown = [f"`{label}` ({why})" for label, why in list(found.items())[:6]]
    more = [f"{len(found) - len(shown)} more"] if len(found) > len(shown) else []
    return f"Not compared: {', '.join([*shown, *more])}"


def _changing(values: Iterable[Value]) -> set[str]:
    return {variable_of(label) for label, _, why in values if why == CHANGES}


def _of_setting(label: str, before: str | None, now: str | None) -> str:
    """A setting that is not recorded was as a process begins with."""
    return f"{label.removeprefix(SETTING)} was {before or 'the default'}, is {now or 'the default'}"


def _change(label: str, before: str, now: str) -> str:
    for kind, words in ((CONTENTS, "holds other values"), (TEXT, "is a different text"), (CODE, "was edited")):
        if before.startswith(kind) and now.startswith(kind):
            return f"`{label}` {words}"
    told = ("a text" if t.startswith(TEXT) else "a container" if t.startswith(CONTENTS) else t for t in (before, now))
    return "`{}` was {}, is {}".format(label, *told)
