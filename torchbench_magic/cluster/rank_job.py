"""A cell as a job on engines: every engine is a rank, every rank is profiled, one `RankProfile` comes back."""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import CodeType
from typing import Any

from torchbench_magic import units
from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import InputError, Interrupted
from torchbench_magic.process.interrupts import NO_PROGRESS, Progress, hear_interrupt
from torchbench_magic.process.send import Parcel
from torchbench_magic.process.sent_errors import raised_there
from torchbench_magic.profiling.options import ProfileOptions
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import Doubt
from torchbench_magic.storage.records import PackedColumn, Record, encoded, profile_of, unpack_columns

from .engines import Answer, Asking, Cluster, Engine, is_here, own_folders, pack_names, probe, why_not
from .job_profile import RankProfile
from .rank_analysis import RankFacts, profile_of_ranks
from .rank_clocks import RankClock
from .rank_on_engine import GIVEN
from .rank_traces import run_of_profile

DEADLOCK = 30.0
"""Seconds in which every rank that has not ended stands in a collective and uses no processor: then nobody will come.
Data on their way use it."""
_MODULE = "torchbench_magic.cluster.rank_on_engine"
_CONSEQUENCES = ("Connection closed by peer", "Connection reset by peer", "gloo")
"""In the text of what a rank raises because another one has ended."""


@dataclass(frozen=True, kw_only=True)
class RankCell:
    """What is to run on each rank.

    Attributes:
        body: the cell, IPython's syntax transformed; ``flags``: of its compiler.
        codes: of the cell, for the names that it reads.
        text_of: file -> its cell.
        options: of the profile.
        shows_value: the value of the last expression is printed.
    """

    body: Body
    flags: int
    codes: Sequence[CodeType]
    namespace: Mapping[str, Any]
    text_of: Callable[[str], CellText | None]
    options: ProfileOptions
    shows_value: bool = True


@dataclass(frozen=True)
class RankOutcome:
    """What a job gave.

    Attributes:
        profile: of the ranks that came back; None where none did.
        error: what ended it early, to be raised; None where all ran to their end.
        lines: (file, line, function) that it came through on its rank; see `raise_at`.
        printed: by each rank; the profile, where there is one, has it too.
    """

    profile: RankProfile | None
    error: BaseException | None = None
    printed: Mapping[int, str] = field(default_factory=dict)
    lines: Sequence[tuple[str, int, str]] = ()


@dataclass
class _Run:
    """A job under way: rank -> its engine, what it answered, and where it waited when a deadlock was found."""

    engines: Sequence[Engine]
    world_size: int
    rank_of: Mapping[int, int]
    answers: dict[int, Answer] = field(default_factory=dict)
    deadlock: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    interrupted: bool = False

    def take(self, answers: Sequence[Answer]) -> None:
        for each in answers:
            self.answers[self.rank_of[each.engine.id]] = each


def profile_on_engines(cluster: Cluster, cell: RankCell, progress: Progress = NO_PROGRESS) -> RankOutcome:
    """Run the cell on all engines that can serve, as the ranks of one job.

    A rank that fails, a deadlock and a Ctrl-C end it early: what came back until then is the profile.

    Raises:
        InputError: no engine can serve, one cannot begin, or a name cannot travel; nothing ran.
    """
    names = pack_names(cell.codes, cell.namespace, given=GIVEN)
    engines, doubts = _serving(cluster, names)
    asking = Asking(cluster)
    try:
        made = _prepared(asking, engines, cell, names)
        run, store = _ranks(engines, made)
        hosts = {engine.place for engine in engines}
        for engine in engines:
            asked = {"rank": run.rank_of[engine.id], "world_size": run.world_size, "store": store}
            asking.ask(engine, f"{_MODULE}:run_rank", {**asked, "several_hosts": len(hosts) > 1})
        _follow(asking, run, progress)
    finally:
        if not asking.pending:
            _end(cluster, asking, engines)
    return _outcome(run, names, doubts)


def pack_cells(files: Iterable[str], text_of: Callable[[str], CellText | None]) -> list[dict[str, Any]]:
    """The cells among ``files``, as plain values, so that lines there stand on ``In[n]``."""
    texts = {file: text_of(file) for file in sorted(set(files))}
    shown = {file: list(linecache.getlines(file)) for file in texts}  # as compiled, or as seen under a magic
    return [{"text": asdict(text), "lines": shown[file]} for file, text in texts.items() if text is not None]


def _sent_text(sizes: Mapping[str, int]) -> str:
    """``sent: model 1.2 MB, batch 3 kB``; empty where nothing is."""
    shown = sorted(sizes.items(), key=lambda each: -each[1])
    parts = [f"{name} {units.bytes_text(size)}" for name, size in shown[:4]]
    more = f", {len(shown) - 4} more" if len(shown) > 4 else ""
    return f"sent: {', '.join(parts)}{more}" if parts else ""


