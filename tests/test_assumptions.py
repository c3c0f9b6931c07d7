"""What is assumed of others stands in docs/assumptions.md, and nowhere else in the package."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import torchbench_magic
from torchbench_magic.errors import MissingTool

PACKAGE = Path(torchbench_magic.__file__).parent
PAGE = PACKAGE.parent / "docs" / "assumptions.md"
PRIVATE_OF_TORCH = re.compile(r"torch(\.\w+)*\.(_C|_(?!_)\w+)")
PRIVATE_OF_IPYTHON = re.compile(r"shell(\.\w+)*\._(?!_)\w+")
# a script's text as well: it is run somewhere else
CTYPES = re.compile(r"^\s*(from|import)\b.*\bctypes\b", re.MULTILINE)
MACHINE_CODE = re.compile(r"PROT_EXEC|PyCFunction_NewEx|\bexecutable\(|xchg")


@cache
def stated() -> Mapping[str, frozenset[str]]:
    """File -> the names that the table says of it; "machine code" is one of them."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition("## What we assume about other software")
    found: dict[str, set[str]] = {}
    for line in table.partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            names = re.findall(r"`([^`]+)`|(machine code)", cells[1])
            found.setdefault(cells[0].strip("`"), set()).update(code or words for code, words in names)
    return {file: frozenset(names) for file, names in found.items()}


def files() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")


def dotted(node: ast.expr) -> str:
    """``torch._C.x`` of its nodes; without what stands before a call or an index."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([*([node.id] if isinstance(node, ast.Name) else []), *names[::-1]])


def private_names(text: str) -> Iterator[str]:
    """Of torch and of IPython's shell: what the code imports, reads, or asks for by its text."""
    if not re.search(r"(torch|shell)\b", text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if PRIVATE_OF_TORCH.match(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name for name in names if PRIVATE_OF_TORCH.match(name))
        elif isinstance(node, ast.Attribute) and (name := dotted(node)):
            if PRIVATE_OF_TORCH.match(name) or PRIVATE_OF_IPYTHON.search(name):
                yield name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and PRIVATE_OF_TORCH.fullmatch(node.value):
            yield node.value


@pytest.mark.parametrize("file", sorted(stated()))
def test_each_file_of_the_list_is_there_and_has_what_is_said_of_it(file: str) -> None:
    text = (PACKAGE / file).read_text(encoding="utf-8")
    for name in stated()[file]:
        assert MACHINE_CODE.search(text) if name == "machine code" else name.split(".")[-1] in text, name


def test_no_other_module_uses_ctypes_or_machine_code() -> None:
    by_ctypes = {file for file, text in files() if CTYPES.search(text)}
    by_code = {file for file, text in files() if MACHINE_CODE.search(text)}
    assert by_ctypes == {file for file, names in stated().items() if "ctypes" in names}
    assert by_code == {file for file, names in stated().items() if "machine code" in names}


def test_no_other_module_takes_a_private_name_of_torch_or_of_ipython() -> None:
    taken = {file: sorted(set(private_names(text))) for file, text in files()}
    assert {file: names for file, names in taken.items() if names and file not in stated()} == {}
    assert sum(map(bool, taken.values())) > 8, "the test sees such names"


def test_what_the_test_looks_for_is_seen() -> None:
    text = "import torch\nfrom torch._C import x\ntorch._C._f()\nself._shell.compile._filename_map\n'torch._dynamo'"
    seen = {"torch._C.x", "torch._C._f", "self._shell.compile._filename_map", "torch._dynamo"}
    assert set(private_names(text)) >= seen
    assert not list(private_names("torch.__version__\nself._torch\nshell.kernel"))


FRAGILE = ("counting/client_requests.py", "profiling/kineto.py")


@pytest.mark.parametrize("room", FRAGILE)
def test_a_fragile_room_says_what_it_assumes_how_that_is_checked_and_what_happens_otherwise(room: str) -> None:
    said = ast.get_docstring(ast.parse((PACKAGE / room).read_text(encoding="utf-8"))) or ""
    assert len(said.splitlines()) >= 20
    assumed = [part for part in said.split("\n\n") if part.startswith("**")]
    assert len(assumed) >= 3
    assert said.count("Checked") >= len(assumed)
    assert "Otherwise" in said


# ---- without a name: what the table says -------------------------------------------------------------------------


def test_without_the_compilers_switch_what_observes_is_not_hidden_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    from torchbench_magic.profiling.recorder import hide_from_compiler

    monkeypatch.setitem(sys.modules, "torch._C._dynamo", ModuleType("torch._C._dynamo"))
    hide_from_compiler()


def test_without_the_compilers_cache_nothing_is_known_of_what_it_gave_up_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchbench_magic.process.compile_watch import refused_before

    for name in ("torch._C._dynamo.eval_frame", "torch._dynamo.config"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert refused_before([private_names.__code__], []) == []


def test_without_its_record_no_code_is_known_to_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchbench_magic.process.dynamo_internals import is_compiled

    monkeypatch.setitem(sys.modules, "torch._dynamo.convert_frame", ModuleType("torch._dynamo.convert_frame"))
    assert not is_compiled(private_names.__code__)


def test_without_torchs_flags_snippets_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from torchbench_magic.cpp import build

    monkeypatch.delattr(torch._C, "_cxx_flags")
    with pytest.raises(MissingTool, match=r"C.. snippets: this torch does not say how it was compiled"):
        build._torch_flags(torch)


def test_without_its_schema_an_operator_is_refused_in_one_line() -> None:
    from torchbench_magic.profiling.op_arguments import ArgumentError, schema_arguments

    with pytest.raises(ArgumentError, match="this torch does not say which arguments it takes"):
        schema_arguments(SimpleNamespace())


def test_without_ipythons_record_of_files_cells_that_ran_before_are_not_known() -> None:
    from torchbench_magic.notebook.cells import Book

    shell = SimpleNamespace(compile=SimpleNamespace(), history_manager=None)
    Book._rebuild(SimpleNamespace(_shell=shell))  # type: ignore[arg-type]
