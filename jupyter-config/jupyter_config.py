"""Outputs of torchbench_magic are exported to text as their tables, without the scripts that draw them.

Every Jupyter program reads this file of ``<prefix>/etc/jupyter`` at its start. It only names a preprocessor, for the
exporters of nbconvert that take html where they write text; without torchbench_magic it does nothing.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torchbench_magic") is not None:
    for _exporter in ("MarkdownExporter", "ASCIIDocExporter", "RSTExporter"):
        get_config()[_exporter].preprocessors.append("torchbench_magic.show.nbconvert.TablesOnly")  # type: ignore[name-defined]  # noqa: F821
