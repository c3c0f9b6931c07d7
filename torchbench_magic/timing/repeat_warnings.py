"""Calls that did not do the code's work, mostly because the first call did it: the doubt, and the verdicts it takes
away."""

from __future__ import annotations

from collections.abc import Sequence

from torchbench_magic import units
from torchbench_magic.result_base import Doubt

from .samples import Subject

KIND = "used-up"
RECORDED = ("less", "more", "other", "fed", "lazy", "alive", "kept", "rare")
"""How recorded calls take a verdict away: with evidence in place of a name."""
_NAMED = 3
"""Alternatives that are named."""

_SAID = {
    "before": "`{0}` was used up before the first call: calls had nothing to do",
    "less": "later calls{1} did not do the work of the first: {0}",
    "more": "each call{1} does more than the one before: {0}",
    "other": "calls{1} do other work than from the state that setup left: {0}",
    "fed": "calls{1} found no gradients, since each alternative has its own: {0}",
    "lazy": "each call{1} {0}, and what that does later is not timed",
    "alive": "a call{1} does less while what the one before it bound is alive, which it is within a block of calls"
    " only: {0}",
    "kept": "calls{1} would do other work if they went on from each other, as in a loop: {0}",
    "rare": "some calls{1} may do more than this run has time for: {0}",
    "shared": "one alternative changes `{0}`, and another was timed with the change",
    "global": "one alternative changes `{0}`, and another was timed with the change",
    "own": "the code assigns to {0} reads the global of that name, which did not change",
    "setup": "setup assigns to {0} reads the notebook's variable, which did not change",
    "axis": "the sweep sets {0} reads the notebook's variable, which did not change",
    "drawn": "the fuzzer sets {0} reads the notebook's variable, which did not change",
}
_DONE = {
    "before": "Create it in the body (`gen = ...`); `--restore` works if it can be copied (not for a generator).",
    "less": "Create or fill in the code what a call uses up or keeps, or give `--restore`, which puts it back before"
    " each call. To time the later state, run the code once in setup.",
    "more": "Create or copy it in the code, so that every call starts from the same state.",
    "other": "Set it in the code of each alternative, or give each an object of its own, so that every call starts from"
    " the same state.",
    "fed": "Make the gradients in setup or in the code, or time both in one alternative.",
    "lazy": "Use it, or wait for it, in the code: `list(...)`, `await`, `.result()`, `.join()`. To time only how an"
    " iterator is made, give it a name.",
    "alive": "To time calls that find it, keep it by a name in setup; to time calls that make it, end the code with"
    " `del` of the name.",
    "kept": "To time calls that go on, keep the value in an object, which is not put back; to time each from the same"
    " start, give `--restore`.",
    "rare": "Time what they do by itself, or give `--max-run-time` some hundred times as long as it takes for all of"
    " them to come once.",
    "shared": "Set it in each alternative, or give each an object of its own in the setup section (`copy.deepcopy`; an"
    " optimizer is made anew, for the parameters of the copy).",
    "global": "Set it at the start of each alternative, or restore it at the end of the one that changes it.",
    "own": "Pass it as an argument, or define the function in the code.",
    "setup": "Pass it as an argument, or define the function in the setup section.",
    "axis": "Pass it as an argument, or define the function in the setup section.",
    "drawn": "Pass it as an argument, or define the function in the setup section.",
}
_DONE_BESIDE_RESTORE = {
    "before": "Create it in the body (`gen = ...`).",
    "less": "Create or fill in the code what a call uses up or keeps: `--restore` did not put it back before each call."
    " To time the later state, run the code once in setup.",
}
"""What to do where ``--restore`` was given."""


_FAILED = {
    "ended": ("`{0}` was used up{1} and has no items left", "Make it in the code, where `next(iter(...))` starts anew"),
    "read": ("`{0}` was read to its end{1}", "Open it in the code"),
    "empty": ("`{0}` was emptied{1} and has no items left", "Fill it in the code"),
    "graph": (
        "The graph was used up by its first backward pass",
        "Give `retain_graph=True`, or, if setup made it, time forward and backward together",
    ),
}
"""How something is used up -> what to say under the exception of a call that needs it, and what to do."""
_NOT_THE_FIRST = (
    "The first call worked; a later call in the timing loop failed. Each call finds the objects as"
    " earlier calls left them: create what they use up in the code itself."
)

