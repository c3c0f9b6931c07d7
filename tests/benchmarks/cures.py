"""From finding to cure: planted causes, the right line and reason of each. Arguments choose sections (``compile``)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from curing import compiled  # noqa: E402

SECTIONS = {"compile": compiled.main}


def main() -> int:
    chosen = sys.argv[1:] or list(SECTIONS)
    if unknown := [name for name in chosen if name not in SECTIONS]:
        print(f"no such section: {', '.join(unknown)}; there are: {', '.join(SECTIONS)}")
        return 2
    return max(SECTIONS[name]() for name in chosen)


if __name__ == "__main__":
    sys.exit(main())
