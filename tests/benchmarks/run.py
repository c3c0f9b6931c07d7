"""Runs every benchmark of this folder, one after the other, and fails if one promise does not hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NOT_BENCHMARKS = ("record.py", "run.py", "planted_work.py")


def main() -> int:
    scripts = [path for path in sorted(Path(__file__).parent.glob("*.py")) if path.name not in NOT_BENCHMARKS]
    failed = [path.name for path in scripts if subprocess.run([sys.executable, str(path)]).returncode]
    print(f"\n{len(scripts) - len(failed)} of {len(scripts)} benchmarks keep what they promise", end="")
    print(f"; not: {', '.join(failed)}" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
