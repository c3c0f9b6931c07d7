"""The examples of docs/changes.md, carried out: each block of the page is written into a copy of the package,
where the page says, and what it adds is used there."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "changes.md").read_text(encoding="utf-8")
OPTION, VIEW, CLOCK = "## Add an option", "## Add a view", "## Add a clock"


def part(heading: str) -> str:
    """From the heading to the next one."""
    return re.split(r"^## ", PAGE.split(heading, 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def end_of(tree: ast.Module, name: str, is_field: bool) -> int:
    """The line after which a new member of a class, or a new item of a mapping, stands."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            members = [n for n in node.body if not is_field or isinstance(n, ast.AnnAssign)]
            return members[-1].end_lineno or 0
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return (node.end_lineno or 0) - 1
    raise AssertionError(f"there is no {name}")


def written(text: str, where: str, block: str) -> str:
    """A file's text with a block of the page at the place that the page names."""
    if where == "at the end":
        return f"{text}\n\n{block}"
    if where.startswith("instead of "):
        old = where.removeprefix("instead of ")
        assert text.count(old) == 1, f"{old!r} is not there once"
        return text.replace(old, block.strip())
    lines = text.splitlines()
    at = end_of(ast.parse(text), where.removeprefix("in "), not block.startswith("def "))
    lines[at:at] = ["", *textwrap.indent(block, "    ").splitlines()]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of package and tests with all that the page writes."""
    copy = tmp_path_factory.mktemp("house")
    for folder in ("torchbench_magic", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "browser"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    blocks = re.findall(r"^```py\n# (\S+): ([^\n]+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == PAGE.count("```py\n") == 8
    for file, where, block in blocks:
        path = copy / file
        assert path.exists() != (where == "new"), file
        path.write_text(block if where == "new" else written(path.read_text(encoding="utf-8"), where, block), "utf-8")
    return copy


def run(house: Path, *command: str) -> str:
    env = os.environ | {"PYTHONPATH": str(house)}
    done = subprocess.run([sys.executable, *command], cwd=house, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_new_option_is_read_has_its_effect_and_is_missed_without_it(house: Path) -> None:
    test = "tests/notebook/test_options.py"
    chosen = "an_option_of_the_timer_has_its_effect[note]", "every_declared_option_has_an_effect_below"
    ids = [f"{test}::test_{name}" for name in chosen]
    assert "3 passed" in run(house, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ids)


@pytest.mark.slow
def test_the_new_view_is_drawn_from_the_result_and_stands_in_the_right_room(house: Path) -> None:
    code = """
        import torch, torchbench_magic
        from torchbench_magic.show import html, text
        x = torch.ones(9, 9)
        shown = torchbench_magic.profile("y = x @ x\\ny.exp()", globals={"x": x}).bars()
        assert "<svg" in html.render(shown) and "the lines by their time" in text.render(shown)
    """
    run(house, "-c", textwrap.dedent(code))
    rules = "one_way or circle or known_only or measures"
    run(house, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_layering.py", "-k", rules)


@pytest.mark.slow
def test_the_new_clock_is_taken_by_its_name(house: Path) -> None:
    code = """
        from torchbench_magic.benchmark import Timer
        assert Timer("1 + 1", timer="thread").timeit(10).median > 0
    """
    run(house, "-c", textwrap.dedent(code))


@pytest.mark.parametrize("heading", [OPTION, VIEW, CLOCK])
def test_every_file_and_name_of_an_example_is_there(heading: str) -> None:
    text = part(heading)
    files = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|md))`", text))
    assert files
    homes = {file: [p for p in (ROOT / file, ROOT / "torchbench_magic" / file) if p.exists()] for file in files}
    assert not [file for file, paths in homes.items() if not paths]
    for name, file in re.findall(r"`(\w+)` (?:of|in)\s+`((?:\w+/)+\w+\.py)`", text):
        assert re.search(rf"\b{name}\b", homes[file][0].read_text(encoding="utf-8")), f"{name} in {file}"
