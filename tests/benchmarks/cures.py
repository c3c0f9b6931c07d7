"""From finding to cure: what was planted, what is said, what is proven. Arguments choose sections (``compile``,
``leaks``, ``loops``, ``try``); without any all run, some 20 minutes on an idle machine."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from cure_cases import compiled, leaks, levers, loops  # noqa: E402


def tried() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder, "parts.jsonl")
        for part in levers.PARTS:
            levers.run_part(part, found)
        return levers.join(found)


SECTIONS = {"compile": compiled.main, "leaks": leaks.main, "loops": loops.main, "try": tried}


def main() -> int:
    chosen = sys.argv[1:] or list(SECTIONS)
    if unknown := [name for name in chosen if name not in SECTIONS]:
        print(f"no such section: {', '.join(unknown)}; there are: {', '.join(SECTIONS)}")
        return 2
    return max(SECTIONS[name]() for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
