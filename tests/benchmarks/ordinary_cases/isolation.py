"""A body that switches something on or off for the whole process, beside one that does not; locals; the collector."""

from __future__ import annotations

from .case import Case

_NET = "m = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(8)]); x = torch.randn(4, 16)"
_IN_FUNCTION = "a = torch.ones(4_000_000)\ndef g(a):\n    r = {magic}\n    return r\nr = g(torch.ones(3))"
_SMALL = """
outcome = "right" if {seconds} < 0.2e-3 else "wrong"
shows = f"{{{seconds}:.2g}} s"
"""

_MODES = """FAST = False
MODE = "slow"

def work(x):
    return x if FAST or MODE == "fast" else x.exp().exp().exp()

def set_mode(mode):
    global MODE
    MODE = mode
"""
_CONFIG = (
    "class Cfg:\n    fast = False\nclass A: pass\nt = A(); t.cfg = A(); t.cfg.opts = A(); t.cfg.opts.fast = False\n"
    "MODE = 'slow'\ndef set_mode(mode):\n    global MODE\n    MODE = mode\n"
    "def work(x):\n    fast = Cfg.fast or MODE == 'fast' or t.cfg.opts.fast\n"
    "    return x if fast else x.exp().exp().exp()\nx = torch.randn(5000)"
)


def _set(name: str, statement: str, switch: str, call: str = "work(x)", files: dict[str, str] | None = None) -> Case:
    """One section sets a switch that the other one runs with: both would take the fast way, a tie by mistake."""
    return Case(
        name,
        "isolation",
        (
            _CONFIG + ("\nimport modes" if files else ""),
            f"%%timer -t 1 -o r\n# --- slow\n{call}\n# --- fast\n{statement}; {call}",
        ),
        f"""
text, decided = " ".join(outputs[1].split()), r.frame.iloc[1].verdict in ("faster", "slower", "same")
outcome = "said" if not decided and "One alternative changes {switch}, and another" in text else "wrong"
shows = f"{{r.frame.iloc[1].verdict}} {{r.frame.iloc[1].ratio:.2f}}"
""",
        files=files or {},
    )


