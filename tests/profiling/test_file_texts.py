"""Which text stands beside the times, and which code gets lines of its own."""

from __future__ import annotations

import importlib
import itertools
import json
import linecache
import os
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import torchbench_magic
from torchbench_magic import profile
from torchbench_magic.cell_body import Body, CellText
from torchbench_magic.errors import OptionError
from torchbench_magic.process.code import compile_body
from torchbench_magic.profiling.file_texts import (
    RecordedFiles,
    Statements,
    read_statements,
    resolve_lines_of,
)
from torchbench_magic.profiling.profile import Profile
from torchbench_magic.profiling.run import Asked, profile_body

# ==== edited modules ==================================================================================================
# Modules that are edited, reloaded, patched by ``%autoreload 2`` or deleted: which text stands beside the times.


_numbers = itertools.count()

OLD = """\
import torch


def f(x):
    y = x.exp()  # the old f
    return y


def g(x):
    z = x.sin()
    return torch.maximum(
        z.cos(),
        z,
    )
"""


class Edited:
    """``model.py`` beside a notebook, imported, and edited as one likes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, f"model_{next(_numbers)}"
        self.file = folder / f"{self.name}.py"
        self.write(OLD)
        self.module: ModuleType = importlib.import_module(self.name)

    def write(self, text: str) -> None:
        self.file.write_text(textwrap.dedent(text))

    def reload(self) -> None:
        importlib.invalidate_caches()
        Path(importlib.util.cache_from_source(str(self.file))).unlink(missing_ok=True)  # of the same second
        importlib.reload(self.module)

    def profiled(self, text: str, /, **names: Any) -> Profile:
        cell = CellText.of(text, "<edited>", 3)
        linecache.cache["<edited>"] = (len(text), None, text.splitlines(True), "<edited>")
        body = compile_body(Body(text, "<edited>"))
        namespace = {"torch": torch, "m": self.module, "x": torch.ones(3), **names}
        cells = {"<edited>": cell}.get
        outcome = profile_body(body, Asked(namespace=namespace, cells=cells, root=self.folder))
        if outcome.error is not None:
            raise outcome.error
        return outcome.profile


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edited]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Edited(tmp_path)
    yield made
    sys.modules.pop(made.name, None)


def beside(made: Profile, op: str) -> list[str]:
    """The text beside the line of an op, as it is shown."""
    ops = made.ops[made.ops["op"] == f"aten::{op}"]
    return [
        f"{line} {made.sources[source].line(line).strip()}"
        for source, line in zip(ops["source_id"], ops["line"], strict=True)
    ]


def kinds(made: Profile) -> list[str]:
    return [doubt.kind for doubt in made.warnings if doubt.kind.startswith("text-")]


def test_after_a_reload_the_text_is_the_one_that_ran_whatever_linecache_holds(edited: Edited) -> None:
    linecache.getlines(str(edited.file))
    edited.write("import torch\n\n\n\ndef f(x):\n    return x.log()\n")
    edited.reload()
    made = edited.profiled("m.f(x)")
    assert beside(made, "log") == ["6 return x.log()"]
    assert kinds(made) == []


def test_a_function_kept_from_before_a_reload_has_no_text(edited: Edited) -> None:
    kept = edited.module.f
    edited.write("import torch\n\n\n# a new line\ndef f(x):\n    return x.log()\n")
    edited.reload()
    made = edited.profiled("m.f(x)\nkept(x)", kept=kept)
    assert beside(made, "log") == ["6 return x.log()"]
    assert beside(made, "exp") == ["5 "]
    assert len({made.ops[made.ops["op"] == op]["source_id"].item() for op in ("aten::log", "aten::exp")}) == 2
    assert kinds(made) == ["text-unknown"]


def test_the_text_of_code_that_was_edited_since_is_not_made_up(edited: Edited) -> None:
    edited.write(OLD.replace("x.exp()  # the old f", "x.log()  # the new f"))
    made = edited.profiled("m.f(x)\nm.g(x)")
    assert beside(made, "exp") == ["5 "], "no line of the new text is given for what the old one did"
    assert beside(made, "sin") == ["10 z = x.sin()"], "a function that is unchanged keeps its text"
    assert kinds(made) == ["text-unknown"]
    assert "`f`" in made.warnings[-1].text
    assert "`g`" not in made.warnings[-1].text
    assert "text not known" in str(made)
    shown = [line for line in str(made).splitlines() if line.split()[:1] == ["5"]]
    assert shown, "the line is in the table, without source"


def test_functions_that_only_moved_stand_where_they_are_now(edited: Edited) -> None:
    edited.write("# one\n# two\n" + OLD.replace("    z = x.sin()", "    # three\n    z = x.sin()"))
    made = edited.profiled("m.g(x)")
    assert beside(made, "sin") == ["13 z = x.sin()"]
    assert beside(made, "cos") == ["15 z.cos(),"]
    assert beside(made, "maximum") == ["14 return torch.maximum("]
    assert kinds(made) == []
    calls = made.lines.set_index("line")["calls"]
    assert {line: int(calls[line]) for line in (13, 14, 15)} == {13: 1, 14: 1, 15: 1}


def test_a_deleted_file_is_said_to_be_unreadable(edited: Edited) -> None:
    edited.file.unlink()
    made = edited.profiled("m.f(x)")
    assert beside(made, "exp") == ["5 "]
    assert "cannot be read" in made.warnings[-1].text


METHODS = """\
import torch

