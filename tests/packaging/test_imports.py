"""What loading costs in modules: none of the heavy ones, until a magic is used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "pandas", "numpy", "ipywidgets", "anywidget", "tabulate")

# What IPython itself has imported is not ours: only what is new after the statement counts.
PROBE = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
{statement}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def newly_imported(statement: str) -> list[str]:
    """The modules that a fresh IPython imports when it runs the statement."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


LOAD = "shell.run_line_magic('load_ext', 'torchbench_magic')"
RELOAD = "shell.run_line_magic('reload_ext', 'torchbench_magic')"
ASK = "shell.run_line_magic('pinfo', '%%timer')"


@pytest.mark.parametrize(
    "statement",
    [
        "import torchbench_magic",
        LOAD,
        f"{LOAD}; {ASK}",
        f"{LOAD}; {RELOAD}",
        "from torchbench_magic.errors import OptionError",
        "import torchbench_magic.__main__",
    ],
)
def test_loading_imports_none_of_the_heavy_packages(statement: str) -> None:
    new = newly_imported(statement)
    assert any(name.startswith("torchbench_magic") for name in new), "the statement did not load us"
    assert not [name for name in new if name.split(".")[0] in HEAVY]


def test_results_are_read_without_torch() -> None:
    """On a machine that has results and no torch, or a broken one."""
    new = newly_imported("from torchbench_magic import Comparison, CountsDiff, Profile, load")
    assert "torch" not in new


def test_importing_the_package_imports_no_ipython() -> None:
    code = "import sys, torchbench_magic; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


ELSEWHERE = """
import os, sys
import pandas, torch
sys.modules |= {"fcntl": None, "resource": None}  # as where there is no POSIX: an import of them fails
del os.memfd_create
from torchbench_magic import compare, profile
from torchbench_magic.counting.client import Server
from torchbench_magic.counting import lease
from torchbench_magic.errors import MissingTool
lease.why_unsupported = lambda: "not here"
made = compare({"a": "sum(range(99))", "b": "len(str(9))"}, min_run_time=0.01, max_run_time=0.01)
assert (made.frame["median"] > 0).all()
assert profile("torch.ones(3) + 1", globals={"torch": torch}).wall_time > 0
try:
    Server().start()
except MissingTool as error:
    print(error)
"""


@pytest.mark.slow
def test_times_and_profiles_come_where_a_system_has_less_than_linux() -> None:
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("not here"), done.stderr


def test_every_public_name_resolves() -> None:
    import torchbench_magic

    for name in torchbench_magic.__all__:
        assert getattr(torchbench_magic, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        torchbench_magic.no_such_name  # type: ignore[attr-defined]
