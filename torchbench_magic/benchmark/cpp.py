"""C++ statements of ``Timer(language="c++")``, through the compiler and the cache that ``%%timer --cpp`` uses.

With torch's meaning: ``setup`` and one untimed call before each block, nothing subtracted. What torch compiles anew in
every process is compiled once.
"""

from __future__ import annotations

import contextlib

import torch
from torch.utils.benchmark.utils import timer as torch_timer

from torchbench_magic.core.cpp.build import Meanwhile
from torchbench_magic.core.cpp.snippet import Snippet, compile_snippet

__all__ = ["CPPTimer"]


class CPPTimer(torch_timer.CPPTimer):
    """torch's ``CPPTimer``: the same arguments and refusals.

    Attributes:
        clock: "wall", or "cpu" for the processor time of the process.
    """

    clock = "wall"
    _snippet: Snippet | None = None

    def timeit(self, number: int) -> float:
        """Seconds of ``number`` calls; the first call of all compiles.

        Raises:
            MissingTool: no compiler.
            SnippetError: what does not compile (with its lines), throws or crashes.
        """
        wall, cpu = self.compiled().timeit(number)
        return (cpu if self.clock == "cpu" else wall) / 1e9

    def compiled(self, meanwhile: Meanwhile = contextlib.nullcontext) -> Snippet:
        """The statement, compiled by the first call; ``meanwhile`` makes a context that is open beside the compiler."""
        if self._snippet is None:
            code, threads = (self._stmt, self._setup, self._global_setup), torch.get_num_threads()
            self._snippet = compile_snippet(*code, threads=threads, meanwhile=meanwhile)
        return self._snippet
