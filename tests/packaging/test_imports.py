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


def test_importing_the_package_imports_no_ipython() -> None:
    code = "import sys, torchbench_magic; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_every_public_name_resolves() -> None:
    import torchbench_magic

    for name in torchbench_magic.__all__:
        assert getattr(torchbench_magic, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        torchbench_magic.no_such_name  # type: ignore[attr-defined]
