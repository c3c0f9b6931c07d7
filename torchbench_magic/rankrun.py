"""``torchrun --nproc-per-node N -m torchbench_magic.rankrun --out DIR script.py [args]``: see docs/ranks.md.

An unchanged script is run as one rank of a job, and recorded.

A rank that fails ends its process group first: the others are freed from the collective in which they wait for it
(else they stand there until the backend's timeout, 30 minutes by default), and write their traces too. SIGTERM, which
torchrun sends to the others when one has failed, ends a script as Ctrl-C does.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import runpy
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from torchbench_magic.cluster.rank_recording import RankRecording
from torchbench_magic.errors import TorchBenchError


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status; what the script raises is raised."""
    parser = argparse.ArgumentParser(
        "torchrun ... -m torchbench_magic.rankrun",
        description="Run a script on every rank and record it: one trace per rank, for torchbench_magic.load_ranks.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for the traces; created if needed"
    )
    parser.add_argument("--no-stack", action="store_true", help="do not record functions: slows Python less")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    given = parser.parse_args(argv)
    if not given.script.is_file():
        parser.error(f"{given.script}: no such file")
    try:
        recording = RankRecording(given.out, stack=not given.no_stack)
        with _recorded(recording):
            _run(given.script, given.arguments)
    except TorchBenchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except BaseException:
        _show_the_scripts_frames()
        raise
    return 0


def _show_the_scripts_frames() -> None:
    """Python prints the frames of the script that raises, as it would without us; the process ends with that."""
    before = sys.excepthook

    def shown(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        while frames is not None and _is_ours(frames.tb_frame.f_code.co_filename):
            frames = frames.tb_next
        before(kind, error.with_traceback(frames), frames)

    sys.excepthook = shown


def _is_ours(file: str) -> bool:
    """Of the frames before the script's: ours, or of `runpy`, which is frozen or a file."""
    return file == "<frozen runpy>" or Path(file).name == "runpy.py" or Path(file) == Path(__file__)


def _run(script: Path, arguments: Sequence[str]) -> None:
    """As ``python script.py arguments`` would."""
    sys.argv = [os.fspath(script), *arguments]
    sys.path[0] = os.fspath(script.resolve().parent)
    runpy.run_path(os.fspath(script), run_name="__main__")


@contextlib.contextmanager
def _recorded(recording: RankRecording) -> Iterator[None]:
    before = _on_sigterm(_end)
    recording.start()
    try:
        with _watched_group(recording):
            yield
    except BaseException as error:
        if not (isinstance(error, SystemExit) and not error.code):
            recording.end_with(error)
            recording.look()
            # before the others are freed, whose errors follow from this one: torchrun names whichever ends first
            sys.stderr.write(f"torchbench_magic: rank {recording.rank} ended with {type(error).__name__}\n")
            sys.stderr.flush()
            _free_the_others()
        raise
    finally:
        held = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was recorded is written, whatever comes
        _on_sigterm(signal.SIG_IGN)
        recording.stop()
        path = recording.write()
        if recording.rank == 0:
            sys.stderr.write(f"torchbench_magic: traces of the ranks are in {path.parent}; see load_ranks\n")
        signal.signal(signal.SIGINT, held)
        _on_sigterm(before)


def _on_sigterm(handler: Any) -> Any:
    return signal.signal(signal.SIGTERM, handler) if hasattr(signal, "SIGTERM") else None


def _end(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _watched_group(recording: RankRecording) -> Iterator[None]:
    """Rank and clock are read as soon as the script has made its process group: it may end it itself."""
    from torch import distributed

    if not distributed.is_available():
        yield
        return
    made = distributed.init_process_group

    @functools.wraps(made)
    def init_process_group(*given: Any, **named: Any) -> Any:
        value = made(*given, **named)
        recording.look()
        return value

    distributed.init_process_group = init_process_group
    try:
        yield
    finally:
        distributed.init_process_group = made


def _free_the_others() -> None:
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):  # it may be broken already
            distributed.destroy_process_group()


if __name__ == "__main__":
    raise SystemExit(main())
