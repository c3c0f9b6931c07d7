"""Declares %timer, %%timer, %tprofile, %%tprofile, %tcompare and %tdoctor: loaded when first used, with no `%load_ext`.

IPython runs this file at each start, in the user's namespace. It imports nothing heavy, overwrites nothing, and
leaves no name behind. TORCHBENCH_MAGIC_AUTOLOAD=0 turns it off.
"""

from __future__ import annotations


def _declare_torchbench_magic() -> None:
    import os
    from importlib.util import find_spec

    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None or os.environ.get("TORCHBENCH_MAGIC_AUTOLOAD") == "0" or find_spec("torchbench_magic") is None:
        return
    from torchbench_magic.notebook import config, startup
    from torchbench_magic.notebook.startup import complete_lines

    for name in ("timer", "tprofile", "tcompare", "tdoctor"):
        if name not in shell.magics_manager.lazy_magics:  # declared by somebody else
            shell.magics_manager.register_lazy(name, "torchbench_magic.notebook.startup")
    config.declare(shell)
    startup.install(shell)
    complete_lines(shell)


_declare_torchbench_magic()
del _declare_torchbench_magic, annotations
