"""What kept the cores from the code: one kind for each verdict of ``--concurrency``, see `profiling.cores.verdict`.

They are about the whole cell and name no line. Each speaks for its verdict alone, so at most one of them does; where
others had the cores it is `contended`, and of the code nothing else is said then. While a device
works or is waited for, nothing is at stake.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torchbench_magic import units
from torchbench_magic.profiling.cores.verdict import OTHERS, Concurrency, CoreVerdict
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.result_base import Cure, Insight

from .evidence import LEAST_SECONDS, LEAST_SHARE, stake_text

_OF_PROCESSES = 0.25
"""Share of what was wanted, from which on processes below are named as those that want it."""


def oversubscribed(profile: Profile) -> list[Insight]:
    """More own threads wanted a core than there are. At stake: the part of the threads' time that was waiting.

    What fewer threads save is not told: with 4 and 8 torch threads on 2 cores it was 1.4 and 1.6 times that, with a
    pool of 4 and 8 workers nothing, since the cores were never without work.
    """
    seen = _seen(profile, "oversubscribed")
    if seen is None:
        return []
    use = seen.use
    stake = profile.wall_time * use.wait / use.wanted
    who = "threads"
    if use.below >= _OF_PROCESSES * use.wanted:
        below = "1 process" if use.processes == 1 else f"{units.count(use.processes)} processes"
        who = f"threads of this process and of {below} below it"
    others = f" (other processes used {_mean(use.outside)} meanwhile)" if use.outside >= OTHERS * use.cores else ""
    said = (
        f"{_mean(use.wanted)} {who} wanted one of {_cores(use.cores)}{others}, and waited for it"
        f" {units.percent(use.wait / use.wanted)} % of that time: fewer may be faster; compare thread counts."
    )
    return [replace(each, text=said) for each in _insight(profile, seen, said, stake, _fewer(seen))]


def contended(profile: Profile) -> list[Insight]:
    """Others had the cores. At stake: the part of the threads' time that was waiting."""
    seen = _seen(profile, "contended")
    if seen is None:
        return []
    use = seen.use
    stake = profile.wall_time * use.wait / use.wanted
    text = f"Other processes used {_mean(use.outside)} of {_cores(use.cores)} meanwhile: this costs"
    again = Cure(
        "Profile again when they have ended: other findings here may be caused by them. `%tdoctor` names them."
    )
    return _insight(profile, seen, text, stake, (again,))


def gil_bound(profile: Profile) -> list[Insight]:
    """Threads take turns at the interpreter's lock. At stake: what running side by side on free cores would save."""
    cures = (
        Cure("Use processes: `concurrent.futures.ProcessPoolExecutor`, or `num_workers` of a DataLoader."),
        Cure("Use torch or NumPy operations, which release the lock."),
    )
    return _turns(profile, "gil-bound", "Python's interpreter lock", " instead of running in parallel", cures)


def lock_bound(profile: Profile) -> list[Insight]:
    """The same at another lock."""
    cures = (
        Cure("Hold the lock for less time: compute outside it, and take it only to store the result."),
        Cure("Give each thread its own data, and combine the results at the end."),
    )
    return _turns(profile, "lock-bound", "a lock", "", cures)


def serial(profile: Profile) -> list[Insight]:
    """One thread at a time. At stake: what all cores would save of that time, at the best."""
    seen = _seen(profile, "serial")
    if seen is None:
        return []
    use = seen.use
    alone = max(use.alone - use.idle, 0.0)
    stake = profile.wall_time * alone * (1 - 1 / use.cores)
    took = f"{units.percent(alone)} % of the time"
    text = f"One thread at a time worked for {took}, on one of {_cores(use.cores)}: this costs"
    cures = []
    if 0 < seen.torch_threads < use.cores:
        cures.append(_set_threads(use.cores, f"torch uses {seen.torch_threads} of {_cores(use.cores)}: give it more."))
    cures += [
        Cure("Replace Python and loops of small operations by operations on whole tensors: these use all cores."),
        Cure("Some operations always run on one core, such as `index_add_` and `scatter_add_` on the CPU."),
    ]
    return _insight(profile, seen, text, stake, tuple(cures))