def _serving(cluster: Cluster, names: Parcel) -> tuple[list[Engine], list[Doubt]]:
    found = probe(cluster)
    if not found:
        raise InputError(f"--engines {cluster.name}: the cluster has no engines; start some: ipcluster engines -n 2")
    reasons = {each: why_not(each, has_code=names.has_code) for each in found}
    fit = [each for each, why in reasons.items() if not why]
    left = "; ".join(f"{each.title} {why}" for each, why in reasons.items() if why)
    if not fit:
        raise InputError(f"--engines {cluster.name}: no engine can serve: {left}")
    if not left:
        return fit, []
    ranks = f"{len(fit)} rank{'s' if len(fit) != 1 else ''}"
    return fit, [Doubt("engines-left-out", f"The job had {ranks}, without engines that cannot serve: {left}.")]


def _prepared(asking: Asking, engines: Sequence[Engine], cell: RankCell, names: Parcel) -> dict[int, Mapping[str, Any]]:
    """What each engine tells when it is ready.

    Raises:
        InputError: one cannot begin.
    """
    asked = {
        "body": asdict(cell.body),
        "flags": cell.flags,
        "names": names.data,
        "cells": pack_cells([cell.body.file, *names.files], cell.text_of),
        "options": encoded(cell.options),
        "shows_value": cell.shows_value,
    }
    for at, engine in enumerate(engines):
        folders = own_folders() if is_here(engine) else []
        asking.ask(engine, f"{_MODULE}:prepare", {**asked, "folders": folders, "first": at == 0})
    told = {}
    for answer in asking.answers():
        wrong = answer.said if answer.kind != "value" else answer.value["wrong"]
        if wrong:
            raise InputError(f"{answer.engine.title}: {wrong}")
        told[answer.engine.id] = answer.value
    return told


def _ranks(engines: Sequence[Engine], made: Mapping[int, Mapping[str, Any]]) -> tuple[_Run, dict[str, Any]]:
    """Which engine is which rank, and the store of the group that is to be made: none where the user has a group.

    Raises:
        InputError: the user's groups are not of these engines.
    """
    groups = {each: told["group"] for each, told in made.items()}
    if not any(groups.values()):
        first = made[engines[0].id]
        one_host = len({engine.place for engine in engines}) == 1
        store = {"folder": first["folder"]} if one_host else {"address": first["address"], "port": first["port"]}
        return _Run(engines, len(engines), {engine.id: n for n, engine in enumerate(engines)}), store
    ranks = {each: group[0] for each, group in groups.items() if group}
    sizes = {group[1] for group in groups.values() if group}
    if sizes != {len(engines)} or sorted(ranks.values()) != list(range(len(engines))):
        raise InputError(
            f"{len(ranks)} of {len(engines)} engines are in a process group of your own, of {max(sizes)} ranks: create"
            " it on all engines, or end it with torch.distributed.destroy_process_group()"
        )
    return _Run(engines, len(engines), ranks), {}


def _follow(asking: Asking, run: _Run, progress: Progress) -> None:
    """Until all are back: what they tell goes to the reader, a deadlock and a Ctrl-C end them."""
    began = time.perf_counter()
    try:
        while asking.pending:
            hear_interrupt()
            run.take(asking.poll())
            waits = _waits(asking, run)
            count = len(run.answers)
            passed = time.perf_counter() - began
            what = f"running on {len(run.engines)} engines"
            if waits and passed > 2:
                what += f", {'; '.join(_said_wait(rank, told) for rank, told in sorted(waits.items()))}"
            progress.update(passed, None, what if not count else f"{what}, {count} have ended")
            pending = [run.rank_of[engine.id] for engine in asking.pending]
            if pending and all(waits.get(rank, {}).get("seconds", 0) >= DEADLOCK for rank in pending):
                run.deadlock = waits
                run.take(asking.interrupt())
            asking.wait()
    except KeyboardInterrupt:
        run.interrupted = True
        run.take(asking.interrupt())


def _waits(asking: Asking, run: _Run) -> dict[int, Mapping[str, Any]]:
    """Rank -> where it waits, of those that do."""
    told = {run.rank_of[engine.id]: asking.told(engine).get("waits") or {} for engine in asking.pending}
    return {rank: each for rank, each in told.items() if each.get("call")}


def _said_wait(rank: int, told: Mapping[str, Any]) -> str:
    return f"rank {rank} waits in {told['call']} at {told['place']}"


def _end(cluster: Cluster, asking: Asking, engines: Sequence[Engine]) -> None:
    """Have the engines that are there put away what was made for the job; the first one last, which removes the folder
    of the group's store: torch looks for the file as a group ends, and waits half an hour for one that has just gone.
    """
    for some in (engines[1:], engines[:1]):
        there = set(cluster.ids)
        for engine in some:
            if engine.id in there:
                asking.ask(engine, f"{_MODULE}:end_job")
        until = time.perf_counter() + 5
        while asking.pending and time.perf_counter() < until:
            asking.poll()
            asking.wait()


# ---- what came back ---------------------------------------------------------------------------------------------


