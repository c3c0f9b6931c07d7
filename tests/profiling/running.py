"""Runs the truth cases as a notebook would, with a plain torch profile of the same run beside."""

from __future__ import annotations

import asyncio
import importlib
import linecache
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.process.code import compile_body
from torchbench_magic.profiling import recorder as run_module
from torchbench_magic.profiling.kineto import Kineto
from torchbench_magic.profiling.run import Outcome, profile_body, profile_body_async

from .asking import asked
from .cases import Case

__all__ = ["Ran", "awaited", "placed", "plain_calls", "run_case"]


def awaited(run: Coroutine[Any, Any, Outcome]) -> Outcome:
    """What it comes to. No result of a task of ``asyncio.run``: that writes one twice, and the text of a profile costs
    ten times as much as the run."""
    found: list[Outcome] = []

    async def main() -> None:
        found.append(await run)

    asyncio.run(main())
    return found[0]


class KeptKineto(Kineto):
    """Keeps torch's profiler object, so that its own tables of the same run can be read."""

    last: Any = None

    def stop(self) -> Any:
        profiler = self._profiler
        results = super().stop()
        profiler.profiler.kineto_results = results  # which ours has let go of
        KeptKineto.last = profiler
        return results


@dataclass(frozen=True)
class Ran:
    """A case that ran: the outcome, torch's own call counts, and where each file's text came from."""

    outcome: Outcome
    plain: Counter[str]
    place: dict[str, str]


@contextmanager
def _module(case: Case, folder: Path) -> Iterator[None]:
    """``model.py`` in the folder, importable."""
    (folder / "model.py").write_text(case.module)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("model", None)


def run_case(case: Case, folder: Path, **options: Any) -> Ran:
    """Run all cells of ``case``, the last one profiled; ``folder`` is the notebook's."""
    book: dict[str, CellText] = {}
    place = {str(folder / "model.py"): "model.py"}
    for number, text in enumerate(case.cells, 1):
        file = f"/tmp/ipykernel_1/{abs(hash(text))}.py"
        book[file] = CellText.of(text, file, number)
        place[file] = str(number)
        shown = text.replace("%%", "# %%")
        linecache.cache[file] = (len(shown), None, shown.splitlines(True), file)
    *earlier, last = book.values()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with _module(case, folder):
        for cell in earlier:
            compile_body(Body(cell.text, cell.file)).run(namespace)
        magic_line = (
            last.text.splitlines().index(next(x for x in last.text.splitlines() if x.startswith("%%"))) + 1
        )
        source = "\n".join(last.text.splitlines()[magic_line:])
        body = compile_body(Body(source, last.file, magic_line + 1, len(book)))
        wanted = asked(namespace=namespace, cells=book.get, root=folder, **options)
        kept, run_module.Kineto = run_module.Kineto, KeptKineto  # type: ignore[misc]
        try:
            if body.is_coroutine:
                outcome = awaited(profile_body_async(body, wanted))
            else:
                outcome = profile_body(body, wanted)
        finally:
            run_module.Kineto = kept  # type: ignore[misc]
    return Ran(outcome, plain_calls(KeptKineto.last), place)


def plain_calls(profiler: Any) -> Counter[str]:
    """Calls by op as torch's own ``key_averages()`` counts them, without its row for memory."""
    rows = {row.key: row.count for row in profiler.key_averages()}
    return Counter({k: n for k, n in rows.items() if k not in ("[memory]", Kineto.marker)})


def placed(ran: Ran) -> Counter[tuple[str, str, int]]:
    """(op, place, line) -> calls in ``.ops``; place "" and line 0 for no line."""
    found: Counter[tuple[str, str, int]] = Counter()
    ops = ran.outcome.profile.ops
    for op, file, line, calls in zip(
        ops["op"], ops["file"], ops["line"].fillna(0), ops["calls"], strict=True
    ):
        found[op, ran.place.get(file, ""), int(line)] += int(calls)
    return found
