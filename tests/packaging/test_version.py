"""The package, what is built of it, the changelog and the citation have one version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import torchbench_magic

ROOT = Path(__file__).resolve().parents[2]


def test_the_newest_heading_of_the_changelog_is_the_version_of_the_package() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## (.*)$", text, re.MULTILINE)[0]
    assert re.fullmatch(rf"\[{re.escape(torchbench_magic.__version__)}\] - \d{{4}}-\d\d-\d\d", newest), newest


def test_what_is_built_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    source = (ROOT / project["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    assert re.findall(r'^__version__ = "(.*)"$', source, re.MULTILINE) == [torchbench_magic.__version__]


def test_the_citation_has_the_version_and_the_date_of_the_changelog() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = re.findall(r"^(?:version|date-released): (.*)$", citation, re.MULTILINE)
    newest = re.findall(r"^## \[(.*)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    assert tuple(cited) == newest
