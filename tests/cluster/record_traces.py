"""Record the traces of ``traces/`` anew: ``python tests/cluster/record_traces.py``. They hold no path and no host.

What a trace of a real job holds is kept, but of its Python functions only those of the job, and of arguments only the
shapes: a few tens of KB each.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDED = {"sleep_1_of_3": (3, "sleep", 1), "batch_0_of_2": (2, "batch", 0), "none_of_2": (2, "none", -1)}
"""Folder of ``traces/`` -> ranks, how one is late, which."""


def launched(ranks: int, out: Path, how: str, late: int, runs: int = 1, steps: int = 12) -> None:
    """Run `job` under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    subprocess.run(
        [*command, str(HERE / "job.py"), str(out), how, str(late), str(runs), str(steps)],
        check=True, capture_output=True, timeout=600,
    )  # fmt: skip


def kept(event: dict[str, Any]) -> bool:
    if event.get("cat") == "python_function":
        return event["name"].startswith("job.py(")
    return event.get("cat") not in ("Trace", "fwdbwd") and event.get("ph") != "i"


def scrubbed(document: dict[str, Any]) -> dict[str, Any]:
    for event in filter(kept, document["traceEvents"]):
        if event["ph"] == "X":
            args = event.get("args", {})
            event["args"] = {"Input Dims": args["Input Dims"]} if "Input Dims" in args else {}
    names = ("schemaVersion", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit")
    head = {name: document[name] for name in names} | {"host_name": "host-a"}
    return head | {"traceEvents": [event for event in document["traceEvents"] if kept(event)]}


def main() -> None:
    for name, (ranks, how, late) in RECORDED.items():
        with tempfile.TemporaryDirectory() as folder:
            launched(ranks, Path(folder), how, late)
            for file in sorted((Path(folder) / "0").iterdir()):
                text = json.dumps(scrubbed(json.loads(file.read_text())), separators=(",", ":"))
                target = HERE / "traces" / name / f"{file.name}.gz"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
