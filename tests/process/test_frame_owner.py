"""Whose a file is."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import torchbench_magic
from torchbench_magic.process import frame_owner
from torchbench_magic.process.frame_owner import is_library_file, is_library_path, is_users_file


@pytest.fixture
def python_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """A function: as if this Python were installed with its libraries in these folders."""

    def install(stdlib: Path, site: Path) -> None:
        paths = {"stdlib": str(stdlib), "platstdlib": str(stdlib), "purelib": str(site), "platlib": str(site)}
        monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
        _forget()

    yield install
    _forget()


def _forget() -> None:
    frame_owner._folders.cache_clear()
    frame_owner._is_library_folder.cache_clear()
    frame_owner.is_library_file.cache_clear()


def test_the_libraries_of_the_python_that_runs_are_libraries() -> None:
    assert is_library_file(json.__file__)
    assert is_library_file(np.__file__)
    assert is_library_file("<frozen importlib._bootstrap>")
    assert is_library_file(torchbench_magic.__file__)
    assert not is_library_file(__file__)


def test_a_cell_is_the_users_and_so_is_what_text_was_compiled() -> None:
    assert is_users_file("<ipython-input-3-1f0a>")
    assert is_users_file("/tmp/ipykernel_77/1234.py")
    assert is_users_file("<string>")
    assert not is_users_file(None)


def test_an_environment_in_the_folder_of_the_project(tmp_path: Path) -> None:
    assert is_library_file(str(tmp_path / ".venv" / "lib" / "python3.13" / "site-packages" / "torch" / "nn.py"))
    assert is_library_file(str(tmp_path / ".venv" / "lib64" / "python3.13" / "site-packages" / "one.py"))
    assert is_library_file(str(tmp_path / "env" / "Lib" / "site-packages" / "torch" / "nn.py"))
    assert is_users_file(str(tmp_path / "model.py"))


def test_a_conda_environment(tmp_path: Path, python_in) -> None:  # type: ignore[no-untyped-def]
    home = tmp_path / "miniconda3" / "envs" / "torch"
    python_in(home / "lib" / "python3.12", home / "lib" / "python3.12" / "site-packages")
    assert is_library_file(str(home / "lib" / "python3.12" / "json" / "decoder.py"))
    assert is_library_file(str(home / "lib" / "python3.12" / "site-packages" / "numpy" / "linalg.py"))
    assert is_users_file(str(tmp_path / "project" / "model.py"))


def test_a_debian_python_with_its_dist_packages(python_in) -> None:  # type: ignore[no-untyped-def]
    python_in(Path("/usr/lib/python3.11"), Path("/usr/local/lib/python3.11/dist-packages"))
    assert is_library_file("/usr/lib/python3/dist-packages/numpy/linalg.py")
    assert is_library_file("/usr/local/lib/python3.11/dist-packages/torch/nn.py")
    assert is_library_file("/usr/lib/python3.11/json/decoder.py")
    assert is_users_file("/usr/src/app/model.py")


def test_what_is_installed_as_editable_is_the_users(tmp_path: Path, python_in) -> None:  # type: ignore[no-untyped-def]
    site = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    python_in(site.parent, site)
    project = tmp_path / "work" / "mine"
    project.mkdir(parents=True)
    site.mkdir(parents=True)
    (site / "mine").symlink_to(project)  # as `flit install --symlink` does
    assert is_users_file(str(project / "model.py"))
    assert is_users_file(str(site / "mine" / "model.py"))
    assert is_users_file(str(tmp_path / "env" / "src" / "mine" / "model.py"))  # as `pip install -e git+...` does


def test_single_files_that_are_linked_into_site_packages_are_installed(tmp_path: Path) -> None:
    kept, site = tmp_path / "cache" / "archive", tmp_path / "env" / "lib" / "python3.12" / "site-packages" / "one"
    kept.mkdir(parents=True)
    site.mkdir(parents=True)
    (kept / "part.py").touch()
    (site / "part.py").symlink_to(kept / "part.py")  # as `uv --link-mode symlink` does
    assert is_library_file(str(site / "part.py"))


def test_zipped_installs(tmp_path: Path) -> None:
    assert is_library_file(str(tmp_path / "python312.zip" / "json" / "decoder.py"))
    assert is_library_file(str(tmp_path / "site-packages" / "one-1.0-py3.egg" / "one" / "part.py"))
    assert is_users_file(str(tmp_path / "project.zip" / "model.py"))


def test_a_project_in_a_folder_with_a_name_like_that_of_libraries(tmp_path: Path) -> None:
    assert is_users_file(str(tmp_path / "my-site-packages" / "model.py"))
    assert is_users_file(str(tmp_path / "site-packages.old" / "model.py"))
    assert is_users_file(str(tmp_path / "dist-packages2" / "model.py"))
    assert is_users_file(str(tmp_path / "python3.12" / "model.py"))
    assert is_users_file(str(tmp_path / "site-packages.py"))
    assert is_users_file(f"{sysconfig.get_paths()['stdlib']}-mine/model.py")


def test_a_notebook_within_the_prefix_of_its_python(tmp_path: Path, monkeypatch, python_in) -> None:  # type: ignore[no-untyped-def]
    """As `python -m venv .` in the folder of a project, and as `/usr/local/app` in a container."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    python_in(tmp_path / "lib" / "python3.12", tmp_path / "lib" / "python3.12" / "site-packages")
    assert is_users_file(str(tmp_path / "model.py"))
    assert is_users_file(str(tmp_path / "app" / "lib" / "model.py"))
    assert is_library_file(str(tmp_path / "lib" / "python3.12" / "json" / "decoder.py"))


def test_a_folder_that_is_a_link_to_libraries_is_one_of_libraries(tmp_path: Path) -> None:
    (tmp_path / "torch").symlink_to(Path(np.__file__).parent)
    assert is_library_file(str(tmp_path / "torch" / "linalg.py"))


@pytest.mark.parametrize(
    "path",
    [
        "/opt/other/lib/python3.14/json/decoder.py",
        "site-packages/torch/nn.py",
        r"C:\Python313\Lib\site-packages\torch\nn.py",
        "/usr/lib/python3/dist-packages/numpy.py",
    ],
)
def test_a_path_of_another_machine_says_it_by_itself(path: str) -> None:
    assert is_library_path(path)
    assert not is_library_path(path.replace("-packages", "-others").replace("python3.14", "python"))
