"""Comparisons made by hand, for the tests of what is done with results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from torchbench_magic.process.environment import Environment
from torchbench_magic.timing.comparison import Comparison
from torchbench_magic.timing.samples import Subject

HERE = Environment(
    python="3.11.7", torch="2.13.0", system="Linux x86_64", cpu="A", usable_cores=2, num_threads=1, load=0.5
)


def made(
    *subjects: Subject,
    medians: Sequence[float],
    blocks: int = 20,
    environment: Environment = HERE,
    seed: int = 0,
    **more: object,
) -> Comparison:
    """A comparison whose rows have these medians (seconds a call), each sampled in ``blocks`` blocks of 10 calls."""
    rng = np.random.default_rng(seed)
    frames = []
    for row, median in enumerate(medians):
        jitter = rng.uniform(-0.005, 0.005, blocks)
        times = median * (1 + jitter - np.median(jitter))
        frames.append(
            pd.DataFrame(
                {
                    "round": range(blocks),
                    "measurement": row,
                    "wall": times * 10,
                    "cpu": times * 9,
                    "number": 10,
                    "position": row,
                }
            )
        )
    return Comparison(subjects, pd.concat(frames, ignore_index=True), environment, **more)  # type: ignore[arg-type]


def pair(fast: float, slow: float, *, seed: int = 0, **more: object) -> Comparison:
    """Two alternatives, ``mul`` and ``bmm``, sampled side by side."""
    subjects = (Subject(description="mul", stmt="f(x)"), Subject(description="bmm", stmt="g(x)"))
    return made(*subjects, medians=(fast, slow), seed=seed, **more)  # type: ignore[arg-type]


def lone(median: float, stmt: str = "f(x)", *, seed: int = 0, **names: object) -> Comparison:
    """One statement; ``names`` are fields of its subject, or of the comparison."""
    own = {name: names.pop(name) for name in list(names) if name in Subject.__dataclass_fields__}
    return made(Subject(stmt=stmt, **own), medians=(median,), seed=seed, **names)  # type: ignore[arg-type]
