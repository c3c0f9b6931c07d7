"""What the profiler writes past Python is held back, and nothing else."""

from __future__ import annotations

import os
import tempfile

import pytest

from torchbench_magic.profiling.kineto import profiler_silenced

OF_THE_PROFILER = (
    b"USDT:2026-11-21 20:39:43 8496:8496 SyncActivityProfilerHandler.cpp:52] profiler_start\n",
    b"STAGE:2026-11-21 20:39:43 8496:8496 ActivityProfilerController.cpp:314] Completed Stage: Warm Up\n",
    b"ERROR:2026-11-21 21:30:51 17633:17633 DeviceProperties.cpp:50] gpuGetDeviceCount failed with code 35\n",
    b"[W1121 20:41:02.759891361 profiler_kineto.cpp:942] disableProfiler called but no active session found.\n",
)
OF_OTHERS = (
    b"my own line\n",
    b"[W1121 20:41:02.759891361 TensorShape.cpp:12] mind the shape\n",
    b"ERROR: no such file\n",
    b"without an end",
)


def test_the_profilers_lines_are_dropped_and_all_others_come_through() -> None:
    with tempfile.TemporaryFile() as kept:
        real = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            with profiler_silenced():
                for line in (*OF_THE_PROFILER, *OF_OTHERS):
                    os.write(2, line)
        finally:
            os.dup2(real, 2)
            os.close(real)
        kept.seek(0)
        assert kept.read() == b"".join(OF_OTHERS)


def test_the_descriptor_is_put_back_after_an_error() -> None:
    before = os.fstat(2)
    with pytest.raises(KeyError), profiler_silenced():
        raise KeyError
    after = os.fstat(2)
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
