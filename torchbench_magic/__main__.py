"""``python -m torchbench_magic demo``: run the quickstart in a session of its own, print its tables, write html.
``python -m torchbench_magic doctor``: print what distorts measurements on this machine now.

The notebook of the demo runs as a user's would: its own session, its own folder, one cell after the other. The written
page holds everything it shows; it fetches nothing.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchbench_magic.errors import InputError, MissingTool, TorchBenchError

from . import __version__

if TYPE_CHECKING:
    from nbformat import NotebookNode

NOTEBOOK = "01_quickstart.ipynb"
SECONDS_PER_CELL = 600
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of the tracebacks that kernels send

# nbconvert's page without the scripts that it would load from the network (require.js, MathJax, mermaid), and with the
# colours of JupyterLab's dark theme for readers whose system is dark.
OFFLINE_PAGE = """{% extends "lab/index.html.j2" %}
{% block html_head_js %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block notebook_css %}
{{ super() }}
<style>:root { color-scheme: light dark }</style>
{% set dark = resources.include_css("static/theme-dark.css") %}
{{ dark | replace("<style", "<style media='(prefers-color-scheme: dark)'", 1) }}
{% endblock %}
"""


class CellFailed(TorchBenchError):
    """A cell of the demo raised; the message is the traceback as the notebook shows it."""

    def __str__(self) -> str:
        return Exception.__str__(self)


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser("python -m torchbench_magic", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"torchbench_magic {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    what = "run a notebook, print its tables, write it as html"
    demo_parser = commands.add_parser("demo", help=what, description=what, allow_abbrev=False)
    demo_parser.add_argument("notebook", type=Path, nargs="?", help=f"default: the quickstart, {NOTEBOOK}")
    demo_parser.add_argument("--output", type=Path, help="folder of the html (default: ./output beside it)")
    what = "print what distorts measurements on this machine now"
    doctor_parser = commands.add_parser("doctor", help=what, description=what, allow_abbrev=False)
    told = "also compare code with itself, to find the smallest difference that can be resolved now"
    doctor_parser.add_argument("--self-test", action="store_true", help=told)
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "doctor":
            return examine(self_test=arguments.self_test)
        demo(arguments.notebook, arguments.output)
    except CellFailed as failed:
        print(_without_torch() or (failed if sys.stderr.isatty() else COLOURS.sub("", str(failed))), file=sys.stderr)
        return 1
    except TorchBenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class _ErrorLine:
    """A progress on standard error: one line that is written over, where somebody reads it."""

    def update(self, done: float, total: float | None, what: str) -> None:
        if sys.stderr.isatty():
            spent = f"{done:.1f} s" if total is None else f"{done:.1f} of {total:.1f} s"
            sys.stderr.write(f"\r\x1b[K{f'measuring {what} · {spent}'[:99]}")
            sys.stderr.flush()

    def end(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def examine(*, self_test: bool = False) -> int:
    """Print what the doctor finds, which may be bad news and is no error: 0. After Ctrl-C, what was found until then,
    and 130, as shells have it.

    Raises:
        MissingTool: there is no torch that can be imported.
    """
    from . import doctor

    line, status = _ErrorLine(), 0
    try:
        found: object = doctor(self_test=self_test, progress=line)
    except KeyboardInterrupt as interrupt:
        found, status = getattr(interrupt, "partial", None), 130
    line.end()
    if found is not None:
        print(found)
    return status


def _without_torch() -> str:
    """What is wrong with torch here, which a cell that failed may have failed for; empty where nothing is."""
    from torchbench_magic.process.require_torch import import_torch

    try:
        import_torch()
    except MissingTool as missing:
        return str(missing)
    return ""


def demo(notebook: Path | None = None, output: Path | None = None) -> Path:
    """Run a notebook, print what its cells show, and write it as html: that file.

    Args:
        notebook: the file to run; None is the quickstart.
        output: the folder to write to; None is ``output`` beside the notebook of a checkout, else the working
            directory.

    Raises:
        CellFailed: a cell raised. What ran before it is printed.
        InputError: no such file, it is no notebook, or its page cannot be written.
        MissingTool: nbclient, nbconvert or ipykernel is not installed.
    """
    path, beside = (notebook, notebook.parent / "output") if notebook else _quickstart()
    if not path.is_file():
        raise InputError(f"{path} does not exist")
    started = time.monotonic()
    executed = _execute(path)
    html = (output or beside) / f"{path.stem}.html"
    try:
        html.parent.mkdir(parents=True, exist_ok=True)
        html.write_text(as_page(executed, path.stem), encoding="utf-8")
    except OSError as problem:
        raise InputError(f"{html}: cannot be written ({problem.strerror or problem})") from None
    print(f"\n{path.name} ran in {time.monotonic() - started:.0f} s. With sortable tables: {_shown(html)}")
    print("To run and change it yourself in JupyterLab: make lab")
    return html


def _quickstart() -> tuple[Path, Path]:
    """The quickstart and the folder its html goes to: in a checkout, or as the wheel installs it."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / "examples" / NOTEBOOK
    if checkout.exists():
        return checkout, checkout.parent / "output"
    return package / "examples" / NOTEBOOK, Path.cwd()


def _shown(path: Path) -> str:
    """A path as short as it can be from here."""
    path = path.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _execute(path: Path) -> NotebookNode:
    """Run every cell in a fresh kernel, printing each cell's first line and what it shows as it comes."""
    try:
        import ipykernel  # noqa: F401  # the kernel's own package, started in another process
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
    except ImportError as error:
        raise _lab_is_missing(error) from error

    try:
        notebook = nbformat.read(path, as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as problem:
        reason = next(iter(str(problem).splitlines()), type(problem).__name__)
        raise InputError(f"{path}: not a readable notebook ({reason[:100]})") from None

    def show_input(cell: NotebookNode, cell_index: int) -> None:
        for line in _heading(cell):
            print(f"\n{line}")
        if cell.cell_type == "code" and cell.source:
            first, *more = cell.source.splitlines()
            print(f"\n> {first}{' …' if more else ''}", flush=True)

    def show_output(cell: NotebookNode, cell_index: int, execute_reply: dict[str, Any]) -> None:
        for text in _texts(cell):
            print(text, flush=True)

    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],  # not its advice on the transport, which is loopback's
        resources={"metadata": {"path": str(path.resolve().parent)}},
        on_cell_start=show_input,
        on_cell_executed=show_output,
    )
    try:
        return client.execute()
    except CellExecutionError as error:
        raise CellFailed(error.traceback) from None


def _heading(cell: NotebookNode) -> list[str]:
    if cell.cell_type != "markdown":
        return []
    return [line for line in cell.source.splitlines() if line.startswith("#")]


def _texts(cell: NotebookNode) -> Iterator[str]:
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text.rstrip()
        elif "text/plain" in output.get("data", {}):
            yield output.data["text/plain"].rstrip()


def as_page(notebook: NotebookNode, title: str) -> str:
    """An executed notebook as one html page that fetches nothing."""
    try:
        from jinja2 import DictLoader
        from nbconvert import HTMLExporter
    except ImportError as error:
        raise _lab_is_missing(error) from error

    exporter = HTMLExporter(
        extra_loaders=[DictLoader({"offline.html.j2": OFFLINE_PAGE})], template_file="offline.html.j2"
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    return str(page)


def _lab_is_missing(error: ImportError) -> MissingTool:
    return MissingTool(f"{error.name} is not installed: python -m pip install 'torchbench_magic[lab]'")


if __name__ == "__main__":
    sys.exit(main())
