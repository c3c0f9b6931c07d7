"""Runs the examples, each in a session of its own and one after the other, and stores what they show in their files.

    python docs/notebooks.py [NAME ...]

Run it on an idle machine. What is stored is for a page that runs no scripts, such as that of a repository: tables as
markdown or text, pictures. A cell keeps a digest of the source that made its outputs, so that a test can tell whether
they are of today's cells.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
SECONDS_PER_CELL = 900
MOST_BYTES = 300_000
BUSY = re.compile("Busy machine|Other processes (?:used|delayed)")


def main(names: list[str]) -> None:
    """Of the notebooks whose names begin so; without names of all. The file of one that fails stays as it is."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        if not names or path.stem.startswith(tuple(names)):
            print(f"{path.name} ...", end=" ", flush=True)
            began = time.monotonic()
            book = run(path)
            written = nbformat.writes(book) + "\n"
            if len(written.encode()) > MOST_BYTES:
                sys.exit(f"{len(written.encode()):,} bytes, more than {MOST_BYTES:,}: show less")
            path.write_text(written, encoding="utf-8")
            busy = sum(bool(BUSY.search(str(cell.get("outputs", "")))) for cell in book.cells)
            told = f", {busy} cells beside other work: run it again on an idle machine" if busy else ""
            print(f"{time.monotonic() - began:.0f} s, {len(written.encode()) / 1000:.0f} kB{told}")


def run(path: Path) -> Any:
    """The notebook with its outputs."""
    book = nbformat.read(path, as_version=4)
    language = dict(book.metadata.language_info)  # nbclient adds the version of Python to it
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = str(Path(folder, "ipython"))  # nobody's settings, and a cluster's profile is gone
        work = Path(folder, "work")
        work.mkdir()
        client = NotebookClient(
            book,
            timeout=SECONDS_PER_CELL,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(work)}},
            record_timing=False,
            store_widget_state=False,
        )
        client.execute()
    book.metadata.language_info = language
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [*stored(cell.outputs)]
            cell.metadata["made_from"] = hashlib.sha256(cell.source.encode()).hexdigest()[:16]
    return book


def stored(outputs: list[Any]) -> Iterator[Any]:
    """Outputs that need no scripts and name no place of this machine."""
    for output in outputs:
        if output.output_type == "stream":
            if output.text.startswith("UsageError"):
                sys.exit(output.text)
            output.text = without_places(output.text)
            yield output
        else:
            data = output.data
            data.pop("application/vnd.jupyter.widget-view+json", None)
            # our markdown is the same table; a page without scripts and styles leaves of the html words of pictures
            if "text/markdown" in data or ("text/plain" in data and "<script" in data.get("text/html", "")):
                data.pop("text/html", None)
            for kind in data:
                if kind.startswith("text/"):
                    data[kind] = without_places(data[kind])
            if data:
                yield output


def without_places(text: str) -> str:
    """Without folders of this machine, and without its name."""
    folders = {sysconfig.get_path("purelib"), sys.prefix, str(ROOT), str(Path.home())} - {"/"}
    places = [rf"{re.escape(tempfile.gettempdir())}/[\w.\\-]+", *map(re.escape, sorted(folders, key=len, reverse=True))]
    text = re.sub("|".join(places), "…", text)
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "localhost", text)


if __name__ == "__main__":
    main(sys.argv[1:])
