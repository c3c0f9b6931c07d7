"""Which levers there are, and those that are asked for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

from torchbench_magic.core.timing.plan import MOST_THREADS
from torchbench_magic.errors import OptionError

from .compile_lever import Compile
from .entered_modes import Autocast, InferenceMode, NoGrad
from .fused_attention import FusedAttention
from .layouts import ChannelsLast, Contiguous
from .lever import Lever, Site
from .optimizers import OptimizerForm
from .process_levers import FlushDenormal, MatmulMedium, Threads

__all__ = ["LEVERS", "check_levers", "levers_asked", "levers_of"]

LEVERS: dict[str, Callable[[], Lever]] = {
    "inference_mode": InferenceMode,
    "no_grad": NoGrad,
    "compile": Compile,
    "bf16": lambda: Autocast("bf16"),
    "fp16": lambda: Autocast("fp16"),
    "channels_last": ChannelsLast,
    "matmul-medium": MatmulMedium,
    "threads": Threads,
    "fused-optimizer": lambda: OptimizerForm("fused-optimizer"),
    "foreach": lambda: OptimizerForm("foreach"),
    "sdpa": FusedAttention,
    "flush-denormal": FlushDenormal,
    "contiguous": Contiguous,
}
"""Name -> lever. ``threads:N`` has a number besides."""

_THREADS = re.compile(r"threads:([0-9]{1,9})")


def check_levers(names: Sequence[str], option: str = "--try") -> None:
    """Refuse names that are no lever.

    Args:
        option: what they were given to, as the reader writes it.

    Raises:
        OptionError: one line, with the nearest lever or all of them.
    """
    for name in names:
        number = _THREADS.fullmatch(name)
        if number is not None and 1 <= int(number[1]) <= MOST_THREADS:
            continue
        if name.startswith("threads:"):
            raise OptionError(
                f"{option}: {name!r}: give a whole number of threads from 1 to {MOST_THREADS}, as in threads:2"
            )
        lever, colon, _ = name.partition(":")
        if colon and lever in LEVERS:
            raise OptionError(f"{option}: {lever} takes no value, and {name!r} has; only threads:N does")
        if name not in LEVERS:
            near = difflib.get_close_matches(name.replace("-", "_"), [each.replace("-", "_") for each in LEVERS], n=1)
            known = next((each for each in LEVERS if near and each.replace("-", "_") == near[0]), None)
            said = f"the nearest is {known}" if known is not None else f"use {', '.join(LEVERS)} or threads:N"
            raise OptionError(f"{option}: no lever is called {name!r}; {said}")
    if len(set(names)) != len(names):
        raise OptionError(f"{option}: a lever is given twice")


def levers_of(asked: bool | str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of an argument ``try_`` that is a list of them, a text with commas, or True for all that apply.

    Raises:
        OptionError: one of them is no lever.
    """
    if asked is None or asked is False:
        return None
    names = () if asked is True else tuple(asked.split(",")) if isinstance(asked, str) else tuple(asked)
    check_levers(names, "try_")
    return names


def levers_asked(names: Sequence[str], site: Site) -> list[Lever]:
    """The levers to try at a cell; without names all but float16 on a CPU, where it is slower than float32."""
    check_levers(names)
    chosen = names or [name for name in LEVERS if name != "fp16" or site.device != "cpu"]
    made: list[Lever] = []
    for name in chosen:
        number = _THREADS.fullmatch(name)
        lever = Threads(int(number[1])) if number is not None else LEVERS[name]()
        made.append(lever.chosen(site) if isinstance(lever, Threads) else lever)
    return made