CASES = [
    _set("a section sets an attribute of a class", "Cfg.fast = True", "Cfg.fast"),
    _set("a section sets an attribute two objects deep", "t.cfg.opts.fast = True", "t.cfg.opts.fast"),
    _set("a section sets a variable through a function", "set_mode('fast')", "MODE"),
    _set(
        "a section sets a module's variable",
        "modes.FAST = 1",
        "modes.FAST",
        call="modes.work(x)",
        files={"modes.py": _MODES},
    ),
    _set(
        "a section calls a module's function that sets its variable",
        "modes.set_mode('fast')",
        "modes.MODE",
        call="modes.work(x)",
        files={"modes.py": _MODES},
    ),
    Case(
        "two sections that each set a class's attribute",
        "isolation",
        (
            _CONFIG,
            "%%timer -t 1 -o r\n# --- slow\nCfg.fast = False; work(x)\n# --- fast\nCfg.fast = True; work(x)",
        ),
        "row = r.frame.iloc[1]\noutcome = 'right' if row.verdict == 'faster' else 'wrong'\nshows = row.verdict",
    ),
    Case(
        "a section switches grad off",
        "isolation",
        (
            _NET,
            "%%timer -t 1 -o r\n# --- grad\nm(x)\n# --- nograd\ntorch.set_grad_enabled(False); m(x)",
            "%%timer -t 1 -o truth\n# --- grad\nm(x)\n# --- nograd\nwith torch.no_grad(): m(x)",
        ),
        """
row, true = r.frame.iloc[1], truth.frame.iloc[1]
outcome = "right" if row.verdict == true.verdict else "said" if "grad mode" in outputs[1] else "wrong"
shows = f"{row.verdict} {row.ratio:.2f}, with a context manager {true.ratio:.2f}"
""",
    ),
    Case(
        "a section sets one thread",
        "isolation",
        (
            "x = torch.randn(512, 512); seen = []; torch.set_num_threads(2)",
            (
                "%%timer -o r\n# --- two\nx @ x; seen.append(torch.get_num_threads())\n"
                "# --- one\ntorch.set_num_threads(1); x @ x"
            ),
        ),
        """
share = seen.count(2) / len(seen)
said = "1 torch thread" in outputs[1]
outcome = "right" if share == 1 and said else "said" if said and r.frame.iloc[1].verdict == "undecided" else "wrong"
shows = f"the other ran {share:.0%} of its calls at its 2 threads"
""",
    ),
    Case(
        "a section sets the default dtype",
        "isolation",
        (
            "n = 20_000",
            (
                "%%timer -t 1 -o r\n# --- single\ntorch.ones(n).exp()\n"
                "# --- double\ntorch.set_default_dtype(torch.float64); torch.ones(n).exp()"
            ),
            (
                "%%timer -t 1 -o truth\n# --- single\ntorch.ones(n).exp()\n"
                "# --- double\ntorch.ones(n, dtype=torch.float64).exp()"
            ),
        ),
        """
row, true = r.frame.iloc[1], truth.frame.iloc[1]
outcome = "right" if row.verdict == true.verdict else "said" if row.verdict == "undecided" else "wrong"
shows = f"{row.verdict} {row.ratio:.2f}, with dtype= {true.ratio:.2f}"
""",
    ),
    Case(
        "a section switches grad off at its thousandth call",
        "isolation",
        (
            _NET + "; calls = []",
            (
                "%%timer -t 1 -o r\n# --- grad\nm(x)\n# --- later\ncalls.append(1)\n"
                "if len(calls) == 1000: torch.set_grad_enabled(False)\nm(x)"
            ),
            "%%timer -t 1 -o truth\n# --- grad\nm(x)\n# --- nograd\nwith torch.no_grad(): m(x)",
        ),
        """
row, true = r.frame.iloc[1], truth.frame.iloc[1]
said = "grad mode" in outputs[1]
outcome = "said" if said else "wrong"
shows = f"{row.verdict} {row.ratio:.2f}, all calls without grad {true.ratio:.2f}"
""",
    ),
    Case(
        "a section adds a warning filter",
        "isolation",
        (
            "import warnings; seen = []",
            (
                "%%timer -t 1\n# --- a\nseen.append(len(warnings.filters))\n"
                "# --- b\nwarnings.simplefilter('ignore', BytesWarning, 7)"
            ),
        ),
        """
alike = len(set(seen)) == 1
outcome = "right" if alike and "warning filters" in outputs[1] else "wrong"
shows = f"a saw {len(set(seen))} states of the filters"
""",
    ),
    Case(
        "the notebook after a section that changed it",
        "isolation",
        (
            "import os, numpy as np\nos.environ.pop('TB', None); here = os.getcwd()",
            (
                "%%timer -q -t 1\n# --- a\n1 + 1\n# --- b\nos.environ['TB'] = '1'; os.chdir('/')\n"
                "np.seterr(all='ignore'); torch.set_default_device('meta')\n"
                "torch.set_autocast_enabled('cpu', True)"
            ),
        ),
        """
left = ["TB" in os.environ, os.getcwd() != here, np.geterr()["over"] == "ignore",
        str(torch.get_default_device()) != "cpu", torch.is_autocast_enabled("cpu")]
outcome = "wrong" if any(left) else "right"
shows = f"{sum(left)} of {len(left)} settings stayed changed"
""",
        peers={
            "timeit": (
                (
                    "import os, numpy as np\nos.environ.pop('TB', None); here = os.getcwd()",
                    (
                        "%%timeit\nos.environ['TB'] = '1'; os.chdir('/')\n"
                        "np.seterr(all='ignore'); torch.set_default_device('meta')\n"
                        "torch.set_autocast_enabled('cpu', True)"
                    ),
                ),
                """
left = ["TB" in os.environ, os.getcwd() != here, np.geterr()["over"] == "ignore",
        str(torch.get_default_device()) != "cpu", torch.is_autocast_enabled("cpu")]
outcome = "wrong" if any(left) else "right"
shows = f"{sum(left)} of {len(left)} settings stayed changed"
""",
            )
        },
    ),
    Case(
        "%timer in a function whose argument has a global's name",
        "locals",
        (_IN_FUNCTION.format(magic="%timer -n 20 -r 5 -q a.sum()"),),
        _SMALL.format(seconds="r.frame.iloc[0]['median']"),
        peers={
            "timeit": (
                (_IN_FUNCTION.format(magic="%timeit -n 20 -r 5 -q -o a.sum()"),),
                _SMALL.format(seconds="r.best"),
            )
        },
    ),
    Case(
        "%tprofile in a function whose argument has a global's name",
        "locals",
        (_IN_FUNCTION.format(magic="%tprofile -q --shapes a.sum()"),),
        """
shapes = set(map(str, r.ops["input_shapes"]))
outcome = "right" if any("3" in s for s in shapes) and not any("4000000" in s for s in shapes) else "wrong"
shows = ", ".join(sorted(shapes))[:60]
""",
    ),
    Case(
        "garbage collector switched on in setup",
        "gc",
        (
            "import gc; on = []",
            "%%timer gc.enable()\non.append(gc.isenabled())",
        ),
        """
share = sum(on[2:]) / len(on[2:])
outcome = "right" if share == 1 and "garbage collector on" in outputs[1] else "wrong"
shows = f"on in {share:.0%} of the calls"
""",
        peers={
            "timeit": (
                ("import gc; on = []", "%%timeit gc.enable()\non.append(gc.isenabled())"),
                """
share = sum(on[2:]) / len(on[2:])
outcome = "right" if share == 1 else "wrong"
shows = f"on in {share:.0%} of the calls"
""",
            )
        },
    ),
]
