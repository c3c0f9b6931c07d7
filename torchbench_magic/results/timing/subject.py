"""What one measurement is of: its identity, its code, and the single facts about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..machine.contention import Contention
from ..machine.engine_place import EnginePlace
from ..machine.environment import Environment
from .intervals import Look
from .proof.trial import Trial
from .values_read import Value

__all__ = ["NEAR_LOOP", "Clock", "Language", "Subject"]

Clock = Literal["wall", "cpu", "device"]
Language = Literal["python", "c++"]

NEAR_LOOP: Mapping[Language, float] = {"python": 20e-9, "c++": 1e-9}
"""Seconds a call below which a body is near the loop's own cost (Python's is 4 ns and known to about 1 ns, C++'s is a
clock cycle or two) and gets no verdict."""


@dataclass(frozen=True)
class Subject:
    """What one measurement is of, and the single facts that belong to it. Times in seconds.

    Attributes:
        label, sub_label, description, env, num_threads, device: its identity, as in torch's TaskSpec.
        axes: (name, value) of each sweep axis at this point.
        drawn: a fuzzer drew its inputs.
        group: measurements of one group were sampled side by side and share their round numbers.
        look: whether the run was free to stop at any time ("anytime") or looked once, at its end ("once").
        stmt, setup, global_setup: the code.
        language: of the code; ``global_setup`` is C++'s alone.
        functions: (name, source_id) of each function of the notebook that the code may call.
        inputs: (name, what it held) of each variable that setup, body and those functions read, after the setup, in
            words: shapes, dtypes, devices, lengths, plain numbers; None where it was not recorded.
        given: the same of what the notebook gave, before the setup; not what the setup, a sweep or a fuzzer made.
        values, given_values: what else it read then, and of what the notebook gave: numbers, texts and containers in
            dicts, classes, modules and instances; see `results.values`. None where it was not recorded.
        first_call: the very first call, compiling and loading included; never a sample.
        warmup_calls: calls until the time and the page faults of a call had settled.
        loop_overhead: what the loop costs a call; it is taken out of the samples.
        page_faults: minor page faults a call, during the samples.
        waited: share of the samples' time in which the host waited for the accelerator; NaN without one.
        span: from the first to the last sample.
        contention: what else wanted the processor while its group was sampled.
        state: in words, the settings of the process that it ran with and that are not the notebook's own, such as
            "grad mode off".
        used_up: (how, name) of what the first call left nothing of for later ones, or did for them; see `used_up`.
        compile_time: that ``torch.compile`` took in its first calls and its warm-up; NaN where it compiled nothing.
        compiled_in_samples: how often it compiled while it was timed.
        recompiled: why, in words, each reason once.
        fell_back: why something of it was not compiled any more, in words; empty where all was, or nothing.
        own_inputs: tensors and arrays that it reads where the baseline reads one as large in other memory.
        place: the engine that measured it; None for this process, or its fresh interpreters.
        trial: what a lever was seen to do besides; None where none was tried.
    """

    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1
    device: str = "cpu"
    axes: tuple[tuple[str, object], ...] = ()
    group: int = 0
    look: Look = "anytime"
    stmt: str = ""
    setup: str = ""
    global_setup: str = ""
    language: Language = "python"
    functions: tuple[tuple[str, str], ...] = ()
    inputs: tuple[tuple[str, str], ...] | None = None
    given: tuple[tuple[str, str], ...] = ()
    values: tuple[Value, ...] | None = None
    given_values: tuple[Value, ...] | None = None
    first_call: float = math.nan
    warmup_calls: int = 0
    loop_overhead: float = 0.0
    page_faults: float = math.nan
    waited: float = math.nan
    span: float = math.nan
    contention: Contention | None = None
    state: tuple[str, ...] = ()
    used_up: tuple[tuple[str, str], ...] = ()
    own_inputs: tuple[str, ...] = ()
    place: EnginePlace | None = None
    trial: Trial | None = None
    compile_time: float = math.nan
    compiled_in_samples: int = 0
    recompiled: tuple[str, ...] = ()
    fell_back: str = ""
    drawn: bool = False

    @property
    def before(self) -> str:
        """All that comes before the statement, by which its source is identified."""
        return self.setup if self.language == "python" else f"// c++\n{self.global_setup}\n\0\n{self.setup}"

    @property
    def torch_fields(self) -> dict[str, Any]:
        """The fields of torch's ``TaskSpec``."""
        names = ("stmt", "setup", "global_setup", "label", "sub_label", "description", "env", "num_threads")
        return {name: getattr(self, name) for name in names}

    def environment_in(self, whole: Environment) -> Environment:
        """Where it was measured: in its engine's environment, else in that of the whole result."""
        return self.place.environment if self.place is not None and self.place.environment is not None else whole

    @property
    def near_loop(self) -> float:
        """Seconds a call below which no verdict is given."""
        return NEAR_LOOP[self.language]

    def waited_for(self, sampled: float) -> float:
        """Wall seconds in which the rounds of its group were sampled, with all that passes between blocks.

        Args:
            sampled: seconds of the group's blocks; of a result that recorded no more (torch's), these.
        """
        turns = self.contention.wall if self.contention is not None else math.nan  # without those of other threads
        known = [seconds for seconds in (turns, self.span) if seconds > 0]  # NaN is not
        return max(sampled, min(known)) if known else sampled
