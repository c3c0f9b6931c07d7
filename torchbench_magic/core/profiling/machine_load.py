"""What a profile says of the machine that its body ran on: that threads waited for a core, and who had it."""

from __future__ import annotations

import math

from torchbench_magic.core.machine.contention import contention_between
from torchbench_magic.core.machine.waiting_for_cores import CoreWait
from torchbench_magic.results.doubts import Doubt
from torchbench_magic.results.machine.contention import Contention
from torchbench_magic.results.machine.load_doubts import THROTTLED, machine_doubts, oversubscribed_text
from torchbench_magic.results.timing.voided_verdicts import CO_LOAD
from torchbench_magic.units import seconds_text

__all__ = ["doubts_of_load"]

_SHARE, _LEAST = 0.25, 1e-3
"""Of the wall time, and in seconds: from which on waiting for a core is said.

Of 60 profiles of 30 kinds in idle moments of two cores, 55 had less than 3 %, one had 9 %, and four that started
DataLoader workers had 9 to 20 %. A thread that waits a third of its time takes 1.5 times as long.
"""
_AGAIN = "Profile it again on a quiet machine."


def doubts_of_load(load: CoreWait | None, num_threads: int) -> list[Doubt]:
    """Nothing where threads of this process hardly waited for a core, or where that is not known.

    Args:
        num_threads: torch's threads.
    """
    if load is None or load.wall <= 0:
        return []
    seen = contention_between(load.spent)
    steal = seen.steal if seen.steal >= _SHARE else math.nan
    found = list(machine_doubts(steal, seen.throttled, math.nan, "Profile it again later."))
    waited = load.spent.waited
    if waited >= _LEAST and waited >= _SHARE * load.wall and not seen.throttled > THROTTLED:
        found = [_waited(load, seen, num_threads), *found]
    return found


def _waited(load: CoreWait, seen: Contention, num_threads: int) -> Doubt:
    """Who had the cores that threads waited for, as far as that is known."""
    together = " in all" if load.active > 1 else ""
    waited = f"threads of this process waited {seconds_text(load.spent.waited)}{together} for a core"
    waited = f"{waited} while this code ran for {seconds_text(load.wall)}"
    stands = "The times are wall time and include this waiting."
    facts: dict[str, object] = {
        "waited": load.spent.waited,
        "wall_time": load.wall,
        "ext": seen.ext,
        "threads": load.active,
        "cores": load.cores,
    }
    if seen.ext >= CO_LOAD:
        others = f"Other processes used {min(seen.ext, load.cores):.1f} of {load.cores} cores."
        return Doubt("busy", f"Busy machine: {waited}. {others} {stands}", _AGAIN, facts)
    if math.isnan(seen.ext):
        several = num_threads > load.cores or load.active > load.cores
        unknown = "The run is too short to tell whether other processes or its own threads used the cores. "
        return Doubt("busy", f"Busy machine: {waited}. {unknown if several else ''}{stands}", _AGAIN, facts)
    if num_threads > load.cores:
        first = oversubscribed_text(str(num_threads), load.cores)
    else:
        first = "Oversubscribed: this process's own threads, or processes it started, used the cores."
    text = f"{first} {waited[0].upper()}{waited[1:]}, while other processes used almost nothing. {stands}"
    return Doubt("oversubscribed", text, _fewer(num_threads, load.cores), facts)


def _fewer(num_threads: int, cores: int) -> str:
    fewer = cores if num_threads > cores else max(1, num_threads // 2)
    return f"Use fewer threads (`--threads {fewer}`)." if fewer < num_threads else "Run fewer threads at once."
