"""``torchrun --nproc-per-node N -m torchbench_magic.rankrun --out DIR script.py [args]``: see docs/ranks.md."""

from __future__ import annotations

from torchbench_magic.cluster.rank_under_torchrun import main

if __name__ == "__main__":
    raise SystemExit(main())
