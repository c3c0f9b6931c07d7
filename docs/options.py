"""Writes ``options.md`` from the declarations of the options, so that the two cannot differ (a test compares them)."""

from __future__ import annotations

from pathlib import Path

from torchbench_magic.notebook.option_parser import option_rows
from torchbench_magic.notebook.options import CompareOptions, DoctorOptions, ProfilerOptions, TimerOptions

MAGICS = (
    ("`%timer STMT`, `%%timer`", TimerOptions),
    ("`%tprofile STMT`, `%%tprofile`", ProfilerOptions),
    ("`%tcompare NAME|PATH ...`", CompareOptions),
    ("`%tdoctor`", DoctorOptions),
)
HEAD = """# Every option

`python docs/options.py` writes this page from the code; `%%timer?`, `%%tprofile?`, `%tcompare?` and `%tdoctor?` print
the same text. Options come before the statement; `--` ends them. Long names cannot be abbreviated. If a setting is
named, `%config TorchBench.NAME` changes the default.
"""


def table(kind: type) -> str:
    """One magic's options as a markdown table."""
    lines = ["| option | what it does | default |", "|---|---|---|"]
    for head, text, default, trait in option_rows(kind):
        setting = f" (setting `{trait}`)" if trait else ""
        lines.append(f"| {cell(f'`{head}`')} | {cell(text)} | {cell(default)}{setting} |")
    return "\n".join(lines)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def document() -> str:
    parts = [f"## {title}\n\n{table(kind)}\n" for title, kind in MAGICS]
    return "\n".join([HEAD, *parts])


if __name__ == "__main__":
    (Path(__file__).parent / "options.md").write_text(document(), encoding="utf-8")