LIMIT = 3


def unchanged(x):
    return x.tan()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        '''What it does,

        in words.
        '''
        # a comment
        y = torch.maximum(
            x.exp(),
            x,
        )
        for _ in range(2):
            y = y.sin()
        return y


class Other(torch.nn.Module):
    def forward(self, x):
        return x.cos()
"""


def test_functions_patched_by_autoreload_stand_on_their_lines(edited: Edited) -> None:
    deduperreload = pytest.importorskip("IPython.extensions.deduperreload.deduperreload")
    edited.write(METHODS)
    edited.reload()
    net, other = edited.module.Net(), edited.module.Other()
    reloader = deduperreload.DeduperReloader()
    reloader.source_by_modname[edited.name] = METHODS
    new = "# on top\n" + METHODS.replace("y.sin()", "y.sinh()").replace("x.cos()", "x.cosh()")
    edited.write(new)
    assert reloader.maybe_reload_module(edited.module), "IPython patches the functions in place"
    assert net.forward.__func__.__code__.co_firstlineno == 2, "with lines of its own"
    made = edited.profiled("net(x)\nother(x)\nm.unchanged(x)", net=net, other=other)
    lines = new.splitlines()
    for op in ("sinh", "cosh", "tan"):
        number = next(n for n, line in enumerate(lines, 1) if f"{op}()" in line)
        assert beside(made, op) == [f"{number} {lines[number - 1].strip()}"]
    assert beside(made, "exp") == beside(made, "maximum") == ["21 y = torch.maximum("], "the statement's first line"
    assert kinds(made) == []
    calls = made.lines.set_index("line")["calls"]
    assert int(calls[26]) == 2


def test_of_methods_alike_that_autoreload_patched_it_is_not_known_which_one_ran(edited: Edited) -> None:
    deduperreload = pytest.importorskip("IPython.extensions.deduperreload.deduperreload")
    method = "    def f(self, x):\n        return x.{}()\n"
    text = f"class A:\n{method}\n\nclass B:\n{method}"
    edited.write(text.format("sin", "exp"))
    edited.reload()
    reloader = deduperreload.DeduperReloader()
    reloader.source_by_modname[edited.name] = text.format("sin", "exp")
    edited.write(text.format("sin", "sin"))
    assert reloader.maybe_reload_module(edited.module)
    made = edited.profiled("m.B().f(x)")
    assert beside(made, "sin") == ["3 "]
    assert kinds(made) == ["text-unknown"]


def test_code_that_an_import_hook_changed_is_taken_as_its_file_has_it() -> None:
    made = profile(lambda: torch.ones(3).exp())  # pytest rewrites this file
    assert kinds(made) == []


# ==== scope ===========================================================================================================
# Which code gets lines of its own.


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


# ==== statement lines =================================================================================================
# What a text says about its lines.


@pytest.mark.parametrize(
    ("text", "what", "lines"),
    [
        ("x = f(\n  1,\n  2)\ny = 3\nif (x and\n    y):\n    pass\n", "first", {1: 1, 2: 1, 3: 1, 5: 5, 6: 5}),
        ("%%tprofile --memory\nx = f(\n  1)\n", "first", {2: 2, 3: 2}),
        ("@a\n@b(\n 1)\ndef f(): pass\n", "definition", {1: 4}),
        ("with a:\n    b\n    c\nd\n", "with_end", {1: 3}),
    ],
)
def test_what_lines_of_a_text_belong_to_is_known(text: str, what: str, lines: dict[int, int]) -> None:
    assert getattr(read_statements(text), what) == lines


def test_the_first_text_that_parses_is_read() -> None:
    assert read_statements("!ls\n", "x = (\n1)\n").first == {1: 1, 2: 1}
    assert read_statements("!ls\n") == Statements()


# ==== library calls ===================================================================================================
# Which library's lines could be opened below the line that has most of the time.


LIBRARY = """
import time


class Trainer:
    def train(self):
        time.sleep(0.02)

    def __call__(self):
        time.sleep(0.02)

    @property
    def trap(self):
        raise AssertionError("a property was asked")


def run():
    time.sleep(0.02)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "trainlib_for_callees.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("trainlib_for_callees")
    sys.modules.pop("trainlib_for_callees", None)


@pytest.mark.parametrize("call", ["trainer.train()", "trainer()", "lib.run()", "run()"])
def test_the_line_that_has_most_of_the_time_names_the_library_that_it_calls(library: ModuleType, call: str) -> None:
    names = {"trainer": library.Trainer(), "lib": library, "run": library.run}
    made = profile(f"# the only line that runs is the second\n{call}\n", globals=names)
    assert [(line, module) for _, line, module in made.libraries] == [(2, "trainlib_for_callees")]


def test_a_library_whose_lines_were_recorded_is_not_named(library: ModuleType) -> None:
    names = {"trainer": library.Trainer()}
    made = profile("trainer.train()\n", globals=names, lines_of=("trainlib_for_callees",))
    assert made.libraries == ()


def test_a_property_is_never_asked(library: ModuleType) -> None:
    made = profile("time.sleep(0.02) or len(str(lambda: trainer.trap.go()))", globals={"trainer": library.Trainer(),
                   "time": __import__("time")})  # fmt: skip
    assert made.libraries == ()