OWN_ERROR = "This is an error of torchbench_magic, not of the code."


def not_looked_at(error: Exception) -> Doubt:
    """That nobody knows whether later calls did the work of the first, since the look at them failed."""
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    text = f"Whether later calls do the work of the first is not known: the check failed ({what})."
    return Doubt("not-checked", text, f"{OWN_ERROR} The times do not depend on it.")


def why_it_failed(
    found: tuple[str, str, bool] | None, calls: int, *, repeats: bool, goes_on: Sequence[str] = ()
) -> str:
    """What to say of an exception such as the IndexError of ``numbers.pop()``, which is the user's otherwise; empty
    where nothing is.

    Args:
        found: how something was used up, its name, and whether ``--restore`` would help.
        calls: that had ended; 0 where nobody knows how many of them used it.
        repeats: the first calls are made.
        goes_on: names that go on from call to call, which ``--restore`` would put back.
    """
    if found is None:
        names = f" `--restore` puts {units.listed([f'`{name}`' for name in goes_on])} back before each call."
        return f"{_NOT_THE_FIRST}{names if goes_on else ''}" if repeats else ""
    how, name, is_restored = found
    clause, way = _FAILED[how]
    after = f" after {calls} call{'s' * (calls > 1)}" if calls else ""
    return f"{clause.format(name, after)}. {way}{', or give `--restore`' if is_restored else ''}."


def said(subjects: Sequence[Subject]) -> list[str]:
    """A clause for each thing used up, names in backticks."""
    return [what_happened(how, name, _whose(subjects, rows)) for (how, name), rows in _rows(subjects).items()]


def doubts_of_subjects(subjects: Sequence[Subject], *, restore: bool = False) -> list[Doubt]:
    """One doubt for each thing used up, with the ``rows`` it is about and those that it ``voids``.

    Args:
        restore: state was put back before each block, and that was no help.
    """
    done = {**_DONE, **(_DONE_BESIDE_RESTORE if restore else {})}
    return [
        Doubt(
            KIND,
            clause + ("; these times give no verdict." if len(subjects) > 1 else "."),
            done.get(how, "").format(name),
            {"name": name, "how": how, "rows": rows, "voids": rows},
        )
        for clause, ((how, name), rows) in zip(said(subjects), _rows(subjects).items(), strict=True)
    ]


def _rows(subjects: Sequence[Subject]) -> dict[tuple[str, str], list[int]]:
    """(how, name) -> rows. What recorded calls showed of several rows, of each in its own numbers, is one: the first
    evidence stands for all."""
    rows: dict[tuple[str, str], list[int]] = {}
    evidence: dict[str, str] = {}
    for row, subject in enumerate(subjects):
        for how, name in subject.used_up:
            first = evidence.setdefault(how, name) if how in RECORDED else name
            rows.setdefault((how, first), []).append(row)
    return rows


def _whose(subjects: Sequence[Subject], rows: Sequence[int]) -> str:
    """`` of `one` and `other` `` where not all alternatives are meant."""
    every = dict.fromkeys(subject.description for subject in subjects if subject.description)
    names = list(dict.fromkeys(subjects[row].description for row in rows if subjects[row].description))
    if len(every) < 2 or len(names) == len(every) > 2:
        return ""
    shown = [f"`{name}`" for name in names[:_NAMED]] + [f"{len(names) - _NAMED} more"] * (len(names) > _NAMED)
    return f" of {units.listed(shown)}"


def what_happened(how: str, name: str, whose: str = "") -> str:
    """What happened to it, as a clause that begins with a capital; ``how`` as `Subject.used_up` has it, ``whose`` as
    in `` of `one` ``."""
    text = _SAID.get(how, "`{0}` left nothing to do for later calls").format(name, whose)
    return text[0].upper() + text[1:]