def _outcome(run: _Run, names: Parcel, doubts: list[Doubt]) -> RankOutcome:
    back = {rank: answer for rank, answer in sorted(run.answers.items()) if answer.kind == "value"}
    profiles = {rank: _profile(answer.value["profile"]) for rank, answer in back.items()}
    facts = {rank: _facts(rank, run, answer) for rank, answer in back.items()}
    runs = {rank: run_of_profile(profile, facts[rank]) for rank, profile in profiles.items()}
    ended, error, lines = _ending(run)
    doubts = _of_the_lost(run, doubts)
    whole = [each for each in runs.values() if each is not None]
    if not whole:
        if error is None:
            error = InputError(_why_nothing(profiles.values()))
        said = {rank: each.stdout + each.stderr for rank, each in sorted(run.answers.items())}
        return RankOutcome(None, error, said, lines)
    made = profile_of_ranks(whole, doubts)
    ranks = [each.rank for each in whole]
    printed = tuple(run.answers[rank].stdout + run.answers[rank].stderr for rank in ranks)
    of_ranks = tuple(profiles[rank] for rank in ranks)
    made = replace(made, files=(), profiles=of_ranks, printed=printed, ended=ended, sent=_sent_text(names.sizes))
    if isinstance(error, Interrupted):
        error.partial = made
    return RankOutcome(made, error, lines=lines)


def _profile(told: Mapping[str, Any]) -> Profile:
    tables = {name: unpack_columns([PackedColumn(*c) for c in columns]) for name, columns in told["tables"].items()}
    return profile_of(Record("Profile", told["version"], told["header"], tables))


def _facts(rank: int, run: _Run, answer: Answer) -> RankFacts:
    engine, clock = answer.engine, answer.value["clock"]
    names = {each.host for each in run.engines}
    several = len(names) < len({each.place for each in run.engines})
    host = f"{engine.host} {engine.boot[:8]}" if several else engine.host
    offset, error = clock if clock is not None else (None, 0)
    return RankFacts(
        rank=rank, clock=RankClock(host, offset, error), world_size=run.world_size, backend=answer.value["backend"],
        grouped=answer.value["grouped"],
    )  # fmt: skip


def _ending(run: _Run) -> tuple[str, BaseException | None, Sequence[tuple[str, int, str]]]:
    """What ended the job early, in a sentence for the reader, and as an exception with the lines that it came through;
    what came first is named."""
    died = {rank: answer for rank, answer in run.answers.items() if answer.kind in ("died", "raised", "unsuitable")}
    if died:
        own_end = {rank: each for rank, each in died.items() if not any(text in each.said for text in _CONSEQUENCES)}
        rank, answer = min((own_end or died).items())
        text = f"Rank {rank} ended first: {answer.engine.title} {answer.said}"
        return text, InputError(f"rank {rank}: {answer.engine.title} {answer.said}"), ()
    if run.deadlock:
        seconds = min(told["seconds"] for told in run.deadlock.values())
        where = "; ".join(_said_wait(rank, told) for rank, told in sorted(run.deadlock.items()))
        ended = sorted(set(range(run.world_size)) - run.deadlock.keys())
        over = f"; rank{'s' if len(ended) > 1 else ''} {', '.join(map(str, ended))} had ended" if ended else ""
        text = f"Deadlock: for {units.seconds_text(seconds, digits=2)} no rank made progress: {where}{over}"
        return text, InputError(f"d{text[1:]}; all ranks must call the same collectives in the same order"), ()
    if run.interrupted:
        return "Interrupted: this is what the ranks did until then", Interrupted(), ()
    failed = {rank: each.value["error"] for rank, each in run.answers.items() if each.kind == "value"}
    failed = {rank: error for rank, error in failed.items() if error is not None}
    if not failed:
        return "", None, ()
    own = {rank: each for rank, each in failed.items() if not any(text in each["sent"][2] for text in _CONSEQUENCES)}
    rank, first = min((own or failed).items(), key=lambda item: item[1]["when"])
    _, kind, text, lines = first["sent"]
    line = (text.splitlines() or [""])[0]
    at = f" at `{first['place']}`" if first["place"] else ""
    error = raised_there(*first["sent"]).error
    if not isinstance(error, Exception):  # such as SystemExit, which would end the session
        error = RuntimeError(f"{kind}: {text}")
    error.add_note(f"Raised on rank {rank} (--engines).")
    return f"Rank {rank} failed first{at}: {kind}{f': {line}' if line else ''}", error, lines


def _why_nothing(profiles: Iterable[Profile]) -> str:
    if any(doubt.kind == "events-lost" for profile in profiles for doubt in profile.warnings):
        return "the cell starts a torch profiler of its own, which takes the events from this one: leave it out"
    return "the cell runs no torch operation on any rank: there is nothing to compare"


def _of_the_lost(run: _Run, doubts: Sequence[Doubt]) -> list[Doubt]:
    lost = {rank: answer for rank, answer in sorted(run.answers.items()) if answer.kind in ("lost", "interrupted")}
    made = [
        Doubt(
            "rank-not-back",
            f"Rank {rank} did not answer ({answer.engine.title}): nothing is known about it.",
            "It may still wait in a collective: run `ipcluster stop`, then restart the cluster.",
        )
        for rank, answer in lost.items()
    ]
    return [*made, *doubts]