def waiting(profile: Profile) -> list[Insight]:
    """No thread wanted a core for part of the time. At stake: that part."""
    seen = _seen(profile, "waiting")
    if seen is None:
        return []
    most = max(0.0, 1 - seen.use.wanted / max(1, min(seen.use.threads, seen.use.cores)))  # looks come now and then
    idle = most if math.isnan(seen.use.idle) else min(most, seen.use.idle)
    none = f"No thread wanted a core for {units.percent(idle)} % of the time"
    text = f"{none}: waiting for files, the network, sleep or other processes costs"
    cures = (
        Cure("Load while the code computes: `num_workers`, `prefetch_factor` of a DataLoader."),
        Cure("Or read in your own threads: they release the interpreter lock while they wait."),
    )
    return _insight(profile, seen, text, profile.wall_time * idle, cures)


def throttled(profile: Profile) -> list[Insight]:
    """The quota stopped the code. At stake: the share of the periods in which it did, at the most."""
    seen = _seen(profile, "throttled")
    if seen is None:
        return []
    share = seen.use.throttled
    text = (
        f"The CPU quota of this container stopped the code in {units.percent(share)} % of its periods"
        f" ({_cores(seen.use.cores)} usable): this costs"
    )
    cures = (
        _set_threads(seen.use.cores, "Use as many threads as the quota has cores."),
        Cure("Raise the quota (`docker run --cpus`, `resources.limits.cpu`)."),
    )
    return _insight(profile, seen, text, profile.wall_time * share, cures)


def _seen(profile: Profile, verdict: CoreVerdict) -> Concurrency | None:
    seen = profile.concurrency
    return seen if seen is not None and seen.verdict == verdict else None


def _insight(profile: Profile, seen: Concurrency, text: str, stake: float, cures: tuple[Cure, ...]) -> list[Insight]:
    stake = min(stake, profile.wall_time * (1 - seen.use.device))  # what a device takes meanwhile is not saved
    if not stake >= max(LEAST_SECONDS, LEAST_SHARE * profile.wall_time):
        return []
    proof = Cure("Check it: compare the same code at other thread counts.", seen.proof_line or None)
    said = f"{text} {stake_text(stake, profile.wall_time)}."
    share = stake / profile.wall_time
    return [Insight(seen.verdict, stake, share, said, seen.evidence, (), (*cures, proof) if seen.proof else cures)]


def _turns(profile: Profile, verdict: CoreVerdict, lock: str, instead: str, cures: tuple[Cure, ...]) -> list[Insight]:
    """At stake: of those who run and those who wait for their turn, as many side by side as there are cores."""
    seen = _seen(profile, verdict)
    if seen is None:
        return []
    waited = seen.use.gil if verdict == "gil-bound" else seen.use.lock
    text = f"{_mean(waited)} threads waited for {lock} while one ran: taking turns{instead} costs"
    side_by_side = min(float(seen.use.cores), max(seen.use.run, 1.0) + waited)
    stake = profile.wall_time * (1 - max(seen.use.run, 1.0) / side_by_side) if side_by_side > 1 else 0.0
    return _insight(profile, seen, text, stake, cures)


def _fewer(seen: Concurrency) -> tuple[Cure, ...]:
    """By what made the threads: torch's own number, processes below, or Python's threads that call torch each."""
    use, cures = seen.use, []
    if seen.torch_threads > use.cores:
        text = f"torch uses {seen.torch_threads} threads: use one per core."
        cures.append(_set_threads(use.cores, text))
    if use.below >= _OF_PROCESSES * use.wanted and use.processes > use.cores:
        said = f"Run at most {use.cores} processes at once: `num_workers={use.cores}` of a DataLoader."
        cures.append(Cure(said))
    if use.below >= _OF_PROCESSES * use.wanted and use.threads > use.processes + 1:
        one = "DataLoader(..., worker_init_fn=lambda worker: torch.set_num_threads(1))"
        cures.append(Cure("Use one thread in each child process:", one))
    if not cures:
        each = "torch.set_num_threads(1)  # first, in the function that each thread of the pool runs"
        cures.append(Cure("Each thread of a pool has its own torch threads: set one inside each worker.", each))
        cures.append(Cure(f"Or run at most {use.cores} at once: `ThreadPoolExecutor({use.cores})`."))
    return tuple(cures)


def _set_threads(count: int, text: str) -> Cure:
    return Cure(text, f"torch.set_num_threads({count})", f"threads:{count}")


def _mean(value: float) -> str:
    return units.number(value, units.Scale(places=1), digits=None)


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{units.count(count)} cores"
