"""``%tcompare``: kept and stored results side by side."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import line_magic, magics_class, no_var_expand

from torchbench_magic.errors import OptionError

from .option_parser import describe, documented, read_words
from .options import CompareOptions
from .session import SessionMagics, one_line_errors

if TYPE_CHECKING:
    from torchbench_magic.profiling.diff import ProfileDiff
    from torchbench_magic.profiling.profile import Profile
    from torchbench_magic.storage.store import Store
    from torchbench_magic.timing.comparison import Comparison

_HELP = f"""Compare results, whenever they were measured.

::

    %tcompare NAME|PATH ... [--baseline NAME] [--by description|env]
    %tcompare [NAME] [PATH] --last

NAME is a variable that holds a Comparison, a list of them (`runs`, `runs[-1]`), torch Measurements, or a Profile; PATH
is a file that --save wrote. Alternatives that were measured side by side keep their ratios. Rows of different runs are
`undecided` until both sides are known to repeat within a range: by 20 s of samples, or by four stored runs. If the
runs come from several sessions, the ratio over them is given too, as `%%timer --processes` measures it in one
run. The result is a Comparison: it is returned, shown, and kept as `_tcompare`.

Two profiles (`%tcompare before after`, the first is the baseline) give a ProfileDiff: time and bytes per line and per
op side by side. Lines are matched by source, in edited code by their text.

Options (anywhere in the line; `--` ends them):

