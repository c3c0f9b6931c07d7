"""Trees of system files: of a container, of a system that hides /proc, of one that has none."""

from __future__ import annotations

from pathlib import Path

from torchbench_magic.process.machine import SystemFiles


def tree(root: Path, files: dict[str, str]) -> SystemFiles:
    """The files (path -> text) below ``root``."""
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return SystemFiles(str(root))
