"""The points that ``--sweep`` and ``--fuzz`` ask for together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torchbench_magic.errors import OptionError

from .fuzzers import fuzz_points
from .sweep import LazyPoints, Point, check_size, sweep_points

__all__ = ["points_of"]


def points_of(
    sweep: Sequence[str], fuzz: str | None, namespace: Mapping[str, Any], *, seed: int | None = None, cuda: bool = False
) -> Sequence[Point]:
    """The points that ``--sweep`` (any number of them) and ``--fuzz`` ask for; none when neither is given.

    With both, every point of the sweep meets every point of the fuzzer.

    Args:
        sweep: texts ``NAME=EXPR``.
        fuzz: ``KIND[:COUNT]`` or ``NAME[:COUNT]``, see `fuzzers.fuzz_points`.
        namespace: the user's names, in which EXPR is evaluated and NAME looked up.
        seed: of the fuzzer.
        cuda: tensors of the op fuzzers are made on the GPU.

    Raises:
        OptionError: what cannot be used, in one line.
    """
    if fuzz is None:
        return sweep_points(sweep, namespace) if sweep else ()
    drawn = fuzz_points(fuzz, namespace, seed=seed, cuda=cuda)
    if not sweep:
        return drawn
    swept = sweep_points(sweep, namespace)
    twice = sorted({name for name, _ in swept[0].axes} & drawn.names)
    if twice:
        raise OptionError(f"--sweep {twice[0]}: the fuzzer draws its own {twice[0]}: rename the axis")
    check_size(len(swept) * len(drawn))
    return _Grid(swept, drawn)


class _Grid(LazyPoints):
    """Every point of a sweep with every point of a fuzzer; the fuzzer's vary fastest, so each is drawn in order."""

    def __init__(self, outer: Sequence[Point], inner: Sequence[Point]) -> None:
        self._outer, self._inner = outer, inner

    def __len__(self) -> int:
        return len(self._outer) * len(self._inner)

    def point(self, at: int) -> Point:
        out, into = divmod(at, len(self._inner))
        outer, inner = self._outer[out], self._inner[into]
        return Point(
            make=lambda: {**outer.make(), **inner.make()},
            axes=outer.axes,
            sub_label=f"{outer.sub_label}, {inner.sub_label}",
            marks=inner.marks,
            drawn=inner.drawn,
        )
