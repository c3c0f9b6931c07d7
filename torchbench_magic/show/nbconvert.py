"""What nbconvert makes of our outputs where it writes text: the tables, without the scripts that draw them.

The exporters to markdown, AsciiDoc and reStructuredText take ``text/html`` before ``text/markdown``, and cannot be told
otherwise by an output. ``jupyter-config/jupyter_config.py``, which the wheel installs, names this preprocessor for
them. Without it an exported comparison has 30 KB of script below its table.
"""

from __future__ import annotations

import re
from typing import Any

from nbconvert.preprocessors import Preprocessor

_OURS = re.compile(r'<div id="torchbench-|<script data-(?:needs|brings)=|<div class="torchbench-')
_SCRIPTS = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)


class TablesOnly(Preprocessor):  # type: ignore[misc]  # nbconvert has no annotations
    """Leaves of our outputs their markdown; of those that have none their html without scripts. Others stay."""

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            html = data.get("text/html", "")
            if not isinstance(html, str) or not _OURS.search(html):
                continue
            if "text/markdown" in data:
                del data["text/html"]
            else:
                data["text/html"] = _SCRIPTS.sub("", html)
        return cell, resources
