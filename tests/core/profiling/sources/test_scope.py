"""Which code gets lines of its own."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path

import pytest

import torchbench_magic
from torchbench_magic.cell_text import CellText
from torchbench_magic.errors import OptionError
from torchbench_magic.profiling.file_texts import RecordedFiles, resolve_lines_of


def cells(file: str) -> CellText | None:
    return CellText.of("x", file, 1) if "cell" in file else None


def test_cells_and_files_of_the_folder_are_in(tmp_path: Path) -> None:
    scope = RecordedFiles(tmp_path, cells)
    assert scope("<cell-3>")
    assert scope("/tmp/ipykernel_1/cell.py")
    assert scope(str(tmp_path / "model.py"))
    assert scope(str(tmp_path / "package" / "deep" / "module.py"))


def test_a_files_path_is_looked_up_once_for_all_runs_and_a_relative_one_in_each_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []
    real = os.path.realpath
    file = str(tmp_path / "seen_once.py")
    monkeypatch.setattr(os.path, "realpath", lambda path: (looked_up.append(str(path)), real(path))[1])
    for _ in range(3):
        assert RecordedFiles(tmp_path, cells)(file)
    assert looked_up.count(file) == 1
    monkeypatch.chdir(tmp_path)
    assert RecordedFiles(tmp_path, cells)("beside.py")
    monkeypatch.chdir("/")
    assert not RecordedFiles(tmp_path, cells)("beside.py")


def test_libraries_and_other_files_are_out(tmp_path: Path) -> None:
    scope = RecordedFiles(tmp_path, cells)
    assert not scope("<string>")
    assert not scope("/elsewhere/model.py")
    assert not scope(json.__file__)
    assert not scope(str(tmp_path / "notes.txt"))
    assert not scope(str(tmp_path) + "-other/model.py")
    assert not scope(str(tmp_path / "env" / "lib" / "site-packages" / "torch" / "nn.py"))


def test_an_environment_and_this_package_are_out_even_inside_the_folder() -> None:
    package = Path(torchbench_magic.__file__).parent
    assert not RecordedFiles(package.parent, cells)(str(package / "units.py"))
    everywhere = RecordedFiles("/", cells)
    assert not everywhere(sysconfig.get_paths()["purelib"] + "/x.py")
    assert not everywhere(json.__file__)


def test_files_of_a_project_that_stands_in_the_prefix_of_its_python_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    scope = RecordedFiles(tmp_path, cells)
    assert scope(str(tmp_path / "model.py"))
    assert not scope(str(tmp_path / "lib" / "python3.12" / "site-packages" / "numpy" / "linalg.py"))


def test_a_file_of_a_symlinked_folder_is_in(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert RecordedFiles(tmp_path / "link", cells)(str(tmp_path / "real" / "model.py"))


def test_what_is_asked_for_is_in(tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    asked = resolve_lines_of(["json", "textwrap", str(tmp_path / "helpers")])
    scope = RecordedFiles(tmp_path / "notebook", cells, asked, always={"<body>"})
    assert scope(json.__file__)
    assert scope(json.decoder.__file__)
    assert scope(sysconfig.get_paths()["stdlib"] + "/textwrap.py")
    assert scope(str(tmp_path / "helpers" / "a.py"))
    assert scope("<body>")
    assert not scope(sysconfig.get_paths()["stdlib"] + "/ast.py")


@pytest.mark.parametrize("name", ["no_such_module_here", "no/such/path.py", "math", "", "a b"])
def test_a_name_that_is_no_module_and_no_path_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        resolve_lines_of([name])
    assert "\n" not in str(caught.value)