{describe(CompareOptions)}
"""

_ITEM = re.compile(r"([^\W\d]\w*)(\[[^\]]*\]|\.[^\W\d]\w*)+")


@magics_class
class CompareMagics(SessionMagics):
    """The magic that compares what was measured."""

    @no_var_expand
    @line_magic
    @documented(_HELP)
    def tcompare(self, line: str) -> Comparison | ProfileDiff:
        with one_line_errors():
            options, words = read_words(CompareOptions, "%tcompare", line, self._session.settings.defaults())
            self._session.check_target(options.output)
            with self._session.delivering("tcompare", options) as delivery:
                delivery.result = self._since_last(options, words) if options.last else self._together(options, words)
        return delivery.result

    def _together(self, options: CompareOptions, words: list[str]) -> Comparison | ProfileDiff:
        from torchbench_magic.timing.across_runs import side_by_side
        from torchbench_magic.timing.comparison import Comparison

        if not words:
            raise OptionError("%tcompare needs results: give variables that hold one, or results files")
        results: dict[str, Comparison | Profile] = {}
        for word in words:
            found = self._held(word) if self._is_variable(word) else _stored(word)
            for name, result in found.items():
                if name in results:
                    raise OptionError(f"%tcompare: {name} is given twice")
                results[name] = result
        timings = {name: result for name, result in results.items() if isinstance(result, Comparison)}
        if not timings:
            return _two_profiles(results, options)  # type: ignore[arg-type]  # all are profiles
        if len(timings) < len(results):
            others = ", ".join(name for name in results if name not in timings)
            raise OptionError(f"%tcompare: {others} holds a profile, the others timings: compare results of one kind")
        return side_by_side(timings, baseline=options.baseline, by=options.by)

    def _since_last(self, options: CompareOptions, words: list[str]) -> Comparison | ProfileDiff:
        from torchbench_magic.profiling.profile import Profile
        from torchbench_magic.timing.across_runs import since_last

        if options.baseline is not None or options.by != "description":
            raise OptionError("%tcompare --last compares with the last stored run: leave out --baseline and --by")
        held = [word for word in words if self._is_variable(word)]
        store = self._store([word for word in words if word not in held])
        current = self._current(held, store)
        if isinstance(current, Profile):
            return _since_last_profile(current, store)
        last = {}
        ranges: dict[int, Any] = {}
        found = store.last(current)
        for row, (record, there) in found.items():
            if id(record) not in ranges:
                ranges[id(record)] = store.history(record)
            last[row] = replace(record, history=ranges[id(record)]), there
        now = replace(current, history=store.history(current))
        return since_last(now, last)

    def _store(self, paths: list[str]) -> Store:
        from torchbench_magic.storage.store import Store

        path = paths[0] if paths else self._session.settings.store
        if len(paths) > 1 or not path:
            raise OptionError(
                "%tcompare --last needs one file of results: give its PATH, or set %config TorchBench.store"
                if not path
                else f"%tcompare --last takes one result and one file: {', '.join(paths)} are several"
            )
        return Store(path)

    def _current(self, names: list[str], store: Store) -> Comparison | Profile:
        """The result that ``--last`` is about: the one named, else ``_timer``, else the newest stored one (a timing
        where there is one)."""
        from torchbench_magic.timing.comparison import Comparison

        if not names:
            kept = self._session.shell.user_ns.get("_timer")
            if isinstance(kept, Comparison):
                return kept
            stored: list[Any] = list(store.comparisons() or store.results())
            if not stored:
                raise OptionError(f"%tcompare --last: {store.path} has no results yet")
            _refuse_ranks(str(store.path), stored[-1])
            return stored[-1]
        results = [result for name in names for result in self._held(name).values()]
        if len(results) != 1:
            raise OptionError(f"%tcompare --last compares one result, not {len(results)}: give one, such as runs[-1]")
        return results[0]

    def _is_variable(self, word: str) -> bool:
        """Whether the word names something of the notebook; a variable goes before a file of the same name."""
        names = self._session.shell.user_ns
        if word in names:
            return True
        item = _ITEM.fullmatch(word)
        return item is not None and item[1] in names and not Path(word).exists()

    def _held(self, word: str) -> dict[str, Comparison | Profile]:
        """Name -> result, of a variable or of an item such as ``runs[-1]``."""
        from torch.utils.benchmark import Measurement

        from torchbench_magic.profiling.profile import Profile
        from torchbench_magic.storage.torch_pickles import comparison_of_measurements
        from torchbench_magic.timing.comparison import Comparison

        names = self._session.shell.user_ns
        try:
            value = names[word] if word in names else eval(word, names)
        except Exception as error:  # noqa: BLE001  (the user's expression raises anything)
            raise OptionError(f"%tcompare {word}: {type(error).__name__}: {error}") from None
        _refuse_ranks(word, value)
        if isinstance(value, Comparison | Profile):
            return {word: value}
        items = [value] if isinstance(value, Measurement) else value
        if isinstance(items, list | tuple) and items:
            for item in items:
                _refuse_ranks(word, item)
            if all(isinstance(item, Comparison | Profile) for item in items):
                return {f"{word}[{at}]": item for at, item in enumerate(items)}
            if all(isinstance(item, Measurement) for item in items):
                return {word: comparison_of_measurements(items)}
        raise OptionError(f"%tcompare: {word} holds a {type(value).__name__}, not a result")


def _refuse_ranks(name: str, value: object) -> None:
    from torchbench_magic.cluster.job_profile import RankProfile

    if isinstance(value, RankProfile):
        raise OptionError(
            f"%tcompare: {name} holds a job of several ranks, which cannot be compared as a whole: store the same rank"
            " of two jobs in variables (a = one.profiles[0], b = other.profiles[0]) and compare these"
        )


def _two_profiles(profiles: dict[str, Profile], options: CompareOptions) -> ProfileDiff:
    """The difference of two profiles; the first is the baseline, unless ``--baseline`` names the second."""
    from torchbench_magic.profiling.diff import ProfileDiff

    if len(profiles) != 2:
        raise OptionError(f"%tcompare puts two profiles side by side, not {len(profiles)}: {', '.join(profiles)}")
    if options.by != "description":
        raise OptionError("%tcompare --by is for timings: leave it out for two profiles")
    if options.baseline is not None and options.baseline not in profiles:
        raise OptionError(f"--baseline {options.baseline}: the profiles are {' and '.join(profiles)}")
    first, second = profiles
    if options.baseline == second:
        first, second = second, first
    return ProfileDiff(profiles[first], profiles[second], (first, second))


def _since_last_profile(profile: Profile, store: Store) -> ProfileDiff:
    from torchbench_magic.profiling.diff import ProfileDiff
    from torchbench_magic.result_base import Doubt

    last = store.last_profile(profile)
    if last is None:
        raise OptionError(
            f"%tcompare --last: {store.path} holds no other profile of this code at {profile.num_threads} threads;"
            " to compare other code, name two profiles"
        )
    names = "last stored run", "this run"
    inputs = ", its inputs" if ProfileDiff(last, profile, names).has_same_inputs else ""
    text = f"The cell's text{inputs} and the number of threads are the same in both."
    return ProfileDiff(last, profile, names, (Doubt("same-code", text),))


def _stored(path: str) -> dict[str, Comparison | Profile]:
    """Name -> result, of a file of results."""
    from torchbench_magic.storage.store import Store

    store = Store(path)
    if not store.path.exists():
        raise OptionError(f"%tcompare: there is no variable and no file named {path}")
    results: list[Any] = store.results()
    name = store.path.name
    for one in results:
        _refuse_ranks(name, one)
    return {name: results[0]} if len(results) == 1 else {f"{name}[{at}]": one for at, one in enumerate(results)}
