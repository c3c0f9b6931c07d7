"""A body that switches something on or off for the whole process, beside one that does not."""

from __future__ import annotations

from .case import Case

CASES = [
    Case(
        "a section switches grad off",
        "isolation",
        (
            "m = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(8)]); x = torch.randn(4, 16)",
            "%%timer -t 1 -o r\n# --- grad\nm(x)\n# --- nograd\ntorch.set_grad_enabled(False); m(x)",
            "%%timer -t 1 -o truth\n# --- grad\nm(x)\n# --- nograd\nwith torch.no_grad(): m(x)",
        ),
        """
row, true = r.frame.iloc[1], truth.frame.iloc[1]
outcome = "right" if row.verdict == true.verdict else "said" if "grad mode" in outputs[1] else "wrong"
shows = f"{row.verdict} {row.ratio:.2f}, with a context manager {true.ratio:.2f}"
""",
    ),
]
